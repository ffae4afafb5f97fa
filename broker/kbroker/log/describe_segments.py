"""Describe the segments of a partition at little cost.

No file is read whole. Each segment costs its first batch, the ends of its indexes, and the headers
of the batches behind the last index entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from broker.kbroker.log.entries import read_entries
from broker.kbroker.log.indexes import OFFSET_LAYOUT, TIME_LAYOUT, count_entries
from broker.kbroker.log.read_only_directory import ReadOnlyDirectory, ReadOnlyFile
from core_log.checkpoint import LEADER_EPOCHS, CheckpointError, decode_epochs
from core_log.segments.batch_scan import scan
from core_log.segments.file_name import INDEX, LOG, TIME_INDEX, base_offset_of, file_name
from protocol.frozen import frozen
from protocol.records.batch_header import BatchHeader
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.legacy import NO_TIMESTAMP


@frozen
class SegmentDescription:
    """A description of one segment; a time is None if no record has one.

    `end_offset` and the times come from the headers. `index_entries` and `time_index_entries` are
    None without such an index.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None
    index_entries: int | None
    time_index_entries: int | None


def describe_segments(directory: ReadOnlyDirectory) -> Iterator[SegmentDescription]:
    """Describe the segments of a partition in order; leave out those deleted meanwhile."""
    bases = []
    for name in directory.files():
        if name.endswith(LOG):
            try:
                bases.append(base_offset_of(name))
            except ValueError:
                continue

    # Segments may go while the others are described.
    for base_offset in sorted(bases):
        try:
            yield _describe_segment(directory, base_offset)
        except FileNotFoundError:
            continue


def read_epochs(directory: ReadOnlyDirectory) -> list[tuple[int, int]]:
    """Read the partition's leader epochs and start offsets; none if the file is corrupt."""
    try:
        return decode_epochs(directory.read(LEADER_EPOCHS))
    except CheckpointError:
        return []


def _describe_segment(directory: ReadOnlyDirectory, base_offset: int) -> SegmentDescription:
    # The last entries of the indexes say where to begin, and the latest time before.
    index = _open_if_there(directory, file_name(base_offset, INDEX))
    index_entries = None if index is None else count_entries(index, OFFSET_LAYOUT)
    relative = position = 0
    if index is not None and index_entries:
        at = (index_entries - 1) * OFFSET_LAYOUT.size
        relative, position = OFFSET_LAYOUT.unpack(index.read(at, OFFSET_LAYOUT.size))

    time_index = _open_if_there(directory, file_name(base_offset, TIME_INDEX))
    time_entries = None if time_index is None else count_entries(time_index, TIME_LAYOUT)
    latest = NO_TIMESTAMP
    if time_index is not None and time_entries:
        at = (time_entries - 1) * TIME_LAYOUT.size
        latest, _ = TIME_LAYOUT.unpack(time_index.read(at, TIME_LAYOUT.size))

    # An index that is wrong about its batch is not used.
    log = directory.open(file_name(base_offset, LOG))
    if not _has_batch_at(log, position, base_offset, base_offset + relative):
        position = 0

    # The headers behind it, to the end: corruption, or preallocated space.
    end_offset = base_offset
    end_position = 0
    with suppress(CorruptRecord):
        for batch in scan(log, position):
            end_offset = batch.last_offset + 1
            end_position = batch.end_position
            latest = max(latest, batch.max_timestamp)

    first = _read_first_timestamp(log)
    return SegmentDescription(
        base_offset,
        end_offset,
        end_position,
        None if first < 0 else first,
        None if latest < 0 else latest,
        index_entries,
        time_entries,
    )


def _has_batch_at(log: ReadOnlyFile, position: int, first_offset: int, last_offset: int) -> bool:
    """True if a batch begins at `position` with a base offset in this range, both inclusive."""
    if position < 0:
        return False
    try:
        batch = next(scan(log, position), None)
    except CorruptRecord:
        return False
    return batch is not None and first_offset <= batch.base_offset <= last_offset


def _read_first_timestamp(log: ReadOnlyFile) -> int:
    try:
        entry = next(read_entries(log), None)
    except CorruptRecord:
        entry = None
    if entry is None:
        return NO_TIMESTAMP

    # A batch with LogAppendTime has one time for all records.
    header = entry.header
    if isinstance(header, BatchHeader) and not header.timestamp_type:
        return header.base_timestamp
    return header.max_timestamp


def _open_if_there(directory: ReadOnlyDirectory, name: str) -> ReadOnlyFile | None:
    try:
        return directory.open(name)
    except FileNotFoundError:
        return None
