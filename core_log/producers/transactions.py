"""Transactions of producers, as their markers come into a log (KIP-98).

A reader of committed data must know which were aborted. So the transaction that a marker aborts is
written into the `.txnindex` of the marker's segment with the marker, and again after a crash.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from typing import NamedTuple

from core_log.damage import EVERYTHING
from core_log.producers.producer_state import NONE, ProducerState
from core_log.segments.file_name import TRANSACTION_INDEX, file_name
from core_log.segments.index_file import CorruptIndex
from core_log.segments.segment import Segment
from core_log.segments.segment_list import SegmentList
from core_log.segments.transaction_index import (
    ENTRY,
    AbortedTransaction,
    decode_entry,
    encode_transaction_index,
    read_transaction_index,
)
from core_log.storage import BytesLike
from protocol.records.batch import decode_batch
from protocol.records.batch_header import BatchHeader
from protocol.records.control_record import ABORT, coordinator_epoch, marker_type
from protocol.records.corrupt_record import CorruptRecord

logger = logging.getLogger(__name__)


class EndOfTransaction(NamedTuple):
    """The fields of a marker's record."""

    is_abort: bool = False
    coordinator_epoch: int = NONE


def decode_end(batch: BytesLike) -> EndOfTransaction:
    """Decode a marker. Raises CorruptRecord."""
    # The header does not tell a commit from an abort: the record's key does.
    records = decode_batch(batch)
    if not records:  # the cleaner leaves an empty batch
        return EndOfTransaction()
    kind = marker_type(records[0].key or b"")
    return EndOfTransaction(kind == ABORT, coordinator_epoch(records[0].value or b""))


def read_end(
    marker: BatchHeader, segments: SegmentList, batch: BytesLike | None = None
) -> EndOfTransaction:
    """Read a marker, from its log unless its `batch` is given.

    One that cannot be read aborts nothing and has no coordinator. Raises OSError.
    """
    segment = segments.segments[segments.floor(marker.base_offset)]
    try:
        if batch is None:
            found = segment.find(marker.base_offset)
            if found is None or found.base_offset != marker.base_offset:
                return EndOfTransaction()
            batch = segment.log.read(found.position, found.size)
        return decode_end(batch)
    except CorruptRecord as error:
        logger.warning("%s: marker %d: %s", segment.directory.path, marker.base_offset, error)
        return EndOfTransaction()


def note_abort(marker: BatchHeader, segments: SegmentList, producers: ProducerState) -> None:
    """Write down the transaction that a marker in the log aborts, if it is not there already.

    A marker without an open transaction aborts nothing (KAFKA-10702). Call this before `producers`
    take note of the marker. Raises OSError.
    """
    producer = producers.producers.get(marker.producer_id)
    if producer is None or producer.transaction_start < 0:
        return

    # The last stable offset is where the oldest transaction of the others begins.
    last_offset = marker.last_offset
    other_start = producers.first_open_offset(besides=marker.producer_id)
    transaction = AbortedTransaction(
        marker.producer_id,
        producer.transaction_start,
        last_offset,
        last_offset + 1 if other_start is None else other_start,
    )
    segment = segments.segments[segments.floor(marker.base_offset)]
    if not _append(segment, transaction) and _insert(segment, transaction):
        segments.flushes.name_changes += 1


def _append(segment: Segment, transaction: AbortedTransaction) -> bool:
    """Append an entry to the index of a segment; return whether that is its place."""
    file = segment.transaction_index
    # No entry was added yet since the segment was opened.
    if file is None or not file.size:
        return False
    last = decode_entry(file.read(file.size - ENTRY.size, ENTRY.size))
    if last is None or last.last_offset >= transaction.last_offset:
        return False
    file.append([encode_transaction_index([transaction])])
    return True


def _insert(segment: Segment, transaction: AbortedTransaction) -> bool:
    """Put an entry in its place, unless it is there already. Returns whether it was put.

    Others may follow it: the cleaner removes entries, and a damaged one may have any last offset.
    An index that cannot be read is left as it is.
    """
    name = file_name(segment.base_offset, TRANSACTION_INDEX)
    try:
        transactions = read_transaction_index(segment.directory, name)
    except CorruptIndex as error:
        logger.warning("%s: %s", segment.directory.path, error)
        return False

    # Entries go up by last offset.
    place = bisect_left(transactions, transaction.last_offset, key=_last_offset)
    behind = transactions[place:]
    if behind and behind[0].last_offset == transaction.last_offset:
        return False

    # What is behind its place is written again after it.
    segment.transaction_index = segment.directory.open_segment(name)
    segment.has_aborted = True
    segment.transaction_index.truncate(place * ENTRY.size)
    segment.transaction_index.append([encode_transaction_index([transaction, *behind])])
    return True


def _last_offset(transaction: AbortedTransaction) -> int:
    return transaction.last_offset


def delete_doubtful_indexes(segments: SegmentList, unsynced_from: int) -> int:
    """Remove the transaction indexes that may be wrong, when a log is loaded. Raises OSError.

    These are the indexes from the segment at `unsynced_from` on, which a crash may have torn, and
    those with impossible entries. Returns the offset from which on markers must be noted again,
    EVERYTHING for none.
    """
    directory, markers_from = segments.directory, EVERYTHING
    names = {name for name in directory.files() if name.endswith(TRANSACTION_INDEX)}
    # Most logs have no such file.
    if not names:
        return markers_from

    ends = [*(segment.base_offset for segment in segments), segments.end_offset][1:]
    for segment, end_offset in zip(segments, ends, strict=True):
        name = file_name(segment.base_offset, TRANSACTION_INDEX)
        if name not in names:
            continue

        # A torn index may look whole, so all that were not synced are removed.
        misfit = _misfit(segment, name, end_offset)
        if misfit is not None:
            logger.warning("%s/%s is rebuilt: %s", directory.path, name, misfit)
        if misfit is not None or segment.base_offset >= unsynced_from:
            directory.remove(name)
            markers_from = min(markers_from, segment.base_offset)
    return markers_from


def _misfit(segment: Segment, name: str, end_offset: int) -> object | None:
    """Say what is wrong with the index of a segment that ends before `end_offset`."""
    try:
        transactions = read_transaction_index(segment.directory, name)
    except CorruptIndex as error:
        return error
    size = segment.directory.size(name)
    if size != len(transactions) * ENTRY.size:
        return f"it ends within an entry, at {size} bytes"
    misfits = (entry for entry in transactions if not _fits(entry, segment, end_offset))
    return next(misfits, None)


def _fits(transaction: AbortedTransaction, segment: Segment, end_offset: int) -> bool:
    """Return whether such a transaction can have ended in this segment."""
    last_offset = transaction.last_offset
    return (
        segment.base_offset <= last_offset < end_offset
        and 0 <= transaction.first_offset <= last_offset
        and 0 <= transaction.last_stable_offset <= last_offset + 1
    )


def sync_indexes(segments: SegmentList) -> None:
    """Sync the indexes that were written and removed while a log was loaded. Raises OSError."""
    for segment in segments:
        if segment.transaction_index is not None:
            segment.transaction_index.fsync()
    segments.directory.fsync_dir()
