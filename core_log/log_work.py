"""Work on the files of logs, off the event loop, one piece at a time for each log.

fsync, rename, unlink and the reading of whole segments take milliseconds to seconds, so they run
in a thread. Each log has one *turn*. Whoever flushes it, removes its files, truncates it or
replaces segments takes the turn first, so no two threads are ever in its files at once. There are
two kinds of work:

- beside the loop: the loop goes on to append and to read. It has decided already, and changed what
  is in memory (`Log.begin_flush`, `Log.begin_retention`). The thread does the rest, to files, and
  the loop notes the end.
- in place of the loop: the log is *lent* (`Log.is_lent`). The thread may call any method of it, and
  the loop only reads its plain numbers. A change of the partition's role waits for its return.
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
from protocol.shielded import wait_shielded

T = TypeVar("T")

MOST_WRITE_BACKS = 2
"""Most threads that may be busy with write-backs, for all logs: others must fsync."""


@attrs.define(eq=False)
class LogWork:
    """The turns of all logs of a broker. `executor` has the threads for the disk."""

    executor: Executor
    _write_backs: int = 0
    # A log that nobody holds takes its turn with it.
    _turns: WeakKeyDictionary[Log, asyncio.Lock] = attrs.field(factory=WeakKeyDictionary)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread and wait for it."""
        return await asyncio.get_running_loop().run_in_executor(self.executor, work)

    @contextlib.asynccontextmanager
    async def turn(self, log: Log) -> AsyncIterator[None]:
        """Hold a log's turn. The loop goes on with the log meanwhile."""
        async with self._turns.setdefault(log, asyncio.Lock()):
            yield

    async def flush(self, log: Log) -> None:
        """Flush all that the log holds now. Appends that had to wait for that can go on.

        Raises ApiError KAFKA_STORAGE_ERROR if the log has failed, or is full.
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
        """Take out old segments and mark their files as deleted.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        async with self.turn(log):
            # The segment that goes may be the active one: it must be flushed first.
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
        """Run `work` in a thread, and wait for its end even if the caller is cancelled.

        The caller holds a log's turn, and may not give it away before.
        """
        # A thread cannot be cancelled: it must end before the turn does.
        running = asyncio.ensure_future(self.in_thread(work))
        try:
            return await wait_shielded(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            raise

    def write_back(self, file: StorageFile, start: int, size: int) -> None:
        """Tell the disk to begin with bytes of a file: in a thread, if this is the loop's.

        A system that falls behind gets no further bytes while it has `MOST_WRITE_BACKS`.
        """
        try:
            # Whoever has no loop is in a thread already, and may wait.
            loop = asyncio.get_running_loop()
        except RuntimeError:
            file.write_back(start, size)
            return

        if self._write_backs < MOST_WRITE_BACKS:
            self._write_backs += 1
            begun = loop.run_in_executor(self.executor, file.write_back, start, size)
            begun.add_done_callback(self._end_write_back)

    def _end_write_back(self, begun: asyncio.Future[None]) -> None:
        self._write_backs -= 1
        assert self._write_backs >= 0
        if not begun.cancelled():
            begun.exception()  # marks it as seen: the next sync reports a bad disk

    def is_turn_taken(self, log: Log) -> bool:
        """Return whether somebody holds the log's turn."""
        turn = self._turns.get(log)
        return turn is not None and turn.locked()

    async def lend(self, log: Log, work: Callable[[], T]) -> T:
        """Run `work` on a log in a thread that has the log to itself.

        The log stays lent until `work` has ended, even if the caller is cancelled.
        """
        async with self.turn(log):
            return await self._lend_now(log, work)

    async def lend_if(
        self, log: Log, work: Callable[[], object], is_wanted: Callable[[], bool]
    ) -> bool:
        """Do the same as `lend`, unless the work is no longer wanted when the log's turn has come.

        Return whether it was. A log may have another role by then, because it is not lent while
        the turn is awaited.
        """
        async with self.turn(log):
            if not is_wanted():
                return False
            await self._lend_now(log, work)
            return True

    async def _lend_now(self, log: Log, work: Callable[[], T]) -> T:
        log.is_lent = True
        running = asyncio.ensure_future(self.in_thread(work))
        try:
            return await wait_shielded(running)
        finally:
            # A cancelled caller leaves before its thread, which returns the log itself.
            if running.done():
                log.is_lent = False
            else:
                running.add_done_callback(lambda _: _return_log(log))

    async def wait_until_returned(self, logs: Collection[Log]) -> None:
        """Wait until none of these logs is lent or held, all at the same moment."""
        while lent := [log for log in logs if log.is_lent or log.is_held]:
            async with self.turn(lent[0]):
                pass
            # A cancelled lender gives up the turn while its thread works on.
            await asyncio.sleep(0)


def _return_log(log: Log) -> None:
    log.is_lent = False
