"""A controller on values: its decisions are carried out on a ZooKeeper that is a dictionary.

`ControllerScript.take` does what the shell does, to the end, with nothing in between. States are
written on their condition, sent requests are kept, and the result of each effect is decided next.
After each decision the state's invariants are checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from broker.controller import decide as decision
from broker.controller.effects import (
    DeleteTopicZnodes,
    Effect,
    LeaderAndIsrPartition,
    PartitionStateWrite,
    ReadPartitionStates,
    ReadUncleanElection,
    RefreshLeadership,
    Repeat,
    Reply,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
    SetTimer,
    WatchLeadership,
    WriteAssignments,
    WritePartitionStates,
)
from broker.controller.events import (
    AssignmentsWritten,
    BrokersChanged,
    CompletedReassignmentsDue,
    Event,
    LeadershipRead,
    PartitionStatesRead,
    PartitionStatesWritten,
    TopicDeleted,
    UncleanElectionRead,
)
from broker.controller.replica_states import ReplicaStatus
from broker.controller.state import ControllerState, Leadership, RegisteredBroker
from protocol.topic_partition import TopicPartition
from zk.znodes import Endpoint, PartitionState

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
EPOCH = 5
NOW_MS = 1_700_000_000_000


def decide(state: ControllerState, event: Event) -> list[Effect]:
    """Decide the event, and check what must hold afterwards."""
    effects = decision.decide(state, event, NOW_MS)
    state.check()
    return effects


def broker(broker_id: int, epoch: int = 10, port: int = 9092) -> RegisteredBroker:
    return RegisteredBroker(broker_id, epoch, (Endpoint("PLAINTEXT", f"host{broker_id}", port),))


def led_by(
    leader: int, isr: Iterable[int], *, epoch: int = 0, zk_version: int = 0, by: int = EPOCH
) -> Leadership:
    """Return a state with this leader, which the controller of epoch `by` wrote."""
    return Leadership(PartitionState(leader, epoch, tuple(isr), by), zk_version)


def active_state(
    brokers: Iterable[int],
    assignment: Mapping[int, tuple[int, ...]] | None = None,
    leadership: Mapping[TopicPartition, Leadership] | None = None,
) -> ControllerState:
    """Return an active controller's state with these brokers and one topic, "t"."""
    state = ControllerState(broker_id=1)
    state.is_active = state.is_loaded = True
    state.epoch, state.epoch_zk_version, state.active_controller_id = EPOCH, 7, 1

    state.brokers = {broker_id: broker(broker_id) for broker_id in brokers}
    state.brokers_seen = set(state.brokers)
    if assignment:
        state.add_partitions("t", assignment)

    for partition, partition_leadership in (leadership or {}).items():
        state.set_leadership(partition, partition_leadership)
        for replica in state.replicas_of([partition]):
            is_alive = state.is_alive(*replica)
            state.enter_replicas(
                [replica], ReplicaStatus.ONLINE if is_alive else ReplicaStatus.OFFLINE
            )
    return state


def brokers_changed(brokers: Iterable[int], **epochs: int) -> BrokersChanged:
    """Register these brokers, `b1=11` under another epoch than 10."""
    return BrokersChanged(
        tuple(broker(broker_id, epochs.get(f"b{broker_id}", 10)) for broker_id in brokers)
    )


