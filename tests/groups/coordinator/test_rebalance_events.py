"""Rebalances as events: causes, members, partitions that move."""

from typing import Any

import attrs
import pytest

from groups.coordinator.membership.history import Cause, MemberNote, Rebalanced, Trigger
from groups.coordinator.rebalance_events import MAX_CHARACTERS, MAX_LATE, RebalanceEvents
from protocol.consumer_protocol import (
    Assignment,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from protocol.topic_partition import TopicPartition

NOW_MS = 1_700_000_000_000
SUBSCRIBED = encode_subscription(Subscription(("t",)))


def note(name: str, *partitions: int, instance: str | None = None) -> MemberNote:
    given = Assignment(tuple(TopicPartition("t", number) for number in partitions))
    assignment = encode_assignment(given)
    return MemberNote(name, instance, f"client-{name}", "/h", SUBSCRIBED, assignment)


BEFORE = (note("a", 0, 1), note("b", 2, 3))
AFTER = (note("b", 1, 2), note("c", 0, 3))
REBALANCED = Rebalanced(
    group_id="g",
    protocol_type="consumer",
    trigger=Trigger(Cause.MEMBER_LEFT, "a", "client-a", "the consumer is being closed"),
    generation_before=4,
    generation_after=5,
    started_ms=NOW_MS,
    ended_ms=NOW_MS + 2500,
    before=BEFORE,
    after=AFTER,
    joined_ms={"b": NOW_MS + 400, "c": NOW_MS + 2400},
    timed_out=(),
    is_assigned=True,
)


def described(counts: dict[str, int] | None = None, **changes: Any) -> dict[str, Any]:
    events = RebalanceEvents(lambda topic: (counts or {"t": 4}).get(topic, 0))
    return events.describe(attrs.evolve(REBALANCED, **changes))


def test_event_says_who_came_who_left_and_what_moved() -> None:
    assert described() == {
        "version": 1,
        "group": "g",
        "coordination": "coordinator",
        "generation_before": 4,
        "generation_after": 5,
        "trigger": "member_left",
        "member_id": "a",
        "client_id": "client-a",
        "reason": "the consumer is being closed",
        "started_ms": NOW_MS,
        "ended_ms": NOW_MS + 2500,
        "members_added": ["c"],
        "members_gone": ["a"],
        "members_kept": ["b"],
        "late": [{"member_id": "c", "client_id": "client-c", "late_ms": 2400}],
        "partitions_moved": 3,
        "partitions_kept": 1,
        "inferred": False,
    }


def test_members_that_never_came_are_the_latest() -> None:
    late = described(timed_out=("a",))["late"]
    assert [(member["member_id"], member["late_ms"]) for member in late] == [
        ("a", None),
        ("c", 2400),
    ]


def test_no_more_than_some_late_members_are_named() -> None:
    joined = {f"m{number}": NOW_MS + 1000 + number for number in range(50)}
    late = described(joined_ms=joined)["late"]
    assert len(late) == MAX_LATE
    assert late[0]["member_id"] == "m49"


def test_static_member_that_restarts_moves_nothing() -> None:
    before = (note("i-1", 0, instance="i"),)
    after = (note("i-2", 0, instance="i"),)
    event = described(before=before, after=after)
    assert (event["partitions_moved"], event["partitions_kept"]) == (0, 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol_type": "connect"},
        {"is_assigned": False},
        {"after": (attrs.evolve(AFTER[0], assignment=b"\x00"),)},
    ],
    ids=["no consumers", "not assigned", "unreadable"],
)
def test_moves_that_cannot_be_known_are_null(changes: dict[str, Any]) -> None:
    event = described(**changes)
    assert (event["partitions_moved"], event["partitions_kept"]) == (None, None)


# ---- what a leader that joins again has seen


class Topics:
    """Topics whose partitions change between two rebalances."""

    def __init__(self, **counts: int) -> None:
        self.counts = counts
        self.events = RebalanceEvents(lambda topic: self.counts.get(topic, 0))
        self.describe(Trigger(Cause.MEMBER_JOINED))

    def describe(self, trigger: Trigger, **changes: Any) -> tuple[str, bool]:
        event = self.events.describe(attrs.evolve(REBALANCED, trigger=trigger, **changes))
        return event["trigger"], event["inferred"]


def test_leader_that_joins_again_because_of_new_partitions() -> None:
    topics = Topics(t=4)
    topics.counts["t"] = 6
    assert topics.describe(Trigger(Cause.LEADER_REJOINED, "b")) == ("partitions_added", True)


def test_leader_that_joins_again_because_a_topic_is_gone() -> None:
    topics = Topics(t=4)
    del topics.counts["t"]
    assert topics.describe(Trigger(Cause.LEADER_REJOINED, "b")) == ("topic_deleted", True)


def test_leader_that_joins_again_because_a_topic_was_made_again_with_fewer_partitions() -> None:
    topics = Topics(t=4)
    topics.counts["t"] = 2
    assert topics.describe(Trigger(Cause.LEADER_REJOINED, "b")) == ("topic_deleted", True)


def test_leader_that_joins_again_without_a_reason_that_can_be_seen() -> None:
    assert Topics(t=4).describe(Trigger(Cause.LEADER_REJOINED, "b")) == ("leader_rejoined", False)


