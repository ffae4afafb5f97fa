"""Logs and disks with faults, and a cleaner that is closed."""

from __future__ import annotations

import asyncio
import errno

import pytest

from compaction.clean import Event
from compaction.config import CleanerConfig
from compaction.job import CleaningJob
from compaction.quarantine import FIRST_PAUSE_MS
from compaction.worker_pool import CleaningFailed
from core_log.log import Log
from core_log.segments.file_name import file_name
from tests.compaction.cleaner.reports import status
from tests.compaction.house import OTHER, T0, TP, House, Listening

pytestmark = pytest.mark.virtual_time


# ---- faults


def spoil(log: Log, base_offset: int) -> None:
    """Change a byte of a segment's first record."""
    file = log.directory.open_segment(file_name(base_offset, ".log"))
    file.write(70, bytes([file.read(70, 1)[0] ^ 1]))


async def test_a_damaged_log_is_quarantined_and_the_others_are_cleaned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = House()
    house.write_rounds(4)
    house.write_rounds(4, tp=OTHER)
    spoil(house.log(), 10)
    with caplog.at_level("WARNING"):
        await house.live(1)
    assert (len(house.records(OTHER)), house.log().size) == (10, house.log().size)
    entry = status(house).quarantine
    assert entry is not None
    assert "CRC" in entry.reason
    assert file_name(10, ".log") in entry.reason
    assert (entry.since_ms, entry.next_try_ms) == (T0, T0 + FIRST_PAUSE_MS)
    assert "positions-0 cannot be cleaned, the next try is in 5 s" in caplog.text
    assert house.leftovers() == []
    assert house.log().failure is None


async def test_it_is_tried_again_after_ever_longer_pauses_and_at_last_succeeds() -> None:
    house = House(config=CleanerConfig(backoff_ms=1000))
    house.write_rounds(4)
    spoil(house.log(), 10)
    workers = house.workers
    assert isinstance(workers, Listening)
    house.cleaner.start()
    await asyncio.sleep(40)
    assert len(workers.jobs) == 4  # at 0, 5, 15 and 35 s
    spoil(house.log(), 10)
    await asyncio.sleep(52)
    assert len(house.records()) == 10
    assert status(house).quarantine is None
    await house.cleaner.close()


@pytest.mark.parametrize(
    ("error", "suspects"),
    [
        (CleaningFailed("worker 7 has died: killed by signal 9"), False),
        (CleaningFailed("OSError: no space", errno.ENOSPC), False),
        (CleaningFailed("OSError: bad sector", errno.EIO), True),
        (OSError(errno.EIO, "bad sector"), True),
        (KeyError("a bug"), False),
    ],
)
async def test_whatever_goes_wrong_the_cleaner_lives_on(error: Exception, suspects: bool) -> None:
    house = House()
    house.write_rounds(4)
    house.write_rounds(4, tp=OTHER)
    assert isinstance(house.workers, Listening)
    failures: list[bool] = []

    def fail(job: CleaningJob, event: Event) -> None:
        if job.topic_partition == TP and not failures:
            failures.append(True)
            raise error

    house.workers.before = fail
    house.cleaner.start()
    await asyncio.sleep(1)
    assert house.log().guard.suspects_disk is suspects
    assert (len(house.records()), len(house.records(OTHER))) == (40, 10)
    await asyncio.sleep(30)
    assert len(house.records()) == 10
    await house.cleaner.close()


async def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    house = House()
    for number in range(4):
        house.write((f"only {number}", "1"))
        house.write_rounds(1)
    # Nor has it a snapshot of producers to write.
    flush = house.log().begin_flush()
    flush.run()
    house.log().end_flush(flush)
    house.disk.free_bytes = 10
    await house.live(1)
    assert len(house.records()) == 44
    assert house.leftovers() == []
    assert house.log().failure is None
    house.disk.free_bytes = None
    await asyncio.sleep(10)
    await house.live(1)
    assert len(house.records()) == 14


async def test_close_gives_up_what_is_under_way() -> None:
    house = House()
    house.write_rounds(4)
    house.cleaner.start()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await house.cleaner.close()
    assert len(house.records()) == 40
    assert house.leftovers() == []
