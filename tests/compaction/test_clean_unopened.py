"""Batches that the cleaner cannot open, though the disk kept them as they were written."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator

import pytest

from core_log.config import LogConfig
from protocol.records.batch import Record, decode_batch, encode_batch, read_header
from protocol.records.compression import Codec, compress
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.legacy import encode_messages
from tests.compaction.partition import DAY_MS, T0, Pair, Partition, changed

ODD_BYTES = b"\x1f\x8b\x08" + bytes(16)
"""Behind gzip data they make it unreadable, because they begin like another member and are none.
Whoever takes them away can read it again."""

LATER = T0 + 10 * DAY_MS
SHORT_LIVED = LogConfig(segment_bytes=14, delete_retention_ms=DAY_MS)
"""Tombstones are, and segments are not joined, which would make them younger."""


def append_sealed(partition: Partition, *pairs: Pair) -> int:
    """Append a batch with the right checksum that nobody can open. Returns its first offset."""
    base_offset = partition.next_offset
    records = [(T0, key, value, ()) for key, value in pairs]
    batch = encode_batch(records, base_offset=base_offset, codec=Codec.GZIP)
    length = read_header(batch).length + len(ODD_BYTES)
    partition.append_bytes(changed(batch + ODD_BYTES, length=length), base_offset + len(pairs) - 1)
    return base_offset


def all_records(partition: Partition) -> Iterator[Record]:
    """Read all records, also those in batches that cannot be opened."""
    for data, pos, header in partition.batches():
        try:
            yield from decode_batch(data, pos, header)
        except CorruptRecord:
            batch = data[pos : pos + header.size - len(ODD_BYTES)]
            yield from decode_batch(
                changed(batch, length=read_header(batch).length - len(ODD_BYTES))
            )


def table(partition: Partition) -> dict[bytes | None, bytes]:
    """Return the newest values as a reader knows them who can open every batch."""
    newest = {record.key: record.value for record in all_records(partition)}
    return {key: value for key, value in newest.items() if value is not None}


def offsets(partition: Partition) -> list[int]:
    return [record.offset for record in all_records(partition)]


def unopened(partition: Partition) -> tuple[int, int]:
    """Clean; how many batches could not be opened, and where the first of them is."""
    statistics = partition.clean().statistics
    return statistics.unopened_batches, statistics.first_unopened


@pytest.mark.usefixtures("columns")
@pytest.mark.parametrize("place", range(4))
def test_batch_that_cannot_be_opened_stays_and_the_others_are_cleaned(place: int) -> None:
    partition = Partition()
    for number in range(4):
        if number == place:
            sealed = append_sealed(partition, (b"a", b"x"), (b"b", b"x"))
        partition.append((b"a", b"%d" % number), (b"c%d" % number, b"1"))
    partition.roll()

    assert unopened(partition) == (1, sealed)

    header = next(
        batch_header for batch_header in partition.headers() if batch_header.base_offset == sealed
    )
    assert (header.count, header.codec) == (2, Codec.GZIP)
    others = [
        record.key
        for record in all_records(partition)
        if not sealed <= record.offset < header.next_offset
    ]
    assert sorted(key or b"" for key in others) == [b"a", b"c0", b"c1", b"c2", b"c3"]


def test_it_is_copied_byte_for_byte_run_after_run(partition: Partition) -> None:
    append_sealed(partition, (b"a", b"x"))
    partition.roll()
    before = partition.segment(0)
    for _ in range(3):
        partition.append((b"a", b"1"))
        partition.roll()
        assert unopened(partition) == (1, 0)
    assert partition.segment(0).startswith(before)
    assert partition.batch_ends() == [0, 3]


def test_many_of_them_stay_each(partition: Partition) -> None:
    for number in range(50):
        append_sealed(partition, (b"a", b"%d" % number))
        partition.append((b"a", b"x"))
    partition.roll()
    assert unopened(partition) == (50, 0)
    assert offsets(partition) == [*range(0, 100, 2), 99]


# --- tombstones -------------------------------------------------------------------------------


def aged(partition: Partition) -> Partition:
    """Clean all that is written so far, and make it so old that its tombstones may go."""
    partition.config = SHORT_LIVED
    partition.roll(T0)
    partition.clean()
    partition.append((b"z", b"1"))
    partition.roll(LATER)
    partition.clean()
    partition.append((b"z", b"2"))
    partition.roll(LATER)
    return partition


def test_tombstone_behind_a_batch_that_cannot_be_opened_stays(partition: Partition) -> None:
    append_sealed(partition, (b"a", b"x"))
    partition.append((b"a", None))
    aged(partition).clean()
    assert (b"a", None) in [(record.key, record.value) for record in all_records(partition)]
    assert b"a" not in table(partition)


def test_tombstone_before_it_goes(partition: Partition) -> None:
    partition.append((b"a", None))
    append_sealed(partition, (b"b", b"x"))
    aged(partition).clean()
    assert [record.key for record in all_records(partition)] == [b"b", b"z"]


def test_tombstone_behind_an_old_message_that_cannot_be_opened_stays(partition: Partition) -> None:
    partition.append((b"b", b"1"))
    append_sealed_wrapper(partition, (b"a", b"x"))
    partition.append((b"a", None))
    aged(partition).clean()
    assert partition.batch_ends()[:3] == [0, 1, 2]


# --- old messages -----------------------------------------------------------------------------


def append_sealed_wrapper(partition: Partition, *pairs: Pair) -> None:
    """A message of format 1 with the right checksum, whose messages end within one."""
    offset = partition.next_offset
    inner = encode_messages([(offset, T0, *pair, ()) for pair in pairs], 1)
    packed = compress(Codec.GZIP, inner) + ODD_BYTES
    wrapper = encode_messages([(offset, T0, None, packed, ())], 1)
    partition.append_bytes(with_codec(wrapper), offset)


def with_codec(message: bytes) -> bytes:
    """The message as one that says it holds others, in gzip."""
    body = bytearray(message[16:])
    body[1] |= Codec.GZIP
    return message[:12] + zlib.crc32(body).to_bytes(4, "big") + bytes(body)


def test_wrapper_that_cannot_be_opened_stays(partition: Partition) -> None:
    partition.append((b"a", b"1"))
    append_sealed_wrapper(partition, (b"a", b"2"))
    partition.append((b"a", b"3"))
    partition.roll()
    assert unopened(partition) == (1, 1)
    assert partition.batch_ends() == [1, 2]


# --- all kinds --------------------------------------------------------------------------------


@pytest.mark.usefixtures("columns")
@pytest.mark.parametrize("seed", range(20))
def test_who_could_open_them_finds_the_same_as_before(seed: int) -> None:
    rng = random.Random(seed)
    partition = Partition(config=SHORT_LIVED)
    for day in range(rng.randint(2, 8)):
        for _ in range(rng.randint(1, 10)):
            pairs: list[Pair] = [
                (b"%d" % rng.randrange(8), None if rng.random() < 0.4 else b"%d" % day)
                for _ in range(rng.randint(1, 4))
            ]
            if rng.random() < 0.1:
                append_sealed(partition, *pairs)
            else:
                partition.append(*pairs, codec=rng.choice([Codec.NONE, Codec.GZIP]))
        partition.roll(T0 + day * DAY_MS * 2)

        before, written = table(partition), offsets(partition)
        partition.clean()
        assert table(partition) == before
        assert offsets(partition) == sorted(set(offsets(partition)) & set(written))
