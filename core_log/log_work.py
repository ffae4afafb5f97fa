"""Work on the files of logs, off the event loop: one piece of it a log at a time.

fsync, rename, unlink and the reading of whole segments take milliseconds to seconds, so they run
in a thread. A log has one *turn*: whoever flushes it, removes files of it, truncates it or replaces
segments takes the turn first, so no two threads are ever in its files at once. There are two kinds
of work:

- beside the loop: the loop goes on to append and to read. It has decided already, and changed what
  is in memory (`Log.begin_flush`, `Log.begin_retention`); the thread does what is left to be done
  to files, and the loop takes note of the end.
- in place of the loop: the log is *lent* (`Log.is_lent`). The thread may call any method of it, and
  the loop nothing but its plain numbers. Who changes a partition's role waits until it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection
from concurrent.futures import Executor
from typing import TypeVar
from weakref import WeakKeyDictionary

import attrs

from core_log.log import AppendLater, Log
from core_log.storage import StorageFile

T = TypeVar("T")

MOST_WRITE_BACKS = 2
"""How many of the threads may be busy with them, for all logs: others have to fsync."""


@attrs.define(eq=False)
class LogWork:
    """The turns of all logs of a broker; `executor` has the threads for the disk."""

    executor: Executor
    _write_backs: int = 0
    _turns: WeakKeyDictionary[Log, asyncio.Lock] = attrs.field(factory=WeakKeyDictionary)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread, and wait for it."""
        return await asyncio.get_running_loop().run_in_executor(self.executor, work)

    @contextlib.asynccontextmanager
    async def turn(self, log: Log) -> AsyncIterator[None]:
        """Have a log's turn for a while; the loop goes on with the log."""
        async with self._turns.setdefault(log, asyncio.Lock()):
            yield

    async def flush(self, log: Log) -> None:
        """Flush what the log holds now; what could not be appended before then can be.

        Raises ApiError KAFKA_STORAGE_ERROR: the log has failed, or is full.
        """
        async with self.turn(log):
            await self._flush(log)

    async def _flush(self, log: Log) -> None:
        try:
            flush = log.begin_flush()
            await self.run_to_end(flush.run)
            log.end_flush(flush)
        except OSError as error:
            raise log.fail_flush(error) from error

    async def retain(self, log: Log, high_watermark: int, now_ms: int) -> None:
        """Let go of old segments, and mark their files as deleted. Raises ApiError
        KAFKA_STORAGE_ERROR."""
        async with self.turn(log):
            while True:
                try:
                    retention = log.begin_retention(high_watermark, now_ms, may_sync=False)
                    break
                except AppendLater:
                    await self._flush(log)
            if retention is not None:
                with log.guard:
                    await self.run_to_end(retention.run)
                    log.end_retention(retention)

    async def run_to_end(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread for who has a turn, and keep it until the work has ended: also
        when nobody wants what comes of it any more."""
        running = asyncio.ensure_future(self.in_thread(work))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            raise

    def write_back(self, file: StorageFile, start: int, size: int) -> None:
        """Tell the disk to begin with bytes of a file: in a thread, if this is none. A system that
        falls behind is told no more while it has `MOST_WRITE_BACKS` to begin with."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            file.write_back(start, size)
            return
        if self._write_backs < MOST_WRITE_BACKS:
            self._write_backs += 1
            begun = loop.run_in_executor(self.executor, file.write_back, start, size)
            begun.add_done_callback(self._written_back)

    def _written_back(self, begun: asyncio.Future[None]) -> None:
        self._write_backs -= 1
        if not begun.cancelled():
            begun.exception()  # seen: a disk that fails says so when it is synced

    def is_turn_taken(self, log: Log) -> bool:
        """Whether somebody has the log's turn."""
        turn = self._turns.get(log)
        return turn is not None and turn.locked()

    async def lend(self, log: Log, work: Callable[[], T]) -> T:
        """Run `work` on a log in a thread that has it all to itself.

        The log stays lent until `work` has ended, though nobody may wait for it any more.
        """
        async with self.turn(log):
            log.is_lent = True
            running = asyncio.ensure_future(self.in_thread(work))
            try:
                return await asyncio.shield(running)
            finally:
                if running.done():
                    log.is_lent = False
                else:
                    running.add_done_callback(lambda _: _take_back(log))

    async def wait_until_returned(self, logs: Collection[Log]) -> None:
        """Wait until none of these logs is lent or held, all at the same moment."""
        while lent := [log for log in logs if log.is_lent or log.is_held]:
            async with self.turn(lent[0]):
                pass
            await asyncio.sleep(0)  # the turn is free while a thread that nobody waits for works on


def _take_back(log: Log) -> None:
    log.is_lent = False
