"""The facts about a log, as values, by which the cleaner chooses one and cleans it elsewhere."""

from __future__ import annotations

from compaction.config import CleanerConfig
from compaction.dirtiness import Dirtiness, LogFacts, SegmentFacts
from compaction.job import NO_DATA, CleaningJob, SourceSegment
from core_log.config import LONG_MAX
from core_log.log import Log


def read_facts(log: Log, high_watermark: int, checkpoint: int | None) -> LogFacts:
    """Read the facts that decide whether and how far a log is cleaned. Raises OSError.

    The time of a segment's first record only matters if records have a deadline.
    """
    has_deadline = log.config.max_compaction_lag_ms < LONG_MAX

    segments = [
        SegmentFacts(
            segment.base_offset,
            segment.size,
            segment.read_first_timestamp() if has_deadline else -1,
            segment.largest_timestamp,
        )
        for segment in log.segments
    ]

    # An open transaction may yet be aborted, and what is not replicated be truncated.
    unstable = log.producers.first_unstable_offset(high_watermark)
    return LogFacts(
        log.topic_partition,
        segments,
        log.config,
        log.log_start_offset,
        log.log_end_offset,
        high_watermark if unstable is None else min(high_watermark, unstable),
        checkpoint,
    )


def create_job(log: Log, chosen: Dirtiness, config: CleanerConfig, now_ms: int) -> CleaningJob:
    """Create the job of cleaning the `chosen` part of a log. Raises OSError."""
    # A segment ends where the next one begins, the last where the log does.
    segments = list(log.segments)
    ends = [*(segment.base_offset for segment in segments[1:]), log.log_end_offset]
    return CleaningJob(
        log.topic_partition,
        tuple(
            SourceSegment(
                segment.base_offset,
                end_offset,
                segment.size,
                segment.offset_index.file.length,
                segment.time_index.file.length,
                segment.modified_ms,
            )
            for segment, end_offset in zip(segments, ends, strict=True)
            if segment.base_offset < chosen.first_uncleanable_offset
        ),
        chosen.first_dirty_offset,
        chosen.first_uncleanable_offset,
        log.config,
        {
            # The batch that ends there is kept for its producer's numbers.
            producer_id: producer.batches[-1].last_offset if producer.batches else NO_DATA
            for producer_id, producer in log.producers.producers.items()
        },
        config.dedupe_bytes,
        config.io_buffer_load_factor,
        config.io_bytes,
        now_ms,
    )
