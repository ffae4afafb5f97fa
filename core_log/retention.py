"""Which of a log's oldest segments may go (cleanup.policy delete, DeleteRecords). Pure.

The rules are `POLICIES`: each looks at the oldest segment that is still there and says why it goes,
or nothing. Only a run of oldest segments goes, and never what the high watermark has not passed:
consumers would lose what they were never shown (KAFKA-5634).

A segment is as old as its latest record, by the record's own timestamp; so one record from the
future keeps its segment, and those behind it, for as long, and a clock that is set back makes
nothing older. Only a segment without any timestamp (formats before 0.10) has the age of its file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from core_log.config import LogConfig


@attrs.frozen
class SegmentAge:
    """What retention needs to know of a segment. `end_offset` is the next segment's base,
    `largest_timestamp` in ms that of its latest record, or of its file."""

    end_offset: int
    size: int
    largest_timestamp: int


@attrs.frozen
class Oldest:
    """The oldest segment that is still there. `log_bytes` are the log's with it, `is_active` says
    that it is the last one: it is written to, and the log would begin another one for it."""

    segment: SegmentAge
    is_active: bool
    log_bytes: int
    log_start_offset: int
    now_ms: int


Policy = Callable[[Oldest, LogConfig], str | None]
"""Why a segment goes; None if by this rule it stays."""


def by_time(oldest: Oldest, config: LogConfig) -> str | None:
    """It is older than retention.ms; the active one too, though nothing be written any more."""
    age_ms = oldest.now_ms - oldest.segment.largest_timestamp
    if config.deletes and 0 <= config.retention_ms < age_ms:
        return f"retention.ms {config.retention_ms} is over"
    return None


def by_size(oldest: Oldest, config: LogConfig) -> str | None:
    """Without it the log still has retention.bytes."""
    kept_bytes = oldest.log_bytes - oldest.segment.size
    if config.deletes and 0 <= config.retention_bytes <= kept_bytes:
        return f"retention.bytes {config.retention_bytes} is exceeded"
    return None


def by_log_start(oldest: Oldest, config: LogConfig) -> str | None:
    """All of it is below the log's start, whatever the policy (KAFKA-7400)."""
    if not oldest.is_active and oldest.segment.end_offset <= oldest.log_start_offset:
        return f"the log starts at {oldest.log_start_offset}"
    return None


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
    """How many of the oldest segments go, and why the last of these does.

    All of them may go: the log then begins a new one first. An empty last segment stays.
    """
    log_bytes = sum(segment.size for segment in segments)
    going, why = 0, ""
    for number, segment in enumerate(segments, start=1):
        is_active = number == len(segments)
        if segment.end_offset > high_watermark or (is_active and segment.size == 0):
            break
        oldest = Oldest(segment, is_active, log_bytes, log_start_offset, now_ms)
        reasons = (policy(oldest, config) for policy in policies.values())
        reason = next(filter(None, reasons), None)
        if reason is None:
            break
        going, why = number, reason
        log_bytes -= segment.size
    return going, why
