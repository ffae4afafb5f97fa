"""One replica of a partition on this broker: who leads, who is in sync, how far it is committed.

The ISR is what the partition's node in ZooKeeper says. A change of it is proposed, written, and
counts when it is written; until then the high watermark waits for whoever is in either of the two
sets (KIP-497 calls it the maximal ISR), and `min.insync.replicas` counts what is written.
"""

from __future__ import annotations

from collections.abc import Container

import attrs

from broker.replication.isr import (
    Follower,
    Isr,
    LastFetch,
    may_join,
    next_high_watermark,
    out_of_sync,
)
from core_log.appending.appended import LogAppendInfo
from core_log.appending.message_validator import ValidMessages
from core_log.appending.replicated_run import UnexpectedAppendOffset
from core_log.appending.validator import ValidBatch
from core_log.log import Log
from protocol.errors import ApiError, ErrorCode
from protocol.messages.leader_and_isr import LeaderAndIsrRequestPartitionState
from protocol.topic_partition import TopicPartition
from zk.znodes import PartitionState

NO_LEADER = -1


@attrs.frozen
class IsrChange:
    """An ISR to be written over version `zk_version` of the partition's state node."""

    topic_partition: TopicPartition
    state: PartitionState
    zk_version: int


@attrs.define(eq=False)
class Partition:
    """The state that LeaderAndIsr gave this replica, its log and its high watermark.

    `lag_ms` is replica.lag.time.max.ms. `epoch_start_offset` is where the log ended when this
    broker began to lead in the present epoch.
    """

    topic_partition: TopicPartition
    local_id: int
    log: Log
    high_watermark: int = 0
    lag_ms: int = 10_000
    leader: int = NO_LEADER
    leader_epoch: int = -1
    controller_epoch: int = -1
    zk_version: int = 0
    replicas: tuple[int, ...] = ()
    isr: Isr = ()
    proposed_isr: Isr | None = None
    is_superseded: bool = False  # the state node is another leader's already
    epoch_start_offset: int = 0
    followers: dict[int, Follower] = attrs.field(factory=dict)
    was_refused: bool = False  # the state of its epoch, when its log took no writes
    told_start: int = -1  # the log start offset of which the others were last told

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition."""
        return self.leader == self.local_id

    @property
    def is_failed(self) -> bool:
        """Whether another replica should take over from a log that takes no more writes; one that
        is the only one goes on, so that it can be read."""
        return self.log.failure is not None and len(self.replicas) > 1

    # ---- roles

    def take_state(self, state: LeaderAndIsrRequestPartitionState, monotonic_ms: int) -> None:
        """Lead or follow as the controller says. The caller has checked the leader epoch."""
        self.was_refused = False
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.controller_epoch = state.controller_epoch
        self.zk_version = state.partition_epoch
        self.replicas = tuple(state.replicas)
        self.isr, self.proposed_isr, self.is_superseded = tuple(state.isr), None, False
        if self.is_leader:
            self._lead(monotonic_ms)
        else:
            self.followers.clear()

    def has_heard(self, epoch: int) -> bool:
        """Whether a state of `epoch` is no news. One that this replica refused, for its disk was
        full, and was stopped for, it may be given again."""
        may_resume = self.was_refused and self.leader == NO_LEADER
        return epoch < self.leader_epoch or (epoch == self.leader_epoch and not may_resume)

    def led_until(self, epoch: int) -> bool:
        """Whether this broker leads, and nobody else can have before `epoch` begins."""
        return self.is_leader and epoch == self.leader_epoch + 1

    def _lead(self, monotonic_ms: int) -> None:
        """Whatever the followers had before, a new epoch begins with what they ask for in it."""
        end = self.epoch_start_offset = self.log.log_end_offset
        self.followers = {
            replica: Follower.unheard(replica in self.isr, end, monotonic_ms)
            for replica in {*self.replicas, *self.isr} - {self.local_id}
        }
        self.log.begin_epoch(self.leader_epoch)
        self.advance_high_watermark(monotonic_ms)

    @property
    def last_stable_offset(self) -> int:
        """How far readers of committed data go: not into a transaction that is open (KIP-98)."""
        unstable = self.log.producers.first_unstable_offset()
        if unstable is None:
            return self.high_watermark
        return min(max(unstable, self.log.log_start_offset), self.high_watermark)

    def require_leader(self, current_leader_epoch: int = -1) -> None:
        """Raise what a client must be told when this broker cannot speak for the partition.

        `current_leader_epoch` is what the client believes (KIP-320); -1 is no belief.
        """
        if current_leader_epoch >= 0:  # first: who knows a newer leader must not look for another
            if current_leader_epoch < self.leader_epoch:
                raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, str(self.topic_partition))
            if current_leader_epoch > self.leader_epoch:
                raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, str(self.topic_partition))
        if not self.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(self.topic_partition))

    # ---- leading

    def append(
        self, batch: ValidBatch | ValidMessages, *, all_in_sync: bool, now_ms: int
    ) -> LogAppendInfo:
        """Append as the leader. Raises ApiError, and AppendLater; nothing is kept then."""
        self.require_leader()
        if all_in_sync and not self.is_enough_in_sync:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition} has {len(self.isr)} replicas in sync, "
                f"min.insync.replicas is {self.log.config.min_insync_replicas}",
            )
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
        """Their offsets are in them, as in what a follower is given, and so they are written."""
        assert messages.first_offset == self.log.log_end_offset
        self.log.check_fits(len(messages.data))
        self.log.append_follower(messages.data, now_ms=now_ms, may_sync=False)
        return LogAppendInfo(
            messages.first_offset,
            messages.last_offset,
            messages.log_append_time_ms,
            self.log.log_start_offset,
        )

    def advance_high_watermark(self, monotonic_ms: int) -> bool:
        """Move the high watermark as far as the followers allow; say whether it moved."""
        in_sync = self.isr if self.proposed_isr is None else (*self.isr, *self.proposed_isr)
        reached = next_high_watermark(
            self.high_watermark,
            self.log.durable_end_offset,
            [
                follower.end_offset
                for replica, follower in self.followers.items()
                if replica in in_sync or monotonic_ms - follower.caught_up_ms <= self.lag_ms
            ],
        )
        moved = reached > self.high_watermark
        self.high_watermark = reached
        return moved

    @property
    def is_enough_in_sync(self) -> bool:
        """Whether the ISR has min.insync.replicas."""
        return len(self.isr) >= self.log.config.min_insync_replicas

    @property
    def is_watermark_known(self) -> bool:
        """Whether the high watermark has reached what was acknowledged under earlier leaders."""
        return self.high_watermark >= self.epoch_start_offset

    def owes_nothing(self, replica: int) -> bool:
        """Whether this follower's next fetch can change nothing, if it and the log stay as they
        are: it is in sync, and all there is is committed."""
        return replica in self.isr and self.high_watermark >= self.log.log_end_offset

    def follower_fetched(
        self,
        replica: int,
        offset: int,
        log_start_offset: int,
        monotonic_ms: int,
        session: LastFetch | None = None,
    ) -> bool:
        """Note how far a follower is (one that is not assigned is not known), and the session in
        which it asks; whether its log begins elsewhere now."""
        follower = self.followers.get(replica)
        if follower is None or offset > self.log.log_end_offset:
            return False
        before = follower.log_start_offset
        follower.fetched(offset, log_start_offset, self.log.log_end_offset, monotonic_ms, session)
        return before != log_start_offset

    def grown_isr(self, replica: int) -> Isr | None:
        """The ISR with this follower, if it belongs there and is not in it."""
        follower = self.followers.get(replica)
        if follower is None or replica in self.isr or replica not in self.replicas:
            return None
        if self.proposed_isr is not None or self.is_superseded:
            return None
        if not may_join(follower, self.high_watermark, self.epoch_start_offset):
            return None
        return (*self.isr, replica)

    def shrunk_isr(self, monotonic_ms: int) -> Isr | None:
        """The ISR without those that have fallen behind, if there are any."""
        if self.proposed_isr is not None or self.is_superseded:
            return None
        end = self.log.log_end_offset
        out = out_of_sync(self.isr, self.followers, end, self.lag_ms, monotonic_ms)
        return tuple(each for each in self.isr if each not in out) if out else None

    def isr_without_lossy(self, replica: int) -> Isr | None:
        """The ISR without a follower that has come to lack what was committed: its log was damaged,
        and cut there. It comes back when it has all of it again; until then it must not lead."""
        is_lossy = replica in self.isr and self.followers[replica].end_offset < self.high_watermark
        if not is_lossy or self.proposed_isr is not None or self.is_superseded:
            return None
        return tuple(each for each in self.isr if each != replica)

    @property
    def is_level(self) -> bool:
        """Whether all followers in the ISR have all there is: as long as nothing is appended, none
        of them falls behind."""
        end = self.log.log_end_offset
        in_sync = (self.followers[each] for each in self.isr if each in self.followers)
        return all(follower.end_offset == end for follower in in_sync)

    def propose_isr(self, isr: Isr) -> IsrChange:
        """What is to be written so that `isr` becomes the ISR."""
        self.proposed_isr = isr
        state = PartitionState(self.leader, self.leader_epoch, isr, self.controller_epoch)
        return IsrChange(self.topic_partition, state, self.zk_version)

    def isr_written(self, isr: Isr, zk_version: int) -> None:
        """What the state node has now. The caller has checked that the epoch is still the same."""
        self.isr, self.zk_version, self.proposed_isr = isr, zk_version, None

    def low_watermark(self, alive: Container[int]) -> int:
        """The lowest log start offset of the replicas on live brokers (DeleteRecords)."""
        others = (known.log_start_offset for id, known in self.followers.items() if id in alive)
        return min((self.log.log_start_offset, *others))

    # ---- following

    def follow_watermarks(self, high_watermark: int, log_start_offset: int) -> None:
        """Follow the leader's watermarks, as far as the log goes."""
        committed = min(high_watermark, self.log.log_end_offset)
        self.high_watermark = max(self.high_watermark, committed)
        self.log.increment_log_start_offset(min(log_start_offset, self.high_watermark))

    def truncated(self) -> None:
        """Take note that the log was truncated."""
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)

    def begun_anew(self) -> None:
        """Take note that the log was dropped, and begins elsewhere."""
        self.high_watermark = self.log.log_end_offset


def append_as_fetched(log: Log, records: memoryview, now_ms: int) -> None:
    """Append what another log has after this one's end. An empty log may begin a little earlier:
    where the batch does within which the other log begins since records were deleted.

    Raises CorruptRecord, UnexpectedAppendOffset, and ApiError KAFKA_STORAGE_ERROR.
    """
    try:
        log.append_follower(records, now_ms=now_ms)
    except UnexpectedAppendOffset as refused:
        end = log.log_end_offset
        is_empty = log.log_start_offset == end
        if not is_empty or not refused.first_offset < end <= refused.last_offset:
            raise
        log.truncate_fully_and_start_at(refused.first_offset)
        log.append_follower(records, now_ms=now_ms)
