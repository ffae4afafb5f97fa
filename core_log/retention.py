"""Which of a log's oldest segments may go (cleanup.policy delete, DeleteRecords). Pure.

A segment goes when it is too old, when the log is too large without it, or when all of it is
below the log's start. Only a run of oldest segments goes, and never what the high watermark has
not passed: consumers would lose what they were never shown (KAFKA-5634).
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from core_log.config import LogConfig


@attrs.frozen
class SegmentAge:
    """What retention needs to know of a segment. `end_offset` is the next segment's base."""

    end_offset: int
    size: int
    largest_timestamp: int


def expired(
    segments: Sequence[SegmentAge],
    config: LogConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
) -> tuple[int, str]:
    """How many of the oldest segments go, and why the last of these does.

    All of them may go: the log then begins a new one first. An empty last segment stays.
    """
    surplus_bytes = sum(segment.size for segment in segments) - config.retention_bytes
    by_time = config.deletes and config.retention_ms >= 0
    by_size = config.deletes and config.retention_bytes >= 0
    going, why = 0, ""
    for number, segment in enumerate(segments, start=1):
        is_last = number == len(segments)
        if segment.end_offset > high_watermark or (is_last and segment.size == 0):
            break
        if by_time and now_ms - segment.largest_timestamp > config.retention_ms:
            why = f"retention.ms {config.retention_ms} is over"
        elif by_size and surplus_bytes - segment.size >= 0:
            why = f"retention.bytes {config.retention_bytes} is exceeded"
        elif not is_last and segment.end_offset <= log_start_offset:
            why = f"the log starts at {log_start_offset}"
        else:
            break
        surplus_bytes -= segment.size
        going = number
    return going, why
