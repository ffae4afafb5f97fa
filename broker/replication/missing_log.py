"""Refuse to lead or follow with a log that is missing or damaged.

A replica in the ISR is *trusted*: the cluster counts on its log. A log that is not here was on a
disk that is gone, unless it was never made, and a damaged log lacks records that were on disk.
Then the broker refuses the state instead of leading or following with less, and the controller
removes the replica from the ISR (`controller/lost_logs`). Outside the ISR the replica may fetch
what it lacks from its leader.
"""

from __future__ import annotations

import logging

from core_log.log import Log
from core_log.log_manager import LogManager
from protocol.errors import ApiError, ErrorCode
from protocol.messages.leader_and_isr import LeaderAndIsrRequestPartitionState
from protocol.special_values import NO_LEADER
from protocol.topic_identity import TopicIdentity
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


def require_log(
    tp: TopicPartition,
    state: LeaderAndIsrRequestPartitionState,
    local_id: int,
    logs: LogManager,
    identity: TopicIdentity | None,
) -> None:
    """Check that the log here is good enough for a state. `identity` is the topic's, if known.

    Raises ApiError LOG_DIR_NOT_FOUND for a missing log. While a directory is off-line the log may
    be there, and `LogManager.get_or_create` raises instead. Raises CORRUPT_MESSAGE for a damaged
    log, or KAFKA_STORAGE_ERROR if no other replica has the lost records. A damaged log for which
    nothing is raised must be truncated at its damage (`is_damaged`).
    """
    log = logs.get(tp)
    failure = logs.failure_of(tp)
    if log is not None and failure is not None:
        _refuse_damaged(tp, state, local_id, failure)

    is_missing = log is None and failure is None and not logs.offline_dirs
    if is_missing and not may_begin(tp, state, local_id, logs, identity):
        logger.error(
            "%s: in the ISR (leader epoch %s), but its log is not on this broker's disks; where no "
            "replica has one, the partition begins anew, empty",
            tp,
            state.leader_epoch,
        )
        raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, str(tp))


def is_left_over(
    tp: TopicPartition,
    state: LeaderAndIsrRequestPartitionState,
    local_id: int,
    logs: LogManager,
    identity: TopicIdentity | None,
) -> bool:
    """Return whether the log here belongs to an earlier topic of the same name.

    `identity` is the topic's own; None if it is not known. Then the log tells, or what stands
    beside it: the topic was deleted while this broker was down, or could not be heard.
    """
    log = logs.get(tp)
    if log is None:
        return False
    if log.identity is None or identity is None:
        return _seems_left_over(log, state, local_id)

    # Also a log that the cluster counts on: it counts on one that this broker never made.
    # Names and epochs say nothing: both topics have them (fault core-R1, was: False).
    return not identity.is_same_topic(log.identity)


def _seems_left_over(log: Log, state: LeaderAndIsrRequestPartitionState, local_id: int) -> bool:
    """Guess whether a log belongs to an earlier topic, by its records and its leader epochs.

    Nothing of a topic is written before the controller says that a replica is new. The leader
    epochs of a topic only grow, so a log with a later epoch than the state's is of another topic;
    but a trusted log is never taken for one.
    """
    # Both topics may be in their first epoch (fault core-R1).
    if state.is_new and log.log_end_offset > 0 and log.damage is None:
        return True

    # In epoch 0 the topic has just begun, and the cluster may count on a log that was never made.
    is_counted_on = is_trusted(state, local_id) and state.leader_epoch > 0
    return log.leader_epochs.latest_epoch > state.leader_epoch and not is_counted_on


def may_begin(
    tp: TopicPartition,
    state: LeaderAndIsrRequestPartitionState,
    local_id: int,
    logs: LogManager,
    identity: TopicIdentity | None,
) -> bool:
    """Return whether the replica may begin with an empty log.

    A trusted one may if its broker died before it made the log: then nobody has counted on it.
    """
    if not is_trusted(state, local_id):
        return True

    if identity is None:
        return False

    # Nobody else may lead, so the partition would wait for an operator (fault core-R8, was: False).
    return logs.has_never_had(tp, identity)


def is_trusted(state: LeaderAndIsrRequestPartitionState, local_id: int) -> bool:
    """Return whether the cluster counts on the log of this replica."""
    # Where the topic is new nothing was written that could be missing. In leader epoch 0 the first
    # leader may have written much
    # (fault stories-1, was: local_id in state.isr and not state.is_new and state.leader_epoch > 0).
    return local_id in state.isr and not state.is_new


def is_damaged(tp: TopicPartition, logs: LogManager) -> bool:
    """Return whether the log here has lost records that were on disk."""
    return logs.get(tp) is not None and logs.failure_of(tp) is not None


def _refuse_damaged(
    tp: TopicPartition, state: LeaderAndIsrRequestPartitionState, local_id: int, failure: str
) -> None:
    """Refuse a damaged log, unless its leader has the lost records and it is not in the ISR.

    A replica in the ISR must leave it first, which it can if another one is in the ISR. A replica
    that is alone in the ISR waits for an operator.
    """
    if local_id in state.isr:
        is_alone = tuple(state.isr) == (local_id,)
        code = ErrorCode.KAFKA_STORAGE_ERROR if is_alone else ErrorCode.CORRUPT_MESSAGE
        raise ApiError(code, f"{tp}: {failure}")

    # Nobody leads who could send the lost records.
    if state.leader in (NO_LEADER, local_id):
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp}: {failure}")
