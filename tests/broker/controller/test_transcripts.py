"""Golden transcripts of the controller's decisions, in `testdata/`.

The controller runs on values (`script.py`). Its effects are listed in order, and below an effect
whose result is decided at once, that result and what follows from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest

from broker.controller import events as on
from broker.controller.effects import (
    AssignmentWrite,
    LeaderAndIsrPartition,
    PartitionMetadata,
    PartitionStateWrite,
    Repeat,
)
from broker.controller.state import (
    ControllerState,
    Leadership,
    Reassignment,
    RegisteredBroker,
)
from protocol.topic_partition import TopicPartition
from tests.broker.controller.script import (
    ControllerScript,
    active_state,
    broker,
    brokers_changed,
    decide,
    led_by,
)
from tests.stage.transcript import STEP, WIDTH, Shorthands, Writer
from zk.znodes import PartitionState

TRANSCRIPTS = sorted((Path(__file__).parent / "testdata").glob("*.txt"))


def listed(broker_ids: Iterable[int]) -> str:
    return " ".join(map(str, broker_ids)) or "none"


def state_in_words(state: PartitionState) -> str:
    epochs = f"epoch {state.leader_epoch} by {state.controller_epoch}"
    return f"leader {state.leader}, isr {listed(state.isr)}, {epochs}"


def leadership_in_words(leadership: Leadership) -> str:
    return f"{state_in_words(leadership.state)}, v{leadership.zk_version}"


def led_in_words(led: LeaderAndIsrPartition) -> str:
    new = ", new" if led.is_new else ""
    words = leadership_in_words(led.leadership)
    return f"{led.partition}: {words}, replicas {listed(led.replicas)}{new}"


def metadata_in_words(metadata: PartitionMetadata) -> str:
    offline = ""
    if metadata.offline_replicas:
        offline = f", offline {listed(metadata.offline_replicas)}"
    deleted = ", being deleted" if metadata.is_being_deleted else ""
    words = leadership_in_words(metadata.leadership)
    return f"{metadata.partition}: {words}, replicas {listed(metadata.replicas)}{offline}{deleted}"


def write_in_words(write: PartitionStateWrite) -> str:
    over = "as a new node" if write.zk_version is None else f"over v{write.zk_version}"
    return f"{write.partition}: {state_in_words(write.state)}, {over}"


def written_in_words(event: on.PartitionStatesWritten) -> str:
    written = ", ".join(f"{write.partition} is v{version}" for write, version in event.written)
    conflicts = ", ".join(f"{partition} has changed" for partition in event.conflicts)
    return f"PartitionStatesWritten({', '.join(filter(None, [written, conflicts]))})"


def assignment_in_words(write: AssignmentWrite) -> str:
    words = f"{write.partition}: replicas {listed(write.replicas)}"
    if write.adding or write.removing:
        words += f", adding {listed(write.adding)}, removing {listed(write.removing)}"
    return words


SHORTHANDS: Shorthands = {
    RegisteredBroker: lambda registered: f"broker {registered.id}",
    PartitionState: state_in_words,
    Leadership: leadership_in_words,
    LeaderAndIsrPartition: led_in_words,
    PartitionMetadata: metadata_in_words,
    PartitionStateWrite: write_in_words,
    AssignmentWrite: assignment_in_words,
    on.PartitionStatesWritten: written_in_words,
}


@attrs.define(eq=False)
class ToldScript(ControllerScript):
    """A script that writes down what is decided, and what follows from it."""

    lines: list[str] = attrs.field(factory=list)
    depth: int = 0

    def _take(self, event: on.Event) -> None:
        for effect in decide(self.state, event):
            self.effects.append(effect)
            self._tell(effect)
            result = self._perform(effect)
            if result is not None:
                self.depth += 1
                if not isinstance(effect, Repeat):
                    self._tell(result, "-> ")
                self._take(result)
                self.depth -= 1

    def _tell(self, value: Any, arrow: str = "") -> None:
        indent = STEP * self.depth
        words = Writer(SHORTHANDS).write(value, WIDTH - len(STEP) - len(indent) - len(arrow))
        first, *others = words.splitlines()
        self.lines += [f"{indent}{arrow}{first}", *(indent + other for other in others)]


class ControllerMachine:
    """A controller, and ZooKeeper as a dictionary."""

    shorthands: ClassVar[Shorthands] = SHORTHANDS

    def __init__(self) -> None:
        self.script = ToldScript(ControllerState(broker_id=1))

    def names(self) -> Mapping[str, Any]:
        events = {name: kind for name, kind in vars(on).items() if isinstance(kind, type)}
        return {
            **events,
            "controller_of": self.controller_of,
            "cluster": self.cluster,
            "leader_writes": self.leader_writes,
            "elected_over": self.elected_over,
            "broker": broker,
            "live": brokers_changed,
            "led_by": led_by,
            "Reassignment": Reassignment,
            "t0": TopicPartition("t", 0),
            "t1": TopicPartition("t", 1),
        }

    def take(self, event: on.Event) -> list[str]:
        self.script.lines.clear()
        self.script.take(event)
        return self.script.lines

    def summary(self) -> str:
        state = self.script.state
        if not state.is_active:
            return f"no controller: that is {state.active_controller_id}"

        writer = Writer(SHORTHANDS)
        partitions = "; ".join(
            f"{partition} has {writer.flat(leadership)}"
            for partition, leadership in sorted(state.leadership.items())
        )
        return f"controller of epoch {state.epoch}; {partitions or 'no partitions'}"

    # ---- shorthands of the scenarios

    def controller_of(
        self,
        brokers: list[int],
        assignment: Mapping[int, tuple[int, ...]] | None = None,
        leadership: Mapping[TopicPartition, Leadership] | None = None,
    ) -> None:
        """Be the controller of epoch 5 on broker 1, of these brokers and of topic t."""
        self.script = ToldScript(active_state(brokers, assignment, leadership))

    def cluster(
        self,
        brokers: list[int],
        assignments: Mapping[str, Mapping[int, tuple[int, ...]]],
        leadership: Mapping[TopicPartition, Leadership],
        *,
        deleted: tuple[str, ...] = (),
        reassigning: Mapping[TopicPartition, Reassignment] | None = None,
    ) -> on.ClusterRead:
        """Have ZooKeeper hold this cluster, and return what the new controller reads."""
        self.script.nodes = dict(leadership)
        live = tuple(map(broker, brokers))
        return on.ClusterRead(live, assignments, leadership, deleted, reassigning or {})

    def leader_writes(self, partition: TopicPartition, *isr: int) -> None:
        """Have the leader write this ISR; the controller does not see it."""
        self.script.leader_writes(partition, *isr)

    def elected_over(self, partition: TopicPartition) -> on.LeadershipRead:
        """Have another controller write the partition's state, and this one read it."""
        leadership = self.script.nodes[partition]
        later = attrs.evolve(
            leadership.state, controller_epoch=leadership.state.controller_epoch + 1
        )
        return on.LeadershipRead({partition: Leadership(later, leadership.zk_version + 1)})


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_controller_decides_as_its_transcript_says(
    path: Path, compare_transcript: Callable[..., None]
) -> None:
    compare_transcript(path, ControllerMachine)
