"""The producers of a log: who they are now, and who they were at some offsets, on disk.

At a start, and after a truncation, they come from the newest snapshot and a replay of the batches
behind it. Batches from a leader are replayed likewise. A marker among them, or one that the leader
writes, ends a transaction. If that was aborted, it gets its entry in the `.txnindex`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial

import attrs

from core_log.damage import EVERYTHING
from core_log.guard import Guard
from core_log.open_files import OPEN_FILES
from core_log.producers.producer_snapshots import ProducerSnapshots, Snapshot
from core_log.producers.producer_state import NONE, ProducerState
from core_log.producers.transactions import EndOfTransaction, note_abort, read_end
from core_log.segments.segment_list import SegmentList
from core_log.storage import BytesLike
from protocol.records.batch_header import BatchHeader


@attrs.define(eq=False)
class ProducerHistory:
    """The producers of the log that has these segments."""

    segments: SegmentList
    guard: Guard
    snapshots: ProducerSnapshots
    state: ProducerState = attrs.field(factory=ProducerState)

    def replay(
        self,
        headers: Iterable[BatchHeader],
        now_ms: int = NONE,
        batch_of: Callable[[BatchHeader], BytesLike] | None = None,
    ) -> None:
        """Note batches that are in the log now. `now_ms` is the clock, -1 while loading.

        `batch_of` returns the bytes of a batch; without it they are read from the log.
        """
        self.state.replay(headers, partial(self._replay_end, batch_of), now_ms)

    def note_marker(self, marker: BatchHeader, end: EndOfTransaction, now_ms: int) -> None:
        """Note a marker that the leader has written, as `replay` does."""
        self._note_end(marker, end)
        self.state.update(
            marker, marker.last_offset, marker.max_timestamp, now_ms, end.coordinator_epoch
        )

    def snapshot(self, offset: int) -> None:
        """Take the producers at the log's end, `offset`, for the next flush to write down."""
        if self.snapshots.take(offset, self.state.producers):
            # What comes next changes copies of them (fault strangers-12).
            self.state.is_shared = True

    def write_snapshots(self) -> None:
        """Write now what was taken. Raises OSError."""
        self.snapshots.write()
        self.state.is_shared = False

    def note_flushed(self, snapshots: Collection[Snapshot]) -> list[int]:
        """Note that a flush has written these. Returns those whose files are needless."""
        needless = self.snapshots.note_flushed(snapshots)
        self.state.is_shared = not self.snapshots.is_written
        return needless

    def truncate_to(self, offset: int) -> None:
        """Undo what was written at `offset` and above: the log ends there now. Raises OSError.

        That happens in memory or, if memory does not tell what a producer was before, by `reload`.
        """
        # A snapshot above the end would bring back what was truncated.
        self.snapshots.remove_from(offset)
        if not self.state.truncate_to(offset):
            self.reload()

    def reload(self, *, markers_from: int = EVERYTHING) -> None:
        """Find the producers by a snapshot and the batches behind it. Raises OSError.

        The `.txnindex` entries of transactions that ended at `markers_from` or above are written
        again. So no snapshot behind that offset is used.
        """
        segments, snapshots = self.segments, self.snapshots
        end_offset = min(segments.end_offset, markers_from)
        newest = snapshots.newest(segments.first.base_offset, end_offset)
        self.state = ProducerState(newest)
        # Replay what is behind the snapshot, if anything is.
        if snapshots.covered < segments.end_offset:
            self.replay(segments.produced_from(snapshots.covered))

    def clear(self, offset: int) -> None:
        """Forget all: the log starts again at `offset`. Raises OSError."""
        self.state = ProducerState()
        self.snapshots.clear(offset)

    def _replay_end(
        self, batch_of: Callable[[BatchHeader], BytesLike] | None, marker: BatchHeader
    ) -> int:
        """Note the end of a transaction. Returns its coordinator's epoch, -1 if unknown."""
        batch = None if batch_of is None else batch_of(marker)
        try:
            with OPEN_FILES.must_end():
                end = read_end(marker, self.segments, batch)
        except OSError as error:
            self.guard.fail(error)
            return NONE
        self._note_end(marker, end)
        return end.coordinator_epoch

    def _note_end(self, marker: BatchHeader, end: EndOfTransaction) -> None:
        """Write down the transaction that a marker aborts, before `state` takes note of it.

        A disk that fails over it fails the log, which has the marker already.
        """
        if not end.is_abort:
            return
        try:
            with OPEN_FILES.must_end():
                note_abort(marker, self.segments, self.state)
        except OSError as error:
            # Readers of committed data would not know of an aborted transaction.
            self.guard.fail(error)
