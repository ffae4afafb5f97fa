"""The log of one partition: appends, rolls, reads, truncation."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from core_log.appending.replicated_run import UnexpectedAppendOffset
from core_log.config import LogConfig
from core_log.flush import SYNCED_AHEAD_BYTES
from core_log.log import WRITE_BACK_BYTES
from core_log.memory_directory import MemoryDirectory
from core_log.storage import Directory, StorageFile
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch import check_crc, decode_batch, encode_batch, read_header
from protocol.records.corrupt_record import CorruptRecord

Open = Callable[..., Any]
T0 = 1_000_000
ONE = 61 + 10  # bytes of a batch of one three-byte record


def bases(writer: Any) -> list[int]:
    return [segment.base_offset for segment in writer.log.segments]


def contents(directory: Directory, name: str) -> bytes:
    found = directory.read(name)
    assert found is not None
    return found


def entries(data: bytes, layout: str) -> list[tuple[int, ...]]:
    return list(struct.iter_unpack(layout, data))


# Appending


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


# Rolling


def test_log_rolls_when_a_batch_does_not_fit(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory, segment_bytes=10 * ONE)
    for _ in range(21):
        writer.append(b"abc")
    assert bases(writer) == [0, 10, 20]
    assert [segment.size for segment in writer.log.segments] == [10 * ONE, 10 * ONE, ONE]


def test_time_rolls_by_the_first_batchs_timestamp(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory, segment_ms=1000)
    writer.append(b"a", timestamp=5000)
    writer.now_ms += 10**6
    writer.append(b"b", timestamp=6000)
    assert bases(writer) == [0]
    writer.append(b"c", timestamp=6001)
    assert bases(writer) == [0, 2]


def test_time_rolls_by_the_first_batch_after_a_reopen_too(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory, segment_ms=1000)
    writer.append(b"a", timestamp=5000)
    writer.append(b"b", timestamp=5500)
    writer.log.close()
    again = open_log(memory, segment_ms=1000, recovery_point=2)
    again.append(b"c", timestamp=6001)
    assert bases(again) == [0, 2]


def test_without_timestamps_time_rolls_by_the_clock(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory, segment_ms=1000)
    writer.append(b"a", timestamp=-1)
    writer.now_ms += 1000
    writer.append(b"b", timestamp=-1)
    assert bases(writer) == [0]
    writer.now_ms += 1
    writer.append(b"c", timestamp=-1)
    assert bases(writer) == [0, 2]


def test_empty_segment_never_rolls_by_time(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory, segment_ms=1000)
    writer.now_ms += 10**6
    writer.append(b"a", timestamp=-1)
    assert bases(writer) == [0]
    writer.log.roll(writer.now_ms)
    writer.log.roll(writer.now_ms)
    assert bases(writer) == [0, 1]


def test_log_rolls_when_an_index_is_full(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory, segment_index_bytes=24, index_interval_bytes=0)
    for number in range(8):
        writer.append(b"abc", timestamp=T0 + number)
    # one entry a batch but the first; the time index holds two entries and keeps a slot: one left
    assert bases(writer) == [0, 2, 4, 6]


def test_changed_segment_size_counts_at_once(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory)
    writer.append(b"abc")
    writer.log.update_config(LogConfig(segment_bytes=ONE))
    writer.append(b"abc")
    assert bases(writer) == [0, 1]


def test_jitter_rolls_earlier_by_less_than_its_most(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory, segment_ms=1000, segment_jitter_ms=400)
    writer.append(b"a", timestamp=5000)
    writer.append(b"b", timestamp=5600)
    assert bases(writer) == [0]
    writer.append(b"c", timestamp=6001)
    assert bases(writer) == [0, 2]


def test_a_compacted_log_rolls_when_its_first_record_must_be_compacted(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory, cleanup_policy=("compact",), max_compaction_lag_ms=1000)
    writer.append(b"a", timestamp=5000)
    writer.append(b"b", timestamp=6000)
    assert bases(writer) == [0]
    writer.append(b"c", timestamp=6001)
    assert bases(writer) == [0, 2]


def test_the_lag_of_compaction_rolls_no_log_that_is_not_compacted(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory, max_compaction_lag_ms=1000)
    writer.append(b"a", timestamp=5000)
    writer.append(b"b", timestamp=9000)
    assert bases(writer) == [0]


# Index files


def test_index_entries_come_after_more_than_the_interval(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory, index_interval_bytes=2 * ONE)
    for number in range(8):
        writer.append(b"abc", timestamp=T0 + number)
    writer.log.roll(T0)
    # tested before the append: 1, 2 and 3 batches are behind when the 4th comes
    assert entries(contents(memory, "00000000000000000000.index"), ">ii") == [
        (3, 3 * ONE),
        (6, 6 * ONE),
    ]
    assert entries(contents(memory, "00000000000000000000.timeindex"), ">qi") == [
        (T0 + 3, 3),
        (T0 + 6, 6),
        (T0 + 7, 7),
    ]


def test_indexes_have_full_length_while_active_only(directory: Directory, open_log: Open) -> None:
    writer = open_log(directory)
    writer.append(b"abc")
    name = "00000000000000000000"
    assert directory.size(f"{name}.index") == 10485760
    assert directory.size(f"{name}.timeindex") == 10485756
    writer.log.close()
    assert directory.size(f"{name}.index") == 0
    assert directory.size(f"{name}.timeindex") == 12


# Reading


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


# Truncation


def test_truncate_at_or_behind_the_end_is_nothing(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory)
    writer.append_many(3)
    assert not writer.log.truncate_to(3)
    assert not writer.log.truncate_to(4)
    assert writer.log.log_end_offset == 3


@pytest.mark.parametrize("offset", [0, 1, 7, 20, 29])
def test_truncated_log_is_written_on(directory: Directory, open_log: Open, offset: int) -> None:
    writer = open_log(directory, segment_bytes=1500, index_interval_bytes=300)
    writer.append_many(30)
    assert writer.log.truncate_to(offset)
    assert writer.log.log_end_offset == offset
    assert writer.numbers() == list(range(offset))
    writer.append_many(30)
    assert writer.numbers() == list(range(offset + 30))
    writer.log.close()
    again = open_log(directory, segment_bytes=1500, recovery_point=offset + 30)
    assert again.numbers() == list(range(offset + 30))


def test_truncate_within_a_batch_takes_the_whole_batch(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory)
    writer.append(b"a")
    writer.append(b"b", b"c")
    writer.log.truncate_to(2)
    assert (writer.values(), writer.log.log_end_offset) == ([b"a"], 1)
    writer.append(b"d")
    assert writer.values(1) == [b"d"]


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize(("damaged", "offset"), [(6, 8), (6, 7), (6, 6), (0, 3), (6, 3), (25, 28)])
def test_damage_met_at_a_cut_is_cut_too(
    memory: MemoryDirectory, open_log: Open, damaged: int, offset: int, is_restarted: bool
) -> None:
    """What is missing then the leader has; what lies behind the cut does not matter."""
    writer = open_log(memory, segment_bytes=10 * ONE)
    for _ in range(30):
        writer.append(b"abc")
    writer.log.end_flush(writer.log.begin_flush())
    if is_restarted:
        writer.log.close()
        writer = open_log(memory, recovery_point=30, segment_bytes=10 * ONE)
    segment = writer.log.segments.segments[damaged // 10]
    segment.log.write(damaged % 10 * ONE + 8, (1).to_bytes(4, "big"))  # a size that cannot be
    assert writer.log.truncate_to(offset)
    left = min(damaged, offset)
    assert writer.log.log_end_offset == left
    for _ in range(20):
        writer.append(b"def")
    assert writer.values() == [b"abc"] * left + [b"def"] * 20
    assert writer.log.failure is None


def test_truncation_gives_the_indexes_their_full_length_again(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory, segment_bytes=10 * ONE, segment_index_bytes=1200)
    for _ in range(25):
        writer.append(b"abc")
    writer.log.truncate_to(0)
    assert bases(writer) == [0]
    assert memory.size("00000000000000000000.index") == 1200
    for _ in range(10):
        writer.append(b"abc")
    assert bases(writer) == [0]


def test_truncation_forgets_epochs_and_flushes_behind_it(
    memory: MemoryDirectory, open_log: Open, flush: Callable[[Any], None]
) -> None:
    writer = open_log(memory)
    for epoch in (0, 1, 2):
        writer.append(b"abc", epoch=epoch)
    flush(writer)
    writer.log.truncate_to(1)
    assert writer.log.leader_epochs.entries == [(0, 0)]
    assert writer.log.recovery_point == 1


def test_truncation_below_the_first_segment_starts_anew(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory, log_start_offset=10)
    writer.append_many(3)
    writer.log.truncate_to(5)
    assert (writer.log.log_start_offset, writer.log.log_end_offset, bases(writer)) == (5, 5, [5])
    writer.append_many(2)
    assert writer.numbers() == [5, 6]


def test_log_starts_fully_anew_at_an_offset(directory: Directory, open_log: Open) -> None:
    writer = open_log(directory, segment_bytes=400, file_delete_delay_ms=5)
    writer.append_many(5)
    writer.log.truncate_fully_and_start_at(3)
    writer.append_many(2)
    assert writer.numbers() == [3, 4]
    writer.log.tick(T0 + 5)
    assert {name.partition(".")[0] for name in directory.files()} == {
        "00000000000000000003",
    }
    assert writer.numbers() == [3, 4]


# Followers


def replicated(*starts: int, size: int = 10, epoch: int = 0) -> bytes:
    return b"".join(
        encode_batch([(T0 + start, None, b"%d" % start, ())], base_offset=start, leader_epoch=epoch)
        for start in starts
    )


def test_follower_keeps_every_byte(directory: Directory, open_log: Open) -> None:
    writer = open_log(directory)
    data = replicated(0, 1, epoch=2) + replicated(2, 5, epoch=42)
    assert writer.log.append_follower(data, now_ms=T0) == 6
    assert contents(directory, "00000000000000000000.log") == data
    assert writer.log.leader_epochs.entries == [(2, 0), (42, 2)]
    assert writer.numbers() == [0, 1, 2, 5]


def test_follower_leaves_a_partial_batch_out(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory)
    assert writer.log.append_follower(replicated(0, 1)[:-1], now_ms=T0) == 1
    assert writer.log.append_follower(replicated(1)[:30], now_ms=T0) == 1
    assert writer.log.append_follower(b"", now_ms=T0) == 1


def test_follower_rolls_as_batches_come(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory, segment_bytes=500)
    writer.log.append_follower(replicated(*range(40)), now_ms=T0)
    assert len(bases(writer)) > 4
    assert all(segment.size <= 500 for segment in writer.log.segments)
    assert writer.numbers() == list(range(40))


def test_follower_rolls_where_offsets_jump_too_far(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory)
    far = 2**31 + 200
    writer.log.append_follower(replicated(0) + replicated(far), now_ms=T0)
    assert bases(writer) == [0, far]
    assert writer.numbers() == [0, far]


def test_empty_segment_left_by_a_jump_is_used_again_after_truncation(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory)
    far = 2**31 + 200
    writer.log.append_follower(replicated(far), now_ms=T0)
    assert bases(writer) == [0, far]
    writer.log.truncate_to(0)
    assert bases(writer) == [0]
    assert writer.log.append_follower(replicated(100), now_ms=T0) == 101
    assert bases(writer) == [0]


def test_follower_refuses_offsets_that_go_back(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory)
    with pytest.raises(UnexpectedAppendOffset) as raised:
        writer.log.append_follower(replicated(0, 1, 3, 2, 4), now_ms=T0)
    assert (raised.value.first_offset, raised.value.last_offset) == (2, 2)
    assert writer.log.log_end_offset == 4
    with pytest.raises(UnexpectedAppendOffset):
        writer.log.append_follower(replicated(3), now_ms=T0)


def test_replicated_batch_larger_than_a_segment_gets_one_of_its_own(
    directory: Directory, open_log: Open
) -> None:
    """The leader wrote it when segment.bytes was larger."""
    writer = open_log(directory, segment_bytes=3 * 61)
    large = encode_batch([(T0, None, b"1" + b" " * 500, ())], base_offset=1)
    assert writer.log.append_follower(replicated(0) + large + replicated(2, 3), now_ms=T0) == 4
    assert bases(writer) == [0, 1, 2]
    assert writer.numbers() == [0, 1, 2, 3]
    writer.log.close()
    assert open_log(directory, recovery_point=4, segment_bytes=100).numbers() == [0, 1, 2, 3]


def test_follower_refuses_a_corrupt_batch(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory)
    data = bytearray(replicated(0, 1, 2))
    data[-3] ^= 1
    with pytest.raises(CorruptRecord):
        writer.log.append_follower(data, now_ms=T0)
    assert writer.log.log_end_offset == 2


def test_first_offset_of_an_empty_replica_may_be_any(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory, log_start_offset=7)
    writer.log.append_follower(replicated(9), now_ms=T0)
    assert (writer.log.log_start_offset, writer.log.log_end_offset) == (7, 10)
    assert writer.numbers() == [9]


# Retention


def test_old_segments_go_in_two_steps(directory: Directory, open_log: Open) -> None:
    writer = open_log(directory, segment_bytes=3 * ONE, retention_ms=1000, file_delete_delay_ms=50)
    for number in range(7):
        writer.append(b"abc", timestamp=T0 + 1000 * (number // 3))
    assert writer.log.delete_old_segments(7, T0 + 2001) == 2
    assert (bases(writer), writer.log.log_start_offset) == ([6], 6)
    deleted = [name for name in directory.files() if name.endswith(".deleted")]
    assert deleted[0] == "00000000000000000000.index.deleted"
    assert len(deleted) == 6
    writer.log.tick(T0 + 49)
    assert len([name for name in directory.files() if name.endswith(".deleted")]) == 6
    writer.log.tick(T0 + 50)
    assert [name for name in directory.files() if name.endswith(".deleted")] == []


def test_deletion_of_everything_keeps_the_log_end(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory, segment_bytes=3 * ONE, retention_ms=10)
    for epoch in range(7):
        writer.append(b"abc", epoch=epoch)
    assert writer.log.delete_old_segments(7, T0 + 11) == 3
    assert (bases(writer), writer.log.log_start_offset, writer.log.log_end_offset) == ([7], 7, 7)
    assert writer.log.leader_epochs.entries == [(6, 7)]
    assert writer.log.delete_old_segments(7, T0 + 99) == 0
    assert writer.append(b"abc").base_offset == 7


def test_nothing_above_the_high_watermark_is_deleted(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory, segment_bytes=5 * ONE, retention_ms=10)
    for _ in range(20):
        writer.append(b"abc")
    for high_watermark in range(20):
        writer.log.delete_old_segments(high_watermark, T0 + 1000)
        assert writer.log.log_start_offset <= high_watermark


def test_deleted_records_are_out_of_range_before_their_segment_goes(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory, segment_bytes=5 * ONE, retention_ms=-1)
    for _ in range(15):
        writer.append(b"abc")
    assert writer.log.increment_log_start_offset(6)
    assert not writer.log.increment_log_start_offset(5)
    with pytest.raises(ApiError):
        writer.log.read(5, 1, 15)
    assert writer.log.delete_old_segments(15, T0) == 1
    assert (bases(writer), writer.log.log_start_offset) == ([5, 10], 6)


# Failing disks


def test_full_disk_fails_the_append_and_the_log_but_not_reads(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory)
    writer.append(b"abc")
    memory.disk.free_bytes = ONE - 1
    for _ in range(2):
        with pytest.raises(ApiError) as raised:
            writer.append(b"def")
        assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert memory.size("00000000000000000000.log") == ONE
    memory.disk.free_bytes = None
    with pytest.raises(ApiError):
        writer.append(b"def")
    with pytest.raises(ApiError):
        writer.log.truncate_to(0)
    assert writer.values() == [b"abc"]
    assert not writer.log.is_flush_due(T0 + 10**9)


def test_failed_index_entry_takes_the_batch_back(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory, index_interval_bytes=0)
    writer.append(b"abc")
    memory.disk.free_bytes = ONE + 4
    with pytest.raises(ApiError):
        writer.append(b"def")
    assert memory.size("00000000000000000000.log") == ONE
    assert writer.log.log_end_offset == 1


def test_log_that_failed_serves_all_it_had_after_a_restart(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory, segment_bytes=3 * ONE)
    for _ in range(5):
        writer.append(b"abc")
    memory.disk.free_bytes = 20
    with pytest.raises(ApiError):
        writer.append(b"def")
    memory.disk.free_bytes = None
    again = open_log(memory, clean=False)
    assert again.values() == [b"abc"] * 5
    assert again.append(b"def").base_offset == 5


# Flushing


def test_flush_is_due_by_messages(
    memory: MemoryDirectory, open_log: Open, flush: Callable[[Any], None]
) -> None:
    writer = open_log(memory, flush_messages=2)
    writer.append(b"abc")
    assert not writer.log.is_flush_due(T0)
    writer.append(b"abc")
    assert writer.log.is_flush_due(T0)
    flush(writer)
    assert not writer.log.is_flush_due(T0)
    assert writer.log.recovery_point == 2


@pytest.mark.parametrize("cleanup_policy", [("delete",), ("compact",)])
def test_a_compacted_log_is_flushed_ahead_of_the_sync_at_a_roll(
    memory: MemoryDirectory,
    open_log: Open,
    flush: Callable[[Any], None],
    cleanup_policy: tuple[str, ...],
) -> None:
    writer = open_log(memory, cleanup_policy=cleanup_policy)
    for _ in range(SYNCED_AHEAD_BYTES // 2**20):
        assert not writer.log.is_flush_due(T0)
        writer.append(bytes(2**20))
    assert writer.log.is_flush_due(T0) is ("compact" in cleanup_policy)
    flush(writer)
    assert not writer.log.is_flush_due(T0)


def test_the_disk_begins_with_each_few_megabytes_as_they_come_and_anew_with_each_segment(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory, segment_bytes=3 * WRITE_BACK_BYTES)
    write_backs: list[tuple[int, int]] = []
    segments: list[StorageFile] = []

    def write_back(file: StorageFile, start: int, size: int) -> None:
        segments.append(file)
        write_backs.append((start, size))

    writer.log.write_back = write_back
    for _ in range(20):
        writer.append(bytes(2**20))

    first, second = writer.log.segments
    assert segments == [first.log, first.log, second.log, second.log]
    assert [start for start, _ in write_backs] == [0, write_backs[0][1], 0, write_backs[2][1]]
    assert all(WRITE_BACK_BYTES <= size < WRITE_BACK_BYTES + 2**21 for _, size in write_backs)


def test_flush_is_due_by_the_age_of_the_oldest_unflushed_batch(
    memory: MemoryDirectory, open_log: Open, flush: Callable[[Any], None]
) -> None:
    writer = open_log(memory, flush_ms=100)
    assert not writer.log.is_flush_due(T0 + 1000)
    writer.now_ms = T0 + 1000
    writer.append(b"abc")
    writer.now_ms = T0 + 1090
    writer.append(b"abc")
    assert not writer.log.is_flush_due(T0 + 1099)
    assert writer.log.is_flush_due(T0 + 1100)
    flush(writer)
    assert not writer.log.is_flush_due(T0 + 9999)


def test_rolled_segment_is_due_for_a_flush(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory)
    writer.append(b"abc")
    assert not writer.log.is_flush_due(T0)
    writer.log.roll(T0)
    assert writer.log.is_flush_due(T0)


def test_appends_during_a_flush_are_not_taken_for_flushed(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory, flush_messages=1)
    writer.append(b"abc")
    begun = writer.log.begin_flush()
    assert not writer.log.is_flush_due(T0)
    begun.run()
    writer.append(b"def")
    writer.log.end_flush(begun)
    assert writer.log.recovery_point == 1
    assert writer.log.is_flush_due(T0)


def test_flush_overtaken_by_a_truncation_moves_nothing(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory)
    writer.append_many(4)
    begun = writer.log.begin_flush()
    begun.run()
    writer.log.truncate_to(1)
    writer.append_many(5)
    writer.log.end_flush(begun)
    assert writer.log.recovery_point == 0


def test_closed_log_takes_no_writes(directory: Directory, open_log: Open) -> None:
    writer = open_log(directory)
    writer.append(b"abc")
    writer.log.close()
    assert writer.log.recovery_point == 1
    with pytest.raises(ApiError):
        writer.append(b"def")
