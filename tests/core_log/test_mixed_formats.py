"""One log with records of every format, after its topic's format changed often."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
from crc32c import crc32c

from core_log.config import LogConfig
from core_log.leader_epochs import LeaderEpochs
from core_log.memory_directory import MemoryDirectory
from core_log.storage import Directory
from protocol.records.batch import decode_records, encode_batch
from protocol.records.compression import Codec
from protocol.records.legacy import encode_messages
from tests.core_log.conftest import T0, Writer

Open = Callable[..., Writer]
OLD, NEW = LogConfig(message_format_version="0.10.2"), LogConfig()
KINDS = [
    (magic, codec)
    for magic, codec in product((0, 1, 2, 1, 0, 2), Codec)
    if magic == 2 or codec != Codec.ZSTD
]
COUNT = 3 * len(KINDS)


def records(first: int, magic: int, codec: Codec) -> bytes:
    """Three records, 10 ms apart, whose values are their offsets."""
    rows: list[Any] = [
        (T0 + 10 * offset, None, b"%d" % offset + b"." * 50, ())
        for offset in range(first, first + 3)
    ]
    if magic == 2:
        return encode_batch(rows, base_offset=first, codec=codec, leader_epoch=0)
    placed = [(first + number, *row) for number, row in enumerate(rows)]
    return encode_messages(placed, magic, codec=codec)


def filled(directory: Directory, open_log: Open, **settings: Any) -> Writer:
    writer = open_log(directory, **settings)
    for number, (magic, codec) in enumerate(KINDS):
        writer.log.append_follower(records(3 * number, magic, codec), now_ms=T0)
    return writer


def has_time() -> Iterator[tuple[int, bool]]:
    """Yield each offset, and whether its record has a timestamp."""
    for number, (magic, _) in enumerate(KINDS):
        for offset in range(3 * number, 3 * number + 3):
            yield offset, magic > 0


@pytest.mark.parametrize("segment_bytes", [2**20, 1000])
def test_every_offset_is_read(directory: Directory, open_log: Open, segment_bytes: int) -> None:
    writer = filled(directory, open_log, segment_bytes=segment_bytes, index_interval_bytes=0)
    assert writer.log.log_end_offset == COUNT
    for offset in range(COUNT):
        assert writer.numbers(offset) == list(range(offset, COUNT))


@pytest.mark.parametrize("segment_bytes", [2**20, 1000])
def test_a_crash_loses_nothing_of_it(
    directory: Directory, open_log: Open, segment_bytes: int
) -> None:
    filled(directory, open_log, segment_bytes=segment_bytes)
    again = open_log(directory, clean=False, segment_bytes=segment_bytes)
    assert again.numbers() == list(range(COUNT))


def test_an_index_of_the_first_offsets_in_compressed_messages_is_believed(
    directory: Directory, open_log: Open, caplog: pytest.LogCaptureFixture
) -> None:
    writer = open_log(directory)
    for first in (0, 3, 6):
        writer.log.append_follower(records(first, 1, Codec.GZIP), now_ms=T0)
    writer.log.close()
    size = directory.size("00000000000000000000.log")
    assert size is not None
    assert size % 3 == 0
    last_at = size // 3 * 2
    index = struct.pack(">iiii", 3, last_at // 2, 6, last_at)
    directory.write_atomic("00000000000000000000.index", index)

    again = open_log(directory)

    assert [again.numbers(offset) for offset in range(9)] == [list(range(n, 9)) for n in range(9)]
    assert caplog.messages == []
    again.log.close()
    assert directory.read("00000000000000000000.index") == index

    untrue = struct.pack(">ii", 5, last_at)
    directory.write_atomic("00000000000000000000.index", untrue)
    assert open_log(directory).numbers(5) == [5, 6, 7, 8]
    assert "the indexes are rebuilt" in caplog.text


@pytest.mark.parametrize("segment_bytes", [2**20, 1000])
def test_the_first_record_with_a_time_not_earlier_is_found(
    memory: MemoryDirectory, open_log: Open, segment_bytes: int
) -> None:
    memory.disk.now_ms = lambda: T0
    writer = filled(memory, open_log, segment_bytes=segment_bytes, index_interval_bytes=0)
    timed = [offset for offset, has in has_time() if has]
    for offset in range(COUNT):
        expected = next((reader for reader in timed if reader >= offset), None)
        result = writer.log.offset_for_timestamp(T0 + 10 * offset)
        assert result == (None if expected is None else (T0 + 10 * expected, expected))


def test_truncation_goes_to_the_batch_whatever_its_format(
    memory: MemoryDirectory, open_log: Open
) -> None:
    for offset in range(0, COUNT, 3):
        writer = filled(memory.child(str(offset)), open_log, segment_bytes=1000)
        writer.log.truncate_to(offset)
        assert writer.numbers() == list(range(offset))
        assert writer.log.log_end_offset == offset


def test_control_batches_are_kept_and_passed_by(directory: Directory, open_log: Open) -> None:
    end_of_transaction = [(T0, b"\0\0\0\1", b"\0\0\0\0\0\0", ())]
    sent = encode_batch(end_of_transaction, base_offset=3, producer_id=7, producer_epoch=0)
    checked = b"\0\x30" + sent[23:]  # transactional, and control
    marker = sent[:17] + crc32c(checked).to_bytes(4) + checked
    writer = open_log(directory)
    writer.log.append_follower(records(0, 2, Codec.NONE), now_ms=T0)
    writer.log.append_follower(marker, now_ms=T0)
    writer.log.append_follower(records(4, 1, Codec.GZIP), now_ms=T0)
    for reader in (writer, open_log(directory, clean=False)):
        result = reader.log.read(0, 10**6, 7)
        assert result is not None
        assert marker in result.read()
        assert [record.offset for record in decode_records(result.read())] == [0, 1, 2, 4, 5, 6]


def test_epochs_are_cleared_when_the_format_goes_below_2(
    memory: MemoryDirectory, open_log: Open, flush: Callable[[Writer], None]
) -> None:
    writer = open_log(memory)
    writer.log.begin_epoch(3)
    writer.append(b"0", epoch=3)
    flush(writer)
    writer.log.update_config(OLD)
    assert writer.log.leader_epochs.entries == []
    assert writer.log.is_flush_due(T0)
    flush(writer)
    assert LeaderEpochs.load(memory).entries == []
    assert not writer.log.is_flush_due(T0)


def test_below_format_2_no_epoch_is_noted(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory)
    writer.log.update_config(OLD)
    writer.log.begin_epoch(4)
    writer.append(b"0", epoch=4)  # as a leader sends that has not heard of the change yet
    writer.log.append_follower(records(1, 2, Codec.NONE), now_ms=T0)
    assert writer.log.leader_epochs.entries == []


def test_epochs_begin_anew_when_the_format_is_2_again(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory)
    writer.append(b"0", epoch=3)
    writer.log.update_config(OLD)
    writer.log.append_follower(records(1, 1, Codec.NONE), now_ms=T0)
    writer.log.update_config(NEW)
    writer.append(b"4", epoch=5)
    assert writer.log.leader_epochs.entries == [(5, 4)]


def test_a_log_of_an_old_format_is_loaded_without_epochs(
    memory: MemoryDirectory, open_log: Open, flush: Callable[[Writer], None]
) -> None:
    writer = open_log(memory)
    writer.append(b"0", epoch=3)
    writer.log.close()
    again = open_log(memory, message_format_version="0.10.2", recovery_point=1)
    assert again.log.leader_epochs.entries == []
    flush(again)
    assert LeaderEpochs.load(memory).entries == []
