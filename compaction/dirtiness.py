"""Choose the log to clean next, and how far (Kafka's LogCleanerManager). Pure.

    [ clean ........ | dirty, cleanable ........ | uncleanable ........ ]
    first segment    first dirty offset          first uncleanable offset     log end

A log's dirtiness is the share of dirty bytes among those that could be cleaned. Uncleanable are the
active segment, records that might yet be truncated or aborted, and those that min.compaction.lag.ms
leaves to readers who want every record. A log whose oldest dirty record has waited for more than
max.compaction.lag.ms is due whatever its dirtiness (KIP-354).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from core_log.config import LogConfig
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition


@frozen
class SegmentFacts:
    """A segment's size, and the times in ms of its first and its latest record, -1 if unknown."""

    base_offset: int
    size: int
    first_timestamp: int
    largest_timestamp: int


@frozen
class LogFacts:
    """A compacted log. The last of its segments is the active one.

    Records at or above `stable_offset` may yet be truncated (they are above the high watermark) or
    belong to an open transaction. The checkpoint is where the last cleaning ended, if any.
    """

    topic_partition: TopicPartition
    segments: Sequence[SegmentFacts]
    config: LogConfig
    log_start_offset: int
    log_end_offset: int
    stable_offset: int
    checkpoint: int | None


@frozen
class Dirtiness:
    """The part of a log to clean, and the reasons to clean it.

    `reset_reason` says why the checkpoint was not believed, for a warning. `overdue_ms` is how
    long the oldest dirty record has waited beyond the limit, 0 if it has not.
    """

    topic_partition: TopicPartition
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int
    min_ratio: float
    reset_reason: str | None = None

    @property
    def ratio(self) -> float:
        """Share of dirty bytes, from 0, all clean, to 1."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """True if the log should be cleaned at all. A ratio that is just reached is not enough."""
        return self.cleanable_bytes > 0 and (self.overdue_ms > 0 or self.ratio > self.min_ratio)


def choose_dirtiest(logs: Iterable[Dirtiness]) -> Dirtiness | None:
    """Choose the log to clean next: overdue ones first, then by ratio."""
    return max(
        (log for log in logs if log.is_due),
        key=lambda log: (log.overdue_ms > 0, log.ratio),
        default=None,
    )


def measure_dirtiness(log: LogFacts, now_ms: int) -> Dirtiness:
    """Measure how dirty a log is."""
    segments, config = log.segments, log.config
    first_dirty, reason = _first_dirty_offset(log)

    # Whole segments are cleaned: number `first` up to, but not with, number `last`.
    first = _floor(segments, first_dirty)
    last = max(first, _first_uncleanable(log, first, now_ms))
    dirty = segments[first:last]

    # The oldest dirty record may have waited too long.
    started = [segment.first_timestamp for segment in dirty if segment.first_timestamp > 0]
    waited_ms = now_ms - min(started, default=now_ms)

    # A segment in which the dirty part begins counts as dirty.
    return Dirtiness(
        log.topic_partition,
        first_dirty,
        segments[last].base_offset,
        clean_bytes=sum(segment.size for segment in segments[:first]),
        cleanable_bytes=sum(segment.size for segment in dirty),
        overdue_ms=max(0, waited_ms - config.max_compaction_lag_ms),
        min_ratio=config.min_cleanable_dirty_ratio,
        reset_reason=reason,
    )


def _first_dirty_offset(log: LogFacts) -> tuple[int, str | None]:
    """Return the checkpoint if it fits this log; else another offset, and why.

    Below the log's start there is nothing: a mere consequence of retention if the policy has
    delete too, so no reason is given. Above its end records were lost, and those that are there
    now may never have been cleaned.
    """
    start = max(log.segments[0].base_offset, log.log_start_offset)
    active = log.segments[-1].base_offset
    checkpoint = log.checkpoint

    # Never cleaned: all of it is dirty.
    if checkpoint is None:
        return min(start, active), None

    # Retention has gone further than the cleaner.
    if checkpoint < start:
        why = None if log.config.deletes else f"{checkpoint} is below the log's start {start}"
        return min(start, active), why

    # The log has lost its end.
    if checkpoint > log.log_end_offset:
        return min(start, active), f"{checkpoint} is above the log's end {log.log_end_offset}"
    if checkpoint > active:
        return active, f"{checkpoint} is inside of the active segment {active}"
    return checkpoint, None


def _first_uncleanable(log: LogFacts, first: int, now_ms: int) -> int:
    """Return the number of the first segment in which nothing may be cleaned."""
    segments, lag_ms = log.segments, log.config.min_compaction_lag_ms
    uncleanable = min(_floor(segments, log.stable_offset), len(segments) - 1)
    # A segment waits until its latest record is old enough.
    if lag_ms:
        for number in range(first, uncleanable):
            if segments[number].largest_timestamp > now_ms - lag_ms:
                return number
    return uncleanable


def _floor(segments: Sequence[SegmentFacts], offset: int) -> int:
    """Return the number of the last segment that begins at or below `offset`, or 0."""
    return max(0, bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1)
