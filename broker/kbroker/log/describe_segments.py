"""What can be told of a partition's log at little cost.

Nothing is read whole: of each segment the first batch, the ends of its indexes, and the headers of
the batches behind the last index entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import attrs

from broker.kbroker.log.entries import entries
from broker.kbroker.log.indexes import OFFSET_LAYOUT, TIME_LAYOUT, entry_count
from broker.kbroker.log.read_only_directory import ReadOnlyDirectory, ReadOnlyFile
from core_log.checkpoint import LEADER_EPOCHS, CheckpointError, decode_epochs
from core_log.segments.batch_scan import scan
from core_log.segments.file_name import INDEX, LOG, TIME_INDEX, base_offset_of, file_name
from protocol.records.batch_header import BatchHeader
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.legacy import NO_TIMESTAMP


@attrs.frozen
class SegmentDescription:
    """One segment; times in ms are None where no record has one.

    `end_offset` and the times are what the headers say. `index_entries` is None without an index.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None
    index_entries: int | None
    time_index_entries: int | None


def segments_of(directory: ReadOnlyDirectory) -> Iterator[SegmentDescription]:
    """The segments of a partition, in order; those that go meanwhile are left out."""
    bases = []
    for name in directory.files():
        if name.endswith(LOG):
            try:
                bases.append(base_offset_of(name))
            except ValueError:
                continue
    for base_offset in sorted(bases):
        try:
            yield _described(directory, base_offset)
        except FileNotFoundError:
            continue


def epochs_of(directory: ReadOnlyDirectory) -> list[tuple[int, int]]:
    """The partition's leader epochs and where each begins; none if they cannot be read."""
    try:
        return decode_epochs(directory.read(LEADER_EPOCHS))
    except CheckpointError:
        return []


def _described(directory: ReadOnlyDirectory, base_offset: int) -> SegmentDescription:
    index = _opened(directory, file_name(base_offset, INDEX))
    times = _opened(directory, file_name(base_offset, TIME_INDEX))
    index_entries = None if index is None else entry_count(index, OFFSET_LAYOUT)
    time_entries = None if times is None else entry_count(times, TIME_LAYOUT)
    relative, position, latest = 0, 0, NO_TIMESTAMP
    if index is not None and index_entries:
        at = (index_entries - 1) * OFFSET_LAYOUT.size
        relative, position = OFFSET_LAYOUT.unpack(index.read(at, OFFSET_LAYOUT.size))
    if times is not None and time_entries:
        at = (time_entries - 1) * TIME_LAYOUT.size
        latest, _ = TIME_LAYOUT.unpack(times.read(at, TIME_LAYOUT.size))
    log = directory.open(file_name(base_offset, LOG))
    end_offset, end_position = base_offset, 0
    if not _begins_at(log, position, base_offset, base_offset + relative):  # the index lies
        position = 0
    with suppress(CorruptRecord):  # or room that was set aside
        for batch in scan(log, position):
            end_offset, end_position = batch.last_offset + 1, batch.end_position
            latest = max(latest, batch.max_timestamp)
    first = _first_timestamp(log)
    return SegmentDescription(
        base_offset,
        end_offset,
        end_position,
        None if first < 0 else first,
        None if latest < 0 else latest,
        index_entries,
        time_entries,
    )


def _begins_at(log: ReadOnlyFile, position: int, first_offset: int, last_offset: int) -> bool:
    """Whether a batch begins there, at one of these offsets."""
    if position < 0:
        return False
    try:
        batch = next(scan(log, position), None)
    except CorruptRecord:
        return False
    return batch is not None and first_offset <= batch.base_offset <= last_offset


def _first_timestamp(log: ReadOnlyFile) -> int:
    try:
        entry = next(entries(log), None)
    except CorruptRecord:
        entry = None
    if entry is None:
        return NO_TIMESTAMP
    header = entry.header
    if isinstance(header, BatchHeader) and not header.timestamp_type:
        return header.base_timestamp
    return header.max_timestamp


def _opened(directory: ReadOnlyDirectory, name: str) -> ReadOnlyFile | None:
    try:
        return directory.open(name)
    except FileNotFoundError:
        return None
