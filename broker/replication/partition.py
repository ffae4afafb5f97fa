"""One replica of a partition on this broker: its leader, its ISR and its high watermark.

The ISR is the one in the partition's state node in ZooKeeper. A change is first proposed, then
written, and counts when it is written. Until then the high watermark waits for the replicas of both
sets (KIP-497 calls their union the maximal ISR), and `min.insync.replicas` counts the written set.
"""

from __future__ import annotations

from collections.abc import Container

import attrs

from broker.replication.barren_stretches import BarrenStretches
from broker.replication.isr import (
    Follower,
    Isr,
    LastFetch,
    find_lagging,
    may_join,
    next_high_watermark,
)
from core_log.appending.appended import LogAppendInfo
from core_log.appending.message_validator import ValidMessages
from core_log.appending.replicated_run import UnexpectedAppendOffset
from core_log.appending.validator import ValidBatch
from core_log.config import LONG_MAX
from core_log.log import Log
from protocol.errors import ApiError, ErrorCode
from protocol.frozen import frozen
from protocol.messages.leader_and_isr import LeaderAndIsrRequestPartitionState
from protocol.special_values import NO_LEADER
from protocol.topic_partition import TopicPartition
from zk.znodes import PartitionState


@frozen
class IsrProposal:
    """A proposed ISR, to be written over version `zk_version` of the partition's state node."""

    topic_partition: TopicPartition
    state: PartitionState
    zk_version: int


