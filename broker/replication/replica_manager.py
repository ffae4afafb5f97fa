"""All replicas of this broker: control requests in, appends and reads through.

Everything here is a plain function run to its end on the event loop; what has to wait is told
through `waits`, and by `on_high_watermark`. What takes a network goes
out through two seams: `followers` fetches for the replicas that follow, `write_isr` writes what
the leaders propose to ZooKeeper and comes back with `isr_written` or `isr_superseded`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

import attrs

from broker.replication.follower_progress import InSyncSets
from broker.replication.missing_log import is_damaged, is_left_over, is_trusted, refuse_lost
from broker.replication.partition import NO_LEADER, IsrChange, Partition
from broker.signals import Signal, Signals
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
from core_log.log_manager import LogManager, NewLog
from core_log.storage import FileRange
from protocol.errors import ApiError, ErrorCode
from protocol.messages import leader_and_isr, stop_replica
from protocol.messages.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrRequestPartitionState,
    LeaderAndIsrResponse,
    LeaderAndIsrResponsePartitionError,
)
from protocol.messages.stop_replica import (
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaResponsePartitionError,
)
from protocol.records.batch import read_header
from protocol.topic_name import is_legal
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

State = tuple[str, LeaderAndIsrRequestPartitionState]

ValidSet = Sequence[ValidBatch | ValidMessages]
Check = Callable[[int], ValidSet]
"""Checks what was sent, and makes of it what the log keeps; it may decompress so many bytes. It
reads nothing that changes. Raises ApiError."""

STRAYS_NAMED = 20
"""Logs of nobody that are named in one line."""

CONSUMER = -1
DEBUGGING_CONSUMER = -2
"""The replica id of a reader that any replica answers."""


class Followers(Protocol):
    """What fetches from leaders for the partitions that follow."""

    def follow(self, partitions: Iterable[Partition]) -> None:
        """Fetch for these from the leaders they have now, after truncation."""

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch for these no more."""

    def flushed(self, partition: Partition) -> None:
        """What was fetched has reached the disk."""

    def start_moved(self, partition: Partition) -> None:
        """The log begins at another offset: its leader is to be told."""

    def troubled(self) -> Mapping[TopicPartition, str]:
        """The partitions that could not be fetched when that was last tried, and why."""


UNKNOWN_OFFSET = -1
"""In a response to a consumer, for a bound that the leader does not know yet."""


@attrs.frozen
class FetchedRange:
    """What a partition has for a reader: a range of a file (None: nothing yet) and its bounds."""

    range: FileRange | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


@attrs.frozen
class Deletions:
    """Logs that are to be deleted: a partition each, and what does it."""

    deletions: Sequence[tuple[TopicPartition, Callable[[], None]]]

    def run(self) -> list[StopReplicaResponsePartitionError]:
        """Delete them, in whatever thread."""
        return [
            StopReplicaResponsePartitionError(
                topic_name=tp.topic, partition_index=tp.partition, error_code=_code_of(deletion)
            )
            for tp, deletion in self.deletions
        ]


class Waits(Protocol):
    """Wakes what waits for a partition (`partition_waits`)."""

    def grown(self, tp: TopicPartition) -> None:
        """The log has a new end."""

    def committed(self, tp: TopicPartition, high_watermark: int) -> None:
        """The high watermark has moved."""

    def settled(self, tp: TopicPartition, durable_end_offset: int) -> None:
        """What is on disk reaches so far."""

    def begins_elsewhere(self, tp: TopicPartition) -> None:
        """A replica's log start offset has moved."""

    def changed(self, *partitions: TopicPartition) -> None:
        """Everything may be different."""

    def followed_by(self, replicas: Container[int]) -> None:
        """Partitions are led here that these brokers follow."""


