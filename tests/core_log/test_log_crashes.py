"""Crashes that the search at every byte once found, one by one: see tests/crash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core_log.config import LogConfig
from core_log.log_manager import LogManager
from core_log.memory_directory import MemoryDirectory
from tests.core_log.conftest import FLIGHTS_0, T0, Writer

Open = Callable[..., Writer]
SMALL: dict[str, Any] = {"segment_bytes": 400, "index_interval_bytes": 100}


def lose_all_but(directory: MemoryDirectory, *kept: str) -> None:
    """Lose power, but keep what these files hold now, though it was not synced."""
    names = {directory.read(name): name for name in kept}
    directory.lose_power(lambda synced, now: now if now in names else synced)


def test_a_segment_that_lost_its_tail_ends_the_log_though_the_next_one_is_there(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory, **SMALL)
    writer.append_many(4)
    memory.fsync_dir()
    second = f"{writer.log.segments.active.base_offset:020d}.log"
    lose_all_but(memory, second)
    assert open_log(memory, clean=False, **SMALL).numbers() == []


def test_a_compacted_log_begins_no_segment_before_the_last_one_is_on_disk(
    memory: MemoryDirectory, open_log: Open
) -> None:
    settings = {**SMALL, "cleanup_policy": ("compact",)}
    writer = open_log(memory, **settings)
    writer.append_many(4)
    assert len(writer.log.segments) == 2
    memory.fsync_dir()
    memory.lose_power()
    again = open_log(memory, clean=False, **settings)
    assert again.numbers() == list(range(again.log.log_end_offset))
    assert again.log.log_end_offset > 0


def test_what_is_written_behind_a_cut_never_stands_among_what_was_cut(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory)
    writer.append_many(3)
    writer.log.truncate_to(1)
    memory.lose_power()
    assert open_log(memory, clean=False).numbers() == [0]


def test_a_log_cut_within_a_batch_is_no_damaged_one_after_a_crash(
    memory: MemoryDirectory, open_log: Open, flush: Callable[[Writer], None]
) -> None:
    writer = open_log(memory)
    writer.append(b"a")
    writer.append(b"b", b"c", b"d")
    flush(writer)
    writer.log.truncate_to(2)
    recovery_point = writer.log.recovery_point
    again = open_log(memory, clean=False, recovery_point=recovery_point)
    assert (again.log.failure, again.values()) == (None, [b"a"])


@pytest.mark.parametrize("offset", [2, 9])
def test_no_checkpoint_says_that_more_is_flushed_than_a_cut_left(
    memory: MemoryDirectory, flush: Callable[[Writer], None], offset: int
) -> None:
    manager = LogManager([memory], LogConfig(**SMALL), lambda: T0)
    manager.load()
    writer = Writer(manager.get_or_create(FLIGHTS_0, LogConfig(**SMALL)))
    writer.append_many(12)
    flush(writer)
    manager.checkpoint_recovery_points()
    memory.fsync_dir()
    writer.log.truncate_to(offset)
    memory.lose_power()
    again = LogManager([memory], LogConfig(**SMALL), lambda: T0)
    again.load()
    assert again.logs[FLIGHTS_0].failure is None
    assert memory.read("recovery-point-offset-checkpoint") == b"0\n1\nflights 0 %d\n" % offset


def test_leader_epochs_are_on_disk_when_the_recovery_point_moves(
    memory: MemoryDirectory, open_log: Open, flush: Callable[[Writer], None]
) -> None:
    writer = open_log(memory)
    flush(writer)
    writer.append(b"a", epoch=3)
    flush(writer)
    memory.lose_power()
    again = open_log(memory, recovery_point=1, clean=False)
    assert again.log.leader_epochs.entries == [(3, 0)]


def test_a_partition_made_again_inherits_no_recovery_point(
    memory: MemoryDirectory, flush: Callable[[Writer], None]
) -> None:
    config = LogConfig(**SMALL)
    manager = LogManager([memory], config, lambda: T0)
    manager.load()
    writer = Writer(manager.get_or_create(FLIGHTS_0, config))
    writer.append_many(12)
    flush(writer)
    manager.checkpoint_recovery_points()
    memory.fsync_dir()
    manager.delete(FLIGHTS_0)
    manager.get_or_create(FLIGHTS_0, config)
    memory.lose_power()
    assert b"flights" not in (memory.read("recovery-point-offset-checkpoint") or b"")


def test_a_log_start_that_was_checkpointed_stays_though_its_segments_come_back(
    memory: MemoryDirectory, flush: Callable[[Writer], None]
) -> None:
    config = LogConfig(**SMALL)
    manager = LogManager([memory], config, lambda: T0)
    manager.load()
    writer = Writer(manager.get_or_create(FLIGHTS_0, config))
    writer.append_many(12)
    flush(writer)
    start = next(iter(list(writer.log.segments)[1:])).base_offset
    writer.log.increment_log_start_offset(start)
    assert writer.log.delete_old_segments(12, T0) == 1
    manager.checkpoint_recovery_points()
    memory.fsync_dir()
    memory.lose_power()
    again = LogManager([memory], config, lambda: T0)
    again.load()
    assert again.logs[FLIGHTS_0].log_start_offset == start
