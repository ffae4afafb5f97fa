"""The cleaner of a broker: which log is cleaned when, and what follows from it.

It looks at all compacted logs every log.cleaner.backoff.ms, and has workers clean the dirtiest,
log.cleaner.threads at once, one after the other until it looks again. Its decisions are made on the
broker's loop. Files are a thread's work, which has the log's turn meanwhile (`core_log.log_work`).

Nobody has to ask it to let go of a log. It compares instead: if a log was truncated, deleted, moved
or given another policy since a job began, it is not what the job was made from, and the job is
aborted.

A failure is that of one log: the log is quarantined, and the others are cleaned.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any

import attrs

from compaction.cleaning import Cleaning, CleaningAborted
from compaction.config import CleanerConfig
from compaction.dirtiness import Dirtiness, choose_dirtiest, measure_dirtiness
from compaction.log_facts import create_job, read_facts
from compaction.report import describe_start
from compaction.status_files import WRITE_INTERVAL_MS, StatusFile, StatusFiles
from compaction.worker_pool import CleaningFailed, Workers
from core_log.log import Log
from core_log.log_manager import LogManager
from core_log.log_work import LogWork
from core_log.segments.file_name import CLEANED
from core_log.storage import INNOCENT, Directory
from protocol.errors import ApiError
from protocol.topic_partition import TopicPartition

SHORTEST_WAIT_S = 0.05
"""Shortest pause between two looks. Without it a backoff of 0 would keep the loop busy."""
EXPECTED = (CleaningFailed, ApiError, OSError, ValueError)
"""Failures of logs, disks and workers. Any other is a bug of ours."""
BLAMELESS = (*INNOCENT, errno.ENOENT)
"""Errors after which the disk is not suspected."""

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class Cleaner:
    """The cleaner of one broker.

    `high_watermark` returns that of a partition's replica here, None without one. `spawn` runs a
    guarded task, `work` has the threads for the disk.
    """

    logs: LogManager
    high_watermark: Callable[[TopicPartition], int | None]
    workers: Workers
    config: CleanerConfig
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    now_ms: Callable[[], int]
    work: LogWork
    # Logs that were measured, and whose cleaning has not begun.
    _dirty: list[Dirtiness] = attrs.field(factory=list)
    _running: dict[TopicPartition, asyncio.Task[None]] = attrs.field(factory=dict)
    looked_at_ms: int = 0
    """When the last look at all logs began, by the wall clock; 0: never."""
    max_dirty_ratio: float = 0.0
    """The share of dirty bytes of the dirtiest log at the last look."""
    _looking: asyncio.Task[None] | None = None
    # Set when a job ends or the settings change; and when there is a status to write.
    _woken: asyncio.Event = attrs.field(factory=asyncio.Event)
    _has_news: asyncio.Event = attrs.field(factory=asyncio.Event)
    status: StatusFiles = attrs.field(init=False)
    _keeping: asyncio.Task[None] | None = None
    _writing: asyncio.Future[None] | None = None

    @status.default
    def _no_status(self) -> StatusFiles:
        return StatusFiles(self.logs, self.now_ms, self._has_news.set)

    def start(self) -> None:
        """Begin to look for dirty logs."""
        self.status.load()
        self.workers.change_speed(self.config.bytes_per_second)
        self._looking = self.spawn(self._run())
        self._keeping = self.spawn(self._keep_status())

    def update_config(self, config: CleanerConfig) -> None:
        """Replace the settings. Cleanings in flight keep their buffers, and change their speed."""
        if config != self.config:
            self.config = config
            self.workers.change_speed(config.bytes_per_second)
            self._woken.set()

    async def close(self) -> None:
        """Abort the cleanings in flight. On return nobody works on a log."""
        own = (self._looking, self._keeping)
        tasks = [task for task in (*own, *self._running.values()) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            # A cancelled task still waits for its thread and its worker.
            await asyncio.wait(tasks)
        await self.workers.end_idle()
        await self._write_status()

    async def _run(self) -> None:
        """Measure all logs, then clean what was dirty, until it is time to look again."""
        while True:
            config = self.config
            with _log_failure():
                await self.look()

            # A finished job, and other settings, wake this task.
            try:
                async with asyncio.timeout(max(config.backoff_ms / 1000, SHORTEST_WAIT_S)):
                    while self.config is config:
                        await self._woken.wait()
                        self._woken.clear()
                        with _log_failure():
                            self._begin_dirtiest()
            except TimeoutError:
                if not self._running:
                    await self.workers.end_idle()

    # Choosing

    async def look(self) -> None:
        """Measure all logs, after their retention, and clean the dirtiest.

        As many are cleaned at once as there are free threads.
        """
        self.looked_at_ms = self.now_ms()
        self._dirty = []
        for topic_partition in list(self.logs.logs):
            # What retention deletes need not be cleaned.
            await self._retain(topic_partition)
            dirtiness = self._measure(topic_partition)
            if dirtiness is not None:
                self._dirty.append(dirtiness)
        self.max_dirty_ratio = max((log.ratio for log in self._dirty), default=0.0)
        self._begin_dirtiest()

    @property
    def is_dead(self) -> bool:
        """True if it was started and looks at no log any more, though nobody closed it."""
        return self._looking is not None and self._looking.done()

    def _begin_dirtiest(self) -> None:
        """Clean the dirtiest of the measured logs, each measured once more."""
        while len(self._running) < self.config.threads:
            chosen = choose_dirtiest(self._dirty)
            if chosen is None:
                break
            self._dirty.remove(chosen)
            tp = chosen.topic_partition
            # It may have changed while others were cleaned.
            now = self._measure(tp)
            if now is not None and now.is_due:
                self._begin(self.logs.logs[tp], now)

    def _measure(self, topic_partition: TopicPartition) -> Dirtiness | None:
        """Measure how dirty a log is. Returns None for one that must not be cleaned now."""
        log = self.logs.get(topic_partition)
        log_dir = self.logs.dir_of(topic_partition)
        if log is None or log_dir is None or topic_partition in self._running:
            return None
        high_watermark = self.high_watermark(topic_partition)
        if high_watermark is None or self._why_untouched(log) is not None:
            return None

        # The status of the log is kept even if it is not cleaned now.
        self.status.watch(log)
        if log.failure is not None:
            return None
        quarantine = self.status.get(topic_partition).quarantine
        if quarantine is not None and quarantine.next_try_ms > self.now_ms():
            return None

        try:
            facts = read_facts(log, high_watermark, log_dir.cleaned.get(topic_partition))
        except OSError as error:
            self._quarantine(log, error)
            return None
        return measure_dirtiness(facts, self.now_ms())

    def _why_not(self, log: Log) -> str | None:
        """Return why a log must not be cleaned now, nor a copy take its place; None if it may."""
        return self._why_untouched(log) or ("it takes no writes" if log.failure else None)

    def _why_untouched(self, log: Log) -> str | None:
        """Return why the cleaner must not touch a log now, not even for retention."""
        if self.logs.get(log.topic_partition) is not log:
            return "it is no longer here"
        if not log.config.compacts:
            return "its cleanup.policy is not compact"
        if log.is_lent:
            return "it is being truncated"
        if self.logs.futures.get(log.topic_partition) is not None:
            # The copy in progress might have a record, but not the tombstone that deletes it.
            return "it is being moved to another directory"
        return None

    async def _retain(self, topic_partition: TopicPartition) -> None:
        """Delete old segments, which in compacted logs is up to the cleaner (KAFKA-7400)."""
        log = self.logs.get(topic_partition)
        high_watermark = self.high_watermark(topic_partition)
        if log is None or high_watermark is None or self._why_untouched(log) is not None:
            return
        if topic_partition not in self._running and not self.work.is_turn_taken(log):
            with contextlib.suppress(ApiError):  # the log has reported it
                await self.work.retain(log, high_watermark, self.now_ms())

    # Status

    async def _keep_status(self) -> None:
        """Write the status files when they change, and no more often than they are due."""
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            await self._write_status()
            await asyncio.sleep(WRITE_INTERVAL_MS / 1000)

    async def _write_status(self) -> None:
        """Write the changed files, but after a write in flight: no two threads write one file."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
        files = self.status.take_due()
        if files:
            self._writing = asyncio.ensure_future(self.work.in_thread(partial(_write, files)))
            await asyncio.wait([self._writing])

    # Cleaning

    def _begin(self, log: Log, chosen: Dirtiness) -> None:
        tp = log.topic_partition
        log_dir = self.logs.dir_of(tp)
        assert log_dir is not None
        assert tp not in self._running
        # The checkpoint does not fit the log, so another offset stands for it.
        if chosen.reset_reason is not None:
            first_dirty = chosen.first_dirty_offset
            logger.warning("%s: it is clean only to %d: %s", tp, first_dirty, chosen.reset_reason)

        try:
            job = create_job(log, chosen, self.config, self.now_ms())
        except OSError as error:
            self._quarantine(log, error)
            return
        logger.info("%s: %s", tp, describe_start(job, chosen))
        cleaning = Cleaning(
            log, job, log_dir.cleaned, self.status, self._why_not, self.work, self.now_ms
        )
        self._running[tp] = self.spawn(self._clean(cleaning))

    async def _clean(self, cleaning: Cleaning) -> None:
        log, job = cleaning.log, cleaning.job
        try:
            # Otherwise a swap of an earlier pass might come back beside this one's copies.
            await self.work.flush(log)
            await self.workers.run(job, log.directory, cleaning.apply)
        except asyncio.CancelledError:
            await self._remove_leftovers(log)
            raise
        except Exception as error:
            await self._remove_leftovers(log)

            # A job that lost its log is no failure.
            why_not = str(error) if isinstance(error, CleaningAborted) else self._why_not(log)
            if why_not is None:
                self._quarantine(log, error)
            else:
                logger.info("%s: its cleaning is aborted: %s", log.topic_partition, why_not)
                self.status.clear_running(log)
        finally:
            self._running.pop(log.topic_partition, None)

        # It may be dirty still, and others may be waiting for the thread.
        await self._retain(log.topic_partition)
        self._measure_again(log.topic_partition)
        self._woken.set()

    def _measure_again(self, topic_partition: TopicPartition) -> None:
        """Measure a log after a pass: it is still dirty if its keys were too many for the map."""
        dirtiness = self._measure(topic_partition)
        if dirtiness is not None:
            self._dirty.append(dirtiness)

    async def _remove_leftovers(self, log: Log) -> None:
        """Remove unfinished copies. Opening the log again would do it, too."""
        with contextlib.suppress(OSError):
            async with self.work.turn(log):
                await self.work.run_to_end(partial(_remove_copies, log.directory))

    def _quarantine(self, log: Log, error: Exception) -> None:
        """Leave a log alone for a while."""
        is_worker_error = isinstance(error, CleaningFailed)
        reason = str(error) if is_worker_error else f"{type(error).__name__}: {error}"

        number = getattr(error, "errno", None)
        # An error of the disk may be about more than this log.
        if number is not None and number not in BLAMELESS:
            log.guard.suspects_disk = True

        quarantine = self.status.quarantine(log, reason)
        pause_s = round((quarantine.next_try_ms - self.now_ms()) / 1000)
        logger.warning(
            "%s cannot be cleaned, the next try is in %d s: %s",
            log.topic_partition,
            pause_s,
            reason,
            exc_info=None if isinstance(error, EXPECTED) else error,
        )


@contextlib.contextmanager
def _log_failure() -> Iterator[None]:
    try:
        yield
    except Exception:
        logger.exception("looking for dirty logs failed")


def _remove_copies(directory: Directory) -> None:
    for name in directory.files():
        if name.endswith(CLEANED):
            directory.remove(name)


def _write(files: Sequence[StatusFile]) -> None:
    for file in files:
        file.write()
