"""Follow the progress of the followers of the partitions led here, and propose changes of ISRs.

A follower's progress is what it fetches. A proposal goes to `write`; its end comes back by
`confirm_isr` or `give_up_isr`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

import attrs

from broker.replication.fetch_sessions import RequestedPartition
from broker.replication.isr import LONG_AGO_MS, Isr, LastFetch
from broker.replication.partition import IsrProposal, Partition
from protocol.errors import ApiError
from protocol.messages.fetch import FetchRequestPartition
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class FollowerProgress:
    """The followers of all `partitions` of the broker that it leads.

    `notify_watermark(partition)` is called when a high watermark has moved, `notify_log_start` when
    the log start of a follower has, `notify_change` when a partition has another ISR. `lag_ms` is
    replica.lag.time.max.ms.
    """

    partitions: Mapping[TopicPartition, Partition]
    write: Callable[[IsrProposal], None]
    lag_ms: int
    notify_watermark: Callable[[Partition], None]
    notify_log_start: Callable[[TopicPartition], None]
    notify_change: Callable[[TopicPartition], None]
    # How often an ISR grew, shrank, or could not be written.
    isr_expands: int = 0
    isr_shrinks: int = 0
    failed_isr_updates: int = 0
    _checked_ms: int = LONG_AGO_MS
    _behind: dict[TopicPartition, None] = attrs.field(factory=dict)
    """Partitions with followers that may have fallen behind."""

    def note_follower_fetch(
        self,
        replica: int,
        requested: Iterable[RequestedPartition],
        monotonic_ms: int,
        session: LastFetch | None = None,
    ) -> None:
        """Note how far a follower is that fetches these partitions, and draw the consequences.

        The high watermark may move, and the ISR may grow or shrink. `session` is the fetch session
        of the request, if it has one; other partitions of it may be at rest.
        """
        for tp, part in requested:
            # Only a fetch in the present leader epoch says what the follower has.
            partition = self.partitions.get(tp)
            if partition is None or not partition.is_leader:
                continue
            if part.current_leader_epoch not in (-1, partition.leader_epoch):
                continue
            # A follower that must truncate first does not have what is below its offset.
            if part.last_fetched_epoch >= 0 and _must_truncate(partition, part):
                continue

            start_moved = partition.note_follower_fetch(
                replica, part.fetch_offset, part.log_start_offset, monotonic_ms, session
            )
            # A fetch from the end leaves the follower in sync until the next append.
            if part.fetch_offset < partition.log.log_end_offset:
                self._behind[tp] = None

            # First the ISR: the high watermark must wait for a follower that is proposed.
            if replica in partition.isr:
                self._propose_isr(partition, partition.isr_without_lossy(replica))
            else:
                self._propose_isr(partition, partition.isr_with(replica))
            if partition.advance_high_watermark(monotonic_ms):
                self.notify_watermark(partition)
            if start_moved:
                self.notify_log_start(tp)

        # Last, because partitions that end their rest above need the time of the fetch before.
        if session is not None:
            session.ms = monotonic_ms

    def watch(self, tp: TopicPartition) -> None:
        """Watch a partition whose followers may fall behind: its log grew, or an epoch begins."""
        self._behind[tp] = None

    def shrink_isrs(self, monotonic_ms: int) -> None:
        """Propose ISRs without the followers that have fallen behind. Call it each half lag time.

        If the last call is longer ago than the lag time, this broker itself was stopped. Fetches
        that its followers sent meanwhile are not read yet, so nothing is proposed this time.
        """
        was_away = monotonic_ms - self._checked_ms > self.lag_ms
        self._checked_ms = monotonic_ms

        # A partition is watched until its followers have caught up: the next append watches it
        # again.
        for tp in () if was_away else list(self._behind):
            partition = self.partitions.get(tp)
            if partition is None or not partition.is_leader or partition.is_isr_caught_up:
                del self._behind[tp]
            else:
                self._propose_isr(partition, partition.isr_without_lagging(monotonic_ms))

    def _propose_isr(self, partition: Partition, isr: Isr | None) -> None:
        if isr is not None:
            proposal = partition.propose_isr(isr)
            logger.info("%s: isr %s, proposed %s", partition.topic_partition, partition.isr, isr)
            self.write(proposal)

    def confirm_isr(
        self, proposal: IsrProposal, isr: Isr, zk_version: int, monotonic_ms: int
    ) -> None:
        """Take the ISR that the state node has now, in the leader epoch of the proposal."""
        partition = self._proposed_by(proposal)
        if partition is not None:
            self.isr_expands += len(isr) > len(partition.isr)
            self.isr_shrinks += len(isr) < len(partition.isr)
            partition.confirm_isr(isr, zk_version)

            # A smaller ISR may let the watermark move.
            partition.advance_high_watermark(monotonic_ms)

            # The followers that remain may fall behind too.
            self.watch(partition.topic_partition)
            self.notify_change(partition.topic_partition)

    def give_up_isr(self, proposal: IsrProposal) -> None:
        """Give up a proposal that was not written.

        The state node belongs to another leader or epoch, and a control request is on its way.
        """
        partition = self._proposed_by(proposal)
        if partition is not None:
            self.failed_isr_updates += 1
            partition.give_up_isr()

    def _proposed_by(self, proposal: IsrProposal) -> Partition | None:
        """Return the partition of a proposal, if it is still led in the same epoch."""
        partition = self.partitions.get(proposal.topic_partition)
        # A later epoch begins with the controller's ISR: nothing of this proposal is left.
        if partition is None or partition.leader_epoch != proposal.state.leader_epoch:
            return None
        return partition if partition.is_leader else None


def _must_truncate(partition: Partition, requested: FetchRequestPartition) -> bool:
    """Return whether a follower has, or may have, other records than the leader (KIP-595)."""
    try:
        diverging = partition.find_divergence(requested.last_fetched_epoch, requested.fetch_offset)
    except ApiError:
        return True
    return diverging is not None
