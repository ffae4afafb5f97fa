"""What is asked of one cleaning of one log, and what it reports while it runs.

A job is made where the log is owned and done where it disturbs nobody, perhaps in another process:
all of it is values. Offsets that end something are exclusive, sizes are bytes, times ms.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from core_log.config import LogConfig
from protocol.topic_partition import TopicPartition

NO_DATA = -1
"""In place of an offset, of a producer of whom only transaction markers are left."""

NONE_UNOPENED = -1
"""In place of the offset of a batch that could not be opened."""


@attrs.frozen
class SourceSegment:
    """A segment as it was when the job was made; `end_offset` is the next segment's base."""

    base_offset: int
    end_offset: int
    size: int
    index_bytes: int
    time_index_bytes: int
    modified_ms: int


@attrs.frozen
class CleaningJob:
    """Clean the segments, which are all of a log from its first up to the first uncleanable one.

    What is below `first_dirty_offset` was cleaned before. `producers` has of each live producer
    id the last offset of its data, or NO_DATA; the batch that ends there is kept, if need be
    without records, for the numbers it bears. `dedupe_bytes` times `load_factor` is what the
    offset map may take up, `io_bytes` the least that is read at once.
    """

    topic_partition: TopicPartition
    segments: tuple[SourceSegment, ...]
    first_dirty_offset: int
    first_uncleanable_offset: int
    config: LogConfig
    producers: Mapping[int, int]
    dedupe_bytes: int
    load_factor: float
    io_bytes: int
    now_ms: int


@attrs.frozen
class CleanerStatistics:
    """What one run read and wrote (Kafka's CleanerStats).

    `map_*` is the reading of the dirty part for the offset map, the rest the copying. The two
    times are for the driver to fill in, who has a clock.
    """

    map_bytes_read: int = 0
    map_messages_read: int = 0
    map_utilization: float = 0.0
    bytes_read: int = 0
    messages_read: int = 0
    bytes_written: int = 0
    messages_written: int = 0
    invalid_messages: int = 0
    """Records without a key, which went."""
    outgrown_batches: int = 0
    """Batches that became larger, and larger than max.message.bytes, when compressed anew."""
    unopened_batches: int = 0
    first_unopened: int = NONE_UNOPENED
    """Batches that could not be opened, and stayed as they are; the first offset of the first."""
    map_ms: int = 0
    clean_ms: int = 0


INDEX = "index"
CLEAN = "clean"


@attrs.frozen
class CleaningProgress:
    """`bytes_done` were read or written since the last one, in `phase` INDEX or CLEAN."""

    phase: str
    bytes_done: int
    bytes_left: int


@attrs.frozen
class GroupCleaned:
    """The `.cleaned` files of `base_offset` are whole and on disk, in place of these segments."""

    base_offset: int
    replaced: tuple[int, ...]


@attrs.frozen
class Finished:
    """All is done: `end_offset` is where the next cleaning begins to look for duplicates."""

    end_offset: int
    statistics: CleanerStatistics
