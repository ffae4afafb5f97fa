"""Count the oldest segments that a log may delete (cleanup.policy delete, DeleteRecords). Pure.

The rules are `POLICIES`: each looks at the oldest segment that is left, and says why it goes, or
nothing. Only a run of oldest segments goes, and never an offset that the high watermark has not
passed: consumers would lose records that they were never shown (KAFKA-5634).

A segment is as old as its latest record, by the record's own timestamp. So one record from the
future keeps its segment, and those behind it, for as long; and a clock that is set back makes
nothing older. Only a segment without any timestamp (formats before 0.10) has the age of its file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from core_log.config import LogConfig
from protocol.frozen import frozen


@frozen
class SegmentAge:
    """The facts about a segment that retention needs.

    `end_offset` is the next segment's base. `largest_timestamp` in ms is that of its latest
    record, or of its file.
    """

    end_offset: int
    size: int
    largest_timestamp: int


@frozen
class Oldest:
    """The oldest segment that is left.

    `log_bytes` are the log's, with this segment. `is_active` says that it is the last one, so that
    the log must begin another one before it goes.
    """

    segment: SegmentAge
    is_active: bool
    log_bytes: int
    log_start_offset: int
    now_ms: int


Policy = Callable[[Oldest, LogConfig], str | None]
"""Says why a segment goes, or None if it stays by this rule."""


def by_time(oldest: Oldest, config: LogConfig) -> str | None:
    """Delete a segment older than retention.ms, even the active one of an idle topic."""
    age_ms = oldest.now_ms - oldest.segment.largest_timestamp
    if config.deletes and 0 <= config.retention_ms < age_ms:
        return f"retention.ms {config.retention_ms} is over"
    return None


def by_size(oldest: Oldest, config: LogConfig) -> str | None:
    """Delete a segment without which the log still has retention.bytes."""
    kept_bytes = oldest.log_bytes - oldest.segment.size
    if config.deletes and 0 <= config.retention_bytes <= kept_bytes:
        return f"retention.bytes {config.retention_bytes} is exceeded"
    return None


def by_log_start(oldest: Oldest, config: LogConfig) -> str | None:
    """Delete a segment that lies below the log's start, whatever the policy (KAFKA-7400)."""
    if not oldest.is_active and oldest.segment.end_offset <= oldest.log_start_offset:
        return f"the log starts at {oldest.log_start_offset}"
    return None


# In this order: the first that gives a reason is the one in the log.
POLICIES: Mapping[str, Policy] = {
    "time": by_time,
    "size": by_size,
    "log start": by_log_start,
}


def count_expired(
    segments: Sequence[SegmentAge],
    config: LogConfig,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
    policies: Mapping[str, Policy] = POLICIES,
) -> tuple[int, str]:
    """Count the oldest segments that go, and say why the last of these does.

    All of them may go: the log then begins a new one first. An empty last segment stays.
    """
    log_bytes = sum(segment.size for segment in segments)
    count = 0
    why = ""
    for number, segment in enumerate(segments, start=1):
        is_active = number == len(segments)
        # Stop at what is not replicated yet, and at an empty active segment.
        if segment.end_offset > high_watermark or (is_active and segment.size == 0):
            break

        # The first policy that says why decides.
        oldest = Oldest(segment, is_active, log_bytes, log_start_offset, now_ms)
        reasons = (policy(oldest, config) for policy in policies.values())
        reason = next(filter(None, reasons), None)
        if reason is None:
            break
        count = number
        why = reason
        log_bytes -= segment.size
    return count, why
