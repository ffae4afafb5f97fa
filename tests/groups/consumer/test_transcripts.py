"""Golden transcripts of the decisions of a consumer at a coordinator, in `testdata/`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from groups.consumer import effects as do
from groups.consumer import events as on
from groups.consumer.decide import decide
from groups.consumer.state import Consumer, ConsumerSettings
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition
from tests.stage.transcript import Shorthands

TRANSCRIPTS = sorted((Path(__file__).parent / "testdata").glob("*.txt"))
ME = "me-1"


def join_in_words(join: do.SendJoin) -> str:
    topics, owned = " ".join(join.topics), " ".join(map(str, sorted(join.owned)))
    identity = f"{join.member_id or 'nobody'} in generation {join.generation_id}"
    words = f"SendJoin of round {join.round}: {identity}, wants {topics}, owns {owned or 'nothing'}"
    return f"{words} ({join.reason})"


def member_in_words(member: on.GroupMember) -> str:
    return member.member_id


class ConsumerMachine:
    """A consumer of topic t: eager, dynamic, until `cooperative` or `static` says otherwise."""

    shorthands: ClassVar[Shorthands] = {
        do.SendJoin: join_in_words,
        on.GroupMember: member_in_words,
    }

    def __init__(self) -> None:
        self.consumer = Consumer(ConsumerSettings("orders", ("range",), is_cooperative=False))

    def names(self) -> Mapping[str, Any]:
        events = {name: kind for name, kind in vars(on).items() if isinstance(kind, type)}
        return {
            **events,
            "now": self.consumer.round,
            "topics": lambda *names: on.TopicsRead(frozenset(names)),
            "joined": self.joined,
            "refused": self.refused,
            "synced": self.synced,
            "sync_refused": self.sync_refused,
            "computed": lambda: on.AssignmentComputed(self.consumer.round, {ME: b"t0 t1"}),
            "unreadable": lambda: on.SyncResponded(self.consumer.round, ErrorCode.NONE, None),
            "fetched": self.fetched,
            "beat": self.beat,
            "silent": self.silent,
            "cooperative": self.cooperative,
            "static": self.static,
            "settle": self.settle,
            **{f"t{number}": TopicPartition("t", number) for number in range(8)},
        }

    def take(self, event: on.Event) -> list[do.Effect]:
        self.consumer, effects = decide(self.consumer, event)
        self.consumer.check()
        return effects

    def summary(self) -> str:
        consumer = self.consumer
        owned = " ".join(map(str, sorted(consumer.owned))) or "nothing"
        identity = f"{consumer.member_id or 'nobody'} in generation {consumer.generation_id}"
        words = f"{consumer.phase.name} in round {consumer.round}, {identity}, owns {owned}"
        return words + (f", rejoins: {consumer.rejoins}" if consumer.rejoins else "")

    # ---- shorthands of the scenarios

    def joined(self, generation_id: int, *others: str, leader: str = "b-1") -> on.JoinResponded:
        """Return the response to the last JoinGroup: we lead if there are others to be led."""
        members = [on.GroupMember(name, None, b"") for name in (ME, *others)]
        is_leader = leader == ME
        return on.JoinResponded(
            self.consumer.round,
            ErrorCode.NONE,
            ME,
            generation_id,
            "range",
            leader,
            members if is_leader else (),
        )

    def refused(self, error: str, member_id: str = "") -> on.JoinResponded:
        """Return a refusal of the last JoinGroup."""
        return on.JoinResponded(self.consumer.round, ErrorCode[error], member_id)

    def synced(self, *partitions: TopicPartition) -> on.SyncResponded:
        """Return the response to the last SyncGroup."""
        return on.SyncResponded(self.consumer.round, ErrorCode.NONE, frozenset(partitions))

    def sync_refused(self, error: str) -> on.SyncResponded:
        """Return a refusal of the last SyncGroup."""
        return on.SyncResponded(self.consumer.round, ErrorCode[error])

    def fetched(self, *partitions: TopicPartition, offset: int | None = 5) -> on.OffsetsFetched:
        """Return the committed offsets of partitions."""
        return on.OffsetsFetched(self.consumer.round, dict.fromkeys(partitions, offset))

    def beat(self, error: str = "NONE", generation_id: int | None = None) -> on.HeartbeatResponded:
        """Return the response to a heartbeat: of this generation, or of another."""
        consumer = self.consumer
        number = consumer.generation_id if generation_id is None else generation_id
        return on.HeartbeatResponded(number, consumer.member_id, ErrorCode[error])

    def silent(self) -> on.HeartbeatsSilent:
        """Return that no heartbeat of this generation was accepted for the session timeout."""
        consumer = self.consumer
        return on.HeartbeatsSilent(
            consumer.generation_id, consumer.member_id, 10_000, "broker 2 (host:9092)"
        )

    def cooperative(self) -> None:
        """Let the consumer keep its partitions while the group rebalances."""
        settings = ConsumerSettings("orders", ("cooperative-sticky",), is_cooperative=True)
        self.consumer = Consumer(settings)

    def static(self) -> None:
        """Let the consumer be a static member."""
        settings = ConsumerSettings("orders", ("range",), False, group_instance_id="i")
        self.consumer = Consumer(settings)

    def settle(self, *partitions: TopicPartition) -> None:
        """Be a follower of generation 1 that delivers these partitions."""
        self.take(on.TopicsRead(frozenset({"t"})))
        self.take(self.joined(1))
        self.take(self.synced(*partitions))
        self.take(self.fetched(*partitions))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_consumer_decides_as_its_transcript_says(
    path: Path, compare_transcript: Callable[..., None]
) -> None:
    compare_transcript(path, ConsumerMachine)
