"""Logs that are truncated, deleted, moved and reconfigured while they are cleaned."""

from __future__ import annotations

import attrs
import pytest

from core_log.config import LogConfig
from core_log.memory_directory import Disk, MemoryDirectory
from tests.compaction.cleaner.reports import status
from tests.compaction.house import COMPACT, T0, TP, House, Listening, when_swapped

pytestmark = pytest.mark.virtual_time


# ---- what may happen to a log meanwhile


async def check_aborted(house: House, caplog: pytest.LogCaptureFixture, why: str) -> None:
    """Check that a job is aborted and leaves nothing behind."""
    with caplog.at_level("INFO"):
        await house.live(1)
    assert f"aborted: {why}" in caplog.text
    assert "cannot be cleaned" not in caplog.text
    assert status(house).quarantine is None


async def test_a_truncation_while_it_cleans_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    house = House()
    house.write_rounds(4)
    assert isinstance(house.workers, Listening)

    def cut() -> None:
        house.log().truncate_to(5)
        house.log().update_config(attrs.evolve(COMPACT, min_cleanable_dirty_ratio=1.0))
        house.write_rounds(4, keys=5)

    house.workers.before = when_swapped(cut)
    await check_aborted(house, caplog, "it was truncated")
    assert len(house.records()) == 5 + 20
    assert (house.checkpoint(), house.leftovers()) == (None, [])


async def test_retention_while_it_cleans_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    house = House()
    house.write_rounds(8)
    assert isinstance(house.workers, Listening)

    def retain() -> None:
        house.log().increment_log_start_offset(20)
        assert house.log().delete_old_segments(80, house.now_ms()) == 2

    house.workers.before = when_swapped(retain)
    await check_aborted(house, caplog, "its segments have changed")
    await house.live(1)
    assert len(house.records()) == 10
    assert house.leftovers() == []


async def test_a_partition_that_is_deleted_while_it_cleans_is_no_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = House()
    house.write_rounds(4)
    assert isinstance(house.workers, Listening)
    house.workers.before = when_swapped(lambda: house.logs.delete(TP))
    await check_aborted(house, caplog, "it is no longer here")


async def test_a_new_partition_of_the_name_is_not_taken_for_the_old_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = House()
    house.write_rounds(4)
    assert isinstance(house.workers, Listening)

    def again() -> None:
        house.logs.delete(TP)
        house.write(("new", "1"), ("new", "2"))

    house.workers.before = when_swapped(again)
    await check_aborted(house, caplog, "it is no longer here")
    assert house.records() == [("new", "1"), ("new", "2")]
    house.logs.tick(house.now_ms())
    assert house.checkpoint() in (None, 0)


async def test_a_log_that_is_not_to_be_compacted_any_more_is_let_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = House()
    house.write_rounds(4)
    assert isinstance(house.workers, Listening)
    house.workers.before = when_swapped(lambda: house.log().update_config(LogConfig()))
    await check_aborted(house, caplog, "its cleanup.policy is not compact")
    assert len(house.records()) == 40


async def test_a_log_that_is_moved_to_another_directory_is_cleaned_afterwards() -> None:
    disk = Disk()
    here, there = MemoryDirectory("here", disk), MemoryDirectory("there", disk)
    house = House(here, there)
    house.write_rounds(4)
    target = there.path if house.logs.futures.current_dir(TP).path == here.path else here.path
    house.logs.set_target_directory(TP, target)
    future = house.logs.futures.create(TP, COMPACT, lambda: T0)
    assert future is not None
    await house.live(60)
    assert len(house.records()) == 40
    for segment in house.log().segments:
        future.append_follower(segment.log.read(0, segment.size), now_ms=T0)
    house.logs.futures.replace_current(TP)
    future.roll(T0)
    await house.live(60)
    assert len(house.records()) == 10


async def test_what_is_clean_moves_with_the_log() -> None:
    disk = Disk()
    here, there = MemoryDirectory("here", disk), MemoryDirectory("there", disk)
    house = House(here, there)
    house.write_rounds(4)
    await house.live(1)
    target = there.path if house.logs.futures.current_dir(TP).path == here.path else here.path
    house.logs.set_target_directory(TP, target)
    future = house.logs.futures.create(TP, COMPACT, lambda: T0)
    assert future is not None
    for segment in house.log().segments:
        future.append_follower(segment.log.read(0, segment.size), now_ms=T0)
    future.truncate_fully_and_start_at(40)
    house.logs.futures.replace_current(TP)
    house.logs.tick(T0)
    moved = house.logs.dir_of(TP)
    assert moved is not None
    assert (moved.path, moved.cleaned.get(TP), house.checkpoint()) == (target, 40, 40)


async def test_a_truncation_between_two_cleanings_makes_dirty_what_came_since() -> None:
    house = House()
    house.write_rounds(4)
    await house.live(1)
    assert house.checkpoint() == 40
    house.write_rounds(1)
    house.log().truncate_to(35)
    house.write_rounds(3)
    before = house.newest()
    await house.live(1)
    assert house.newest() == before
    assert len(house.records()) == 10
