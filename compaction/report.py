"""The cleaner's lines in the broker's log: one when it begins, several at the end, and warnings
about records though the cleaning went well."""

from __future__ import annotations

from datetime import UTC, datetime

from compaction.clean import tombstone_horizon_ms
from compaction.dirtiness import Dirtiness
from compaction.job import CleaningJob
from compaction.status import Pass
from core_log.config import LogConfig

MEGABYTE = 2**20


def describe_start(job: CleaningJob, chosen: Dirtiness) -> str:
    """Describe the part that is going to be cleaned, why, and which tombstones go."""
    horizon_ms = tombstone_horizon_ms(
        job.segments, job.first_dirty_offset, job.config.delete_retention_ms
    )
    # Before anything was cleaned no tombstone has been seen for long enough.
    horizon = f"written by {_date(horizon_ms)}" if horizon_ms > 0 else "none"
    why = f"{chosen.ratio:.0%} is dirty"
    if chosen.overdue_ms:
        why += f", max.compaction.lag.ms was over {chosen.overdue_ms} ms ago"
    return (
        f"cleaning {len(job.segments)} segments, dirty from {job.first_dirty_offset} to "
        f"{job.first_uncleanable_offset} ({why}; newest {_date(job.segments[-1].modified_ms)}; "
        f"tombstones that go: {horizon})"
    )


def describe_end(done: Pass) -> str:
    """Describe a finished cleaning by the statistics of Kafka's cleaner."""
    s = done.statistics
    total_ms = max(1, s.map_ms + s.clean_ms)
    return "\n".join(
        (
            f"cleaned from {done.first_dirty_offset} to {done.end_offset}: "
            f"{_moved(s.map_bytes_read + s.bytes_read, total_ms)}",
            f"  indexed {_moved(s.map_bytes_read, s.map_ms)}, {s.map_ms / total_ms:.1%} of the "
            f"time, {s.map_messages_read} messages; "
            f"the dedupe buffer was {s.map_utilization:.1%} full",
            f"  copied {_moved(s.bytes_read, s.clean_ms)}, {s.clean_ms / total_ms:.1%} of the time",
            f"  before {_size(s.bytes_read)} in {s.messages_read} messages and "
            f"{done.segments_before} segments",
            f"  after {_size(s.bytes_written)} in {s.messages_written} messages and "
            f"{done.segments_after} segments",
            f"  {_share_saved(s.bytes_read, s.bytes_written)} less bytes, "
            f"{_share_saved(s.messages_read, s.messages_written)} less messages",
        )
    )


def list_warnings(done: Pass, config: LogConfig) -> list[str]:
    """List what somebody should know of a cleaning: nothing as a rule."""
    keyless = done.statistics.invalid_messages
    outgrown = done.statistics.outgrown_batches
    unopened = done.statistics.unopened_batches

    lines = []
    if keyless:
        lines.append(f"{keyless} messages had no key, and are gone")
    if outgrown:
        lines.append(
            f"{outgrown} batches have become larger than max.message.bytes, "
            f"{config.max_message_bytes}, by being compressed again: consumers before "
            "0.10.1 may have to fetch more at once"
        )
    if unopened:
        lines.append(
            f"{unopened} batches cannot be opened, the first at offset "
            f"{done.statistics.first_unopened}: they stay as they are, and so do all tombstones "
            "behind them"
        )
    return lines


def _moved(size: int, took_ms: int) -> str:
    rate = size * 1000 / max(1, took_ms)
    return f"{_size(size)} in {took_ms / 1000:.2f} s ({_size(rate)}/s)"


def _size(size: float) -> str:
    return f"{size / MEGABYTE:.1f} MB"


def _share_saved(before: int, after: int) -> str:
    return f"{1 - after / before:.1%}" if before else "0.0%"


def _date(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")
