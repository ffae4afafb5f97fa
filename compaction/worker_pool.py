"""The broker's side of cleaning: workers that do jobs, and the events that come back.

`WorkerPool` has a process for each job in flight, and keeps it for the next one until there is
none. A worker never outlives the broker: it ends when its standard input does. `InLoop` does the
same work on the caller's own loop, for simulated brokers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import Protocol

import attrs

from compaction.clean import Event, clean
from compaction.frames import LENGTH, Failed, Speed, Start, decode, encode
from compaction.job import CleaningJob, Finished
from core_log.storage import Directory
from protocol.child_python import python_command, python_environment
from protocol.frozen import frozen

END_S = 10.0
"""Longest time that a worker may go on with its step before it is killed."""

logger = logging.getLogger(__name__)


OnEvent = Callable[[Event], Awaitable[None]]
"""Applies an event to the log."""


class CleaningFailed(Exception):
    """A job failed. The text says why, `errno` is that of a system call's error."""

    def __init__(self, reason: str, errno: int | None = None) -> None:
        super().__init__(reason)
        self.errno = errno


class Workers(Protocol):
    """Do the jobs of cleaning."""

    async def run(
        self,
        job: CleaningJob,
        directory: Directory,
        on_event: OnEvent,
    ) -> None:
        """Do a job, and await `on_event` for each event. An exception of that ends the job.

        When this returns, raises or is cancelled, nothing of the job is in flight. Raises
        CleaningFailed.
        """

    def change_speed(self, bytes_per_second: float) -> None:
        """Set the speed of each job from now on, also of those in flight."""

    async def end_idle(self) -> None:
        """End the workers without a job."""


@attrs.define(eq=False)
class WorkerPool:
    """Worker processes, one for each job at once."""

    bytes_per_second: float = sys.float_info.max
    _idle: list[asyncio.subprocess.Process] = attrs.field(factory=list)
    _busy: list[asyncio.subprocess.Process] = attrs.field(factory=list)

    async def run(
        self,
        job: CleaningJob,
        directory: Directory,
        on_event: OnEvent,
    ) -> None:
        """Do a job, as `Workers.run` says."""
        worker = self._idle.pop() if self._idle else await _start_worker()
        is_free = False
        self._busy.append(worker)

        try:
            await _send(worker, Start(job, directory.path, self.bytes_per_second))
            while True:
                # One event at a time: the worker's pipe fills while this one is applied.
                event = await _receive(worker)
                if isinstance(event, Failed):
                    # The job has failed, and the worker is ready for another one.
                    is_free = True
                    raise CleaningFailed(event.reason, event.errno)

                await on_event(event)
                if isinstance(event, Finished):
                    is_free = True
                    break
        finally:
            # A worker that is amid a job cannot do another one.
            self._busy.remove(worker)
            if is_free:
                self._idle.append(worker)
            else:
                await _end_worker(worker)

    def change_speed(self, bytes_per_second: float) -> None:
        """Set the speed, as `Workers.change_speed` says."""
        self.bytes_per_second = bytes_per_second
        for worker in self._busy:
            assert worker.stdin is not None
            # A few bytes: nobody need wait until the pipe takes them.
            worker.stdin.write(encode(Speed(bytes_per_second)))

    async def end_idle(self) -> None:
        """End the workers without a job."""
        # Taken out first: a job that begins meanwhile must not get one that ends.
        idle = self._idle
        self._idle = []
        for worker in idle:
            await _end_worker(worker)


@frozen
class InLoop:
    """Does each job on the caller's loop, step by step, with pauses for other things."""

    pause_s: Callable[[], float] = lambda: 0.0

    async def run(
        self,
        job: CleaningJob,
        directory: Directory,
        on_event: OnEvent,
    ) -> None:
        """Do a job, as `Workers.run` says."""
        steps = clean(job, directory)
        with contextlib.closing(steps):
            for event in steps:
                await on_event(event)
                await asyncio.sleep(self.pause_s())

    def change_speed(self, bytes_per_second: float) -> None:
        """Do nothing: there is no limit."""

    async def end_idle(self) -> None:
        """Do nothing: there are no workers."""


async def _start_worker() -> asyncio.subprocess.Process:
    try:
        worker = await asyncio.create_subprocess_exec(
            *python_command("compaction.worker"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=python_environment(),
        )
    except OSError as error:
        raise CleaningFailed(f"no worker can be started: {error}") from error
    logger.debug("worker %d is started", worker.pid)
    return worker


async def _send(worker: asyncio.subprocess.Process, start: Start) -> None:
    assert worker.stdin is not None
    worker.stdin.write(encode(start))
    with contextlib.suppress(ConnectionError):  # the next receive reports that it has died
        await worker.stdin.drain()


async def _receive(worker: asyncio.subprocess.Process) -> Event | Failed:
    assert worker.stdout is not None
    try:
        (size,) = LENGTH.unpack(await worker.stdout.readexactly(LENGTH.size))
        event: Event | Failed = decode(await worker.stdout.readexactly(size))
        return event
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        # The pipe ends only with the process: say how that ended.
        code = await worker.wait()
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        raise CleaningFailed(f"worker {worker.pid} has died: {how}") from error


async def _end_worker(worker: asyncio.subprocess.Process) -> None:
    """End a worker and wait for it: no two may write the same files."""
    assert worker.stdin is not None
    # The end of its input aborts its job.
    worker.stdin.close()
    try:
        async with asyncio.timeout(END_S):
            await worker.wait()
    except TimeoutError:
        logger.warning("worker %d does not end: it is killed", worker.pid)
        worker.kill()
        await worker.wait()
