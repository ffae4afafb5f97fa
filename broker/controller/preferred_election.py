"""Elections that are asked for: of preferred leaders, by tool, API or timer, and unclean ones.

Whom the leaders have in sync is read first. What can be elected is written; a state that its leader
wrote meanwhile is read and looked at again, until nothing more can be done. Then whoever asked is
told how each partition came out.
"""

from __future__ import annotations

import logging

from broker.controller.effects import (
    Answer,
    DeletePreferredElection,
    Effect,
    PartitionStateWrite,
    RefreshLeadership,
    Repeat,
    SetTimer,
    WritePartitionStates,
)
from broker.controller.events import (
    Electing,
    ElectionRequested,
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


def asked_by_tool(state: ControllerState, event: PreferredElectionRead) -> list[Effect]:
    """The tool's node goes when all was tried, whatever came of it."""
    if event.partitions is None:
        return []
    partitions, refused = _sorted_out(state, event.partitions, unclean=False)
    for partition, (code, why_not) in refused.items():
        if code is not ErrorCode.ELECTION_NOT_NEEDED:
            logger.error("%s: no preferred leader is elected: %s", partition, why_not)
    return _elect(Electing(partitions, by_tool=True))


def requested(state: ControllerState, event: ElectionRequested) -> list[Effect]:
    """A client asks, and is told of each partition."""
    asked = tuple(state.partitions()) if event.partitions is None else event.partitions
    partitions, refused = _sorted_out(state, asked, unclean=event.unclean)
    return _elect(Electing(partitions, event.unclean, refused, request_id=event.request_id))


def due(state: ControllerState, event: PreferredElectionDue) -> list[Effect]:
    """Where too much of what prefers a broker is led by others, give it back to that broker."""
    if event.reign != state.reign or state.rebalance is None:
        return []
    again = SetTimer(event, state.rebalance.check_interval_ms)
    if state.reassignments:
        return [again]
    away = _imbalanced(state, state.rebalance.imbalance_percentage)
    return [*_elect(Electing(away)), again] if away else [again]


def _imbalanced(state: ControllerState, percentage: int) -> tuple[TopicPartition, ...]:
    preferring: dict[int, list[TopicPartition]] = {}
    for partition in state.partitions():
        if partition.topic not in state.deletions:
            preferring.setdefault(state.replicas(partition)[0], []).append(partition)
    found: list[TopicPartition] = []
    for partitions in preferring.values():
        away = [each for each in partitions if _is_needed(state, each, unclean=False)]
        if 100 * len(away) > percentage * len(partitions):
            found += away
    return tuple(found)


def _elect(event: Electing) -> list[Effect]:
    """Who is in sync may have changed since the controller last heard of it."""
    return [RefreshLeadership(event.partitions), Repeat(event)]


def electing(state: ControllerState, event: Electing) -> list[Effect]:
    """Elect whom can be; then say what came of it."""
    writes: list[PartitionStateWrite] = []
    for partition in event.partitions:
        after = _elected(state, partition, unclean=event.unclean)
        if after is not None:
            zk_version = state.leadership[partition].zk_version
            writes.append(PartitionStateWrite(partition, after, zk_version))
    if writes:
        return [WritePartitionStates(tuple(writes)), Repeat(event)]
    if event.by_tool:
        return [DeletePreferredElection()]
    if event.request_id is None:
        return []
    verdicts = {each: _verdict(state, each, unclean=event.unclean) for each in event.partitions}
    return [Answer(event.request_id, {**event.refused, **verdicts})]


def _sorted_out(
    state: ControllerState, partitions: tuple[TopicPartition, ...], *, unclean: bool
) -> tuple[tuple[TopicPartition, ...], dict[TopicPartition, Verdict]]:
    """Those for which an election is to be held, and why not for the others."""
    refused: dict[TopicPartition, Verdict] = {}
    for each in partitions:
        if not state.replicas(each):
            refused[each] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
        elif each.topic in state.deletions:
            refused[each] = (
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                "The topic is being deleted",
            )
        elif not _is_needed(state, each, unclean=unclean):
            not_needed = ErrorCode.ELECTION_NOT_NEEDED
            refused[each] = not_needed, not_needed.meaning
    return tuple(each for each in partitions if each not in refused), refused


def _is_needed(state: ControllerState, partition: TopicPartition, *, unclean: bool) -> bool:
    if unclean:
        return state.status(partition) is not PartitionStatus.ONLINE
    known = state.leadership.get(partition)
    return known is None or known.state.leader != state.replicas(partition)[0]


def _elected(
    state: ControllerState, partition: TopicPartition, *, unclean: bool
) -> PartitionState | None:
    """The state with the leader that is asked for; None where it leads or cannot."""
    known, replicas = state.leadership.get(partition), state.replicas(partition)
    if known is None or not replicas or not _is_needed(state, partition, unclean=unclean):
        return None
    live = state.online(partition, {*replicas, *known.state.isr})
    if unclean:
        return next_state(known.state, replicas, live, state.epoch, unclean=True)
    leader = preferred_leader(replicas, known.state.isr, live)
    if leader is None:
        return None
    return under_next_epoch(known.state, leader, known.state.isr, state.epoch)


def _verdict(state: ControllerState, partition: TopicPartition, *, unclean: bool) -> Verdict:
    if not _is_needed(state, partition, unclean=unclean):
        return ErrorCode.NONE, ""
    code, strategy = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "PreferredReplica"
    if unclean:
        code, strategy = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Offline"
    kafkas = f"{strategy}PartitionLeaderElectionStrategy{'(true)' if unclean else ''}"
    return code, f"Failed to elect leader for partition {partition} under strategy {kafkas}"
