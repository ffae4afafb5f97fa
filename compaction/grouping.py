"""Group neighbouring segments that are cleaned into one (Kafka's groupSegmentsBySize). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from compaction.job import SourceSegment
from core_log.config import INT_MAX, LogConfig

MOST_TOGETHER = 50
"""Segments of one group: the swap keeps the files of all of them open."""


def group_segments(
    segments: Sequence[SourceSegment], config: LogConfig
) -> list[tuple[SourceSegment, ...]]:
    """Put segments together while their contents might still fit in one.

    Besides bytes, an index counts offsets from the segment's base, in 31 bits, so a group ends
    before that (KAFKA-2024). A segment's offsets end at the next one's base; its own index may be
    empty (KAFKA-5413). A segment without a record has nothing to count (KAFKA-12889).

    An empty segment that nothing is put together with is in no group: it stays as it is.
    """
    # Fill one group after the other: their offsets must stay in order.
    groups: list[list[SourceSegment]] = []
    for segment in segments:
        if groups and _fit([*groups[-1], segment], config):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    # It would be written anew each time (fault broker-15, was: [tuple(group) for group in groups]).
    return [tuple(group) for group in groups if len(group) > 1 or group[0].size > 0]


def _fit(group: Sequence[SourceSegment], config: LogConfig) -> bool:
    last = group[-1]
    offsets = last.end_offset - group[0].base_offset
    # It may be as far away as it likes (fault broker-15).
    if last.size == 0:
        offsets = 0

    return (
        len(group) <= MOST_TOGETHER
        and sum(segment.size for segment in group) <= config.segment_bytes
        and sum(segment.index_bytes for segment in group) <= config.segment_index_bytes
        and sum(segment.time_index_bytes for segment in group) <= config.segment_index_bytes
        and offsets - 1 <= INT_MAX
    )
