"""Both indexes of a segment, made from its batches.

Offsets are outside of a batch's checksum. One that is too high shows only in the batch behind it,
which then seems to go back; so where offsets go back, it is the earlier batch that is wrong if the
later one goes on from what was before both.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from core_log.batch_scan import ShallowBatch
from core_log.config import INT_MAX
from core_log.leader_epochs import LeaderEpochs
from core_log.segment import Segment
from core_log.splitting import overflow
from core_log.time_index import TimestampOffset
from protocol.records.corrupt_record import CorruptRecord


@attrs.frozen
class Built:
    """The good batches end at `position`, before `offset`; `fault` says what is wrong there.
    `has_markers`: some of them end transactions."""

    offset: int
    position: int
    fault: str
    has_markers: bool = False


def build_indexes(
    segment: Segment,
    batches: Iterable[ShallowBatch],
    index_interval_bytes: int,
    epochs: LeaderEpochs,
    end_offset: int | None,
    next_base: int | None,
) -> Built:
    """Fill the indexes, which are open and empty, from `batches`, which raise CorruptRecord where
    they are not good.

    Leader epochs that `epochs` does not have are added to it. `end_offset` is where the log is
    known to have ended once: no gap reaches over it; at `next_base` the next segment begins.
    Raises OffsetOverflow.
    """
    before = built = Built(segment.base_offset, 0, "the file ends within a batch")
    indexed_position, has_markers = 0, False
    try:
        for batch in batches:
            if batch.base_offset < built.offset:
                if before.offset <= batch.base_offset:
                    built = before
                    _forget(segment, built.offset)
                raise CorruptRecord(f"offset {batch.base_offset} is out of order")
            if next_base is not None and batch.last_offset >= next_base:
                raise CorruptRecord(f"offset {batch.last_offset} belongs into the next segment")
            if batch.last_offset - segment.base_offset > INT_MAX:
                raise overflow(segment, batch)
            if end_offset is not None and _reaches_over(batch, built.offset, end_offset):
                raise CorruptRecord(
                    f"offset {batch.base_offset} comes after {built.offset - 1}, though the log "
                    f"ended at {end_offset}"
                )
            if batch.max_timestamp > segment.latest.timestamp:
                segment.latest = TimestampOffset(batch.max_timestamp, batch.last_offset)
            if batch.position - indexed_position > index_interval_bytes:
                segment.add_index_entry(batch.last_offset, batch.position)
                indexed_position = batch.position
            if batch.leader_epoch > epochs.latest_epoch:
                epochs.assign(batch.leader_epoch, batch.base_offset)
            has_markers = has_markers or batch.is_control
            before, built = built, Built(batch.last_offset + 1, batch.end_position, built.fault)
    except CorruptRecord as error:
        built = attrs.evolve(built, fault=str(error))
    return attrs.evolve(built, has_markers=has_markers)


def _reaches_over(batch: ShallowBatch, offset: int, end_offset: int) -> bool:
    """Messages of the old formats do not tell their first offset."""
    return batch.magic == 2 and offset < end_offset <= batch.base_offset


def _forget(segment: Segment, offset: int) -> None:
    """What was indexed from `offset` on was wrong."""
    segment.offset_index.truncate_to(offset)
    segment.time_index.truncate_to(offset)
    segment.latest = segment.time_index.last