@attrs.define(eq=False)
class Partition:
    """A replica that leads or follows one partition, as LeaderAndIsr says.

    `lag_ms` is replica.lag.time.max.ms. `epoch_start_offset` is the end of the log when this broker
    began to lead in the present epoch. `followers` has the other replicas, assigned or in the ISR,
    while this broker leads, and nobody else.
    """

    topic_partition: TopicPartition
    local_id: int
    log: Log
    high_watermark: int = 0
    lag_ms: int = 10_000

    # From the last LeaderAndIsr. An ISR that is written since changes the ISR and the version.
    leader: int = NO_LEADER
    leader_epoch: int = -1
    controller_epoch: int = -1
    zk_version: int = 0
    replicas: tuple[int, ...] = ()
    isr: Isr = ()

    # The proposal in flight.
    proposed_isr: Isr | None = None
    maximal_isr: Isr = ()
    """The replicas of the ISR and of the proposed one: the high watermark waits for them."""
    is_superseded: bool = False
    """True if the state node was found to belong to another leader."""

    # Progress in the present epoch.
    epoch_start_offset: int = 0
    followers: dict[int, Follower] = attrs.field(factory=dict)

    barren: BarrenStretches = attrs.field(factory=BarrenStretches)
    """Where readers of the old formats find nothing, while this broker leads."""

    # Noted for the controller, and for the other replicas.
    was_refused: bool = False
    """True if the last state was refused because the log takes no writes."""
    announced_start: int = -1
    """The log start offset of which the other replicas were last told; -1: none."""

    # For the invariants alone.
    _checked: tuple[int, bool, int] = (-1, False, 0)
    """Leader epoch, leadership and high watermark at the last `check`."""

    @property
    def is_leader(self) -> bool:
        """True if this broker leads the partition."""
        return self.leader == self.local_id

    @property
    def is_failed(self) -> bool:
        """True if the log takes no writes and another replica should take over.

        The only replica of a partition is never failed: its log can still be read.
        """
        return self.log.failure is not None and len(self.replicas) > 1

    # ---- roles

    def take_state(self, state: LeaderAndIsrRequestPartitionState, monotonic_ms: int) -> None:
        """Lead or follow as the controller says. The caller has checked the leader epoch."""
        assert state.leader_epoch >= self.leader_epoch, "the leader epoch never goes back"
        self.was_refused = False
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.controller_epoch = state.controller_epoch
        # The partition epoch is the version of the state node in ZooKeeper.
        self.zk_version = state.partition_epoch
        self.replicas = tuple(state.replicas)

        # A proposal of the epoch before is over, whatever comes of its write.
        self.isr = tuple(state.isr)
        self.maximal_isr = self.isr
        self.proposed_isr = None
        self.is_superseded = False

        if self.is_leader:
            self._lead(monotonic_ms)
        else:
            self.followers.clear()

    def stop(self) -> None:
        """Neither lead nor follow, until the next state."""
        self.leader = NO_LEADER
        self.maximal_isr = self.isr
        self.proposed_isr = None
        self.followers.clear()

    def is_stale(self, epoch: int) -> bool:
        """Return whether a state of `epoch` is older than the present one, or the same.

        The same epoch is not stale if this replica refused its state because of a full disk, and
        was then stopped: the controller sends the state again when there is room.
        """
        may_resume = self.was_refused and self.leader == NO_LEADER
        return epoch < self.leader_epoch or (epoch == self.leader_epoch and not may_resume)

    def leads_until(self, epoch: int) -> bool:
        """Return whether this broker leads, and no other broker can have led before `epoch`."""
        return self.is_leader and epoch == self.leader_epoch + 1

    def _lead(self, monotonic_ms: int) -> None:
        """Begin an epoch as the leader. What followers fetched in earlier epochs does not count."""
        end = self.log.log_end_offset
        self.barren.clear()
        # Earlier leaders may have acknowledged everything below this end (KAFKA-7128).
        self.epoch_start_offset = end
        self.followers = {
            replica: Follower.at_epoch_start(replica in self.isr, end, monotonic_ms)
            for replica in {*self.replicas, *self.isr} - {self.local_id}
        }

        # Name the epoch at the election: an idle leader may have no record in it (KAFKA-7415).
        self.log.begin_epoch(self.leader_epoch)

        # A leader that is alone in the ISR commits at once what its log holds.
        self.advance_high_watermark(monotonic_ms)

    @property
    def last_stable_offset(self) -> int:
        """The end for readers of committed data (KIP-98).

        They read no transaction that is open, or whose marker is not replicated.
        """
        unstable = self.log.producers.first_unstable_offset(self.high_watermark)
        if unstable is None:
            return self.high_watermark
        # A transaction may have begun below the log start: its first records were deleted.
        return min(max(unstable, self.log.log_start_offset), self.high_watermark)

    def require_leader(self, current_leader_epoch: int = -1) -> None:
        """Raise ApiError unless this broker leads the partition.

        `current_leader_epoch` is the leader epoch that the client knows (KIP-320), or -1.
        """
        # The epoch is checked first: a client that knows a newer leader must not look for another.
        if current_leader_epoch >= 0:
            if current_leader_epoch < self.leader_epoch:
                raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, str(self.topic_partition))
            if current_leader_epoch > self.leader_epoch:
                raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, str(self.topic_partition))
        if self.leader != self.local_id:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(self.topic_partition))

    def is_led_in(self, current_leader_epoch: int) -> bool:
        """Return whether `require_leader` lets a client pass."""
        try:
            self.require_leader(current_leader_epoch)
        except ApiError:
            return False
        return True

    def find_divergence(self, last_fetched_epoch: int, fetch_offset: int) -> tuple[int, int] | None:
        """Return where this log and a reader's part: the last epoch in common, and its end here.

        None if they do not. The reader asks for `fetch_offset`, and its last record before that is
        of `last_fetched_epoch`. Raises ApiError(OFFSET_OUT_OF_RANGE) where the log cannot tell
        (KIP-595).
        """
        # The log has nothing that old, or no epochs.
        log = self.log
        epoch, end_offset = log.leader_epochs.end_offset_for(last_fetched_epoch, log.log_end_offset)
        if epoch < 0 or fetch_offset < log.log_start_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition}: offset {fetch_offset} after epoch {last_fetched_epoch}",
            )
        if epoch == last_fetched_epoch and fetch_offset <= end_offset:
            return None
        return epoch, end_offset

    # ---- leading

    def append(
        self, batch: ValidBatch | ValidMessages, *, all_in_sync: bool, now_ms: int
    ) -> LogAppendInfo:
        """Append as the leader. Raises ApiError or AppendLater if nothing was appended."""
        self.require_leader()
        # The ISR may also shrink after the append: producers that wait are checked again.
        if all_in_sync and not self.is_enough_in_sync:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition} has {len(self.isr)} replicas in sync, "
                f"min.insync.replicas is {self.log.config.min_insync_replicas}",
            )

        # From now on no follower has everything.
        for follower in self.followers.values():
            follower.end_rest()

        if isinstance(batch, ValidMessages):
            return self._append_messages(batch, now_ms)
        return self.log.append(
            batch.data,
            batch.header,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            max_timestamp=batch.max_timestamp,
            may_sync=False,
        )

    def _append_messages(self, messages: ValidMessages, now_ms: int) -> LogAppendInfo:
        """Append messages of an old format. Their offsets are in them, as in a follower's fetch."""
        assert messages.first_offset == self.log.log_end_offset
        # Only a leader is held to segment.bytes: followers must take what it has.
        self.log.check_fits(len(messages.data))
        self.log.append_follower(messages.data, now_ms=now_ms, may_sync=False)
        return LogAppendInfo(
            messages.first_offset,
            messages.last_offset,
            messages.log_append_time_ms,
            self.log.log_start_offset,
        )

    def advance_high_watermark(self, monotonic_ms: int) -> bool:
        """Move the high watermark as far as the followers allow; return whether it moved."""
        # The leader's own share is what a due flush has synced.
        high_watermark = next_high_watermark(
            self.high_watermark,
            self.log.durable_end_offset,
            self._awaited_ends(monotonic_ms) if self.followers else (),
        )

        has_moved = high_watermark > self.high_watermark
        self.high_watermark = high_watermark
        return has_moved

    def _awaited_ends(self, monotonic_ms: int) -> list[int]:
        """Return the end offsets of the followers that the high watermark waits for."""
        return [
            follower.end_offset
            for replica, follower in self.followers.items()
            if self._waits_for(replica, follower, monotonic_ms)
        ]

    def _waits_for(self, replica: int, follower: Follower, monotonic_ms: int) -> bool:
        # A follower that is about to join counts too, or steady writing would keep it out.
        return replica in self.maximal_isr or monotonic_ms - follower.caught_up_ms <= self.lag_ms

    def waits_for(self, replica: int, monotonic_ms: int) -> bool:
        """Return whether writers wait for a follower: it is in sync, or about to be."""
        follower = self.followers.get(replica)
        return follower is not None and self._waits_for(replica, follower, monotonic_ms)

    @property
    def is_enough_in_sync(self) -> bool:
        """True if the ISR has min.insync.replicas."""
        return len(self.isr) >= self.log.config.min_insync_replicas

    @property
    def commits_at_once(self) -> bool:
        """True if an append is committed when it returns: no replica and no flush is waited for."""
        is_alone = not self.followers and self.is_enough_in_sync
        return is_alone and self.log.config.flush_messages == LONG_MAX

    @property
    def is_watermark_known(self) -> bool:
        """True if the high watermark covers everything acknowledged under earlier leaders."""
        return self.high_watermark >= self.epoch_start_offset

    def needs_nothing_from(self, replica: int) -> bool:
        """Return whether the next fetch of this follower can change nothing.

        That is so while it is in sync and the whole log is committed.
        """
        return replica in self.isr and self.high_watermark >= self.log.log_end_offset

    def note_follower_fetch(
        self,
        replica: int,
        offset: int,
        log_start_offset: int,
        monotonic_ms: int,
        session: LastFetch | None = None,
    ) -> bool:
        """Note that a follower has everything below `offset`; return whether its log start moved.

        `session` is the fetch session of the request. Replicas that are not assigned are ignored.
        """
        # A follower beyond the end of the log has not truncated its own yet.
        follower = self.followers.get(replica)
        if follower is None or offset > self.log.log_end_offset:
            return False

        previous_start = follower.log_start_offset
        follower.note_fetch(
            offset, log_start_offset, self.log.log_end_offset, monotonic_ms, session
        )
        return previous_start != log_start_offset

    @property
    def can_propose_isr(self) -> bool:
        """True if no proposal is in flight, and the state node is this leader's."""
        return self.proposed_isr is None and not self.is_superseded

    def isr_with(self, replica: int) -> Isr | None:
        """Return the ISR with this follower added; None if it is in it or may not join."""
        follower = self.followers.get(replica)
        if follower is None or replica in self.isr or replica not in self.replicas:
            return None
        if not self.can_propose_isr:
            return None
        if not may_join(follower, self.high_watermark, self.epoch_start_offset):
            return None
        return (*self.isr, replica)

    def isr_without_lagging(self, monotonic_ms: int) -> Isr | None:
        """Return the ISR without the followers that have fallen behind; None if none has."""
        if not self.can_propose_isr:
            return None
        end = self.log.log_end_offset
        lagging = find_lagging(self.isr, self.followers, end, self.lag_ms, monotonic_ms)
        return tuple(member for member in self.isr if member not in lagging) if lagging else None

    def isr_without_lossy(self, replica: int) -> Isr | None:
        """Return the ISR without a follower that has lost committed records; None if it has not.

        Such a follower's log was damaged, and truncated at the damage. It must not lead until it
        has fetched everything again; then it joins the ISR again.
        """
        follower = self.followers.get(replica)
        # Somebody may claim the leader's own id (fault security-14).
        if follower is None:
            return None
        is_lossy = replica in self.isr and follower.end_offset < self.high_watermark
        if not is_lossy or not self.can_propose_isr:
            return None
        return tuple(member for member in self.isr if member != replica)

    @property
    def is_isr_caught_up(self) -> bool:
        """True if all followers in the ISR have the whole log.

        None of them falls behind before the next append.
        """
        end = self.log.log_end_offset
        return all(
            follower.end_offset == end
            for replica, follower in self.followers.items()
            if replica in self.isr
        )

    def propose_isr(self, isr: Isr) -> IsrProposal:
        """Propose another ISR; return the change to be written."""
        assert self.is_leader, "only the leader proposes an ISR"
        assert self.can_propose_isr, "one proposal at a time, and none when superseded"
        # A new member may be elected as soon as the ISR is written.
        for replica in set(isr) - set(self.isr):
            end = self.followers[replica].end_offset
            assert end >= self.epoch_start_offset, "it lacks records acknowledged (KAFKA-7128)"

        self.proposed_isr = isr

        # While the write's result is unknown, either ISR may be in force.
        self.maximal_isr = (*self.isr, *isr)
        state = PartitionState(self.leader, self.leader_epoch, isr, self.controller_epoch)
        return IsrProposal(self.topic_partition, state, self.zk_version)

    def confirm_isr(self, isr: Isr, zk_version: int) -> None:
        """Take the ISR that the state node has now. The caller has checked the leader epoch."""
        assert zk_version >= self.zk_version, "the version of a node never goes back"
        self.isr = isr
        self.maximal_isr = isr
        self.zk_version = zk_version
        self.proposed_isr = None

    def give_up_isr(self) -> None:
        """Give up the proposed ISR and propose no other: the state node is another leader's."""
        self.maximal_isr = self.isr
        self.proposed_isr = None
        self.is_superseded = True

    def low_watermark(self, live_brokers: Container[int]) -> int:
        """Return the lowest log start offset of the replicas on live brokers (DeleteRecords)."""
        # A broker that is down learns the new start when it fetches again.
        starts = (
            follower.log_start_offset
            for replica, follower in self.followers.items()
            if replica in live_brokers
        )
        return min((self.log.log_start_offset, *starts))

    # ---- following

    def follow_watermarks(self, high_watermark: int, log_start_offset: int) -> None:
        """Move the watermarks to those of the leader, as far as the log goes."""
        # The leader may have committed more than this response has brought.
        committed = min(high_watermark, self.log.log_end_offset)
        self.high_watermark = max(self.high_watermark, committed)
        self.log.producers.note_replicated(self.high_watermark)
        # A log never starts above its high watermark.
        self.log.increment_log_start_offset(min(log_start_offset, self.high_watermark))

    def note_truncation(self) -> None:
        """Lower the high watermark after the log was truncated."""
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)
        self.barren.clear()

    def note_new_start(self) -> None:
        """Move the high watermark after the log was emptied to begin at another offset."""
        # A leader's log starts at or below its high watermark, so all that is below is committed.
        self.high_watermark = self.log.log_end_offset

    # ---- invariants

    def check(self) -> None:
        """Assert what holds between any two callbacks of the event loop.

        Tests call it; it is too slow for a broker. A log that is lent is changed by another thread,
        so its offsets are not looked at.
        """
        epoch, was_leader, high_watermark = self._checked
        assert self.leader_epoch >= epoch, "the leader epoch went back"
        if was_leader and self.is_leader and self.leader_epoch == epoch:
            # Only truncation takes it back, and a leader's log is never truncated.
            assert self.high_watermark >= high_watermark, "a leader's high watermark went back"
        self._checked = (self.leader_epoch, self.is_leader, self.high_watermark)

        if self.is_leader:
            assert not self.log.is_lent, "the log of a leader is lent to a thread"
            self._check_leading()
        else:
            assert not self.followers, "a replica that does not lead has followers"
            assert self.proposed_isr is None, "a replica that does not lead proposes an ISR"
        if not self.log.is_lent:
            self._check_log()

    def _check_log(self) -> None:
        log = self.log
        latest_epoch = log.leader_epochs.latest_epoch
        assert log.log_start_offset <= self.high_watermark, "the log starts above the watermark"
        assert self.high_watermark <= log.log_end_offset, "the watermark is above the log's end"
        assert log.durable_end_offset <= log.log_end_offset, "more is durable than there is"
        assert latest_epoch <= self.leader_epoch, "the log has an epoch that has not begun"

    def _check_leading(self) -> None:
        known = {*self.followers, self.local_id}
        assert self.local_id in self.isr, "the leader is not in the ISR"
        assert self.local_id not in self.followers, "the leader follows itself"
        assert known.issuperset(self.replicas), "an assigned replica has no follower entry"
        assert known.issuperset(self.isr), "a replica in the ISR is neither assigned nor leaving"
        assert known.issuperset(self.maximal_isr), "a proposed replica is not assigned"
        assert set(self.maximal_isr).issuperset(self.isr), "the maximal ISR lacks one of the ISR"
        assert set(self.maximal_isr).issuperset(self.proposed_isr or ()), (
            "the maximal ISR lacks a replica that is proposed"
        )
        assert self.epoch_start_offset <= self.log.log_end_offset, "a leader's log was truncated"


def append_as_fetched(log: Log, records: memoryview, now_ms: int) -> None:
    """Append the records that follow this log's end in another log.

    The other log may begin within a batch, because records below its start were deleted. Then the
    first fetched batch begins below the end of an empty log, and the log is moved to begin there.

    Raises CorruptRecord, UnexpectedAppendOffset, and ApiError KAFKA_STORAGE_ERROR.
    """
    try:
        log.append_follower(records, now_ms=now_ms)
    except UnexpectedAppendOffset as error:
        end = log.log_end_offset
        is_empty = log.log_start_offset == end
        if not is_empty or not error.first_offset < end <= error.last_offset:
            raise

        log.truncate_fully_and_start_at(error.first_offset)
        log.append_follower(records, now_ms=now_ms)
