"""Golden transcripts of a group member's decisions, in `testdata/`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from groups.zookeeper import effects as do
from groups.zookeeper import events as on
from groups.zookeeper.membership import decide
from groups.zookeeper.membership_state import Membership, MembershipSettings
from groups.zookeeper.registration import StaticSubscription
from protocol.topic_partition import TopicPartition
from tests.stage.transcript import Shorthands

TRANSCRIPTS = sorted((Path(__file__).parent / "testdata").glob("*.txt"))
ME, SESSION = "g_a", 7
OTHER_SESSIONS = 90
"""Session ids of other members follow this one."""


class MemberMachine:
    """Member g_a of group g: one stream of topic t, and a clock that `at` sets."""

    shorthands: ClassVar[Shorthands] = {}

    def __init__(self) -> None:
        self.now_ms = 0
        self.member = Membership(ME, MembershipSettings(rebalance_backoff_ms=200))

    def names(self) -> Mapping[str, Any]:
        events = {name: kind for name, kind in vars(on).items() if isinstance(kind, type)}
        return {
            **events,
            "now": self.member.round,
            "at": self.at,
            "register": self.register,
            "settle_alone": self.settle_alone,
            "group": self.group,
            "owners": self.owners,
            **{f"t{number}": TopicPartition("t", number) for number in range(8)},
        }

    def take(self, event: on.Event) -> list[do.Effect]:
        self.member, effects = decide(self.member, event, self.now_ms)
        return effects

    def summary(self) -> str:
        member = self.member
        held = ", ".join(map(str, sorted(member.held))) or "nothing"
        delivering = ", ".join(map(str, sorted(member.delivering))) or "nothing"
        return f"{member.phase.name} in round {member.round}, holds {held}, delivers {delivering}"

    # ---- shorthands of the scenarios

    def register(self) -> None:
        """Register in session 7; the first round begins."""
        self.take(on.SessionEstablished(SESSION))
        self.take(on.Registered(SESSION))

    def settle_alone(self) -> None:
        """Own and deliver all of topic t, alone in the group."""
        self.register()
        self.take(on.GroupRead(self.member.round, self.group("a")))
        self.take(on.OwnersRead(self.member.round, {}))
        self.take(on.Claimed(self.member.round))
        offsets = {TopicPartition("t", number): 5 for number in range(4)}
        self.take(on.OffsetsFetched(self.member.round, offsets))

    def at(self, now_ms: int) -> None:
        """Set the clock."""
        self.now_ms = now_ms

    @staticmethod
    def group(*members: str, partitions: int = 4) -> on.GroupSnapshot:
        """Return a reading of the group, each of whose members has one stream of topic t."""
        subscriptions = {f"g_{name}": StaticSubscription({"t": 1}) for name in members}
        return on.GroupSnapshot(subscriptions, (), {"t": tuple(range(partitions))})

    @staticmethod
    def owners(**partitions_of: str) -> Mapping[TopicPartition, on.Owner]:
        """Return the owner nodes of topic t: `a="01", b="2"`, each member in its own session."""
        sessions = {"a": SESSION}
        return {
            TopicPartition("t", int(number)): on.Owner(
                f"g_{name}-0", 0, sessions.get(name, OTHER_SESSIONS + ord(name) - ord("a"))
            )
            for name, numbers in partitions_of.items()
            for number in numbers
        }


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_member_decides_as_its_transcript_says(
    path: Path, compare_transcript: Callable[..., None]
) -> None:
    compare_transcript(path, MemberMachine)