def test_leader_that_says_what_it_has_seen_is_inferred_all_the_same() -> None:
    topics = Topics(t=4)
    topics.counts["t"] = 6
    trigger = Trigger(Cause.LEADER_REJOINED, "b", reason="cached metadata has changed")
    assert topics.describe(trigger) == ("partitions_added", True)


def test_subscription_that_has_changed_is_not_taken_for_new_partitions() -> None:
    topics = Topics(t=4)
    topics.counts["t"] = 6
    trigger = Trigger(Cause.SUBSCRIPTION_CHANGED, "b", reason="subscription has changed")
    assert topics.describe(trigger) == ("subscription_changed", False)


def test_pattern_that_loses_a_topic_has_lost_it_because_the_topic_is_gone() -> None:
    topics = Topics(t=4)
    del topics.counts["t"]
    trigger = Trigger(Cause.SUBSCRIPTION_CHANGED, "b", reason="subscription has changed")
    assert topics.describe(trigger) == ("topic_deleted", True)


def test_topic_that_nobody_subscribes_to_any_more_is_not_deleted() -> None:
    topics = Topics(t=4, u=4)
    after = tuple(
        attrs.evolve(member, metadata=encode_subscription(Subscription(("u",)))) for member in AFTER
    )
    trigger = Trigger(Cause.SUBSCRIPTION_CHANGED, "b")
    assert topics.describe(trigger, after=after) == ("subscription_changed", False)


def test_first_rebalance_that_is_seen_infers_nothing() -> None:
    events = RebalanceEvents(lambda topic: 6)
    trigger = Trigger(Cause.LEADER_REJOINED, "b")
    event = events.describe(attrs.evolve(REBALANCED, trigger=trigger))
    assert (event["trigger"], event["inferred"]) == ("leader_rejoined", False)


# ---- the second step of a cooperative rebalance


def owning(member: MemberNote, *partitions: int) -> MemberNote:
    owned = tuple(TopicPartition("t", number) for number in partitions)
    subscription = Subscription(("t",), owned_partitions=owned)
    return attrs.evolve(member, metadata=encode_subscription(subscription))


JOINED = Trigger(Cause.MEMBER_JOINED, "c", "client-c", "the consumer joins")
AGAIN = Trigger(Cause.MEMBER_JOINED, "b", "client-b", is_inferred=True)


def second_step(again: Trigger, **changes: Any) -> dict[str, Any]:
    """The event of a member that joins again after `c` had joined."""
    events = RebalanceEvents(lambda topic: 4)
    events.describe(attrs.evolve(REBALANCED, trigger=JOINED))
    loaded = Trigger(Cause.COORDINATOR_LOADED)
    events.describe(attrs.evolve(REBALANCED, trigger=loaded))
    return events.describe(attrs.evolve(REBALANCED, trigger=again, **changes))


@pytest.mark.parametrize(
    "reason",
    [
        "need to revoke partitions and re-join",
        "after revoking what we lost from a rebalance",
        "cooperative rejoin after revoking what we lost from a rebalance",
        "partitions are given up to other members",
    ],
)
def test_member_that_says_it_gave_up_partitions_goes_on_with_the_rebalance_before(
    reason: str,
) -> None:
    event = second_step(attrs.evolve(AGAIN, reason=reason))
    assert (event["trigger"], event["client_id"]) == ("member_joined", "client-c")
    assert (event["reason"], event["inferred"]) == (reason, True)


@pytest.mark.parametrize("cause", [Cause.MEMBER_JOINED, Cause.LEADER_REJOINED])
def test_member_that_owns_less_than_before_has_given_up_partitions(cause: Cause) -> None:
    before = (BEFORE[0], owning(BEFORE[1], 2, 3))
    after = (owning(AFTER[0], 2), AFTER[1])
    event = second_step(attrs.evolve(AGAIN, cause=cause), before=before, after=after)
    assert (event["trigger"], event["client_id"]) == ("member_joined", "client-c")
    assert event["inferred"]


def test_member_that_owns_more_than_before_has_its_own_reason() -> None:
    before = (BEFORE[0], owning(BEFORE[1]))
    after = (owning(AFTER[0], 2, 3), AFTER[1])
    again = attrs.evolve(AGAIN, reason="rejoining after we previously errored and backed off")
    event = second_step(again, before=before, after=after)
    assert (event["trigger"], event["client_id"]) == ("member_joined", "client-b")


def test_second_step_whose_first_was_not_seen_is_the_members_own() -> None:
    again = attrs.evolve(AGAIN, reason="need to revoke partitions and re-join")
    event = described(trigger=again)
    assert (event["trigger"], event["client_id"]) == ("member_joined", "client-b")


@pytest.mark.fault("strangers-28")
def test_names_that_clients_chose_are_forgotten_by_their_lengths() -> None:
    events = RebalanceEvents(lambda topic: 4)
    reason = "r" * 30_000
    for number in range(300):
        trigger = Trigger(Cause.MEMBER_LEFT, "a", "client-a", reason)
        group_id = f"{number:03d}" + "g" * 30_000
        events.describe(attrs.evolve(REBALANCED, group_id=group_id, trigger=trigger))
    assert MAX_CHARACTERS - 70_000 < events._characters <= MAX_CHARACTERS
    assert events._characters == sum(
        last.count_characters(group_id) for group_id, last in events._last.items()
    )
    assert next(reversed(events._last)).startswith("299")
