"""Which followers are in sync with the partitions led here, from what they ask for.

Changes of an ISR are proposed to `write`, which comes back with `isr_written` or
`isr_superseded`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

import attrs

from broker.replication.fetch_sessions import Asked
from broker.replication.isr import LONG_AGO_MS, Isr, LastFetch
from broker.replication.partition import IsrChange, Partition
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class InSyncSets:
    """Of all `partitions` of the broker. `committed` hears of those whose high watermark has moved,
    `begins_elsewhere` of those where a follower's log start has, `changed` of those with another
    in-sync set; `lag_ms` is replica.lag.time.max.ms."""

    partitions: Mapping[TopicPartition, Partition]
    write: Callable[[IsrChange], None]
    lag_ms: int
    committed: Callable[[Partition], None]
    begins_elsewhere: Callable[[TopicPartition], None]
    changed: Callable[[TopicPartition], None]
    _checked_ms: int = LONG_AGO_MS
    _behind: dict[TopicPartition, None] = attrs.field(factory=dict)

    def follower_fetched(
        self,
        replica: int,
        asked: Iterable[Asked],
        monotonic_ms: int,
        session: LastFetch | None = None,
    ) -> None:
        """A follower asks for these partitions: note how far it is, and what follows from that.

        `session` is that of the fetch, if it has one, in which other partitions may be at rest.
        """
        for tp, part in asked:
            partition = self.partitions.get(tp)
            if partition is None or not partition.is_leader:
                continue
            if part.current_leader_epoch not in (-1, partition.leader_epoch):
                continue
            start_moved = partition.follower_fetched(
                replica, part.fetch_offset, part.log_start_offset, monotonic_ms, session
            )
            if part.fetch_offset < partition.log.log_end_offset:
                self._behind[tp] = None
            if replica in partition.isr:
                self._propose_isr(partition, partition.isr_without_lossy(replica))
            else:
                self._propose_isr(partition, partition.grown_isr(replica))
            if partition.advance_high_watermark(monotonic_ms):
                self.committed(partition)
            if start_moved:
                self.begins_elsewhere(tp)
        if session is not None:
            session.ms = monotonic_ms  # after what was at rest until now has been looked at

    def grown(self, tp: TopicPartition) -> None:
        """The log of a partition that is led here has grown, or an epoch begins: its followers may
        fall behind."""
        self._behind[tp] = None

    def check(self, monotonic_ms: int) -> None:
        """Propose to drop the followers that have fallen behind. To be called each half lag time.

        A broker that has not looked for longer than that was itself away: what its followers asked
        for meanwhile is still to be read, so it looks again the next time.
        """
        was_away = monotonic_ms - self._checked_ms > self.lag_ms
        self._checked_ms = monotonic_ms
        for tp in () if was_away else list(self._behind):
            partition = self.partitions.get(tp)
            if partition is None or not partition.is_leader or partition.is_level:
                del self._behind[tp]
            else:
                self._propose_isr(partition, partition.shrunk_isr(monotonic_ms))

    def _propose_isr(self, partition: Partition, isr: Isr | None) -> None:
        if isr is not None:
            before = partition.isr
            change = partition.propose_isr(isr)
            logger.info("%s: isr %s, wanted %s", partition.topic_partition, before, isr)
            self.write(change)

    def isr_written(self, change: IsrChange, isr: Isr, zk_version: int, monotonic_ms: int) -> None:
        """The state node has this ISR now, for the epoch of the change that was proposed."""
        partition = self._proposed_by(change)
        if partition is not None:
            partition.isr_written(isr, zk_version)
            partition.advance_high_watermark(monotonic_ms)
            self.grown(partition.topic_partition)
            self.changed(partition.topic_partition)

    def isr_superseded(self, change: IsrChange) -> None:
        """Nothing was written: the state node is another leader's, or of another epoch, and a
        control request on its way."""
        partition = self._proposed_by(change)
        if partition is not None:
            partition.proposed_isr, partition.is_superseded = None, True

    def _proposed_by(self, change: IsrChange) -> Partition | None:
        partition = self.partitions.get(change.topic_partition)
        if partition is None or partition.leader_epoch != change.state.leader_epoch:
            return None
        return partition if partition.is_leader else None
