"""Our assignors beside Kafka's own, over 2,000 random histories on one JVM.

Both get the same subscriptions, as bytes, in every round of a history; which of the two leads the
group is a matter of chance, so each goes on from assignments of the other. `range` and `roundrobin`
must agree in everything. The sticky ones may choose differently between equal choices, so they are
compared by balance and by the number of partitions that moved.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

import attrs
import pytest

from groups.assignors.assignor import Assignments
from groups.assignors.assignor_table import find_assignor
from groups.assignors.claims import Claim, read_cooperative_claim, read_sticky_claim
from groups.assignors.members import MemberSubscription
from protocol.topic_partition import TopicPartition
from tests.groups.assignors.histories import (
    ROUNDS,
    History,
    Member,
    balance_score,
    count_moved,
    existing_partitions,
    find_homes,
    holders,
    subscribe,
)
from tests.groups.assignors.kafka_assignors import KafkaAssignors, KafkaFailed
from tests.groups.assignors.scenes import assign, member, partitions, read_counts
from tests.groups.assignors.test_sticky_equal import VECTORS, Vector

OF_TOPICS_ALONE = 200
STICKY = 800


@attrs.frozen
class Round:
    """A rebalance, with the assignments of both."""

    name: str
    partition_counts: Mapping[str, int]
    members: Sequence[MemberSubscription]
    ours: Assignments
    theirs: Assignments

    def find_homes(self) -> dict[TopicPartition, str]:
        """Return who may keep each partition."""
        read = read_sticky_claim if self.name == "sticky" else read_cooperative_claim
        claims = {member.member_id: read(member.subscription) for member in self.members}
        existing = existing_partitions(self.partition_counts, self.members)
        return {p: home for p, home in find_homes(self.members, claims).items() if p in existing}

    def has_equal_subscriptions(self) -> bool:
        """Return whether all members subscribe to the same topics that exist."""
        existing = self.partition_counts.keys()
        return len({frozenset(existing & m.subscription.topics) for m in self.members}) == 1

    def is_valid_in_java(self) -> bool:
        """Return whether Java assigned to subscribers alone.

        It gives a partition back to a member that claims it of old without looking whether that
        still subscribes to the topic.
        """
        return all(
            partition.topic in member.subscription.topics
            for member in self.members
            for partition in self.theirs[member.member_id].partitions
        )


@pytest.fixture(scope="module")
def java() -> Iterator[KafkaAssignors]:
    with KafkaAssignors() as assignors:
        yield assignors


def rounds(java: KafkaAssignors, name: str, histories: int) -> Iterator[tuple[str, Round]]:
    """Go through the rounds of histories, each with words that say where it is."""
    for seed in range(histories):
        rng = Random(seed)
        history = History(rng)
        for number in range(ROUNDS):
            counts = dict(history.partition_counts)
            members = history.subscriptions(name)
            ours = find_assignor(name).assign(counts, members)
            theirs = java.assign(name, counts, members)
            yield f"seed {seed}, round {number}", Round(name, counts, members, ours, theirs)

            history.take(rng.choice([ours, theirs]))
            history.go_on()


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_assignors_of_topics_alone_agree_in_everything(java: KafkaAssignors, name: str) -> None:
    for where, compared in rounds(java, name, OF_TOPICS_ALONE):
        assert holders(compared.ours) == holders(compared.theirs), where
        assert compared.ours.keys() == compared.theirs.keys(), where


def test_sticky_moves_no_more_than_java_and_balances_as_well(
    java: KafkaAssignors, record_property: Callable[[str, object], None]
) -> None:
    moved = their_moved = score = their_score = compared_rounds = 0
    for where, compared in rounds(java, "sticky", STICKY):
        # Java may give a partition to a member without its topic, and then moves fewer.
        if not compared.is_valid_in_java():
            continue

        homes = compared.find_homes()
        difference = count_moved(compared.ours, homes) - count_moved(compared.theirs, homes)
        imbalance = balance_score(compared.ours) - balance_score(compared.theirs)
        assert difference <= 0, where
        # Both end where no single move helps. Between such ends Java may meet one with a better
        # balance, but only by more moves.
        assert imbalance <= 0 or difference < 0, where
        assert imbalance == 0 or not compared.has_equal_subscriptions(), where

        compared_rounds += 1
        moved += count_moved(compared.ours, homes)
        their_moved += count_moved(compared.theirs, homes)
        score += balance_score(compared.ours)
        their_score += balance_score(compared.theirs)

    assert compared_rounds > 0.99 * STICKY * ROUNDS
    assert score <= 1.01 * their_score
    record_property(
        "counts",
        f"sticky, {compared_rounds} rounds: {moved} partitions moved by ours, {their_moved} by "
        f"Java's; imbalance {score} and {their_score}",
    )


def test_cooperative_sticky_moves_no_more_than_java_in_any_round(
    java: KafkaAssignors, record_property: Callable[[str, object], None]
) -> None:
    moved = their_moved = compared_rounds = 0
    for where, compared in rounds(java, "cooperative-sticky", STICKY):
        if not compared.is_valid_in_java():
            continue
        homes = compared.find_homes()
        assert count_moved(compared.ours, homes) <= count_moved(compared.theirs, homes), where

        # Nothing is withheld in a group at rest, and then balance can be compared.
        complete = existing_partitions(compared.partition_counts, compared.members)
        if holders(compared.ours).keys() == holders(compared.theirs).keys() == complete:
            assert balance_score(compared.ours) == balance_score(compared.theirs), where

        compared_rounds += 1
        moved += count_moved(compared.ours, homes)
        their_moved += count_moved(compared.theirs, homes)

    assert compared_rounds > 0.99 * STICKY * ROUNDS
    record_property(
        "counts",
        f"cooperative-sticky, {compared_rounds} rounds: {moved} partitions moved by ours, "
        f"{their_moved} by Java's",
    )


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_neither_moves_anything_of_an_assignment_of_the_other(
    java: KafkaAssignors, name: str
) -> None:
    for seed in range(200):
        history = History(Random(seed))
        counts = history.partition_counts
        for theirs_first in (True, False):
            members = history.subscriptions(name)
            ours = find_assignor(name).assign(counts, members)
            theirs = java.assign(name, counts, members)
            history.take(theirs if theirs_first else ours)

            members = history.subscriptions(name)
            if theirs_first:
                again = find_assignor(name).assign(counts, members)
                assert holders(again) == holders(theirs), f"seed {seed}: ours after theirs"
            else:
                again = java.assign(name, counts, members)
                assert holders(again) == holders(ours), f"seed {seed}: theirs after ours"

            # The next group is a new one.
            for left in history.members:
                left.claim = None


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
@pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS)
def test_vectors_are_those_of_java(java: KafkaAssignors, name: str, vector: Vector) -> None:
    counts = read_counts(vector.counts)
    members = [subscribe(name, joined) for joined in vector.members]
    theirs = java.assign(name, counts, members)
    ours = find_assignor(name).assign(counts, members)
    assert {m: set(share.partitions) for m, share in ours.items()} == {
        m: set(share.partitions) for m, share in theirs.items()
    }


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative-sticky"])
@pytest.mark.parametrize("claim", [None, Claim(), Claim(partitions("topic-0 topic-2"), 4)])
def test_user_data_are_those_of_java(java: KafkaAssignors, name: str, claim: Claim | None) -> None:
    assert java.user_data(name, claim) == find_assignor(name).user_data(claim)


# ---- where we differ (docs/differences.md)


def assign_by_java(
    java: KafkaAssignors, name: str, counts: str, *members: Member
) -> dict[str, set[str]]:
    subscriptions = [subscribe(name, joined) for joined in members]
    assignments = java.assign(name, read_counts(counts), subscriptions)
    return {m: {str(p) for p in share.partitions} for m, share in assignments.items()}


def test_claim_beyond_the_end_fails_in_java_and_is_ignored_by_ours(java: KafkaAssignors) -> None:
    group = (member("c1", "t", "t-0 t-5"), member("c2", "t", "t-1 t-2"))
    with pytest.raises(KafkaFailed, match="No more unfilled consumers"):
        assign_by_java(java, "sticky", "t:3", *group)
    assert assign("sticky", "t:3", *group) == {"c1": "t-0", "c2": "t-1 t-2"}


def test_partition_of_two_owners_is_assigned_by_java_and_withheld_by_ours(
    java: KafkaAssignors,
) -> None:
    group = (member("c1", "a", "a-0 a-1"), member("c2", "a b", "a-1 b-0"))
    assert assign_by_java(java, "cooperative-sticky", "a:2 b:1", *group)["c1"] == {"a-0", "a-1"}
    assert assign("cooperative-sticky", "a:2 b:1", *group) == {"c1": "a-0", "c2": "b-0"}


def test_newest_of_three_claims_loses_in_java_by_the_order_of_a_hash_map(
    java: KafkaAssignors,
) -> None:
    group = (
        member("a3", "t", "t-0", generation_id=2),
        member("a1", "t", "t-0", generation_id=1),
        member("a2", "t", "t-0", generation_id=1),
    )
    assert assign_by_java(java, "cooperative-sticky", "t:1", *group)["a3"] == set()
    assert assign("cooperative-sticky", "t:1", *group)["a3"] == "t-0"


def test_old_claim_brings_a_topic_not_subscribed_in_java_alone(java: KafkaAssignors) -> None:
    group = (
        member("c1", "t", "t-0 t-1 t-2 t-3 t-4 t-5", generation_id=5),
        member("c2", "u", "t-0", generation_id=4),
        member("c3", "t u"),
    )
    assert "t-0" in assign_by_java(java, "sticky", "t:6 u:1", *group)["c2"]
    assert assign("sticky", "t:6 u:1", *group)["c2"] == "u-0"
