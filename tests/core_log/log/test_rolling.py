"""When a log rolls to another segment, and how its indexes grow."""

from __future__ import annotations

import struct

from core_log.config import LogConfig
from core_log.memory_directory import MemoryDirectory
from core_log.storage import Directory
from tests.core_log.log.reading_back import ONE, T0, Open, bases, contents


def entries(data: bytes, layout: str) -> list[tuple[int, ...]]:
    return list(struct.iter_unpack(layout, data))


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
