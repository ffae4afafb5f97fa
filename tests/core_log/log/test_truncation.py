"""Logs that are truncated, and logs that start anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core_log.memory_directory import MemoryDirectory
from core_log.storage import Directory
from tests.core_log.log.reading_back import ONE, T0, Open, bases


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
