"""Cleaning in another process: jobs go there, events come back, and the process may die."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path
from typing import IO

import pytest

from compaction.clean import Event
from compaction.config import CleanerConfig
from compaction.dirtiness import measure_dirtiness
from compaction.frames import LENGTH, Speed, Start, decode, encode
from compaction.job import CLEAN, CleaningJob, CleaningProgress, Finished, GroupCleaned
from compaction.log_facts import create_job, read_facts
from compaction.worker_pool import CleaningFailed, OnEvent, WorkerPool
from core_log.directory import LogDirectory
from core_log.log import Log
from protocol.child_python import python_command, python_environment
from tests.compaction.house import T0, House

FAST = 1e18
SLOW = 0.001
"""Bytes a second: the first pause is of days."""


def dirty_log(tmp_path: Path, rounds: int = 5) -> Log:
    """Write a log on a real disk."""
    house = House(LogDirectory(tmp_path / "data"))
    house.write_rounds(rounds)
    return house.log()


def job_for(log: Log) -> CleaningJob:
    chosen = measure_dirtiness(read_facts(log, log.log_end_offset, None), T0)
    return create_job(log, chosen, CleanerConfig(), T0)


def swapping(log: Log, events: list[Event]) -> OnEvent:
    """Apply events as a broker does."""

    async def on_event(event: Event) -> None:
        events.append(event)
        if isinstance(event, GroupCleaned):
            assert log.replace_segments(event.base_offset, event.replaced, truncations=0)

    return on_event


async def ignored(event: Event) -> None: ...


def leftovers(log: Log) -> list[str]:
    return [name for name in log.directory.files() if name.endswith((".cleaned", ".swap"))]


async def test_a_job_is_done_in_another_process_and_the_next_one_in_the_same(
    tmp_path: Path,
) -> None:
    log = dirty_log(tmp_path)
    pool, events = WorkerPool(), list[Event]()
    await pool.run(job_for(log), log.directory, swapping(log, events))
    (worker,) = pool._idle
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert (finished.end_offset, finished.statistics.messages_written) == (50, 10)
    assert finished.statistics.clean_ms >= 0
    assert log.segments.first.size == 0
    await pool.run(job_for(log), log.directory, swapping(log, []))
    assert pool._idle == [worker]
    assert worker.pid != os.getpid()
    await pool.end_idle()
    assert worker.returncode == 0
    assert leftovers(log) == []


async def test_a_fault_is_told_and_the_worker_lives_on(tmp_path: Path) -> None:
    log = dirty_log(tmp_path)
    job = job_for(log)
    log.directory.open_segment(f"{10:020d}.log").write(70, b"\xff")
    pool = WorkerPool()
    with pytest.raises(CleaningFailed, match=r"CorruptRecord: 0+10\.log, position 0, offset 10"):
        await pool.run(job, log.directory, ignored)
    assert [worker.returncode for worker in pool._idle] == [None]
    await pool.end_idle()


async def test_the_number_of_a_system_error_is_told(tmp_path: Path) -> None:
    log = dirty_log(tmp_path)
    job = job_for(log)
    log.directory.rename_to("positions-0.0123456789abcdef0123456789abcdef-delete")
    gone = LogDirectory(tmp_path / "data" / "positions-0", create=False)
    pool = WorkerPool()
    with pytest.raises(CleaningFailed) as raised:
        await pool.run(job, gone, lambda event: None)
    assert raised.value.errno == 2
    assert not (tmp_path / "data" / "positions-0").exists()
    await pool.end_idle()


async def test_a_worker_that_is_killed_is_a_fault_and_another_one_does_the_next_job(
    tmp_path: Path,
) -> None:
    log = dirty_log(tmp_path)
    pool = WorkerPool()
    await pool.run(job_for(log), log.directory, ignored)
    (worker,) = pool._idle
    worker.kill()
    with pytest.raises(CleaningFailed, match="has died: killed by signal 9"):
        await pool.run(job_for(log), log.directory, ignored)
    events = list[Event]()
    await pool.run(job_for(log), log.directory, swapping(log, events))
    assert isinstance(events[-1], Finished)
    await pool.end_idle()


async def test_what_the_listener_raises_ends_the_job_and_its_files_go(tmp_path: Path) -> None:
    log = dirty_log(tmp_path)

    async def on_event(event: Event) -> None:
        raise KeyError("dropped")

    pool = WorkerPool(1000.0)
    with pytest.raises(KeyError):
        await pool.run(job_for(log), log.directory, on_event)
    assert pool._idle == []
    assert leftovers(log) == []


async def test_a_job_that_is_cancelled_in_a_long_pause_ends_at_once(tmp_path: Path) -> None:
    log = dirty_log(tmp_path)
    pool, begun = WorkerPool(SLOW), asyncio.Event()

    async def on_event(event: Event) -> None:
        assert isinstance(event, CleaningProgress)
        begun.set()

    task = asyncio.create_task(pool.run(job_for(log), log.directory, on_event))
    await begun.wait()
    task.cancel()
    async with asyncio.timeout(9):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert leftovers(log) == []


async def test_a_job_in_a_long_pause_goes_on_at_the_speed_it_is_told(tmp_path: Path) -> None:
    log = dirty_log(tmp_path)
    pool, events = WorkerPool(SLOW), list[Event]()

    async def on_event(event: Event) -> None:
        if not events:
            pool.change_speed(FAST)
        await swapping(log, events)(event)

    async with asyncio.timeout(20):
        await pool.run(job_for(log), log.directory, on_event)
    assert isinstance(events[-1], Finished)
    assert len(pool._idle) == 1
    await pool.end_idle()


async def test_a_speed_that_comes_when_the_job_is_done_is_nothing_to_the_next_one(
    tmp_path: Path,
) -> None:
    log = dirty_log(tmp_path)
    pool, events = WorkerPool(), list[Event]()

    async def on_event(event: Event) -> None:
        await swapping(log, events)(event)
        if isinstance(event, Finished):
            pool.change_speed(SLOW)
            pool.change_speed(FAST)

    await pool.run(job_for(log), log.directory, on_event)
    async with asyncio.timeout(20):
        await pool.run(job_for(log), log.directory, swapping(log, events))
    assert isinstance(events[-1], Finished)
    await pool.end_idle()


def test_a_worker_whose_broker_is_no_more_ends_and_takes_its_files_along(tmp_path: Path) -> None:
    log = dirty_log_without_loop(tmp_path)
    worker = subprocess.Popen(
        python_command("compaction.worker"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=python_environment(),
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(encode(Start(job_for(log), log.directory.path, SLOW)))
    worker.stdin.flush()
    while next_progress(worker.stdout).phase != CLEAN:
        worker.stdin.write(encode(Speed(FAST)) + encode(Speed(SLOW)))  # as far as the next pause
        worker.stdin.flush()
    assert leftovers(log) != []
    worker.send_signal(signal.SIGINT)  # a terminal's, of which the broker is told too
    worker.stdin.close()
    assert worker.wait(20) == 0
    assert leftovers(log) == []


def next_progress(events: IO[bytes]) -> CleaningProgress:
    event = decode(events.read(*LENGTH.unpack(events.read(LENGTH.size))))
    assert isinstance(event, CleaningProgress)
    return event


def dirty_log_without_loop(tmp_path: Path) -> Log:
    async def create_log() -> Log:
        return dirty_log(tmp_path)

    return asyncio.run(create_log())


def test_a_worker_that_has_nothing_to_do_ends_with_its_input() -> None:
    ended = subprocess.run(
        python_command("compaction.worker"),
        input=b"",
        env=python_environment(),
        capture_output=True,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