@attrs.define(eq=False)
class ControllerScript:
    """The state, the nodes in ZooKeeper, and the effects that were performed, in order."""

    state: ControllerState
    nodes: dict[TopicPartition, Leadership] = attrs.field()
    unclean: Mapping[str, bool] = attrs.Factory(dict)
    effects: list[Effect] = attrs.Factory(list)
    due: list[Event] = attrs.Factory(list)

    @nodes.default
    def _known_leadership(self) -> dict[TopicPartition, Leadership]:
        return dict(self.state.leadership)

    def take(self, event: Event) -> list[Effect]:
        """Decide the event and all that follows, until nothing is due; return the new effects."""
        before = len(self.effects)
        self._take(event)
        while self.due:
            self._take(self.due.pop(0))
        return self.effects[before:]

    def _take(self, event: Event) -> None:
        for effect in decide(self.state, event):
            self.effects.append(effect)
            result = self._perform(effect)
            if result is not None:
                self._take(result)

    def leader_writes(self, partition: TopicPartition, *isr: int) -> Leadership:
        """Change the ISR as the leader does, unseen by the controller."""
        old = self.nodes[partition]
        new = Leadership(attrs.evolve(old.state, isr=isr), old.zk_version + 1)
        self.nodes[partition] = new
        return new

    def catches_up(self, partition: TopicPartition, *isr: int) -> list[Effect]:
        """Change the ISR as the leader does, and let the controller see it."""
        return self.take(LeadershipRead({partition: self.leader_writes(partition, *isr)}))

    def reply_to(self, event: Any) -> Any:
        """Return the reply to a request."""
        replies = [effect for effect in self.take(event) if isinstance(effect, Reply)]
        (reply,) = replies
        return reply.value

    def leader_isr_epoch(self, partition: TopicPartition) -> tuple[int, tuple[int, ...], int]:
        """Return leader, ISR and leader epoch, as ZooKeeper has them."""
        state = self.nodes[partition].state
        return state.leader, tuple(state.isr), state.leader_epoch

    def _perform(self, effect: Effect) -> Event | None:
        match effect:
            case WritePartitionStates(writes):
                return self._write(writes)
            case ReadPartitionStates(partitions):
                return PartitionStatesRead(self._read(partitions))
            case RefreshLeadership(partitions):
                return LeadershipRead(self._read(partitions))
            case WatchLeadership(partition):
                return LeadershipRead(self._read([partition]))
            case WriteAssignments(writes):
                return AssignmentsWritten({write.partition: write.replicas for write in writes})
            case SetTimer(CompletedReassignmentsDue() as event):
                self.due.append(event)
            case ReadUncleanElection(partitions):
                topics = {partition.topic for partition in partitions}
                return UncleanElectionRead(
                    partitions, {topic: self.unclean.get(topic, False) for topic in topics}
                )
            case DeleteTopicZnodes(topic):
                return TopicDeleted(topic)
            case Repeat(event):
                return event
        return None

    def _read(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Leadership | None]:
        return {partition: self.nodes.get(partition) for partition in partitions}

    def _write(self, writes: Iterable[PartitionStateWrite]) -> PartitionStatesWritten:
        written, conflicts = [], []
        for write in writes:
            node = self.nodes.get(write.partition)
            if (node.zk_version if node else None) != write.zk_version:
                conflicts.append(write.partition)
                continue
            version = 0 if node is None else node.zk_version + 1
            self.nodes[write.partition] = Leadership(write.state, version)
            written.append((write, version))
        return PartitionStatesWritten(tuple(written), tuple(conflicts))


def sent_leader_and_isr(effects: Iterable[Effect]) -> list[tuple[int, LeaderAndIsrPartition]]:
    """Return the partitions of each LeaderAndIsr, with its receiver."""
    return [
        (effect.broker_id, led)
        for effect in effects
        if isinstance(effect, SendLeaderAndIsr)
        for led in effect.partitions
    ]


def sent_stop_replicas(
    effects: Iterable[Effect],
) -> list[tuple[int, tuple[TopicPartition, ...], bool]]:
    """Return the StopReplicas: the receiver, the partitions, and whether to delete their logs."""
    return [
        (effect.broker_id, effect.partitions, effect.delete)
        for effect in effects
        if isinstance(effect, SendStopReplica)
    ]


def sent_update_metadata(effects: Iterable[Effect]) -> list[SendUpdateMetadata]:
    return [effect for effect in effects if isinstance(effect, SendUpdateMetadata)]
