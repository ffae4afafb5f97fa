"""Split replicated batches into runs that are written in one call each.

A follower keeps every byte: offsets, epochs and timestamps are the leader's. It checks that each
batch is whole, that its checksum is right, and that offsets go up. They may leave gaps if the
leader's log was compacted. A fetch may end within a batch, which comes again with the next one.
Messages of the old formats count as batches, and their leader writes them so too.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from core_log.config import INT_MAX
from core_log.segments.time_index import TimestampOffset
from protocol.records.batch_header import BatchHeader
from protocol.records.checksums import check_entry
from protocol.records.entry import EntryHeader, read_entry

RUN_BYTES = 64 * 1024
"""Most bytes of replicated batches that share one write and one index entry."""


class UnexpectedAppendOffset(ValueError):
    """A replicated batch does not follow the log's end."""

    def __init__(self, first_offset: int, last_offset: int, log_end_offset: int) -> None:
        super().__init__(
            f"offsets {first_offset} to {last_offset} cannot follow log end {log_end_offset}"
        )
        self.first_offset = first_offset
        self.last_offset = last_offset


@attrs.define(eq=False)
class ReplicatedRun:
    """Adjoining batches: `records` are their bytes, `headers` their headers."""

    records: memoryview
    headers: list[EntryHeader]
    log_end_offset: int
    _positions: dict[int, int] = attrs.field(factory=dict)

    @property
    def first_offset(self) -> int:
        """First offset, as far as it is known.

        A message does not name the first one in it. Then the log's end serves, or an offset near
        enough to the last one to be indexed (KAFKA-4451).
        """
        first = self.headers[0]
        if isinstance(first, BatchHeader):
            return first.base_offset
        return max(self.log_end_offset, self.last_offset - INT_MAX)

    @property
    def last_offset(self) -> int:
        """Last offset of the last batch."""
        return self.headers[-1].last_offset

    @property
    def latest(self) -> TimestampOffset:
        """Latest timestamp, with the last offset of the first batch that has it."""
        header = max(self.headers, key=lambda header: header.max_timestamp)
        return TimestampOffset(header.max_timestamp, header.last_offset)

    @property
    def produced(self) -> Iterator[BatchHeader]:
        """The headers of its batches that name their producer."""
        for header in self.headers:
            if isinstance(header, BatchHeader) and header.producer_id >= 0:
                yield header

    def batch_of(self, header: BatchHeader) -> memoryview:
        """Return the bytes of the batch that has this header."""
        # Only markers are asked for, which most runs do not have.
        if not self._positions:
            position = 0
            for each in self.headers:
                self._positions[each.base_offset] = position
                position += each.size
        start = self._positions[header.base_offset]
        return self.records[start : start + header.size]


def split_into_runs(
    records: memoryview, log_end_offset: int, max_bytes: int
) -> Iterator[ReplicatedRun]:
    """Yield runs of whole batches that one segment can index.

    A run has RUN_BYTES and `max_bytes` at most; a larger batch is a run alone. Raises CorruptRecord
    or UnexpectedAppendOffset for the first batch that cannot be appended, after the run before it.
    """
    # segment.bytes may be less than a run.
    max_bytes = min(max_bytes, RUN_BYTES)
    start = position = 0
    run_offset = log_end_offset
    headers: list[EntryHeader] = []

    try:
        while (header := _next_batch(records, position, log_end_offset)) is not None:
            # End the run before a batch that does not fit.
            if headers and (
                position + header.size - start > max_bytes
                or header.last_offset - headers[0].base_offset > INT_MAX
            ):
                yield ReplicatedRun(records[start:position], headers, run_offset)
                start = position
                headers = []
                run_offset = log_end_offset
            headers.append(header)
            position += header.size
            log_end_offset = header.next_offset
    except ValueError:  # the good batches before it are a run
        if headers:
            yield ReplicatedRun(records[start:position], headers, run_offset)
        raise

    if headers:
        yield ReplicatedRun(records[start:position], headers, run_offset)


def _next_batch(records: memoryview, position: int, log_end_offset: int) -> EntryHeader | None:
    header = read_entry(records, position, len(records))
    # The rest of this batch comes with the next fetch.
    if header is None:
        return None
    check_entry(records, position, header)
    if header.base_offset < log_end_offset:
        raise UnexpectedAppendOffset(header.base_offset, header.last_offset, log_end_offset)
    return header
