"""Own all replicas of this broker, and append to them and read from them.

Every function here runs to its end on the event loop. Requests that wait are woken through `waits`
and the listeners of `on_high_watermark`. Work that needs a network goes out through two seams:
`followers` fetches for the replicas that follow, and `write_isr` writes proposed ISRs to ZooKeeper
(its results come back to `FollowerProgress`). `replica_roles` has the replicas lead and follow.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import attrs

from broker.process.signals import Signal, Signals
from broker.replication.follower_progress import FollowerProgress
from broker.replication.partition import IsrProposal, Partition
from broker.replication.refused_batches import RefusedBatches
from broker.replication.verification import Verification
from core_log.appending.appended import LogAppendInfo
from core_log.appending.message_validator import (
    BATCH_MAGIC,
    ValidMessages,
    convert_to_old_format,
    validate_set,
)
from core_log.appending.validator import ValidBatch, validate
from core_log.config import LogConfig
from core_log.log import AppendLater, Log, WriteBack
from core_log.log_manager import LogManager
from core_log.segments.transaction_index import AbortedTransaction
from core_log.storage import FileRange
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch import read_header
from protocol.records.batch_header import BatchHeader
from protocol.records.room import Room
from protocol.special_values import UNKNOWN_OFFSET
from protocol.topic_partition import TopicPartition

ValidSet = Sequence[ValidBatch | ValidMessages]
Check = Callable[[Room], ValidSet]
"""Checks sent records and converts them to the log's format. The argument is the most bytes that it
may decompress. It may run in a thread: it reads nothing that changes. Raises ApiError."""

CONSUMER = -1
DEBUGGING_CONSUMER = -2
"""The replica id of a reader that any replica serves."""


class Followers(Protocol):
    """The fetchers of the partitions that follow a leader."""

    def follow(self, partitions: Iterable[Partition]) -> None:
        """Fetch these partitions from their present leaders, after truncation."""

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching these partitions."""

    def note_flush(self, partition: Partition) -> None:
        """Go on after a flush of the partition's log."""

    def note_start_moved(self, partition: Partition) -> None:
        """Tell the leader the new log start offset with the next fetch."""

    def failures(self) -> Mapping[TopicPartition, str]:
        """Return the partitions whose last fetch failed, with the reasons."""


class FetchedRange(NamedTuple):
    """The bytes of a partition for a reader (None: nothing yet), and the partition's bounds.

    `diverging_epoch` has epoch and end offset, if the reader must truncate first (KIP-595).
    `aborted` has the transactions that a reader of committed data must leave out, and is None for
    other readers.
    """

    range: FileRange | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    diverging_epoch: tuple[int, int] | None = None
    aborted: Sequence[AbortedTransaction] | None = None


class Waits(Protocol):
    """Wakes the requests that wait for a partition (`partition_waits`)."""

    def wake_at_end(self, tp: TopicPartition) -> None:
        """Wake followers: the log has a new end."""

    def wake_at_watermark(self, tp: TopicPartition, high_watermark: int) -> None:
        """Wake those who wait for this high watermark."""

    def wake_at_durable_end(self, tp: TopicPartition, durable_end_offset: int) -> None:
        """Wake those who wait until the log is flushed up to this offset."""

    def wake_at_start(self, tp: TopicPartition) -> None:
        """Wake those who wait for log start offsets: that of a replica has moved."""

    def wake_all(self, *partitions: TopicPartition) -> None:
        """Wake all who wait for these partitions."""

    def wake_followers(self, replicas: Container[int]) -> None:
        """End the waiting fetches of these brokers."""


