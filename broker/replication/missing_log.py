"""What a broker answers when it is told of a replica whose log it has not, or not whole.

What a replica is trusted to have it must have. One that is in sync was led before; if its log is
not here it was on a disk that is gone, and if it is damaged it lacks what was on disk. Then the
broker says so instead of leading or following with less, and the controller takes the replica out
of the ISR (`controller/lost_logs`); out of it, it may have from its leader what it lacks.
"""

from __future__ import annotations

import logging

from broker.replication.partition import NO_LEADER
from core_log.log_manager import LogManager
from protocol.errors import ApiError, ErrorCode
from protocol.messages.leader_and_isr import LeaderAndIsrRequestPartitionState
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


def refuse_lost(
    tp: TopicPartition, state: LeaderAndIsrRequestPartitionState, local_id: int, logs: LogManager
) -> None:
    """Refuse a state for which the log here will not do.

    Raises ApiError LOG_DIR_NOT_FOUND for a log that is gone (while a directory is off-line nobody
    knows, and `LogManager.get_or_create` says so), and for a damaged one CORRUPT_MESSAGE, or
    KAFKA_STORAGE_ERROR where no other replica can give what is lost. Where one can, the log is to
    be cut at its damage (`is_damaged`).
    """
    log, fault = logs.get(tp), logs.failure_of(tp)
    if log is not None and fault is not None:
        _refuse_damaged(tp, state, local_id, fault)
    is_lost = log is None and fault is None and not logs.offline_dirs
    if is_trusted(state, local_id) and is_lost:
        logger.error(
            "%s: it is in sync by its state (leader epoch %s), but its log is not on this"
            " broker's disks",
            tp,
            state.leader_epoch,
        )
        raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, str(tp))


def is_left_over(
    tp: TopicPartition, state: LeaderAndIsrRequestPartitionState, local_id: int, logs: LogManager
) -> bool:
    """Whether the log here is that of a topic of the same name which was deleted while this broker
    was away. Epochs of a topic only grow: it has one that this topic has not come to yet.

    What the cluster counts on is never taken for a leftover.
    """
    log = logs.get(tp)
    return (
        log is not None
        and log.leader_epochs.latest_epoch > state.leader_epoch
        and not is_trusted(state, local_id)
    )


def is_trusted(state: LeaderAndIsrRequestPartitionState, local_id: int) -> bool:
    """Whether the cluster counts on the log being here."""
    return local_id in state.isr and state.leader_epoch > 0 and not state.is_new


def is_damaged(tp: TopicPartition, logs: LogManager) -> bool:
    """Whether the log here has lost what was on disk."""
    return logs.get(tp) is not None and logs.failure_of(tp) is not None


def _refuse_damaged(
    tp: TopicPartition, state: LeaderAndIsrRequestPartitionState, local_id: int, fault: str
) -> None:
    """What a damaged log has lost, its leader can give again. One that is trusted to have it must
    be out of the ISR first, which another one in sync allows; alone in the ISR it waits for an
    operator."""
    if local_id in state.isr:
        is_alone = tuple(state.isr) == (local_id,)
        code = ErrorCode.KAFKA_STORAGE_ERROR if is_alone else ErrorCode.CORRUPT_MESSAGE
        raise ApiError(code, f"{tp}: {fault}")
    if state.leader in (NO_LEADER, local_id):
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp}: {fault}")
