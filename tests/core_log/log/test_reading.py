"""Reads by offset and by time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from core_log.memory_directory import MemoryDirectory
from core_log.storage import Directory
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch import decode_batch, encode_batch, read_header
from tests.core_log.log.reading_back import ONE, T0, Open
from tests.stage.bytecodes import bytecodes_of


@pytest.mark.parametrize("segment_bytes", [300, 1000, 10**6])
def test_every_offset_is_found(directory: Directory, open_log: Open, segment_bytes: int) -> None:
    writer = open_log(directory, segment_bytes=segment_bytes, index_interval_bytes=200)
    writer.append_many(60)
    for offset in range(60):
        fetched = writer.log.read(offset, 1, 60)
        assert read_header(fetched.read()).base_offset == offset
        assert fetched.size == read_header(fetched.read()).size
    assert writer.numbers() == list(range(60))


def test_read_within_a_batch_starts_at_the_batch(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory)
    writer.append(b"a", b"b")
    writer.append(b"c", b"d")
    assert read_header(writer.log.read(3, 1000, 4).read()).base_offset == 2


def test_large_first_batch_is_whole_only_with_min_one(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory)
    writer.append(b"abc")
    writer.append(b"abc")
    assert writer.log.read(0, 5, 2).size == ONE
    assert writer.log.read(0, 0, 2).size == ONE
    assert writer.log.read(0, 5, 2, min_one=False) is None
    assert writer.log.read(0, 0, 2, min_one=False) is None
    assert writer.log.read(0, ONE + 5, 2).size == ONE + 5


def test_nothing_at_or_above_the_end_offset_is_read(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory, segment_bytes=5 * ONE)
    for _ in range(12):
        writer.append(b"abc")
    assert writer.log.read(0, 10**6, 3).size == 3 * ONE
    assert writer.log.read(0, 10**6, 7).size == 5 * ONE
    assert writer.log.read(5, 10**6, 7).size == 2 * ONE
    assert writer.log.read(3, 10**6, 3) is None
    assert writer.log.read(12, 10**6, 12) is None
    assert writer.log.read(11, 10**6, 99).size == ONE


def test_end_offset_within_a_batch_leaves_the_batch_out(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory)
    writer.append(b"abc")
    writer.append(b"abc", b"def")
    assert writer.log.read(0, 10**6, 2).size == ONE


@pytest.mark.parametrize("offset", [-1, 1023, 1026])
def test_offset_out_of_range_is_an_error(
    memory: MemoryDirectory, open_log: Open, offset: int
) -> None:
    writer = open_log(memory, log_start_offset=1024)
    writer.append(b"abc")
    with pytest.raises(ApiError) as raised:
        writer.log.read(offset, 1, 1025)
    assert raised.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert writer.log.read(1025, 1, 1025) is None


def test_reader_that_keeps_up_reads_what_comes_next(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory, segment_bytes=4 * ONE)
    for number in range(20):
        assert writer.log.read(number, 1000, number) is None
        assert writer.log.bytes_between(number, number) == 0
        writer.append(b"abc")
        assert writer.log.bytes_between(number, number + 1) == ONE
        found = writer.log.read(number, 1000, number + 1)
        assert read_header(found.read()).base_offset == number
        assert found.size == ONE


def test_remembered_positions_do_not_outlive_a_truncation(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory)
    for value in (b"abc", b"a-long-value", b"abc"):
        writer.append(value)
    assert writer.log.read(0, 10**6, 2) is not None
    assert writer.log.read(0, 10**6, 3) is not None
    writer.log.truncate_to(1)
    for value in (b"x", b"y", b"z"):
        writer.append(value)
    assert writer.values(2) == [b"y", b"z"]
    assert writer.values(3) == [b"z"]


def test_bytes_between_counts_over_segments(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory, segment_bytes=5 * ONE)
    for _ in range(12):
        writer.append(b"abc")
    assert writer.log.bytes_between(0, 12) == 12 * ONE
    assert writer.log.bytes_between(3, 11) == 8 * ONE
    assert writer.log.bytes_between(4, 99) == 8 * ONE
    assert writer.log.bytes_between(12, 12) == 0
    assert writer.log.bytes_between(50, 60) == 0
    assert 3 * ONE <= writer.log.bytes_between(0, 12, enough=3 * ONE) < 12 * ONE


@pytest.mark.fault("strangers-10")
def test_what_was_counted_is_read_without_a_search(open_log: Open) -> None:
    costs = []
    for is_counted in (True, False):
        writer = open_log(MemoryDirectory())
        writer.append_many(20)
        if is_counted:
            assert writer.log.bytes_between(15, 20) > 0
        costs.append(bytecodes_of(partial(writer.log.read, 15, 10**6, 20)))
    assert 2 * costs[0] < costs[1]


def test_range_survives_the_deletion_of_its_segment(directory: Directory, open_log: Open) -> None:
    writer = open_log(directory, segment_bytes=ONE, retention_ms=10, file_delete_delay_ms=0)
    writer.append(b"abc")
    writer.append(b"def")
    fetched = writer.log.read(0, 1000, 2)
    assert writer.log.delete_old_segments(2, T0 + 11) == 2
    writer.log.tick(T0 + 11)
    assert decode_batch(fetched.read())[0].value == b"abc"


# Timestamps


def test_first_record_not_earlier_is_found(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory, segment_bytes=4 * ONE, index_interval_bytes=0)
    for offset in range(10):
        writer.append(b"abc", timestamp=1000 + 10 * offset)
    for time, found in [(0, 0), (1000, 0), (1001, 1), (1049, 5), (1050, 5), (1090, 9)]:
        assert writer.log.offset_for_timestamp(time) == (1000 + 10 * found, found)
    assert writer.log.offset_for_timestamp(1091) is None


def test_record_within_a_batch_is_found(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory)
    batch = encode_batch([(10, None, b"a", ()), (30, None, b"b", ()), (20, None, b"c", ())])
    writer.log.append(batch, read_header(batch), leader_epoch=0, now_ms=T0, max_timestamp=30)
    assert writer.log.offset_for_timestamp(15) == (30, 1)


@pytest.mark.fault("core-R3")
def test_retention_during_a_look_up_in_a_thread_leaves_no_index_behind(
    directory: Directory, open_log: Open
) -> None:
    """The records that were being searched are gone when the thread is done."""
    writer = open_log(directory, segment_bytes=3 * ONE, retention_ms=10, file_delete_delay_ms=0)
    for time in (100, 100, 90, 120, 110, 95, T0, T0, T0, T0):
        writer.append(b"abc", timestamp=time)
    log = writer.log
    asked = []

    async def in_thread(search: Callable[[], Any]) -> Any:
        found = search()
        if not asked:
            log.delete_old_segments(10, T0 + 5)
            log.tick(T0 + 5)
        asked.append(found)
        return found

    with pytest.raises(StopIteration) as ended:  # it waits for nothing else
        log.offset_for_timestamp_in_thread(110, in_thread).send(None)

    assert ended.value.value == (T0, 6)
    assert asked[0].offset == 3
    bases = {name[:20] for name in directory.files() if name.endswith(".log")}
    assert {n[:20] for n in directory.files() if n.endswith((".index", ".timeindex"))} == bases


def test_timestamps_below_the_log_start_are_not_found(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory)
    for offset in range(4):
        writer.append(b"abc", timestamp=1000 + offset)
    writer.log.increment_log_start_offset(2)
    assert writer.log.offset_for_timestamp(1000) == (1002, 2)


def test_offsets_before_a_time_come_newest_first(memory: MemoryDirectory, open_log: Open) -> None:
    memory.disk.now_ms = lambda: clock[0]
    clock = [100]
    writer = open_log(memory, segment_bytes=2 * ONE)
    for number in range(5):
        clock[0] = 100 + number
        writer.append(b"abc")
    assert writer.log.offsets_before(-1, 10, 500) == [5, 4, 2, 0]
    assert writer.log.offsets_before(-1, 2, 500) == [5, 4]
    assert writer.log.offsets_before(-2, 10, 500) == [0]
    assert writer.log.offsets_before(103, 10, 500) == [2, 0]
    assert writer.log.offsets_before(99, 10, 500) == []
    writer.log.increment_log_start_offset(3)
    assert writer.log.offsets_before(-2, 1, 500) == [3]
