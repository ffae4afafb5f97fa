"""The events that a member in ZooKeeper makes of its group's rebalances."""

from typing import Any

import attrs
import pytest

from groups.group_event import GroupEvent
from groups.zookeeper.events import GroupSnapshot
from groups.zookeeper.membership_state import Membership, Phase
from groups.zookeeper.rebalance_history import RebalanceHistory
from groups.zookeeper.registration import StaticSubscription
from protocol.topic_partition import TopicPartition


def snapshot(*members: str, topics: str = "t", partitions: int = 4) -> GroupSnapshot:
    """Return a group whose members consume each of `topics`, a letter each."""
    subscription = StaticSubscription(dict.fromkeys(topics, 1))
    return GroupSnapshot(
        dict.fromkeys(members, subscription), (), {t: tuple(range(partitions)) for t in topics}
    )


def settled(me: str, group: GroupSnapshot) -> Membership:
    """Return a member at rest; partitions are dealt in turn to the members."""
    members = sorted(group.members)
    partitions = [TopicPartition(t, p) for t in group.partitions for p in group.partitions[t]]
    assignment = {
        partition: f"{members[index % len(members)]}-0"
        for index, partition in enumerate(partitions)
    }
    return Membership(me, phase=Phase.SETTLED, snapshot=group, assignment=assignment)


@attrs.define
class Life:
    """A member that rests, rebalances for 5 s, and rests again in another group."""

    me: str = "a"
    history: RebalanceHistory = attrs.field(factory=lambda: RebalanceHistory("g"))
    now_ms: int = 1000

    def rebalance(self, group: GroupSnapshot) -> GroupEvent | None:
        member = settled(self.me, group)
        on_its_way = attrs.evolve(member, phase=Phase.READING_GROUP)
        assert self.history.note(on_its_way, self.now_ms) is None
        self.now_ms += 5000
        event = self.history.note(member, self.now_ms)
        # What happens while it rests is no rebalance.
        assert self.history.note(member, self.now_ms + 1) is None
        return event


def test_member_that_joins_first_tells_of_its_own_joining() -> None:
    event = Life().rebalance(snapshot("a"))
    assert event is not None
    assert event.as_json() == {
        "version": 1,
        "group": "g",
        "coordination": "zookeeper",
        "generation_before": None,
        "generation_after": None,
        "trigger": "member_joined",
        "member_id": "a",
        "client_id": None,
        "reason": None,
        "started_ms": 1000,
        "ended_ms": 6000,
        "members_added": ["a"],
        "members_gone": [],
        "members_kept": [],
        "late": (),
        "partitions_moved": 4,
        "partitions_kept": 0,
        "inferred": True,
    }


def test_member_that_joins_others_counts_what_it_took_from_them() -> None:
    event = Life().rebalance(snapshot("a", "b"))
    assert event is not None
    assert (event.members_added, event.members_kept) == (["a"], ["b"])
    assert (event.partitions_moved, event.partitions_kept) == (2, 2)


CHANGES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"members": ("a", "b", "c")}, {"trigger": "member_joined", "member_id": "c"}),
    ({"members": ("a",)}, {"trigger": "member_left", "member_id": "b", "partitions_moved": 2}),
    (
        {"members": ("a", "d")},
        {"trigger": "member_left", "members_added": ["d"], "members_gone": ["b"]},
    ),
    ({"topics": "tu"}, {"trigger": "subscription_changed", "partitions_kept": 4}),
    ({"partitions": 6}, {"trigger": "partitions_added", "partitions_moved": 2}),
    ({"partitions": 0}, {"trigger": "topic_deleted", "partitions_moved": 0}),
]


@pytest.mark.parametrize(("change", "wanted"), CHANGES)
def test_event_says_what_has_changed(change: dict[str, Any], wanted: dict[str, Any]) -> None:
    life = Life()
    life.rebalance(snapshot("a", "b"))
    members = change.pop("members", ("a", "b"))
    event = life.rebalance(snapshot(*members, **change))
    assert event is not None
    fields = event.as_json()
    assert {name: fields[name] for name in wanted} == wanted
    assert event.ended_ms - event.started_ms == 5000


def test_group_that_is_as_it_was_has_no_event() -> None:
    life = Life()
    life.rebalance(snapshot("a", "b"))
    assert life.rebalance(snapshot("a", "b")) is None


def test_one_member_alone_tells_and_goes_on_when_it_becomes_the_first() -> None:
    life = Life("b")
    assert life.rebalance(snapshot("a", "b", "c")) is None
    event = life.rebalance(snapshot("b", "c"))
    assert event is not None
    assert (event.trigger, event.members_gone, event.members_kept) == (
        "member_left",
        ["a"],
        ["b", "c"],
    )
