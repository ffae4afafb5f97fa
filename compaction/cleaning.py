"""One log while it is cleaned: each event of the worker is applied to it.

Between two events the log may change. `why_not` returns why the job must not go on. A copy takes
its originals' place by a comparison of its own (`Log.replace_segments`), so retention and
truncations only end the job.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import attrs

from compaction.clean import Event
from compaction.job import INDEX, CleaningJob, CleaningProgress, Finished, GroupCleaned
from compaction.report import describe_end, list_warnings
from compaction.status import Pass, Running
from compaction.status_files import StatusFiles
from core_log.cleaner_offsets import CleanerOffsets
from core_log.log import Log
from core_log.log_work import LogWork

logger = logging.getLogger(__name__)


class CleaningAborted(Exception):
    """A job cannot go on; the text says why. Nobody is at fault."""


@attrs.define(eq=False)
class Cleaning:
    """Applies the events of one job."""

    log: Log
    job: CleaningJob
    offsets: CleanerOffsets
    status: StatusFiles
    why_not: Callable[[Log], str | None]
    work: LogWork
    now_ms: Callable[[], int]
    truncations: int = attrs.field(init=False)
    started_ms: int = attrs.field(init=False)
    _phase: str = ""
    _done_bytes: int = 0
    _segments_after: int = 0

    @truncations.default
    def _truncations_at_start(self) -> int:
        return self.log.truncations

    @started_ms.default
    def _now(self) -> int:
        return self.now_ms()

    async def apply(self, event: Event) -> None:
        """Apply an event of the worker.

        Raises CleaningAborted, ApiError KAFKA_STORAGE_ERROR, CorruptIndex and OSError.
        """
        self._check()
        if isinstance(event, CleaningProgress):
            self._note_progress(event)
        elif isinstance(event, GroupCleaned):
            await self._replace(event)
        else:
            await self._finish(event)

    def _check(self) -> None:
        why_not = self.why_not(self.log)
        if why_not is not None or self.truncations != self.log.truncations:
            raise CleaningAborted(why_not or "it was truncated")

    def _note_progress(self, event: CleaningProgress) -> None:
        # Each phase counts its bytes from 0.
        if event.phase != self._phase:
            if self._phase == INDEX:
                logger.debug("%s: the offsets of its keys are known", self.log.topic_partition)
            self._phase = event.phase
            self._done_bytes = 0
        self._done_bytes += event.bytes_done
        percent = 100 * self._done_bytes / max(1, self._done_bytes + event.bytes_left)
        running = Running(self.started_ms, event.phase, round(percent, 1))
        self.status.set_running(self.log, running)

    async def _replace(self, event: GroupCleaned) -> None:
        async with self.work.turn(self.log):
            self._check()  # the log may have changed while another had the turn
            replacement = self.log.begin_replacement(event.replaced, truncations=self.truncations)
            if replacement is None:
                raise CleaningAborted("its segments have changed")

            # Readers go on by what `hold` has opened, while the files are renamed.
            with self.log.guard.reading:
                await self.work.run_to_end(replacement.hold)
            with self.log.guard:
                await self.work.run_to_end(replacement.run)
            self.log.end_replacement(replacement)

        self._segments_after += 1
        logger.info(
            "%s: segment %d is cleaned, from segments %s",
            self.log.topic_partition,
            event.base_offset,
            ", ".join(map(str, event.replaced)),
        )

    async def _finish(self, event: Finished) -> None:
        job = self.job
        # All copies are in place: only then is the log clean to that end.
        self.offsets.note(job.topic_partition, event.end_offset)
        await self.work.run_to_end(self.offsets.save)

        segments_before = sum(segment.base_offset < event.end_offset for segment in job.segments)
        done = Pass(
            self.started_ms,
            self.now_ms(),
            job.first_dirty_offset,
            event.end_offset,
            segments_before,
            self._segments_after,
            event.statistics,
        )

        self.status.set_finished(self.log, done)
        logger.info("%s: %s", job.topic_partition, describe_end(done))
        for warning in list_warnings(done, job.config):
            logger.warning("%s: %s", job.topic_partition, warning)
