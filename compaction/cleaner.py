"""The cleaner of a broker: which log is cleaned when, and what becomes of it.

It looks at all compacted logs each log.cleaner.backoff.ms, and has the dirtiest ones cleaned by
workers, log.cleaner.threads at once, one after the other until it looks again.
What it decides it decides on the broker's loop; files are a thread's work, which has the log's turn
meanwhile (`core_log.log_work`).

Nobody has to ask it to let go of a log. It compares instead: what was cut, deleted, moved or given
another policy since a job began is not what the job was made from, and the job is dropped.

A fault, whatever it is, is the fault of one log: it is quarantined, and the others are cleaned.
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
"""With a backoff of 0 too the loop has other things to do."""
EXPECTED = (CleaningFailed, ApiError, OSError, ValueError)
"""Faults of logs, disks and workers; any other is one of ours."""
BLAMELESS = (*INNOCENT, errno.ENOENT)
"""Errors that say nothing against a disk."""

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class Cleaner:
    """`high_watermark` is a replica's, None where there is none here; `spawn` runs a guarded task,
    `work` has the threads for the disk."""

    logs: LogManager
    high_watermark: Callable[[TopicPartition], int | None]
    workers: Workers
    config: CleanerConfig
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    now_ms: Callable[[], int]
    work: LogWork
    _dirty: list[Dirtiness] = attrs.field(factory=list)
    _running: dict[TopicPartition, asyncio.Task[None]] = attrs.field(factory=dict)
    _looking: asyncio.Task[None] | None = None
    _woken: asyncio.Event = attrs.field(factory=asyncio.Event)
    _has_news: asyncio.Event = attrs.field(factory=asyncio.Event)
    status: StatusFiles = attrs.field(init=False)
    _keeping: asyncio.Task[None] | None = None
    _writing: asyncio.Future[None] | None = None

    @status.default
    def _no_status(self) -> StatusFiles:
        return StatusFiles(self.logs, self.now_ms, self._has_news.set)

    def start(self) -> None:
        """Begin to look for what is dirty."""
        self.status.load()
        self.workers.change_speed(self.config.bytes_per_second)
        self._looking = self.spawn(self._run())
        self._keeping = self.spawn(self._keep_status())

    def update_config(self, config: CleanerConfig) -> None:
        """Go by other settings; what is under way keeps its buffers, and changes its speed."""
        if config != self.config:
            self.config = config
            self.workers.change_speed(config.bytes_per_second)
            self._woken.set()

    async def close(self) -> None:
        """Give up what is under way, and return when nobody works on a log any more."""
        own = (self._looking, self._keeping)
        tasks = [task for task in (*own, *self._running.values()) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.workers.end_idle()
        await self._write_status()

    async def _run(self) -> None:
        """Go through all logs, then through what was dirty, until it is time to look again."""
        while True:
            config = self.config
            with _log_failure():
                await self.look()
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

    # ---- choosing

    async def look(self) -> None:
        """Measure all logs, after their retention, and have the dirtiest cleaned, as many as there
        are threads free."""
        self._dirty = []
        for topic_partition in list(self.logs.logs):
            await self._retain(topic_partition)
            found = self._measure(topic_partition)
            if found is not None:
                self._dirty.append(found)
        self._begin_dirtiest()

    def _begin_dirtiest(self) -> None:
        """Have the dirtiest of those that were measured cleaned, measured once more."""
        while len(self._running) < self.config.threads:
            chosen = choose_dirtiest(self._dirty)
            if chosen is None:
                break
            self._dirty.remove(chosen)
            tp = chosen.topic_partition
            now = self._measure(tp)
            if now is not None and now.is_due:
                self._begin(self.logs.logs[tp], now)

    def _measure(self, topic_partition: TopicPartition) -> Dirtiness | None:
        """How dirty a log is; None for one that must not be cleaned now."""
        log, log_dir = self.logs.get(topic_partition), self.logs.dir_of(topic_partition)
        if log is None or log_dir is None or topic_partition in self._running:
            return None
        high_watermark = self.high_watermark(topic_partition)
        if high_watermark is None or self._why_untouched(log) is not None:
            return None
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
        """Why a log must not be cleaned now, nor a copy of it take its place."""
        return self._why_untouched(log) or ("it takes no writes" if log.failure else None)

    def _why_untouched(self, log: Log) -> str | None:
        """Why not even retention is the cleaner's to apply now."""
        if self.logs.get(log.topic_partition) is not log:
            return "it is not here any more"
        if not log.config.compacts:
            return "its cleanup.policy is not compact"
        if log.is_lent:
            return "it is being truncated"
        if self.logs.futures.get(log.topic_partition) is not None:
            # The copy that is made of it might have what a tombstone deleted, and not that one.
            return "it is being moved to another directory"
        return None

    async def _retain(self, topic_partition: TopicPartition) -> None:
        """Take away old segments, which of compacted logs is the cleaner's to do (KAFKA-7400)."""
        log, high_watermark = self.logs.get(topic_partition), self.high_watermark(topic_partition)
        if log is None or high_watermark is None or self._why_untouched(log) is not None:
            return
        if topic_partition not in self._running and not self.work.is_turn_taken(log):
            with contextlib.suppress(ApiError):  # the log has said it
                await self.work.retain(log, high_watermark, self.now_ms())

    # ---- status

    async def _keep_status(self) -> None:
        """Write the status files when there is news, and no more often than they are due."""
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            await self._write_status()
            await asyncio.sleep(WRITE_INTERVAL_MS / 1000)

    async def _write_status(self) -> None:
        """What is being written is waited for: two threads must not write one file."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
        files = self.status.take_due()
        if files:
            self._writing = asyncio.ensure_future(self.work.in_thread(partial(_write, files)))
            await asyncio.wait([self._writing])

    # ---- cleaning

    def _begin(self, log: Log, chosen: Dirtiness) -> None:
        tp, log_dir = log.topic_partition, self.logs.dir_of(log.topic_partition)
        assert log_dir is not None
        if chosen.reset_reason is not None:
            begins = chosen.first_dirty_offset
            logger.warning("%s: it is clean up to %d alone: %s", tp, begins, chosen.reset_reason)
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
            await self.work.flush(log)  # or a swap of another pass might come back beside copies
            await self.workers.run(job, log.directory, cleaning.apply)
        except asyncio.CancelledError:
            await self._remove_leftovers(log)
            raise
        except Exception as error:
            await self._remove_leftovers(log)
            why_not = str(error) if isinstance(error, CleaningAborted) else self._why_not(log)
            if why_not is None:
                self._quarantine(log, error)
            else:
                logger.info("%s: its cleaning is given up: %s", log.topic_partition, why_not)
                self.status.clear_running(log)
        finally:
            self._running.pop(log.topic_partition, None)
        await self._retain(log.topic_partition)
        self._measure_again(log.topic_partition)
        self._woken.set()

    def _measure_again(self, topic_partition: TopicPartition) -> None:
        """A pass leaves the log dirty where its keys were too many for the map."""
        found = self._measure(topic_partition)
        if found is not None:
            self._dirty.append(found)

    async def _remove_leftovers(self, log: Log) -> None:
        """Remove what there may be of copies nobody wants; opening the log again would do it."""
        with contextlib.suppress(OSError):
            async with self.work.turn(log):
                await self.work.run_to_end(partial(_remove_copies, log.directory))

    def _quarantine(self, log: Log, error: Exception) -> None:
        """Leave a log alone for a while."""
        told = isinstance(error, CleaningFailed)
        reason = str(error) if told else f"{type(error).__name__}: {error}"
        number = getattr(error, "errno", None)
        if number is not None and number not in BLAMELESS:
            log.guard.suspects_disk = True
        found = self.status.quarantine(log, reason)
        pause_s = round((found.next_try_ms - self.now_ms()) / 1000)
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
