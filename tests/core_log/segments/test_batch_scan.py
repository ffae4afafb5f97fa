"""Walking batches by their headers."""

from __future__ import annotations

import random
import struct
import sys
import zlib
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType

import pytest

from core_log.memory_directory import MemoryDirectory, MemoryFile
from core_log.segments.batch_scan import (
    RECOVERY_BYTES,
    SCAN_BYTES,
    scan,
    scan_checked,
    scan_produced,
)
from protocol.records.batch import encode_batch
from protocol.records.batch_header import CONTROL, BatchHeader
from protocol.records.checksums import check_entry
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.entry import EntryHeader, read_entry
from tests.compaction.partition import changed


def batch(base_offset: int, count: int = 1, size: int = 10, timestamp: int = 5) -> bytes:
    rows = [(timestamp, None, b"v" * size, ()) for _ in range(count)]
    return encode_batch(rows, base_offset=base_offset, leader_epoch=3)


def legacy(offset: int, magic: int, value: bytes = b"v", timestamp: int = 7) -> bytes:
    body = struct.pack(">BB", magic, 0) + (struct.pack(">q", timestamp) if magic else b"")
    body += struct.pack(">ii", -1, len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(message)) + message


def file_of(directory: MemoryDirectory, *parts: bytes) -> MemoryFile:
    file = directory.open_segment("a.log")
    file.append(parts)
    return file


def test_batches_are_found_with_positions_and_offsets(memory: MemoryDirectory) -> None:
    first, second = batch(100, 3, timestamp=8), batch(105, 2)
    scanned = list(scan(file_of(memory, first, second)))
    assert [(b.position, b.size, b.base_offset, b.last_offset) for b in scanned] == [
        (0, len(first), 100, 102),
        (len(first), len(second), 105, 106),
    ]
    assert (scanned[0].leader_epoch, scanned[0].max_timestamp, scanned[0].magic) == (3, 8, 2)


@pytest.mark.parametrize("size", [1, 100, 5000, SCAN_BYTES - 60, SCAN_BYTES, 3 * SCAN_BYTES])
def test_every_size_of_batch_is_walked(memory: MemoryDirectory, size: int) -> None:
    parts = [batch(offset, size=size) for offset in range(40)]
    file = file_of(memory, *parts)
    assert [b.base_offset for b in scan(file)] == list(range(40))
    assert [b.position for b in scan_checked(file)] == [b.position for b in scan(file)]


@pytest.mark.parametrize("size", [1, 100, SCAN_BYTES - 60, 3 * SCAN_BYTES])
def test_batches_that_name_their_producer_are_found_among_all_others(
    memory: MemoryDirectory, size: int
) -> None:
    rows = [(5, None, b"v" * size, ())] * 2
    parts = [legacy(0, 0), legacy(1, 1), batch(2, size=size)]
    for number in range(20):
        numbered = {"producer_id": number, "producer_epoch": 1, "base_sequence": 9}
        parts += [encode_batch(rows, base_offset=10 + 4 * number, **numbered), legacy(13, 1)]
    scanned = list(scan_produced(file_of(memory, *parts)))
    assert [(h.producer_id, h.last_offset) for h in scanned] == [(n, 11 + 4 * n) for n in range(20)]
    assert {(h.producer_epoch, h.base_sequence) for h in scanned} == {(1, 9)}


@pytest.mark.parametrize("cut", [1, 20, 40, 60, 70])
def test_partial_batch_at_the_end_is_none(memory: MemoryDirectory, cut: int) -> None:
    file = file_of(memory, batch(0), batch(1)[:cut])
    assert [b.base_offset for b in scan(file)] == [0]
    assert [b.base_offset for b in scan_checked(file)] == [0]


@pytest.mark.parametrize(
    "nonsense",
    [
        bytes(100),
        b"\xff" * 100,
        struct.pack(">qi4xb", 1, 48, 2) + bytes(100),
        legacy(1, 1)[:8] + bytes(100),
    ],
    ids=["zeros", "ones", "short header", "size 0"],
)
def test_nonsense_is_corrupt(memory: MemoryDirectory, nonsense: bytes) -> None:
    scanned = scan(file_of(memory, batch(0), nonsense))
    assert next(scanned).base_offset == 0
    with pytest.raises(CorruptRecord):
        next(scanned)


