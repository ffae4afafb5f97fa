"""Give the replicas of this broker their roles, as control requests say.

LeaderAndIsr makes a replica lead or follow, StopReplica stops it. Everything here runs to its end
on the event loop. Work on logs that takes longer is done before, by the threads of the disk
(`control_work`): what is not prepared is done here.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import attrs

from broker.replication.missing_log import is_damaged, is_left_over, may_begin, require_log
from broker.replication.partition import Partition
from broker.replication.replica_manager import ReplicaManager
from broker.replication.topic_identities import TopicIdentities
from core_log.log import Log
from core_log.log_dir import LogDir
from core_log.log_manager import NewLog, TakenOut
from protocol.errors import ApiError, ErrorCode
from protocol.frozen import frozen
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
from protocol.messages.update_metadata import UpdateMetadataRequestPartitionState
from protocol.special_values import LEADER_DURING_DELETE, NO_LEADER
from protocol.topic_identity import TopicIdentity
from protocol.topic_name import is_legal
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

State = tuple[str, LeaderAndIsrRequestPartitionState]
"""A topic, and the state of one of its partitions."""

NOTHING_TAKEN_OUT = TakenOut(lambda: None, ())


@frozen
class Deletions:
    """Logs to be deleted: their partitions, each with the log that was taken out."""

    deletions: Sequence[tuple[TopicPartition, TakenOut]]

    def run(self) -> list[StopReplicaResponsePartitionError]:
        """Delete the logs. Any thread may call it."""
        # Rename all, then sync: a directory is synced once for all of its logs.
        codes = [_code_of(deletion.rename_directory) for _, deletion in self.deletions]
        # A power loss must not bring back a log that the controller takes for deleted, and whose
        # name the next topic may have (fault core-R1, was: [ErrorCode.NONE] * len(codes)).
        synced = [_code_of(deletion.sync) for _, deletion in self.deletions]

        return [
            StopReplicaResponsePartitionError(
                topic_name=tp.topic, partition_index=tp.partition, error_code=code or sync_code
            )
            for (tp, _), code, sync_code in zip(self.deletions, codes, synced, strict=True)
        ]


@attrs.define(eq=False)
class ReplicaRoles:
    """Changes the roles of `replicas`, and tells the parts that depend on them."""

    replicas: ReplicaManager
    identities: TopicIdentities
    now_ms: Callable[[], int]

    def become_leader_or_follower(
        self, request: LeaderAndIsrRequest, monotonic_ms: int
    ) -> LeaderAndIsrResponse:
        """Obey a whole LeaderAndIsr request."""
        errors = self.take_states(leader_and_isr.partition_states(request), monotonic_ms)
        self.note_leadership()
        return LeaderAndIsrResponse(error_code=ErrorCode.NONE, partition_errors=errors)

    def note_leadership(self) -> None:
        """Note that a whole LeaderAndIsr was obeyed: the controller has found this broker."""
        self.replicas.is_leadership_known = True

    def needs_log_work(self, states: Sequence[State]) -> bool:
        """Return whether a thread must work on any of these logs before `take_states`.

        A log may have to be created, truncated at its damage or deleted, or be lent to a thread.
        """
        names = [TopicPartition(topic, state.partition_index) for topic, state in states]
        return (
            any(self._needs_log(topic, state) for topic, state in states)
            or self.has_lent(names)
            or bool(self.find_damaged(states))
            or bool(self.find_left_over(states))
            or bool(self.find_unsure(states))
        )

    def find_unsure(self, states: Iterable[State]) -> set[str]:
        """Return the topics whose identities must be read before `take_states`.

        Those are the topics that are not known, or that may have been created again since.
        """
        unsure = set()
        for topic, state in states:
            tp = TopicPartition(topic, state.partition_index)
            if self.replicas.local_id not in state.replicas or not is_path(tp):
                continue
            partition = self.replicas.partitions.get(tp)
            went_back = partition is not None and state.leader_epoch < partition.leader_epoch
            if state.is_new or went_back or self.identities.get(topic) is None:
                unsure.add(topic)
        return unsure

    def find_left_over(self, states: Iterable[State]) -> list[TopicPartition]:
        """Return the partitions whose logs here belong to earlier topics of the same name."""
        # A request may name a partition twice.
        return list(
            dict.fromkeys(
                tp
                for topic, state in states
                if self.replicas.local_id in state.replicas
                and self._is_left_over(tp := TopicPartition(topic, state.partition_index), state)
            )
        )

    def _is_left_over(self, tp: TopicPartition, state: LeaderAndIsrRequestPartitionState) -> bool:
        identity = self.identities.get(tp.topic)
        # What is served is not judged by a guess.
        if identity is None and tp in self.replicas.partitions:
            return False
        # Records are not hidden by a guess where ZooKeeper could tell (fault core-R1).
        if self._is_unknown(tp):
            return False
        return is_left_over(tp, state, self.replicas.local_id, self.replicas.logs, identity)

    def _is_unknown(self, tp: TopicPartition) -> bool:
        """Return whether ZooKeeper would tell whether a log is the topic's, and does not answer."""
        log = self.replicas.logs.get(tp)
        is_told_by_identity = log is not None and log.identity is not None
        return is_told_by_identity and self.identities.is_unread(tp.topic)

    def _refuse_unknown(self, tp: TopicPartition, state: LeaderAndIsrRequestPartitionState) -> None:
        """Refuse a state if the log here seems to be of an earlier topic, and nobody can say.

        ZooKeeper was silent as long as the session lasts: after it the controller tells all again.
        """
        if self._is_unknown(tp) and is_left_over(
            tp, state, self.replicas.local_id, self.replicas.logs, None
        ):
            why = f"{tp}: whether its log is of an earlier topic, ZooKeeper does not say"
            logger.error("%s", why)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, why)

    def set_aside(self, tp: TopicPartition) -> TakenOut:
        """Give up a log that is left over; return what gives its directory another name.

        A process that slept may serve the earlier topic still: it ends here. Raises ApiError
        KAFKA_STORAGE_ERROR.
        """
        partition = self.replicas.partitions.get(tp)
        if partition is not None:
            self.replicas.followers.stop([tp])
            partition.stop()
            self.replicas.remove(tp)
        # The watermark was the earlier topic's.
        self.replicas.checkpointed.pop(tp, None)
        taken_out = self.replicas.logs.begin_setting_aside(tp, self.now_ms())
        if partition is not None:
            self._announce_leadership([], [tp])
        return taken_out

    def find_unstamped(self, states: Iterable[State]) -> list[tuple[LogDir, Log, TopicIdentity]]:
        """Return the logs that are served, and beside which another identity stands, or none."""
        unstamped = []
        for topic, state in states:
            tp = TopicPartition(topic, state.partition_index)
            identity = self.identities.get(topic)
            log = self.replicas.logs.get(tp)
            if identity is None or log is None or log.identity == identity:
                continue
            log_dir = self.replicas.logs.dir_of(tp)
            if log_dir is not None and tp in self.replicas.partitions:
                unstamped.append((log_dir, log, identity))
        return unstamped

    def find_damaged(self, states: Iterable[State]) -> list[TopicPartition]:
        """Return the partitions whose logs must be truncated at damage before `take_states`."""
        damaged = []
        for topic, state in states:
            tp = TopicPartition(topic, state.partition_index)
            # A log that is refused stays as it is: `take_states` reports the error.
            with contextlib.suppress(ApiError):
                if tp not in self.replicas.partitions and is_damaged(tp, self.replicas.logs):
                    self._require_log(tp, state)
                    damaged.append(tp)
        return damaged

    def has_lent(self, partitions: Iterable[TopicPartition]) -> bool:
        """Return whether the log of any of these partitions is lent or held."""
        return any(log.is_lent or log.is_held for log in self.find_logs(partitions))

    def find_logs(self, partitions: Iterable[TopicPartition]) -> list[Log]:
        """Return the logs of those of these partitions that are served here."""
        served = (self.replicas.partitions.get(tp) for tp in partitions)
        return [partition.log for partition in served if partition is not None]

    def plan_logs(self, states: Iterable[State]) -> list[NewLog]:
        """Return the logs to be created before `take_states`.

        A log that cannot be planned is left out. `take_states` creates it, or reports the error.
        """
        planned: dict[TopicPartition, NewLog] = {}
        for topic, state in states:
            tp = TopicPartition(topic, state.partition_index)
            # A request may name a partition twice.
            if tp not in planned and self._needs_log(topic, state):
                config = self.replicas.topic_config(topic)
                with contextlib.suppress(ApiError):
                    planned[tp] = self.replicas.logs.plan(
                        tp, config, is_new=state.is_new, identity=self.identities.get(topic)
                    )
        return list(planned.values())

    def _needs_log(self, topic: str, state: LeaderAndIsrRequestPartitionState) -> bool:
        tp = TopicPartition(topic, state.partition_index)
        return (
            tp not in self.replicas.partitions
            and self.replicas.logs.get(tp) is None
            and self.replicas.local_id in state.replicas
            # A trusted log that was lost is not created: its state is refused.
            and is_path(tp)
            and may_begin(
                tp,
                state,
                self.replicas.local_id,
                self.replicas.logs,
                self.identities.get(topic),
            )
        )

    def _require_log(self, tp: TopicPartition, state: LeaderAndIsrRequestPartitionState) -> None:
        identity = self.identities.get(tp.topic)
        require_log(tp, state, self.replicas.local_id, self.replicas.logs, identity)

    def take_states(
        self, states: Iterable[State], monotonic_ms: int
    ) -> list[LeaderAndIsrResponsePartitionError]:
        """Lead and follow as a LeaderAndIsr, or a part of one, says."""
        errors = []
        changed: list[Partition] = []
        # Partitions that are led here again, though others may have led them in between.
        regained: list[TopicPartition] = []

        for topic, state in states:
            tp = TopicPartition(topic, state.partition_index)
            previous = self.replicas.partitions.get(tp)
            was_leader = previous is not None and previous.is_leader
            # Only if no epoch lies between, nobody else can have led.
            leads_on = previous is not None and previous.leads_until(state.leader_epoch)
            try:
                partition = self._take_state(tp, state, monotonic_ms)
                changed.append(partition)
                if was_leader and partition.is_leader and not leads_on:
                    regained.append(tp)
                code = ErrorCode.NONE
            except ApiError as error:
                code = error.code
            errors.append(
                LeaderAndIsrResponsePartitionError(
                    topic_name=topic, partition_index=tp.partition, error_code=code
                )
            )

        # The names of new logs must outlive a power loss before the controller counts on them.
        self.replicas.logs.sync_names()

        # All stop before any follows: an earlier leader's fetch must not go on.
        self.replicas.followers.stop(partition.topic_partition for partition in changed)
        self.replicas.followers.follow(
            partition
            for partition in changed
            if partition.leader not in (NO_LEADER, self.replicas.local_id)
        )

        # Tell the others. A partition that was regained is named as following too: subscribers
        # must not trust what they know of it.
        led = [partition.topic_partition for partition in changed if partition.is_leader]
        followed = [partition.topic_partition for partition in changed if not partition.is_leader]
        self._announce_leadership(led, [*regained, *followed])
        return errors

    def resign(self, states: Iterable[State]) -> list[TopicPartition]:
        """Stop leading what others lead in a later epoch, and return it.

        `take_states` has it follow; that may come much later, when logs and topics are known.
        """
        resigned = []
        for topic, state in states:
            tp = TopicPartition(topic, state.partition_index)
            partition = self.replicas.partitions.get(tp)
            if (
                partition is not None
                and partition.is_leader
                and state.leader != self.replicas.local_id
                and state.leader_epoch > partition.leader_epoch
                and not partition.is_failed
                and not self.has_lent([tp])
            ):
                partition.stop()
                resigned.append(tp)
        if resigned:
            self._announce_leadership([], resigned)
        return resigned

    def _take_state(
        self, tp: TopicPartition, state: LeaderAndIsrRequestPartitionState, monotonic_ms: int
    ) -> Partition:
        """Take one state. Raises ApiError if it is refused."""
        # Refuse a failed log, an epoch that is over, and a partition not assigned to this broker.
        partition = self.replicas.partitions.get(tp)
        if partition is not None and partition.is_failed:
            partition.was_refused = True
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp}: {partition.log.failure}")
        if partition is not None and partition.is_stale(state.leader_epoch):
            raise ApiError(ErrorCode.STALE_CONTROLLER_EPOCH, str(tp))
        if self.replicas.local_id not in state.replicas:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(tp))

        if partition is None:
            partition = self._create(tp, state)
            self.replicas.add(partition)
        partition.take_state(state, monotonic_ms)
        logger.debug(
            "%s: leader %s epoch %s, high watermark %s",
            tp,
            state.leader,
            state.leader_epoch,
            partition.high_watermark,
        )
        return partition

    def _create(self, tp: TopicPartition, state: LeaderAndIsrRequestPartitionState) -> Partition:
        """Serve the log of a partition, or a new one. Raises ApiError."""
        _check_path(tp)
        # Mostly `control_work` has prepared the log in a thread, and nothing is left to do.
        if self._is_left_over(tp, state):
            self.set_aside(tp).run()
        self._refuse_unknown(tp, state)
        self._require_log(tp, state)
        if is_damaged(tp, self.replicas.logs):
            self.replicas.logs.truncate_damage(tp)

        config = self.replicas.topic_config(tp.topic)
        log = self.replicas.logs.get_or_create(tp, config, is_new=state.is_new)

        # The settings may have changed since the log was opened.
        log.update_config(config)
        log.write_back = self.replicas.write_back

        # After a crash the checkpoint may be above the log's end, or below its start.
        watermark = min(self.replicas.checkpointed.get(tp, 0), log.log_end_offset)
        return Partition(
            tp,
            self.replicas.local_id,
            log,
            max(watermark, log.log_start_offset),
            self.replicas.lag_ms,
        )

    def stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Obey a StopReplica request at once; with `delete_partitions` delete the logs too."""
        stopped = [TopicPartition(*pair) for pair in stop_replica.partitions(request)]
        errors = self.stop(stopped, delete=request.delete_partitions).run()
        return StopReplicaResponse(error_code=ErrorCode.NONE, partition_errors=errors)

    def stop(self, stopped: Sequence[TopicPartition], *, delete: bool) -> Deletions:
        """Stop these replicas; return the deletions of their logs, which are still to be run."""
        # Stop first: no fetch may append to a log that is about to be deleted.
        self.replicas.followers.stop(stopped)
        deletions = Deletions([(tp, self._stop(tp, delete)) for tp in stopped])
        self._announce_leadership([], list(stopped))
        return deletions

    def find_removed(
        self, states: Iterable[tuple[str, UpdateMetadataRequestPartitionState]]
    ) -> list[TopicPartition]:
        """Return the replicas that lead or follow here, though a later epoch has them elsewhere.

        A log that is lent to a thread is not found: it is found with the next request.
        """
        removed = []
        for topic, state in states:
            tp = TopicPartition(topic, state.partition_index)
            partition = self.replicas.partitions.get(tp)
            if (
                partition is not None
                and partition.leader != NO_LEADER
                and state.leader_epoch > partition.leader_epoch
                and state.leader != LEADER_DURING_DELETE
                and self.replicas.local_id not in state.replicas
                and not self.has_lent([tp])
            ):
                removed.append(tp)
        return removed

    def _stop(self, tp: TopicPartition, delete: bool) -> TakenOut:
        partition = self.replicas.partitions.get(tp)
        if partition is not None:
            partition.stop()
        if not delete:
            return NOTHING_TAKEN_OUT

        try:
            _check_path(tp)
            self.replicas.remove(tp)
            self.identities.forget([tp.topic])
            taken_out = self.replicas.logs.begin_deletion(tp)
            # One of each partition that ever was would stay for good (fault core-L5).
            self.replicas.checkpointed.pop(tp, None)
            return taken_out
        except ApiError as error:
            # Reported by `Deletions.run`, in the order of the request.
            return TakenOut(partial(_raise, error), ())

    def _announce_leadership(
        self, leaders: list[TopicPartition], followers: list[TopicPartition]
    ) -> None:
        """Call the subscribers of leadership, and wake all who wait for these partitions."""
        self.replicas.leadership(leaders, followers)

        # A follower whose fetch waits here cannot ask for new partitions before the fetch ends.
        following_brokers = set[int]()
        for tp in leaders:
            self.replicas.follower_progress.watch(tp)
            following_brokers.update(self.replicas.partitions[tp].followers)
        if following_brokers:
            self.replicas.waits.wake_followers(following_brokers)
        self.replicas.notify_change(*leaders, *followers)


def is_path(tp: TopicPartition) -> bool:
    """Return whether a directory can be named after this partition."""
    return is_legal(tp.topic) and tp.partition >= 0


def _check_path(tp: TopicPartition) -> None:
    """Refuse a name that would lead out of the log directory. Raises ApiError."""
    if not is_path(tp):
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{tp} is not a legal partition name")


def _code_of(step: Callable[[], None]) -> ErrorCode:
    try:
        step()
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


def _raise(error: ApiError) -> None:
    raise error
