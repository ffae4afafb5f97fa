"""Build both indexes of a segment from its batches.

Offsets are outside of a batch's checksum. One that is too high shows only in the batch behind it,
which then seems to go back. So where offsets go back, the earlier batch is the wrong one if the
later one goes on from what was before both.
"""

from __future__ import annotations

from collections.abc import Iterable

from core_log.config import INT_MAX
from core_log.leader_epochs import LeaderEpochs
from core_log.segments.batch_scan import ShallowBatch
from core_log.segments.segment import Segment
from core_log.segments.splitting import overflow_error
from core_log.segments.time_index import TimestampOffset
from protocol.frozen import frozen
from protocol.records.corrupt_record import CorruptRecord


@frozen
class Built:
    """The good batches end at `position`, before `offset`; `reason` says what is wrong there.

    `has_markers` is set if some of them end transactions.
    """

    offset: int
    position: int
    reason: str
    has_markers: bool = False


def build_indexes(
    segment: Segment,
    batches: Iterable[ShallowBatch],
    index_interval_bytes: int,
    epochs: LeaderEpochs,
    end_offset: int | None,
    next_base: int | None,
) -> Built:
    """Fill empty, open indexes from `batches`, which raise CorruptRecord where they are not good.

    Leader epochs that `epochs` lacks are added to it. `end_offset` is an offset where the log
    ended once, so no gap reaches over it. The next segment begins at `next_base`. Raises
    OffsetOverflow.
    """
    reason = "the file ends within a batch"
    offset, end_position = before = segment.base_offset, 0
    last_possible = segment.base_offset + INT_MAX
    index_from = index_interval_bytes
    has_markers = False
    latest_timestamp = segment.latest.timestamp
    latest_epoch = epochs.latest_epoch

    # Small batches are many: in most turns of this loop nothing is called.
    try:
        for batch in batches:
            position, size, base_offset, last_offset, epoch, timestamp, _, is_control = batch

            # Offsets go up, and stay in this segment.
            if base_offset < offset:
                # The earlier batch was the wrong one: go back before it.
                if before[0] <= base_offset:
                    offset, end_position = before
                    _truncate_indexes(segment, offset)
                raise CorruptRecord(f"offset {base_offset} is out of order")
            if next_base is not None and last_offset >= next_base:
                raise CorruptRecord(f"offset {last_offset} belongs into the next segment")
            if last_offset > last_possible:
                # The segment must be split, or this offset is wrong.
                raise overflow_error(segment, batch)
            # The log once ended there, so a batch must begin there: a gap over it is a loss.
            if end_offset is not None and _reaches_over(batch, offset, end_offset):
                raise CorruptRecord(
                    f"offset {base_offset} comes after {offset - 1}, though the log "
                    f"ended at {end_offset}"
                )

            # Note what is later than anything before.
            if timestamp > latest_timestamp:
                segment.latest = TimestampOffset(timestamp, last_offset)
                latest_timestamp = timestamp
            if position > index_from:
                segment.add_index_entry(last_offset, position)
                index_from = position + index_interval_bytes
            if epoch > latest_epoch:
                epochs.assign(epoch, base_offset)
                latest_epoch = epochs.latest_epoch
            has_markers |= is_control

            # Remember two ends, to go back if this batch turns out to be wrong.
            before = offset, end_position
            offset, end_position = last_offset + 1, position + size
    except CorruptRecord as error:
        reason = str(error)
    return Built(offset, end_position, reason, has_markers)


def _reaches_over(batch: ShallowBatch, offset: int, end_offset: int) -> bool:
    """Return whether a batch leaves a gap over `end_offset`. Old formats name no first offset."""
    return offset < end_offset <= batch.base_offset and batch.magic == 2


def _truncate_indexes(segment: Segment, offset: int) -> None:
    """Remove the wrong entries from `offset` on."""
    segment.offset_index.truncate_to(offset)
    segment.time_index.truncate_to(offset)
    segment.latest = segment.time_index.last
