"""Invariants of all assignors over random histories of groups, wild ones among them."""

from collections.abc import Sequence
from random import Random

import pytest

from groups.assignors.assignor import Assignments
from groups.assignors.assignor_table import ASSIGNORS, find_assignor
from groups.assignors.claims import Claim, read_cooperative_claim, read_sticky_claim
from groups.assignors.members import MemberSubscription
from protocol.consumer_protocol import Subscription
from protocol.topic_partition import TopicPartition
from tests.groups.assignors.histories import (
    ROUNDS,
    History,
    existing_partitions,
    find_homes,
    holders,
    improving_moves,
)

HISTORIES = 1000


def assert_all_assigned(
    history: History, members: Sequence[MemberSubscription], assignments: Assignments
) -> None:
    """Check that each partition has one owner, who subscribes to its topic."""
    assert assignments.keys() == {member.member_id for member in members}
    assert holders(assignments).keys() == existing_partitions(history.partition_counts, members)
    assert_only_subscribers(members, assignments)


def assert_only_subscribers(
    members: Sequence[MemberSubscription], assignments: Assignments
) -> None:
    for member in members:
        topics = {partition.topic for partition in assignments[member.member_id].partitions}
        assert topics <= set(member.subscription.topics), member


def homes_that_exist(
    history: History, members: Sequence[MemberSubscription], claims: dict[str, Claim]
) -> dict[TopicPartition, str]:
    existing = existing_partitions(history.partition_counts, members)
    homes = find_homes(members, claims)
    return {partition: home for partition, home in homes.items() if partition in existing}


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_histories_without_stickiness_assign_each_partition_once(name: str) -> None:
    for seed in range(HISTORIES // 2):
        history = History(Random(seed), wild=True)
        for round_number in range(ROUNDS):
            members = history.subscriptions(name)
            assignments = find_assignor(name).assign(history.partition_counts, members)
            try:
                assert_all_assigned(history, members, assignments)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, round {round_number}") from error
            history.take(assignments)
            history.go_on()


def test_sticky_histories_are_complete_balanced_and_sticky() -> None:
    for seed in range(HISTORIES):
        history = History(Random(seed), wild=True)
        for round_number in range(ROUNDS):
            members = history.subscriptions("sticky")
            assignments = find_assignor("sticky").assign(history.partition_counts, members)
            try:
                assert_all_assigned(history, members, assignments)
                assert improving_moves(assignments, members) == []
                assert_sticky(history, members, assignments)
                assert_still_at_rest(history, assignments)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, round {round_number}") from error
            history.take(assignments)
            history.go_on()


def assert_sticky(
    history: History, members: Sequence[MemberSubscription], assignments: Assignments
) -> None:
    """Check that no partition that moved could return, nor be exchanged for one that moved."""
    claims = {member.member_id: read_sticky_claim(member.subscription) for member in members}
    homes = homes_that_exist(history, members, claims)
    topics_of = {member.member_id: member.subscription.topics for member in members}
    loads = {member: len(share.partitions) for member, share in assignments.items()}
    holder_of = holders(assignments)

    for partition, home in homes.items():
        holder = holder_of[partition]
        if holder == home:
            continue
        assert loads[holder] <= loads[home], f"{partition} can return"
        exchanged = [
            other
            for other in assignments[home].partitions
            if homes.get(other) != home and other.topic in topics_of[holder]
        ]
        assert exchanged == [], f"{partition} can be exchanged"


def assert_still_at_rest(history: History, assignments: Assignments) -> None:
    """Check that a rebalance in which nothing changed moves nothing, in any order of members."""
    history.take(assignments)
    members = history.subscriptions("sticky")
    again = find_assignor("sticky").assign(
        history.partition_counts, [m for m in members if m.member_id in assignments]
    )
    assert holders(again) == holders(assignments)


def test_cooperative_histories_give_nothing_that_another_holds() -> None:
    for seed in range(HISTORIES):
        history = History(Random(seed), wild=True)
        for round_number in range(ROUNDS):
            members = history.subscriptions("cooperative-sticky")
            assignments = find_assignor("cooperative-sticky").assign(
                history.partition_counts, members
            )
            try:
                assert_safe(history, members, assignments)
                assert_as_sticky(history, members, assignments)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, round {round_number}") from error
            history.take(assignments)
            history.go_on()


def assert_safe(
    history: History, members: Sequence[MemberSubscription], assignments: Assignments
) -> None:
    """Check that what a member gets is its own, or claimed by nobody whose claim counts."""
    assert_only_subscribers(members, assignments)
    assert holders(assignments).keys() <= existing_partitions(history.partition_counts, members)
    claims = {member.member_id: read_cooperative_claim(member.subscription) for member in members}

    for partition, holder in holders(assignments).items():
        generation_of = {
            member: claim.generation_id
            for member, claim in claims.items()
            if partition in claim.partitions
        }
        newest = max(generation_of.values(), default=None)
        assert {m for m, number in generation_of.items() if number == newest} <= {holder}


def assert_as_sticky(
    history: History, members: Sequence[MemberSubscription], assignments: Assignments
) -> None:
    """Check that members get what `sticky` gives them, without what is to be released first."""
    sticky_members = [
        MemberSubscription(member.member_id, as_sticky(member.subscription)) for member in members
    ]
    complete = find_assignor("sticky").assign(history.partition_counts, sticky_members)
    claimed = {p for member in members for p in member.subscription.owned_partitions}
    for member_id, share in assignments.items():
        missing = set(complete[member_id].partitions) - set(share.partitions)
        assert missing <= claimed
        assert set(share.partitions) <= set(complete[member_id].partitions)


def as_sticky(subscription: Subscription) -> Subscription:
    """Return a subscription of `sticky` that claims the same."""
    claim = read_cooperative_claim(subscription)
    return Subscription(subscription.topics, find_assignor("sticky").user_data(claim))


def test_cooperative_groups_come_to_rest_after_two_or_three_rebalances() -> None:
    for seed in range(HISTORIES):
        history = History(Random(seed))
        for round_number in range(ROUNDS):
            try:
                rebalance_until_complete(history)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, round {round_number}") from error
            history.go_on()


def rebalance_until_complete(history: History) -> None:
    """Rebalance until each partition has an owner; check the first and the last assignment."""
    members = history.subscriptions("cooperative-sticky")
    partitions = existing_partitions(history.partition_counts, members)
    assignor = find_assignor("cooperative-sticky")
    assignments = assignor.assign(history.partition_counts, members)
    rebalances = 1

    while holders(assignments).keys() != partitions:
        history.take(assignments)
        members = [
            member
            for member in history.subscriptions("cooperative-sticky")
            if member.member_id in assignments
        ]
        assignments = assignor.assign(history.partition_counts, members)
        rebalances += 1

    # Where subscriptions differ, what is free may go elsewhere than was planned, and more move.
    assert rebalances <= (2 if history.has_equal_subscriptions else 3)
    assert_all_assigned(history, members, assignments)
    assert improving_moves(assignments, members) == []
    history.take(assignments)


@pytest.mark.parametrize("name", list(ASSIGNORS))
def test_same_arguments_give_the_same_assignment(name: str) -> None:
    for seed in range(50):
        history = History(Random(seed), wild=True)
        members = history.subscriptions(name)
        assignor = find_assignor(name)
        first = assignor.assign(history.partition_counts, members)
        reversed_counts = dict(reversed(history.partition_counts.items()))
        assert assignor.assign(reversed_counts, members) == first, f"seed {seed}"
