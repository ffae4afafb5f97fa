"""A reigning controller of values: decisions carried out on a ZooKeeper that is a dictionary.

`Reign.take` does what the shell does, to the end, with nothing between: states are written on
their condition, what is sent is noted, and what comes of each effect is decided next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from broker.controller.decide import decide
from broker.controller.effects import (
    Answer,
    DeleteTopicZnodes,
    Effect,
    LedPartition,
    ReadPartitionStates,
    ReadUncleanElection,
    RefreshLeadership,
    Repeat,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
    SetTimer,
    WatchLeadership,
    WriteAssignments,
    WritePartitionStates,
)
from broker.controller.events import (
    ArrivalsDue,
    AssignmentsWritten,
    BrokersChanged,
    Event,
    LeadershipRead,
    PartitionStatesRead,
    PartitionStatesWritten,
    TopicDeleted,
    UncleanElectionRead,
)
from broker.controller.replica_states import ReplicaStatus
from broker.controller.state import ControllerState, Leadership, LiveBroker
from protocol.topic_partition import TopicPartition
from zk.znodes import Endpoint, PartitionState

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
EPOCH = 5


def broker(broker_id: int, epoch: int = 10, port: int = 9092) -> LiveBroker:
    return LiveBroker(broker_id, epoch, (Endpoint("PLAINTEXT", f"host{broker_id}", port),))


def led(
    leader: int, isr: Iterable[int], *, epoch: int = 0, zk_version: int = 0, by: int = EPOCH
) -> Leadership:
    return Leadership(PartitionState(leader, epoch, tuple(isr), by), zk_version)


def reigning(
    brokers: Iterable[int],
    assignment: Mapping[int, tuple[int, ...]] | None = None,
    leadership: Mapping[TopicPartition, Leadership] | None = None,
) -> ControllerState:
    """An active controller of these brokers and of one topic, "t"."""
    state = ControllerState(broker_id=1)
    state.is_active = state.is_loaded = True
    state.epoch, state.epoch_zk_version, state.active_controller_id = EPOCH, 7, 1
    state.brokers = {each: broker(each) for each in brokers}
    state.brokers_seen = set(state.brokers)
    if assignment:
        state.add_partitions("t", assignment)
    for partition, known in (leadership or {}).items():
        state.learn(partition, known)
        for replica in state.replicas_of([partition]):
            is_online = state.is_alive(*replica)
            state.enter_replicas(
                [replica], ReplicaStatus.ONLINE if is_online else ReplicaStatus.OFFLINE
            )
    return state


def changed(brokers: Iterable[int], **epochs: int) -> BrokersChanged:
    """These brokers are registered now, `b1=11` under another epoch than 10."""
    return BrokersChanged(tuple(broker(each, epochs.get(f"b{each}", 10)) for each in brokers))


@attrs.define(eq=False)
class Reign:
    """The state, what ZooKeeper holds, and what was done, in order."""

    state: ControllerState
    nodes: dict[TopicPartition, Leadership] = attrs.field()
    unclean: Mapping[str, bool] = attrs.Factory(dict)
    done: list[Effect] = attrs.Factory(list)
    due: list[Event] = attrs.Factory(list)

    @nodes.default
    def _as_known(self) -> dict[TopicPartition, Leadership]:
        return dict(self.state.leadership)

    def take(self, event: Event) -> list[Effect]:
        """Decide the event and all that comes of it, until nothing is due; what was done."""
        before = len(self.done)
        self._take(event)
        while self.due:
            self._take(self.due.pop(0))
        return self.done[before:]

    def _take(self, event: Event) -> None:
        for effect in decide(self.state, event):
            self.done.append(effect)
            outcome = self._outcome(effect)
            if outcome is not None:
                self._take(outcome)

    def leader_writes(self, partition: TopicPartition, *isr: int) -> Leadership:
        """The leader changes the in-sync set, which the controller has not heard of yet."""
        old = self.nodes[partition]
        new = Leadership(attrs.evolve(old.state, isr=isr), old.zk_version + 1)
        self.nodes[partition] = new
        return new

    def catches_up(self, partition: TopicPartition, *isr: int) -> list[Effect]:
        """The same, and the controller hears of it."""
        return self.take(LeadershipRead({partition: self.leader_writes(partition, *isr)}))

    def answer(self, event: Any) -> Any:
        """What a request is answered."""
        answers = [each for each in self.take(event) if isinstance(each, Answer)]
        (answer,) = answers
        return answer.value

    def led(self, partition: TopicPartition) -> tuple[int, tuple[int, ...], int]:
        """Leader, in-sync set and leader epoch, as ZooKeeper has them."""
        state = self.nodes[partition].state
        return state.leader, tuple(state.isr), state.leader_epoch

    def _outcome(self, effect: Effect) -> Event | None:
        match effect:
            case WritePartitionStates(writes):
                return self._write(writes)
            case ReadPartitionStates(partitions):
                return PartitionStatesRead({each: self.nodes.get(each) for each in partitions})
            case RefreshLeadership(partitions):
                return LeadershipRead({each: self.nodes.get(each) for each in partitions})
            case WatchLeadership(partition):
                return LeadershipRead({partition: self.nodes.get(partition)})
            case WriteAssignments(writes):
                return AssignmentsWritten({each.partition: each.replicas for each in writes})
            case SetTimer(ArrivalsDue() as event):
                self.due.append(event)
            case ReadUncleanElection(partitions):
                topics = {each.topic for each in partitions}
                return UncleanElectionRead(
                    partitions, {each: self.unclean.get(each, False) for each in topics}
                )
            case DeleteTopicZnodes(topic):
                return TopicDeleted(topic)
            case Repeat(event):
                return event
        return None

    def _write(self, writes: Iterable[Any]) -> PartitionStatesWritten:
        written, conflicts = [], []
        for write in writes:
            there = self.nodes.get(write.partition)
            if (there.zk_version if there else None) != write.zk_version:
                conflicts.append(write.partition)
                continue
            version = 0 if there is None else there.zk_version + 1
            self.nodes[write.partition] = Leadership(write.state, version)
            written.append((write, version))
        return PartitionStatesWritten(tuple(written), tuple(conflicts))


def told_to_lead(effects: Iterable[Effect]) -> list[tuple[int, LedPartition]]:
    """Who was sent what in LeaderAndIsr."""
    return [
        (effect.broker_id, each)
        for effect in effects
        if isinstance(effect, SendLeaderAndIsr)
        for each in effect.partitions
    ]


def stopped(effects: Iterable[Effect]) -> list[tuple[int, tuple[TopicPartition, ...], bool]]:
    """Who was sent what in StopReplica, and whether to delete it."""
    return [
        (each.broker_id, each.partitions, each.delete)
        for each in effects
        if isinstance(each, SendStopReplica)
    ]


def described(effects: Iterable[Effect]) -> list[SendUpdateMetadata]:
    """The UpdateMetadata that were sent."""
    return [each for each in effects if isinstance(each, SendUpdateMetadata)]