@attrs.define(eq=False)
class ReplicaManager:
    """Owns every `Partition` of the broker.

    `topic_config(topic)` gives the settings of a new log. `waits` wakes what waits for a partition.
    `leadership(leaders, followers)` is called after each control request that changed them.
    `lag_ms` is replica.lag.time.max.ms. Records go by the wall clock (`now_ms`), in-sync replicas
    by `monotonic_ms`.
    """

    local_id: int
    logs: LogManager
    topic_config: Callable[[str], LogConfig]
    waits: Waits
    start_flush: Callable[[Partition], None]
    followers: Followers
    write_isr: Callable[[IsrChange], None]
    monotonic_ms: Callable[[], int]
    lag_ms: int = 10_000
    checkpointed: dict[TopicPartition, int] = attrs.field(factory=dict)
    """The high watermarks of logs that are not served, as they were when they last were."""
    leadership: Signal[list[TopicPartition], list[TopicPartition]] = attrs.field(factory=Signal)
    write_back: WriteBack = lambda file, start, size: None
    """Given to logs, which tell it what the disk is to begin with."""
    partitions: dict[TopicPartition, Partition] = attrs.field(factory=dict)
    leadership_known: bool = False
    in_sync: InSyncSets = attrs.field(init=False)
    _by_topic: dict[str, dict[int, Partition]] = attrs.field(factory=dict)
    _awaiting_flush: set[TopicPartition] = attrs.field(factory=set)
    _watermarks: dict[TopicPartition, list[Callable[[], None]]] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.in_sync = InSyncSets(
            self.partitions,
            self.write_isr,
            self.lag_ms,
            self._committed,
            self.begins_elsewhere,
            self._changed,
        )

    def subscribe(self, signals: Signals) -> None:
        """Follow what becomes of flushes, of fetches, and of proposed in-sync replicas."""
        signals.replicated.subscribe(self.replicated)
        signals.flushed.subscribe(self.flushed)
        signals.isr_written.subscribe(self.in_sync.isr_written)
        signals.isr_superseded.subscribe(self.in_sync.isr_superseded)

    # ---- control requests

    def become_leader_or_follower(
        self, request: LeaderAndIsrRequest, monotonic_ms: int
    ) -> LeaderAndIsrResponse:
        """Obey a LeaderAndIsr request as a whole."""
        errors = self.take_states(leader_and_isr.partition_states(request), monotonic_ms)
        self.know_leadership()
        return LeaderAndIsrResponse(error_code=ErrorCode.NONE, partition_errors=errors)

    def know_leadership(self) -> None:
        """Take note that a LeaderAndIsr was obeyed as a whole. The first one names all partitions
        that a broker has; logs of others are named in the log."""
        if self.leadership_known:
            return
        self.leadership_known = True
        strays = sorted(map(str, self.logs.logs.keys() - self.partitions.keys()))
        if strays:
            logger.warning(
                "%d logs are here of partitions that the controller has not named: %s%s",
                len(strays),
                ", ".join(strays[:STRAYS_NAMED]),
                ", …" if len(strays) > STRAYS_NAMED else "",
            )

    def waits_for_logs(self, states: Sequence[State]) -> bool:
        """Whether a log has to be made for any of these, or mended, is left over or lent."""
        names = [TopicPartition(topic, state.partition_index) for topic, state in states]
        return (
            any(self._needs_log(topic, state) for topic, state in states)
            or self.has_lent(names)
            or bool(self.damaged(states))
            or bool(self.left_over(states))
        )

    def left_over(self, states: Iterable[State]) -> list[TopicPartition]:
        """The partitions whose logs here are those of earlier topics of the same name."""
        return [
            tp
            for topic, state in states
            if (tp := TopicPartition(topic, state.partition_index)) not in self.partitions
            and self.local_id in state.replicas
            and is_left_over(tp, state, self.local_id, self.logs)
        ]

    def delete_left_over(self, tp: TopicPartition) -> Callable[[], None]:
        """Forget a log that is left over; what is returned deletes it, in whatever thread, and
        raises ApiError KAFKA_STORAGE_ERROR."""
        logger.warning("%s is of an earlier topic of that name: it is deleted", self.logs.get(tp))
        return self.logs.begin_deletion(tp)

    def damaged(self, states: Iterable[State]) -> list[TopicPartition]:
        """The partitions whose logs are to be cut at their damage before `take_states`."""
        found = []
        for topic, state in states:
            tp = TopicPartition(topic, state.partition_index)
            with contextlib.suppress(ApiError):
                if tp not in self.partitions and is_damaged(tp, self.logs):
                    refuse_lost(tp, state, self.local_id, self.logs)
                    found.append(tp)
        return found

    def has_lent(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether the log of any of these is lent or held."""
        return any(log.is_lent or log.is_held for log in self.known_logs(partitions))

    def known_logs(self, partitions: Iterable[TopicPartition]) -> list[Log]:
        """The logs that are here of these partitions."""
        found = (self.partitions.get(tp) for tp in partitions)
        return [partition.log for partition in found if partition is not None]

    def plan_logs(self, states: Iterable[State]) -> list[NewLog]:
        """The logs to be made before `take_states`, which makes those that are left out itself, or
        says why it does not."""
        planned: dict[TopicPartition, NewLog] = {}
        for topic, state in states:
            tp = TopicPartition(topic, state.partition_index)
            if tp not in planned and self._needs_log(topic, state):
                config = self.topic_config(topic)
                with contextlib.suppress(ApiError):
                    planned[tp] = self.logs.plan(tp, config, is_new=state.is_new)
        return list(planned.values())

    def _needs_log(self, topic: str, state: LeaderAndIsrRequestPartitionState) -> bool:
        tp = TopicPartition(topic, state.partition_index)
        return (
            tp not in self.partitions
            and self.logs.get(tp) is None
            and self.local_id in state.replicas
            and not is_trusted(state, self.local_id)
            and is_path(tp)
        )

    def take_states(
        self, states: Iterable[State], monotonic_ms: int
    ) -> list[LeaderAndIsrResponsePartitionError]:
        """Lead and follow what a LeaderAndIsr says, or a part of one."""
        errors = []
        changed: list[Partition] = []
        regained: list[TopicPartition] = []  # by way of epochs that others have led
        for topic, state in states:
            tp = TopicPartition(topic, state.partition_index)
            before = self.partitions.get(tp)
            was_leader = before is not None and before.is_leader
            led_on = before is not None and before.led_until(state.leader_epoch)
            try:
                partition = self._take_state(tp, state, monotonic_ms)
                changed.append(partition)
                if was_leader and partition.is_leader and not led_on:
                    regained.append(tp)
                code = ErrorCode.NONE
            except ApiError as error:
                code = error.code
            errors.append(
                LeaderAndIsrResponsePartitionError(
                    topic_name=topic, partition_index=tp.partition, error_code=code
                )
            )
        self.logs.sync_names()
        self.followers.stop(p.topic_partition for p in changed)
        self.followers.follow(p for p in changed if p.leader not in (NO_LEADER, self.local_id))
        self._tell(
            [p.topic_partition for p in changed if p.is_leader],
            [*regained, *(p.topic_partition for p in changed if not p.is_leader)],
        )
        return errors

    def _take_state(
        self, tp: TopicPartition, state: LeaderAndIsrRequestPartitionState, monotonic_ms: int
    ) -> Partition:
        partition = self.partitions.get(tp)
        if partition is not None and partition.is_failed:
            partition.was_refused = True
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp}: {partition.log.failure}")
        if partition is not None and partition.has_heard(state.leader_epoch):
            raise ApiError(ErrorCode.STALE_CONTROLLER_EPOCH, str(tp))
        if self.local_id not in state.replicas:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(tp))
        if partition is None:
            _check_path(tp)
            if is_left_over(tp, state, self.local_id, self.logs):
                self.delete_left_over(tp)()
            refuse_lost(tp, state, self.local_id, self.logs)
            if is_damaged(tp, self.logs):
                self.logs.truncate_damage(tp)
            config = self.topic_config(tp.topic)
            log = self.logs.get_or_create(tp, config, is_new=state.is_new)
            log.update_config(config)
            log.write_back = self.write_back
            watermark = min(self.checkpointed.get(tp, 0), log.log_end_offset)
            partition = Partition(
                tp, self.local_id, log, max(watermark, log.log_start_offset), self.lag_ms
            )
            self._add(partition)
        partition.take_state(state, monotonic_ms)
        logger.debug(
            "%s: leader %s epoch %s, high watermark %s",
            tp,
            state.leader,
            state.leader_epoch,
            partition.high_watermark,
        )
        return partition

    def stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Obey a StopReplica request at once; with `delete_partitions` the logs go too."""
        stopped = [TopicPartition(*pair) for pair in stop_replica.partitions(request)]
        errors = self.stop(stopped, delete=request.delete_partitions).run()
        return StopReplicaResponse(error_code=ErrorCode.NONE, partition_errors=errors)

    def stop(self, stopped: Sequence[TopicPartition], *, delete: bool) -> Deletions:
        """Let these replicas go, or a part of those that a StopReplica names; what is returned
        deletes the logs that are to be deleted."""
        self.followers.stop(stopped)
        deletions = Deletions([(tp, self._stop(tp, delete)) for tp in stopped])
        self._tell([], list(stopped))
        return deletions

    def _stop(self, tp: TopicPartition, delete: bool) -> Callable[[], None]:
        partition = self.partitions.get(tp)
        if partition is not None:
            partition.leader = NO_LEADER
        if not delete:
            return _nothing
        try:
            _check_path(tp)
            self._remove(tp)
            return self.logs.begin_deletion(tp)
        except ApiError as error:
            return partial(_refuse, error)

    def _add(self, partition: Partition) -> None:
        tp = partition.topic_partition
        self.partitions[tp] = partition
        self._by_topic.setdefault(tp.topic, {})[tp.partition] = partition

    def _remove(self, tp: TopicPartition) -> None:
        partition = self.partitions.pop(tp, None)
        if partition is not None:
            self.checkpointed[tp] = partition.high_watermark
        of_topic = self._by_topic.get(tp.topic, {})
        of_topic.pop(tp.partition, None)
        if not of_topic:
            self._by_topic.pop(tp.topic, None)

    def _tell(self, leaders: list[TopicPartition], followers: list[TopicPartition]) -> None:
        self.leadership(leaders, followers)
        followers_here = set[int]()
        for tp in leaders:
            self.in_sync.grown(tp)
            followers_here.update(self.partitions[tp].followers)
        if followers_here:
            self.waits.followed_by(followers_here)
        self._changed(*leaders, *followers)

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
        """Append what a producer sent for one partition. Raises ApiError and AppendLater."""
        partition = self.partition(tp)
        partition.require_leader()
        batch = validate(
            tp, records, partition.log.config, zstd_allowed=zstd_allowed, now_ms=now_ms
        )
        return self._append_batch(partition, batch, all_in_sync, now_ms)

    def check_of_batch(
        self,
        tp: TopicPartition,
        records: bytes | memoryview | None,
        *,
        zstd_allowed: bool,
        now_ms: int,
    ) -> Check:
        """The check that `append` makes, to be run in whatever thread. Raises ApiError."""
        partition = self.partition(tp)
        partition.require_leader()
        config, next_offset = partition.log.config, partition.log.log_end_offset

        def check(room: int) -> ValidSet:
            batch = validate(
                tp, records, config, zstd_allowed=zstd_allowed, now_ms=now_ms, room=room
            )
            if config.magic == BATCH_MAGIC:
                return (batch,)
            return (
                convert_to_old_format(tp, batch, config, next_offset=next_offset, now_ms=now_ms),
            )

        return check

    def check_of_set(
        self, tp: TopicPartition, records: bytes | memoryview | None, now_ms: int
    ) -> Check:
        """The check of a message set of Produce v0-2, to be run in whatever thread. Raises
        ApiError."""
        partition = self.partition(tp)
        partition.require_leader()
        config, next_offset = partition.log.config, partition.log.log_end_offset
        return lambda room: validate_set(
            tp, records, config, next_offset=next_offset, now_ms=now_ms
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
        """Append what a check has made, some time ago, and would make `again`; offsets -1 for
        nothing. What is in `appended` is passed over, and what is new is put there: after
        AppendLater the rest is to be appended.

        Raises ApiError, also when the partition is not led here any more, and AppendLater.
        """
        partition = self.partition(tp)
        log = partition.log
        if not appended and any(
            isinstance(m, ValidMessages) and m.first_offset != log.log_end_offset for m in valid
        ):
            valid = again()  # others were faster
        if not valid:
            return LogAppendInfo(-1, -1, -1, log.log_start_offset)
        for batch in valid[len(appended) :]:
            appended.append(self._append(partition, batch, all_in_sync, now_ms))
        return appended[0]._replace(last_offset=appended[-1].last_offset)

    def append_local(self, tp: TopicPartition, batch: bytes, now_ms: int) -> LogAppendInfo:
        """Append a batch this broker built itself, as with acks=all. Raises ApiError and
        AppendLater."""
        header = read_header(batch)
        valid = ValidBatch(batch, header, header.max_timestamp)
        return self._append_batch(self.partition(tp), valid, True, now_ms)

    def _append_batch(
        self, partition: Partition, batch: ValidBatch, all_in_sync: bool, now_ms: int
    ) -> LogAppendInfo:
        log = partition.log
        if log.config.magic == BATCH_MAGIC:
            return self._append(partition, batch, all_in_sync, now_ms)
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
        """Raises AppendLater while the log has to be flushed first: whoever waits for the partition
        is woken then."""
        try:
            appended = partition.append(batch, all_in_sync=all_in_sync, now_ms=now_ms)
        except AppendLater:
            self._awaiting_flush.add(partition.topic_partition)
            self.start_flush(partition)
            raise
        monotonic_ms = self.monotonic_ms()
        if partition.log.is_flush_due(monotonic_ms):
            self.start_flush(partition)
        self.in_sync.grown(partition.topic_partition)
        self.waits.grown(partition.topic_partition)
        if partition.advance_high_watermark(monotonic_ms):
            self._committed(partition)
        return appended

    def awaits_flush(self, tp: TopicPartition) -> bool:
        """Whether nothing can be appended to a partition that is led here before a flush ends."""
        partition = self.partitions.get(tp)
        return tp in self._awaiting_flush and partition is not None and partition.is_leader

    def _committed(self, partition: Partition) -> None:
        """The high watermark has moved."""
        tp = partition.topic_partition
        for listener in self._watermarks.get(tp, ()):
            listener()
        self.waits.committed(tp, partition.high_watermark)

    def _changed(self, *partitions: TopicPartition) -> None:
        """Whatever waits for these partitions is to look again."""
        for tp in partitions:
            for listener in self._watermarks.get(tp, ()):
                listener()
        self.waits.changed(*partitions)

    def begins_elsewhere(self, tp: TopicPartition) -> None:
        """The log of a replica begins at another offset now: who waits for that is woken."""
        self.waits.begins_elsewhere(tp)

    def tell_of_starts(self) -> None:
        """Tell followers, or leaders, where logs begin from which retention took something. To be
        called now and then; what is appended tells the same."""
        for tp, partition in self.partitions.items():
            start = partition.log.log_start_offset
            if partition.told_start != start:
                partition.told_start = start
                if partition.is_leader:
                    self.begins_elsewhere(tp)
                else:
                    self.followers.start_moved(partition)

    def flushed(self, partition: Partition) -> None:
        """A flush of the partition ended: wake what waited for it."""
        tp = partition.topic_partition
        if partition.log.failure is not None or tp in self._awaiting_flush:
            self._awaiting_flush.discard(tp)
            self._changed(tp)
        if not partition.is_leader:
            self.followers.flushed(partition)
            return
        self.waits.settled(tp, partition.log.durable_end_offset)
        if partition.advance_high_watermark(self.monotonic_ms()):
            self._committed(partition)

    def replicated(self, partition: Partition) -> None:
        """The log of a partition that follows has grown."""
        if partition.log.is_flush_due(self.monotonic_ms()):
            self.start_flush(partition)
        self.waits.grown(partition.topic_partition)
        self._committed(partition)

    # ---- reads

    def partition(self, tp: TopicPartition) -> Partition:
        """The replica of `tp` here. Raises ApiError when there is none."""
        partition = self.partitions.get(tp)
        if partition is None:
            fault = self.logs.failure_of(tp)
            if fault is not None:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp}: {fault}")
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(tp))
        return partition

    def log(self, tp: TopicPartition) -> Log:
        """The log of a partition this broker holds. Raises ApiError."""
        return self.partition(tp).log

    def high_watermark(self, tp: TopicPartition) -> int:
        """The first offset that is not committed. Raises ApiError."""
        return self.partition(tp).high_watermark

    def on_high_watermark(self, tp: TopicPartition, listener: Callable[[], None]) -> None:
        """Call `listener` each time the high watermark or leadership of `tp` may have moved."""
        self._watermarks.setdefault(tp, []).append(listener)

    def read(
        self,
        tp: TopicPartition,
        offset: int,
        max_bytes: int,
        *,
        min_one: bool,
        current_leader_epoch: int = -1,
        replica_id: int = -1,
        stable_only: bool = False,
    ) -> FetchedRange:
        """Batches from the one that holds `offset` on, for a consumer the committed ones, and with
        `stable_only` none from the first transaction on that is open.

        A follower (`replica_id` from 0 on) that is not assigned gets none. A leader that does not
        know yet what high watermark its predecessor told gives consumers what is below its own,
        and tells them none: who has been told more must not see it go back. Raises ApiError.
        """
        partition = self.partition(tp)
        if replica_id != DEBUGGING_CONSUMER:
            partition.require_leader(current_leader_epoch)
        if partition.log.is_lent:  # one that follows, and is being truncated
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{tp}: its log is being truncated")
        end = partition.last_stable_offset if stable_only else partition.high_watermark
        if replica_id >= 0:
            end = partition.log.log_end_offset if replica_id in partition.followers else offset
        found = partition.log.read(offset, max_bytes, end, min_one=min_one)
        bounds = partition.high_watermark, partition.last_stable_offset
        if replica_id == CONSUMER and not partition.is_watermark_known:
            bounds = UNKNOWN_OFFSET, UNKNOWN_OFFSET
        return FetchedRange(found, *bounds, partition.log.log_start_offset)

    def update_config(self, topic: str, config: LogConfig) -> None:
        """Hold the topic's logs to new settings from now on."""
        for partition in self._by_topic.get(topic, {}).values():
            partition.log.update_config(config)

    def refresh_configs(self) -> None:
        """Hold every log to its topic's settings as they are now."""
        for tp, partition in self.partitions.items():
            partition.log.update_config(self.topic_config(tp.topic))

    def high_watermark_if_here(self, tp: TopicPartition) -> int | None:
        """The first offset that is not committed; None of a partition that is not here."""
        partition = self.partitions.get(tp)
        return None if partition is None else partition.high_watermark

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Those of the partitions that are served."""
        return {tp: p.high_watermark for tp, p in dict(self.partitions).items()}

    def watermarks_to_checkpoint(self) -> dict[TopicPartition, int]:
        """What belongs in replication-offset-checkpoint, those of logs that are not served too: the
        controller may speak of some long before it speaks of others."""
        return {**self.checkpointed, **self.high_watermarks()}


def is_path(tp: TopicPartition) -> bool:
    """Whether a directory may be called so."""
    return is_legal(tp.topic) and tp.partition >= 0


def _check_path(tp: TopicPartition) -> None:
    """Refuse a name that would lead out of its log directory. Raises ApiError."""
    if not is_path(tp):
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{tp} is no name of a partition")


def _code_of(deletion: Callable[[], None]) -> ErrorCode:
    try:
        deletion()
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


def _nothing() -> None:
    """There is nothing to delete."""


def _refuse(error: ApiError) -> None:
    raise error
