"""Appends of a leader: offsets, epochs, timestamps and bounds."""

from __future__ import annotations

import pytest

from core_log.memory_directory import MemoryDirectory
from core_log.storage import Directory
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch import check_crc, decode_batch, encode_batch, read_header
from tests.core_log.log.reading_back import ONE, T0, Open, contents


def test_batches_get_the_next_offsets_and_the_leaders_epoch(
    directory: Directory, open_log: Open
) -> None:
    writer = open_log(directory)
    first = writer.append(b"a", b"b", epoch=4)
    second = writer.append(b"c", epoch=5, base_offset=77)
    assert first == (0, 1, -1, 0)
    assert second == (2, 2, -1, 0)
    data = contents(directory, "00000000000000000000.log")
    header = read_header(data)
    assert (header.base_offset, header.partition_leader_epoch) == (0, 4)
    later = read_header(data, header.size)
    assert (later.base_offset, later.partition_leader_epoch) == (2, 5)
    check_crc(data, header.size, later)
    assert writer.values() == [b"a", b"b", b"c"]
    assert writer.log.leader_epochs.entries == [(4, 0), (5, 2)]


def test_bytes_behind_the_batch_are_not_written(directory: Directory, open_log: Open) -> None:
    writer = open_log(directory)
    batch = encode_batch([(T0, None, b"abc", ())])
    writer.log.append(
        memoryview(batch + b"more"), read_header(batch), leader_epoch=0, now_ms=T0, max_timestamp=T0
    )
    assert writer.log.size == len(batch) == ONE


def test_log_append_time_is_stamped_under_a_new_checksum(
    directory: Directory, open_log: Open
) -> None:
    writer = open_log(directory, message_timestamp_type="LogAppendTime")
    assert writer.append(b"a", timestamp=5).log_append_time_ms == T0
    data = contents(directory, "00000000000000000000.log")
    header = read_header(data)
    assert (header.timestamp_type, header.max_timestamp, header.base_timestamp) == (1, T0, 5)
    assert decode_batch(data)[0].timestamp_ms == T0


def test_wrong_latest_timestamp_of_a_producer_is_corrected(
    directory: Directory, open_log: Open
) -> None:
    writer = open_log(directory)
    batch = encode_batch([(7, None, b"abc", ())])
    writer.log.append(batch, read_header(batch), leader_epoch=0, now_ms=T0, max_timestamp=9)
    data = contents(directory, "00000000000000000000.log")
    assert read_header(data).max_timestamp == 9
    check_crc(data, 0, read_header(data))


def test_batch_larger_than_a_segment_is_refused(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory, segment_bytes=ONE)
    writer.append(b"abc")
    with pytest.raises(ApiError) as raised:
        writer.append(b"abcd")
    assert raised.value.code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert writer.log.log_end_offset == 1