def test_checksum_is_tested_only_when_asked(memory: MemoryDirectory) -> None:
    broken = bytearray(batch(1))
    broken[-2] ^= 1
    file = file_of(memory, batch(0), bytes(broken))
    assert len(list(scan(file))) == 2
    checked = scan_checked(file)
    assert next(checked).base_offset == 0
    with pytest.raises(CorruptRecord, match="CRC"):
        next(checked)


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_the_old_formats_are_walked_and_checked(
    memory: MemoryDirectory, magic: int
) -> None:
    scanned = list(scan_checked(file_of(memory, legacy(4, magic), legacy(9, magic), batch(10))))
    assert [(b.base_offset, b.last_offset, b.magic) for b in scanned] == [
        (4, 4, magic),
        (9, 9, magic),
        (10, 10, 2),
    ]
    assert scanned[0].max_timestamp == (7 if magic else -1)


def test_old_message_with_a_wrong_checksum_is_corrupt(memory: MemoryDirectory) -> None:
    message = bytearray(legacy(4, 1))
    message[-1] ^= 1
    with pytest.raises(CorruptRecord, match="CRC"):
        list(scan_checked(file_of(memory, bytes(message))))


# --- usual batches and others -----------------------------------------------------------------


def log_of_all_kinds(rng: random.Random) -> list[bytes]:
    """Batches of some producers and of none, small and large, and messages of old between them."""
    entries, offset = [], 0
    for _ in range(rng.randint(1, 60)):
        kind, size = rng.choice(["batch"] * 6 + ["old"]), rng.choice([0, 10, 100, 20_000])
        if kind == "old":
            entries.append(legacy(offset, rng.randrange(2), rng.randbytes(size)))
        else:
            numbers = {"producer_id": rng.choice([-1, 7]), "producer_epoch": 0, "base_sequence": 0}
            record = (rng.randrange(100), None, rng.randbytes(size), ())
            entries.append(encode_batch([record], base_offset=offset, leader_epoch=3, **numbers))
        offset += rng.choice([1, 1, 1, 5])
    if rng.random() < 0.3:
        entries.insert(rng.randrange(len(entries)), batch(offset, size=RECOVERY_BYTES))
    return entries


def plainly_read(data: bytes) -> Iterator[tuple[int, EntryHeader]]:
    """Position and header of what is whole and good at the beginning, entry by entry."""
    position = 0
    try:
        while (header := read_entry(data, position, len(data))) is not None:
            check_entry(data, position, header)
            yield position, header
            position += header.size
    except CorruptRecord:
        return


@pytest.mark.parametrize("seed", range(30))
def test_all_kinds_are_found_up_to_the_first_damage(memory: MemoryDirectory, seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(b"".join(log_of_all_kinds(rng)))
    if rng.random() < 0.5:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    if rng.random() < 0.5:
        del data[rng.randrange(len(data)) :]

    scanned = []
    with suppress(CorruptRecord):
        for shallow in scan_checked(file_of(memory, bytes(data))):
            scanned.append((shallow.position, shallow.size, shallow.last_offset, shallow.magic))

    assert scanned == [
        (position, header.size, header.last_offset, header.magic)
        for position, header in plainly_read(bytes(data))
    ]


@pytest.mark.parametrize("seed", range(30))
def test_producers_are_found_among_all_kinds(memory: MemoryDirectory, seed: int) -> None:
    data = b"".join(log_of_all_kinds(random.Random(seed)))
    headers = [header for _, header in plainly_read(data)]
    assert list(scan_produced(file_of(memory, data))) == [
        header for header in headers if isinstance(header, BatchHeader) and header.producer_id >= 0
    ]


def test_marker_is_told_from_data(memory: MemoryDirectory) -> None:
    marker = changed(batch(1), attributes=CONTROL)
    scanned = scan_checked(file_of(memory, batch(0), marker, batch(2)))
    assert [shallow.is_control for shallow in scanned] == [False, True, False]


def test_small_batches_take_few_calls_each(memory: MemoryDirectory) -> None:
    number = 1000
    file = file_of(memory, *(batch(offset, size=100) for offset in range(number)))
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        for _ in scan_checked(file):
            pass
    finally:
        sys.setprofile(None)
    assert calls < 8 * number
