"""The producers of a log: who they are now, and what they were at some offsets, on disk.

At a start, and when the log was cut, they are those of the newest snapshot, and what was written
behind it is replayed. A batch that comes from a leader is replayed likewise; a marker among them
ends a transaction, which is put into the `.txnindex` then.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from core_log.guard import Guard
from core_log.producers.producer_snapshots import ProducerSnapshots
from core_log.producers.producer_state import NONE, ProducerState
from core_log.producers.transactions import note_end
from core_log.recovery.damage import EVERYTHING
from core_log.segments.segment_list import SegmentList
from protocol.records.batch_header import BatchHeader


@attrs.define(eq=False)
class ProducerHistory:
    """Those of the log that has these segments."""

    segments: SegmentList
    guard: Guard
    snapshots: ProducerSnapshots
    state: ProducerState = attrs.field(factory=ProducerState)

    def replay(self, headers: Iterable[BatchHeader], now_ms: int = NONE) -> None:
        """Note batches that are in the log now; `now_ms` is the clock, -1 while loading."""
        self.state.replay(headers, self._note_end, now_ms)

    def snapshot(self, offset: int) -> None:
        """Write down who they are where the log ends, at `offset`. Raises OSError."""
        self.snapshots.take(offset, self.state.producers)

    def truncate_to(self, offset: int) -> None:
        """Take back what came at `offset` and above, for the log ends there now: in memory, or, if
        that does not tell what a producer was before, by `reload`. Raises OSError."""
        self.snapshots.remove_from(offset)
        if not self.state.truncate_to(offset):
            self.reload()

    def reload(self, *, markers_from: int = EVERYTHING) -> None:
        """Find them by a snapshot and in what was written since. Raises OSError.

        Transactions that ended at `markers_from` or above are written down again: a snapshot
        behind it would have them passed by.
        """
        segments, snapshots = self.segments, self.snapshots
        end_offset = min(segments.end_offset, markers_from)
        newest = snapshots.newest(segments.first.base_offset, end_offset)
        self.state = ProducerState(newest)
        if snapshots.covered < segments.end_offset:
            self.replay(segments.produced_from(snapshots.covered))

    def clear(self, offset: int) -> None:
        """The log starts anew at `offset`. Raises OSError."""
        self.state = ProducerState()
        self.snapshots.clear(offset)

    def _note_end(self, marker: BatchHeader) -> int:
        """A transaction ends; the epoch of its coordinator, -1 if the marker does not tell. A disk
        that fails over it fails the log, which has the marker."""
        try:
            return note_end(marker, self.segments, self.state)
        except OSError as error:
            self.guard.fail(error)
            return NONE
