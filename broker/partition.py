"""One replica of a partition on this broker: who leads, who is in sync, how far it is committed."""

from __future__ import annotations

import attrs

from broker.isr import next_high_watermark
from core_log.log import Appended, Log
from core_log.message_validator import ValidMessages
from core_log.validator import ValidBatch
from protocol.errors import ApiError, ErrorCode
from protocol.messages.leader_and_isr import LeaderAndIsrRequestPartitionState
from protocol.topic_partition import TopicPartition

NO_LEADER = -1


@attrs.define(eq=False)
class Partition:
    """The state that LeaderAndIsr gave this replica, its log and its high watermark."""

    topic_partition: TopicPartition
    local_id: int
    log: Log
    high_watermark: int = 0
    leader: int = NO_LEADER
    leader_epoch: int = -1
    controller_epoch: int = -1
    zk_version: int = 0
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    follower_ends: dict[int, int] = attrs.field(factory=dict)

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition."""
        return self.leader == self.local_id

    def take_state(self, state: LeaderAndIsrRequestPartitionState) -> None:
        """Lead or follow as the controller says. The caller has checked the leader epoch.

        Raises ApiError KAFKA_STORAGE_ERROR when the log cannot note the epoch.
        """
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.controller_epoch = state.controller_epoch
        self.zk_version = state.partition_epoch
        self.replicas = tuple(state.replicas)
        self.isr = tuple(state.isr)
        self.follower_ends.clear()
        if self.is_leader:
            try:
                self.log.leader_epochs.assign(state.leader_epoch, self.log.log_end_offset)
            except OSError as error:
                raise self.log.fail(error) from error
            self.advance_high_watermark()

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

    def append(
        self, batch: ValidBatch | ValidMessages, *, all_in_sync: bool, now_ms: int
    ) -> Appended:
        """Append as the leader. Raises ApiError; nothing is kept when it does."""
        self.require_leader()
        if all_in_sync and len(self.isr) < self.log.config.min_insync_replicas:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition} has {len(self.isr)} replicas in sync, "
                f"min.insync.replicas is {self.log.config.min_insync_replicas}",
            )
        if isinstance(batch, ValidMessages):
            return self._append_messages(batch, now_ms)
        return self.log.append(
            batch.data,
            batch.header,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            max_timestamp=batch.max_timestamp,
        )

    def _append_messages(self, messages: ValidMessages, now_ms: int) -> Appended:
        """Their offsets are in them, as in what a follower is given, and so they are written."""
        assert messages.first_offset == self.log.log_end_offset
        self.log.append_follower(messages.data, now_ms=now_ms)
        return Appended(
            messages.first_offset,
            messages.last_offset,
            messages.log_append_time_ms,
            self.log.log_start_offset,
        )

    def advance_high_watermark(self) -> bool:
        """Move the high watermark as far as the in-sync replicas allow; say whether it moved."""
        reached = next_high_watermark(
            self.high_watermark,
            self.log.log_end_offset,
            self.local_id,
            self.isr,
            self.follower_ends,
        )
        moved = reached > self.high_watermark
        self.high_watermark = reached
        return moved
