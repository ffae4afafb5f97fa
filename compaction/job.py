"""The job of cleaning one log once, and the events that it reports.

A job is made by the log's owner, and done where it disturbs nobody, perhaps in another process. So
all of it is values. Offsets that end something are exclusive, sizes are bytes, times ms.
"""

from __future__ import annotations

from collections.abc import Mapping

from core_log.config import LogConfig
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

NO_DATA = -1
"""In place of a producer's last offset, if only transaction markers are left of it."""

NONE_UNOPENED = -1
"""In place of the offset of a batch that could not be opened, if there was none."""


@frozen
class SourceSegment:
    """A segment as it was when the job was made. `end_offset` is the next segment's base."""

    base_offset: int
    end_offset: int
    size: int
    index_bytes: int
    time_index_bytes: int
    modified_ms: int


@frozen
class CleaningJob:
    """Clean the segments: all of a log from its first up to the first uncleanable one.

    Offsets below `first_dirty_offset` were cleaned before. `producers` has the last offset of the
    data of each live producer id, or NO_DATA. The batch that ends there is kept, if need be without
    records, for its sequence numbers. The offset map may take up `dedupe_bytes` times
    `load_factor`; `io_bytes` is the least that is read at once.
    """

    topic_partition: TopicPartition
    segments: tuple[SourceSegment, ...]
    first_dirty_offset: int
    first_uncleanable_offset: int
    config: LogConfig
    producers: Mapping[int, int]
    # The cleaner's settings when the job began, and that time.
    dedupe_bytes: int
    load_factor: float
    io_bytes: int
    now_ms: int


@frozen
class CleanerStatistics:
    """The counts of one run (Kafka's CleanerStats).

    `map_*` is the reading of the dirty part for the offset map, the rest the copying. The driver
    fills in the two times, for it has a clock.
    """

    # Reading the dirty part into the map.
    map_bytes_read: int = 0
    map_messages_read: int = 0
    map_utilization: float = 0.0
    # Copying what stays.
    bytes_read: int = 0
    messages_read: int = 0
    bytes_written: int = 0
    messages_written: int = 0
    invalid_messages: int = 0
    """Records without a key, which were removed."""
    outgrown_batches: int = 0
    """Batches that grew when they were compressed again, beyond max.message.bytes."""
    unopened_batches: int = 0
    first_unopened: int = NONE_UNOPENED
    """Batches that could not be opened and stayed as they are, and the first one's first offset."""
    # Times of the two phases.
    map_ms: int = 0
    clean_ms: int = 0


INDEX = "index"
CLEAN = "clean"


@frozen
class CleaningProgress:
    """Reports bytes read or written since the last event, in `phase` INDEX or CLEAN."""

    phase: str
    bytes_done: int
    bytes_left: int


@frozen
class GroupCleaned:
    """Hands over whole `.cleaned` files of `base_offset`, on disk, in place of these segments."""

    base_offset: int
    replaced: tuple[int, ...]


@frozen
class Finished:
    """Ends a run. The next one begins to look for duplicates at `end_offset`."""

    end_offset: int
    statistics: CleanerStatistics
