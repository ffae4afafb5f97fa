"""Split a segment whose offsets lie too far apart for its indexes (KAFKA-6264).

An index names an offset by its distance from the segment's base, in 31 bits. Older brokers could
write further: the cleaner joined segments, and followers of compacted logs appended to them,
without checking the distance. Such a segment is found when its log is loaded. The parts are written
as `.cleaned` and renamed to `.swap`, the last one first. The rest is what follows a crash at this
point (`recovery`), so a crash at any other point is covered too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from core_log.config import INT_MAX
from core_log.segments.batch_scan import ShallowBatch, scan
from core_log.segments.file_name import CLEANED, LOG, SWAP, TRANSACTION_INDEX, file_name
from core_log.segments.segment import Segment
from core_log.segments.transaction_index import encode_transaction_index, read_transaction_index
from core_log.storage import Directory, StorageFile
from protocol.records.batch import decode_batch
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.entry import read_entry

COPY_BYTES = 1024 * 1024

logger = logging.getLogger(__name__)


class OffsetOverflow(Exception):
    """The segment that begins at `base_offset` has offsets that cannot be indexed."""

    def __init__(self, base_offset: int) -> None:
        super().__init__(f"segment {base_offset} has offsets too far from its base")
        self.base_offset = base_offset


def overflow_error(segment: Segment, batch: ShallowBatch) -> OffsetOverflow | CorruptRecord:
    """Return the error for a batch too far from the base.

    An offset has no checksum. It is believed if the batches behind go on from there.
    """
    expected = batch.base_offset
    try:
        for later in scan(segment.log, batch.position):
            if later.base_offset < expected:
                raise CorruptRecord(f"offset {later.base_offset} comes after {expected - 1}")
            expected = later.last_offset + 1
    except CorruptRecord:
        return CorruptRecord(f"offset {batch.last_offset} is too far from the base")
    return OffsetOverflow(segment.base_offset)


def check_overflow(segment: Segment, next_base: int | None) -> None:
    """Raise OffsetOverflow if the segment, by its indexes, ends too far from its base.

    The next segment begins at `next_base`. If that is near enough, nothing is read.
    """
    if next_base is not None and next_base - 1 - segment.base_offset <= INT_MAX:
        return
    try:
        if segment.next_offset() - 1 - segment.base_offset > INT_MAX:
            raise OffsetOverflow(segment.base_offset)
    except CorruptRecord:
        return  # the check of the batches reports it


def split_segment(directory: Directory, base_offset: int) -> None:
    """Write the parts of a segment as `.swap`, for recovery. Raises OSError and CorruptRecord."""
    source = directory.open_segment(file_name(base_offset, LOG))
    # Retention and tombstones may go by the file's age: the parts inherit it.
    modified_ms = directory.modified_ms(file_name(base_offset, LOG))
    parts = list(_parts(source))
    transactions = read_transaction_index(directory, file_name(base_offset, TRANSACTION_INDEX))

    # Write all parts before the first of them gets its name.
    names = []
    for first_offset, start, end, last_offset in parts:
        name = file_name(first_offset, LOG)
        _copy(source, start, end, directory, name + CLEANED)
        directory.set_modified_ms(name + CLEANED, modified_ms)
        names.append(name)

        # An aborted transaction is indexed in the part that has its marker.
        aborted = [
            transaction
            for transaction in transactions
            if first_offset <= transaction.last_offset <= last_offset
        ]
        if aborted:
            name = file_name(first_offset, TRANSACTION_INDEX)
            directory.write_atomic(name + CLEANED, encode_transaction_index(aborted))
            names.append(name)

    directory.fsync_dir()
    # A crash amid this leaves lower `.cleaned` logs, which undo the swaps.
    for name in reversed(names):
        directory.rename(name + CLEANED, name + SWAP)
    directory.fsync_dir()
    bases = [first_offset for first_offset, *_ in parts]
    logger.warning("%s: segment %d is split at %s", directory.path, base_offset, bases)


def _parts(source: StorageFile) -> Iterator[tuple[int, int, int, int]]:
    """Yield first offset, start, end and last offset of each part, as large as can be indexed."""
    base_offset = start = end = last_offset = 0
    for batch in scan(source):
        # Begin a part with the first batch, and with each that is too far away.
        if batch.last_offset - base_offset > INT_MAX or not end:
            if end:
                yield base_offset, start, end, last_offset
            base_offset, start = _first_offset(source, batch), batch.position
        end, last_offset = batch.end_position, batch.last_offset
    yield base_offset, start, end, last_offset


def _first_offset(source: StorageFile, batch: ShallowBatch) -> int:
    """Return a batch's first offset. Old formats name only the last one; the first is inside."""
    data = source.read(batch.position, batch.size)
    if batch.magic == 2:
        return batch.base_offset
    return decode_batch(data, 0, read_entry(data, 0, len(data)))[0].offset


def _copy(source: StorageFile, start: int, end: int, directory: Directory, name: str) -> None:
    # Otherwise the copy would be appended to a leftover.
    directory.remove(name)
    copy = directory.open_segment(name)
    for position in range(start, end, COPY_BYTES):
        copy.append([source.read(position, min(COPY_BYTES, end - position))])
    copy.fsync()
