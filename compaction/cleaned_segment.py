"""The segment that takes the place of cleaned ones, while it is being written.

Its files end in `.cleaned`, and a log that is opened removes those: an unfinished copy does not
count. Indexes get an entry for each run of batches, as a follower's do.
"""

from __future__ import annotations

import attrs

from compaction.record_filter import KeptBatch
from core_log.config import INT_MAX, LogConfig
from core_log.segments.file_name import (
    ALL_SUFFIXES,
    CLEANED,
    SUFFIXES,
    TRANSACTION_INDEX,
    file_name,
)
from core_log.segments.segment import Segment
from core_log.segments.time_index import TimestampOffset
from core_log.segments.transaction_index import AbortedTransaction, encode_transaction_index
from core_log.storage import BytesLike, Directory
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.legacy import NO_TIMESTAMP

RUN_BYTES = 64 * 1024
"""Most bytes that share one write and one index entry, unless one batch has more."""
_NONE = TimestampOffset(NO_TIMESTAMP, -1)


@attrs.define(eq=False)
class CleanedSegment:
    """Written from its start to its end, and finished by `finish` or `remove_cleaned_files`."""

    segment: Segment
    config: LogConfig
    bytes_written: int = 0
    messages_written: int = 0
    _parts: list[BytesLike] = attrs.field(factory=list, repr=False)
    _size: int = 0
    _last_offset: int = -1
    _latest: TimestampOffset = _NONE

    @classmethod
    def create(cls, directory: Directory, base_offset: int, config: LogConfig) -> CleanedSegment:
        """Create an empty segment. Leftovers of its names are removed. Raises OSError."""
        segment = Segment.create(directory, base_offset, 0, CLEANED)  # nobody asks for its age
        for index in (segment.offset_index.file, segment.time_index.file):
            index.activate(config.segment_index_bytes)
        return cls(segment, config)

    def append(self, kept: KeptBatch) -> None:
        """Add a batch. Raises OSError, and CorruptRecord for an offset that cannot be indexed."""
        data, last_offset, max_timestamp, records = kept
        if not 0 <= last_offset - self.segment.base_offset <= INT_MAX:
            base_offset = self.segment.base_offset
            raise CorruptRecord(f"offset {last_offset} is too far from {base_offset}")

        if self._size + len(data) > RUN_BYTES:
            self.flush_run()

        self._parts.append(data)
        self._size += len(data)
        self._last_offset = last_offset
        # The time index wants the first batch that has the latest time.
        if max_timestamp > self._latest.timestamp:
            self._latest = TimestampOffset(max_timestamp, last_offset)
        self.messages_written += records

    def flush_run(self) -> None:
        """Write the batches that were added. Raises OSError."""
        if self._parts:
            run = b"".join(self._parts)
            self.segment.append(
                [run], self._last_offset, self._latest, self.config.index_interval_bytes
            )
            self.bytes_written += self._size
            self._parts = []
            self._size = 0

    def finish(self, aborted: list[AbortedTransaction], modified_ms: int) -> None:
        """Make its files whole and safe, with the age of the newest source. Raises OSError.

        The age of tombstones counts from that time, so cleaning must not change it.
        """
        self.flush_run()
        directory, base_offset = self.segment.directory, self.segment.base_offset
        self.segment.seal()

        # An index of aborted transactions only where there are any.
        files = self.segment.files_to_flush()
        names = [file_name(base_offset, kind) + CLEANED for kind in SUFFIXES]
        if aborted:
            name = file_name(base_offset, TRANSACTION_INDEX) + CLEANED
            file = directory.open_segment(name)
            file.append([encode_transaction_index(aborted)])
            files.append(file)
            names.append(name)

        # The times are set before the fsync, which makes them safe too.
        for name in names:
            directory.set_modified_ms(name, modified_ms)
        for file in files:
            file.fsync()


def remove_cleaned_files(directory: Directory, base_offset: int) -> None:
    """Remove the `.cleaned` files of a segment, as far as there are any."""
    for kind in ALL_SUFFIXES:
        directory.remove(file_name(base_offset, kind) + CLEANED)