@attrs.define(eq=False)
class ReplicaManager:
    """Owns every `Partition` of the broker.

    `topic_config(topic)` returns the settings of a topic's logs. `leadership(leaders, followers)`
    is called after each control request that changed roles. `lag_ms` is replica.lag.time.max.ms.
    Timestamps of records go by the wall clock (`now_ms`), lag times by `monotonic_ms`.
    """

    local_id: int
    logs: LogManager
    topic_config: Callable[[str], LogConfig]
    waits: Waits
    start_flush: Callable[[Partition], None]
    followers: Followers
    write_isr: Callable[[IsrProposal], None]
    monotonic_ms: Callable[[], int]
    lag_ms: int = 10_000
    checkpointed: dict[TopicPartition, int] = attrs.field(factory=dict)
    """The last high watermarks of logs without a partition."""
    leadership: Signal[list[TopicPartition], list[TopicPartition]] = attrs.field(factory=Signal)
    write_back: WriteBack = lambda file, start, size: None
    """The function with which logs tell the disk to begin with their bytes."""
    count_append: Callable[[str, int, int], None] | None = None
    """Takes topic, bytes and messages of each batch that is appended as the leader."""
    verification: Verification | None = None
    """The verdicts on transactions, if they are verified before they open in a log."""
    partitions: dict[TopicPartition, Partition] = attrs.field(factory=dict)
    is_leadership_known: bool = False
    """True after the first LeaderAndIsr."""
    follower_progress: FollowerProgress = attrs.field(init=False)
    refused: RefusedBatches = attrs.field(init=False)
    """What producers with ids sent and was refused."""
    _by_topic: dict[str, dict[int, Partition]] = attrs.field(factory=dict)
    _awaiting_flush: set[TopicPartition] = attrs.field(factory=set)
    """Partitions to which nothing can be appended before a flush ends."""
    _watermark_listeners: dict[TopicPartition, list[Callable[[], None]]] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.refused = RefusedBatches(self.monotonic_ms)
        self.follower_progress = FollowerProgress(
            self.partitions,
            self.write_isr,
            self.lag_ms,
            self._notify_watermark,
            self.notify_log_start,
            self.notify_change,
        )

    def subscribe(self, signals: Signals) -> None:
        """Subscribe to the ends of flushes, of fetches, and of writes of ISRs."""
        signals.replicated.subscribe(self.replicated)
        signals.flushed.subscribe(self.note_flush)
        signals.isr_written.subscribe(self.follower_progress.confirm_isr)
        signals.isr_superseded.subscribe(self.follower_progress.give_up_isr)

    # ---- partitions

    def add(self, partition: Partition) -> None:
        """Add a replica that is new here."""
        tp = partition.topic_partition
        self.partitions[tp] = partition
        self._by_topic.setdefault(tp.topic, {})[tp.partition] = partition

    def remove(self, tp: TopicPartition) -> None:
        """Remove a replica whose log is deleted; keep its high watermark for the checkpoint."""
        partition = self.partitions.pop(tp, None)
        if partition is not None:
            self.checkpointed[tp] = partition.high_watermark

        # Settings are applied by topic: leave no empty topic behind.
        of_topic = self._by_topic.get(tp.topic, {})
        of_topic.pop(tp.partition, None)
        if not of_topic:
            self._by_topic.pop(tp.topic, None)

    # ---- appends

    def append(
        self,
        tp: TopicPartition,
        records: bytes | memoryview | None,
        *,
        all_in_sync: bool,
        zstd_allowed: bool,
        now_ms: int,
    ) -> LogAppendInfo:
        """Append the batch that a producer sent. Raises ApiError and AppendLater."""
        return self.append_to(
            self.partition(tp),
            records,
            all_in_sync=all_in_sync,
            zstd_allowed=zstd_allowed,
            now_ms=now_ms,
        )

    def append_to(
        self,
        partition: Partition,
        records: bytes | memoryview | None,
        *,
        all_in_sync: bool,
        zstd_allowed: bool,
        now_ms: int,
    ) -> LogAppendInfo:
        """Append the batch that a producer sent to a partition that is here, as `append` does."""
        # Refuse first: validation takes most of the time.
        partition.require_leader()
        batch = validate(
            partition.topic_partition,
            records,
            partition.log.config,
            zstd_allowed=zstd_allowed,
            now_ms=now_ms,
        )
        self._require_in_order(partition, batch.header)
        return self._append_batch(partition, batch, all_in_sync, now_ms)

    def _require_in_order(self, partition: Partition, header: BatchHeader) -> None:
        """Raises ApiError for a batch that may not be the next one of its producer here."""
        if header.producer_id < 0:
            return
        if self.verification is not None:
            self.verification.require(partition, header)
        is_known = header.producer_id in partition.log.producers.producers
        # The first would be out of order for good (fault strangers-119).
        self.refused.check(partition.topic_partition, header, is_known=is_known)

    def append_run(
        self,
        partition: Partition,
        run: Sequence[memoryview],
        *,
        zstd_allowed: bool,
        now_ms: int,
    ) -> list[LogAppendInfo]:
        """Append the first of these batches in one write, if nothing is waited for then.

        They have no producer ids. Those that are not appended, perhaps all, are left to
        `append_to`, which finds what is wrong with them or with the log.
        """
        log = partition.log
        if not partition.is_leader or not partition.commits_at_once:
            return []
        if log.config.magic != BATCH_MAGIC:
            return []

        batches = []
        with contextlib.suppress(ApiError):
            for records in run:
                batches.append(
                    validate(
                        partition.topic_partition,
                        records,
                        log.config,
                        zstd_allowed=zstd_allowed,
                        now_ms=now_ms,
                    )
                )
        if not batches:
            return []

        try:
            appended = log.append_run(batches, leader_epoch=partition.leader_epoch, now_ms=now_ms)
        except (ApiError, AppendLater):
            return []
        for batch, info in zip(batches, appended, strict=True):
            self._count(partition, batch, info)
        self._note_append(partition)
        return appended

    def make_batch_check(
        self,
        tp: TopicPartition,
        records: bytes | memoryview | None,
        *,
        zstd_allowed: bool,
        now_ms: int,
    ) -> Check:
        """Return the check that `append` makes, for a thread. Raises ApiError."""
        partition = self.partition(tp)
        partition.require_leader()
        # Read them on the loop: the check may run in a thread.
        config = partition.log.config
        next_offset = partition.log.log_end_offset

        def check(room: Room) -> ValidSet:
            batch = validate(
                tp, records, config, zstd_allowed=zstd_allowed, now_ms=now_ms, room=room
            )
            if config.magic == BATCH_MAGIC:
                return (batch,)
            # Offsets as if it were appended next; `append_checked` repeats it if another was first.
            return (
                convert_to_old_format(tp, batch, config, next_offset=next_offset, now_ms=now_ms),
            )

        return check

    def make_message_set_check(
        self, tp: TopicPartition, records: bytes | memoryview | None, now_ms: int
    ) -> Check:
        """Return the check of a message set of Produce v0-2, for a thread. Raises ApiError."""
        partition = self.partition(tp)
        partition.require_leader()
        # As in `make_batch_check`: nothing that changes is read in the thread.
        config = partition.log.config
        next_offset = partition.log.log_end_offset
        return lambda room: validate_set(
            tp, records, config, next_offset=next_offset, now_ms=now_ms, room=room
        )

    def append_checked(
        self,
        tp: TopicPartition,
        valid: ValidSet,
        again: Callable[[], ValidSet],
        *,
        all_in_sync: bool,
        now_ms: int,
        appended: list[LogAppendInfo],
    ) -> LogAppendInfo:
        """Append the result of a check. If there is nothing to append the offsets are -1.

        `again()` repeats the check, for messages of an old format whose offsets are taken by now.
        Each appended batch is added to `appended`. After AppendLater call this with the same list,
        and it goes on with the rest.

        Raises AppendLater, and ApiError, also if the partition is not led here any more.
        """
        partition = self.partition(tp)
        log = partition.log

        # Messages of an old format have their offsets in them: other producers may have been first.
        if not appended and any(
            isinstance(messages, ValidMessages) and messages.first_offset != log.log_end_offset
            for messages in valid
        ):
            valid = again()

        # An empty message set is no error.
        if not valid:
            return LogAppendInfo(-1, -1, -1, log.log_start_offset)

        # Go on behind the batches of the tries before an AppendLater.
        for batch in valid[len(appended) :]:
            if isinstance(batch, ValidBatch):
                self._require_in_order(partition, batch.header)
            appended.append(self._append(partition, batch, all_in_sync, now_ms))
        return appended[0]._replace(last_offset=appended[-1].last_offset)

    def append_local(self, tp: TopicPartition, batch: bytes, now_ms: int) -> LogAppendInfo:
        """Append a batch that this broker has built, as with acks=all.

        Raises ApiError and AppendLater.
        """
        header = read_header(batch)
        valid = ValidBatch(batch, header, header.max_timestamp)
        partition = self.partition(tp)
        appended = self._append_batch(partition, valid, True, now_ms)
        # Bound what is kept of transactions that have ended: perhaps nobody reads committed data.
        if header.is_control:
            partition.log.producers.note_replicated(partition.high_watermark)
            if self.verification is not None:
                self.verification.end(tp, header.producer_id)
        return appended

    def _append_batch(
        self, partition: Partition, batch: ValidBatch, all_in_sync: bool, now_ms: int
    ) -> LogAppendInfo:
        log = partition.log
        # A marker ends a transaction of before the format was lowered (fault strangers-69, was: 0).
        is_marker = batch.header.is_control
        if log.config.magic == BATCH_MAGIC or is_marker:
            return self._append(partition, batch, all_in_sync, now_ms)

        # The topic's message.format.version is older than batches.
        messages = convert_to_old_format(
            partition.topic_partition,
            batch,
            log.config,
            next_offset=log.log_end_offset,
            now_ms=now_ms,
        )
        return self._append(partition, messages, all_in_sync, now_ms)

    def _append(
        self,
        partition: Partition,
        batch: ValidBatch | ValidMessages,
        all_in_sync: bool,
        now_ms: int,
    ) -> LogAppendInfo:
        """Append a batch, and wake those who wait for the end of the log.

        Raises AppendLater if the log must be flushed first; all who wait are woken after the flush.
        """
        try:
            appended = partition.append(batch, all_in_sync=all_in_sync, now_ms=now_ms)
        except AppendLater:
            self._awaiting_flush.add(partition.topic_partition)
            self.start_flush(partition)
            raise

        self._count(partition, batch, appended)
        self._note_append(partition)
        return appended

    def _count(
        self, partition: Partition, batch: ValidBatch | ValidMessages, appended: LogAppendInfo
    ) -> None:
        if self.count_append is not None:
            messages = appended.last_offset - appended.base_offset + 1
            self.count_append(partition.topic_partition.topic, len(batch.data), messages)

    def _note_append(self, partition: Partition) -> None:
        """Flush what is due, and wake those who wait, after an append."""
        # The flush runs beside the loop; producers wait for the durable end where one is due.
        monotonic_ms = self.monotonic_ms()
        if partition.log.is_flush_due(monotonic_ms):
            self.start_flush(partition)

        # Followers alone wait for the end of a log, and may fall behind it.
        if partition.followers:
            self.follower_progress.watch(partition.topic_partition)
            self.waits.wake_at_end(partition.topic_partition)

        # A leader that is alone in the ISR commits at once.
        if partition.advance_high_watermark(monotonic_ms):
            self._notify_watermark(partition)

    def awaits_flush(self, tp: TopicPartition) -> bool:
        """Return whether a partition is led here, and appends to it must wait for a flush."""
        partition = self.partitions.get(tp)
        return tp in self._awaiting_flush and partition is not None and partition.is_leader

    def _notify_watermark(self, partition: Partition) -> None:
        """Call listeners and wake waiting requests: the high watermark has moved."""
        tp = partition.topic_partition
        for listener in self._watermark_listeners.get(tp, ()):
            listener()
        self.waits.wake_at_watermark(tp, partition.high_watermark)

    def notify_change(self, *partitions: TopicPartition) -> None:
        """Call listeners and wake all waiting requests of these partitions."""
        for tp in partitions:
            for listener in self._watermark_listeners.get(tp, ()):
                listener()
        self.waits.wake_all(*partitions)

    def notify_log_start(self, tp: TopicPartition) -> None:
        """Wake those who wait for log start offsets: that of a replica has moved."""
        self.waits.wake_at_start(tp)

    def announce_log_starts(self) -> None:
        """Tell followers or leaders the log start offsets that retention has moved.

        Call it from time to time. Fetches with new records tell the same.
        """
        for tp, partition in self.partitions.items():
            start = partition.log.log_start_offset
            if partition.announced_start != start:
                partition.announced_start = start
                # A leader tells it in its responses, a follower in its requests.
                if partition.is_leader:
                    self.notify_log_start(tp)
                else:
                    self.followers.note_start_moved(partition)

    def note_flush(self, partition: Partition) -> None:
        """Wake those who waited for a flush of the partition, which has ended or failed."""
        tp = partition.topic_partition
        # Appends that were put off are tried again; a failed log ends all waits.
        if partition.log.failure is not None or tp in self._awaiting_flush:
            self._awaiting_flush.discard(tp)
            self.notify_change(tp)

        # A follower fetches on when what it has is on disk.
        if not partition.is_leader:
            self.followers.note_flush(partition)
            return

        # What is durable counts for acks=1, and as the leader's share of the watermark.
        self.waits.wake_at_durable_end(tp, partition.log.durable_end_offset)
        if partition.advance_high_watermark(self.monotonic_ms()):
            self._notify_watermark(partition)

    def replicated(self, partition: Partition) -> None:
        """Wake those who wait for a partition that follows: records were fetched."""
        if partition.log.is_flush_due(self.monotonic_ms()):
            self.start_flush(partition)
        self.waits.wake_at_end(partition.topic_partition)
        self._notify_watermark(partition)

    # ---- reads

    def partition(self, tp: TopicPartition) -> Partition:
        """Return the replica of `tp` on this broker. Raises ApiError if there is none."""
        partition = self.partitions.get(tp)
        if partition is None:
            # A log that cannot be opened is an error of storage, not of leadership.
            failure = self.logs.failure_of(tp)
            if failure is not None:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp}: {failure}")
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(tp))
        return partition

    def log(self, tp: TopicPartition) -> Log:
        """Return the log of a replica on this broker. Raises ApiError."""
        return self.partition(tp).log

    def high_watermark(self, tp: TopicPartition) -> int:
        """Return the first offset that is not committed. Raises ApiError."""
        return self.partition(tp).high_watermark

    def on_high_watermark(self, tp: TopicPartition, listener: Callable[[], None]) -> None:
        """Call `listener` each time the high watermark or leadership of `tp` may have moved."""
        self._watermark_listeners.setdefault(tp, []).append(listener)

    def read(
        self,
        tp: TopicPartition,
        offset: int,
        max_bytes: int,
        *,
        min_one: bool,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        replica_id: int = -1,
        stable_only: bool = False,
    ) -> FetchedRange:
        """Read batches, from the one that holds `offset` on. Raises ApiError.

        A reader whose log has parted from this one gets none (`Partition.find_divergence`). If it
        does not know the epoch of its last record, `last_fetched_epoch` is -1.

        A consumer reads up to the high watermark, with `stable_only` up to the first open
        transaction. A follower (`replica_id` from 0 on) reads to the end of the log, but nothing if
        it is not assigned.

        A new leader may not know yet the high watermark of its predecessor. Then consumers read up
        to the leader's own, and the bounds that they get are UNKNOWN_OFFSET: they may know a higher
        watermark, and must not see it go back.
        """
        partition = self.partition(tp)
        if replica_id != DEBUGGING_CONSUMER:
            partition.require_leader(current_leader_epoch)
        # A log that is lent follows, and is truncated by a thread.
        if partition.log.is_lent:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{tp}: its log is being truncated")

        diverging = None
        if last_fetched_epoch >= 0:
            diverging = partition.find_divergence(last_fetched_epoch, offset)
        end = partition.last_stable_offset if stable_only else partition.high_watermark
        # Followers read beyond the watermark, which is what moves it. A broker that is not
        # assigned gets nothing: its end is where it asks.
        if replica_id >= 0:
            end = partition.log.log_end_offset if replica_id in partition.followers else offset
        file_range = None
        if diverging is None:
            file_range = partition.log.read(offset, max_bytes, end, min_one=min_one)
        aborted: Sequence[AbortedTransaction] | None = None
        if stable_only:
            aborted = ()
            if file_range is not None:
                aborted = partition.log.aborted_transactions(offset, end, file_range)

        bounds = partition.high_watermark, partition.last_stable_offset
        if replica_id == CONSUMER and not partition.is_watermark_known:
            bounds = UNKNOWN_OFFSET, UNKNOWN_OFFSET
        return FetchedRange(file_range, *bounds, partition.log.log_start_offset, diverging, aborted)

    def update_config(self, topic: str, config: LogConfig) -> None:
        """Apply new settings to the topic's logs."""
        for partition in self._by_topic.get(topic, {}).values():
            partition.log.update_config(config)

    def refresh_configs(self) -> None:
        """Apply to every log the present settings of its topic."""
        for tp, partition in self.partitions.items():
            partition.log.update_config(self.topic_config(tp.topic))

    def high_watermark_if_here(self, tp: TopicPartition) -> int | None:
        """Return the first offset that is not committed; None if the partition is not here."""
        partition = self.partitions.get(tp)
        return None if partition is None else partition.high_watermark

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Return the high watermarks of the partitions that are served."""
        return {tp: partition.high_watermark for tp, partition in dict(self.partitions).items()}

    def watermarks_to_checkpoint(self) -> dict[TopicPartition, int]:
        """Return the content of replication-offset-checkpoint.

        It includes logs that are not served: the controller may name some partitions long before
        others.
        """
        return {**self.checkpointed, **self.high_watermarks()}
