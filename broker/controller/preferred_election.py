"""Elections on request: of preferred leaders, by tool, API or timer, and unclean ones.

The states are read first, because leaders change their ISRs. Then the elections that are possible
are written. A state that its leader wrote meanwhile is read and decided again, until no more can be
elected. Then the reply says how each partition came out.
"""

from __future__ import annotations

import logging

from broker.controller.effects import (
    DeletePreferredElection,
    Effect,
    PartitionStateWrite,
    RefreshLeadership,
    Repeat,
    Reply,
    SetTimer,
    WritePartitionStates,
)
from broker.controller.events import (
    ElectionRequested,
    ElectionStep,
    PreferredElectionDue,
    PreferredElectionRead,
    Verdict,
)
from broker.controller.leader_election import next_state, preferred_leader, under_next_epoch
from broker.controller.partition_states import PartitionStatus
from broker.controller.state import ControllerState
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition
from zk.znodes import PartitionState

logger = logging.getLogger(__name__)


def handle_preferred_election_read(
    state: ControllerState, event: PreferredElectionRead
) -> list[Effect]:
    """Elect the preferred leaders that a tool asks for.

    The tool's node is deleted once all elections were tried, whatever their results.
    """
    if event.partitions is None:
        # The node is not there: no tool asks.
        return []

    eligible, refused = _select(state, event.partitions, unclean=False)

    # A tool gets no response, only a line in the log.
    for partition, (code, reason) in refused.items():
        if code is not ErrorCode.ELECTION_NOT_NEEDED:
            logger.error("%s: no preferred leader is elected: %s", partition, reason)
    return _start(ElectionStep(eligible, by_tool=True))


def handle_election_requested(state: ControllerState, event: ElectionRequested) -> list[Effect]:
    """Hold the elections that a client requests."""
    partitions = tuple(state.partitions()) if event.partitions is None else event.partitions
    eligible, refused = _select(state, partitions, unclean=event.unclean)
    return _start(ElectionStep(eligible, event.unclean, refused, request_id=event.request_id))


def handle_preferred_election_due(
    state: ControllerState, event: PreferredElectionDue
) -> list[Effect]:
    """Give leadership back to brokers of whose preferred partitions others lead too many."""
    if event.resignations != state.resignations or state.rebalance is None:
        # Set before a resignation, or switched off.
        return []

    # Moves come first: a rebalance would write the same partitions.
    next_look = SetTimer(event, state.rebalance.check_interval_ms)
    if state.reassignments:
        return [next_look]
    imbalanced = _imbalanced(state, state.rebalance.imbalance_percentage)
    return [*_start(ElectionStep(imbalanced)), next_look] if imbalanced else [next_look]


def _imbalanced(state: ControllerState, percentage: int) -> tuple[TopicPartition, ...]:
    by_preferred_leader: dict[int, list[TopicPartition]] = {}
    for partition in state.partitions():
        if partition.topic not in state.deletions:
            preferred = state.replicas(partition)[0]
            by_preferred_leader.setdefault(preferred, []).append(partition)

    # Kafka counts the share per preferred broker, not over the cluster.
    imbalanced: list[TopicPartition] = []
    for partitions in by_preferred_leader.values():
        away = [
            partition for partition in partitions if _is_needed(state, partition, unclean=False)
        ]
        if 100 * len(away) > percentage * len(partitions):
            imbalanced += away
    return tuple(imbalanced)


def _start(step: ElectionStep) -> list[Effect]:
    """Read the states before the first step: the ISRs may have changed."""
    return [RefreshLeadership(step.partitions), Repeat(step)]


def handle_election_step(state: ControllerState, event: ElectionStep) -> list[Effect]:
    """Write the elections that are possible; when there are none left, reply."""
    # A conflict with a write of the leader shows in the next step, which elects again.
    writes: list[PartitionStateWrite] = []
    for partition in event.partitions:
        after = _elect(state, partition, unclean=event.unclean)
        if after is not None:
            zk_version = state.leadership[partition].zk_version
            writes.append(PartitionStateWrite(partition, after, zk_version))
    if writes:
        return [WritePartitionStates(tuple(writes)), Repeat(event)]

    # No election is left: end the request in the way it came.
    if event.by_tool:
        return [DeletePreferredElection()]
    if event.request_id is None:
        # The timer asked: nobody waits for a reply.
        return []
    verdicts = {
        partition: _verdict(state, partition, unclean=event.unclean)
        for partition in event.partitions
    }
    return [Reply(event.request_id, {**event.refused, **verdicts})]


def _select(
    state: ControllerState, partitions: tuple[TopicPartition, ...], *, unclean: bool
) -> tuple[tuple[TopicPartition, ...], dict[TopicPartition, Verdict]]:
    """Return the partitions that need an election, and the verdicts on all others."""
    refused: dict[TopicPartition, Verdict] = {}
    for partition in partitions:
        if not state.replicas(partition):
            refused[partition] = (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "The partition does not exist.",
            )
        elif partition.topic in state.deletions:
            refused[partition] = (
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                "The topic is being deleted",
            )
        elif not _is_needed(state, partition, unclean=unclean):
            not_needed = ErrorCode.ELECTION_NOT_NEEDED
            refused[partition] = not_needed, not_needed.meaning

    eligible = tuple(partition for partition in partitions if partition not in refused)
    return eligible, refused


def _is_needed(state: ControllerState, partition: TopicPartition, *, unclean: bool) -> bool:
    if unclean:
        return state.status(partition) is not PartitionStatus.ONLINE
    leadership = state.leadership.get(partition)
    return leadership is None or leadership.state.leader != state.replicas(partition)[0]


def _elect(
    state: ControllerState, partition: TopicPartition, *, unclean: bool
) -> PartitionState | None:
    """Return the state with the requested leader; None if it leads already or cannot lead."""
    leadership = state.leadership.get(partition)
    replicas = state.replicas(partition)
    if leadership is None or not replicas or not _is_needed(state, partition, unclean=unclean):
        return None

    current = leadership.state
    online = state.online_replicas(partition, {*replicas, *current.isr})
    if unclean:
        return next_state(current, replicas, online, state.epoch, unclean=True)

    # Only the first replica, and only if it is in sync. The ISR stays as it is.
    leader = preferred_leader(replicas, current.isr, online)
    if leader is None:
        return None
    return under_next_epoch(current, leader, current.isr, state.epoch)


def _verdict(state: ControllerState, partition: TopicPartition, *, unclean: bool) -> Verdict:
    if not _is_needed(state, partition, unclean=unclean):
        return ErrorCode.NONE, ""

    # The words are those of Kafka's exception, with the name of its strategy.
    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    strategy = "PreferredReplicaPartitionLeaderElectionStrategy"
    if unclean:
        code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        strategy = "OfflinePartitionLeaderElectionStrategy(true)"
    return code, f"Failed to elect leader for partition {partition} under strategy {strategy}"
