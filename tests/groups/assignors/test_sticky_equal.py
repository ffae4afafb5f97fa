"""Sticky assignments of members with equal subscriptions.

The vectors hold for both assignors, but that `cooperative-sticky` leaves out what another member
has to release first. The scenarios are those of Kafka's AbstractStickyAssignorTest.
"""

import attrs
import pytest

from tests.groups.assignors.histories import Member
from tests.groups.assignors.scenes import assign, loads, member


@attrs.frozen
class Vector:
    """A group, what its members get, and which of it they get a rebalance later."""

    counts: str
    members: tuple[Member, ...]
    shares: dict[str, str]
    withheld: str = ""


VECTORS = {
    "two_new_members_of_a_topic": Vector(
        "t:3", (member("c1", "t"), member("c2", "t")), {"c1": "t-0 t-2", "c2": "t-1"}
    ),
    "member_joins_one_that_owns_all": Vector(
        "t:3",
        (member("c1", "t", "t-0 t-1 t-2"), member("c2", "t")),
        {"c1": "t-0 t-1", "c2": "t-2"},
        "t-2",
    ),
    "member_joins_two": Vector(
        "t:5",
        (member("c1", "t", "t-0 t-2 t-4"), member("c2", "t", "t-1 t-3"), member("c3", "t")),
        {"c1": "t-0 t-2", "c2": "t-1 t-3", "c3": "t-4"},
        "t-4",
    ),
    "two_new_members_of_two_topics": Vector(
        "a:3 b:3",
        (member("c1", "a b"), member("c2", "a b")),
        {"c1": "a-0 a-2 b-1", "c2": "a-1 b-0 b-2"},
    ),
    "partition_claimed_twice_in_one_generation": Vector(
        "t:3",
        (
            member("c1", "t", "t-0 t-1", generation_id=2),
            member("c2", "t", "t-1 t-2", generation_id=2),
        ),
        {"c1": "t-0 t-1", "c2": "t-2"},
        "t-1",
    ),
    "partition_claimed_in_two_generations": Vector(
        "t:3",
        (
            member("c1", "t", "t-0 t-1", generation_id=2),
            member("c2", "t", "t-1 t-2", generation_id=1),
        ),
        {"c1": "t-0 t-1", "c2": "t-2"},
    ),
    "member_left_and_two_share_its_partitions": Vector(
        "t:9",
        (member("c1", "t", "t-0 t-3 t-6"), member("c2", "t", "t-1 t-4 t-7")),
        {"c1": "t-0 t-3 t-6 t-2 t-8", "c2": "t-1 t-4 t-7 t-5"},
    ),
    "two_members_join_one_that_owns_all": Vector(
        "t:4",
        (member("c1", "t", "t-0 t-1 t-2 t-3"), member("c2", "t"), member("c3", "t")),
        {"c1": "t-0 t-1", "c2": "t-2", "c3": "t-3"},
        "t-2 t-3",
    ),
    "more_members_than_partitions": Vector(
        "t:2",
        (member("c1", "t", "t-0 t-1"), member("c2", "t"), member("c3", "t")),
        {"c1": "t-0", "c2": "t-1", "c3": ""},
        "t-1",
    ),
    "new_member_takes_what_nobody_owns": Vector(
        "t:4",
        (member("c1", "t", "t-0 t-1"), member("c2", "t", "t-2"), member("c3", "t")),
        {"c1": "t-0 t-1", "c2": "t-2", "c3": "t-3"},
    ),
}


@pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS)
def test_sticky_assigns_all_partitions_of_a_vector(vector: Vector) -> None:
    assert assign("sticky", vector.counts, *vector.members) == vector.shares


@pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS)
def test_cooperative_sticky_withholds_what_others_must_release(vector: Vector) -> None:
    given = {
        member_id: " ".join(word for word in share.split() if word not in vector.withheld.split())
        for member_id, share in vector.shares.items()
    }
    assert assign("cooperative-sticky", vector.counts, *vector.members) == given


# ---- without history


def test_one_member_without_topics_gets_nothing() -> None:
    assert assign("sticky", "", member("c1", "")) == {"c1": ""}


def test_topic_that_does_not_exist_is_left_out() -> None:
    assert assign("sticky", "other:2", member("c1", "t")) == {"c1": ""}


def test_one_member_gets_all_partitions_of_one_topic() -> None:
    assert assign("sticky", "t:3", member("c1", "t")) == {"c1": "t-0 t-1 t-2"}


def test_one_member_gets_all_partitions_of_several_topics() -> None:
    assert assign("sticky", "a:1 b:2", member("c1", "a b")) == {"c1": "a-0 b-0 b-1"}


def test_only_subscribed_topics_are_assigned() -> None:
    assert assign("sticky", "t:3 other:3", member("c1", "t")) == {"c1": "t-0 t-1 t-2"}


def test_owned_partitions_of_topics_not_subscribed_are_ignored() -> None:
    shares = assign("sticky", "t:2 other:3", member("c1", "t", "other-0 t-1 other-2"))
    assert shares == {"c1": "t-1 t-0"}


def test_one_partition_goes_to_one_of_two_members() -> None:
    shares = assign("sticky", "t:1", member("c1", "t"), member("c2", "t"))
    assert shares == {"c1": "t-0", "c2": ""}


def test_two_partitions_go_to_one_member_each() -> None:
    shares = assign("sticky", "t:2", member("c1", "t"), member("c2", "t"))
    assert shares == {"c1": "t-0", "c2": "t-1"}


def test_member_ids_are_in_the_order_of_java() -> None:
    shares = assign("sticky", "t:1", member("\ufffd", "t"), member("\U0001f600", "t"))
    assert shares == {"\ufffd": "", "\U0001f600": "t-0"}


# ---- quotas


def test_member_at_the_lower_quota_gets_one_more() -> None:
    shares = assign(
        "sticky", "a:2 b:3", member("c1", "a b", "a-0 b-1"), member("c2", "a b", "a-1 b-2")
    )
    assert shares == {"c1": "a-0 b-1 b-0", "c2": "a-1 b-2"}


def test_members_above_the_quota_give_one_to_a_new_member() -> None:
    shares = assign(
        "sticky",
        "a:2 b:2",
        member("c1", "a b", "a-0 b-0"),
        member("c2", "a b", "a-1 b-1"),
        member("c3", "a b"),
    )
    # One of the two may keep two partitions: the first.
    assert shares == {"c1": "a-0 b-0", "c2": "a-1", "c3": "b-1"}


def test_members_below_the_quota_keep_all_they_own() -> None:
    shares = assign(
        "sticky",
        "a:2 b:3",
        member("c1", "a b", "a-0"),
        member("c2", "a b", "a-1"),
        member("c3", "a b"),
    )
    assert shares == {"c1": "a-0 b-1", "c2": "a-1 b-2", "c3": "b-0"}


def test_members_at_their_quotas_keep_exactly_what_they_own() -> None:
    shares = assign(
        "sticky",
        "t:5",
        member("c1", "t", "t-0 t-4"),
        member("c2", "t", "t-3 t-1"),
        member("c3", "t", "t-2"),
    )
    assert shares == {"c1": "t-0 t-4", "c2": "t-1 t-3", "c3": "t-2"}


# ---- members and topics come and go


def test_member_that_leaves_again_gives_back_what_it_took() -> None:
    alone = assign("sticky", "t:3", member("c1", "t"))
    both = assign("sticky", "t:3", member("c1", "t", alone["c1"]), member("c2", "t"))
    again = assign("sticky", "t:3", member("c1", "t", both["c1"]))
    assert both == {"c1": "t-0 t-1", "c2": "t-2"}
    assert again == {"c1": "t-0 t-1 t-2"}


def test_two_members_join_and_each_topic_stays_spread() -> None:
    counts = "a:3 b:4"
    two = assign("sticky", counts, member("c1", "a b"), member("c2", "a b"))
    four = assign(
        "sticky",
        counts,
        member("c1", "a b", two["c1"]),
        member("c2", "a b", two["c2"]),
        member("c3", "a b"),
        member("c4", "a b"),
    )
    assert two == {"c1": "a-0 a-2 b-1 b-3", "c2": "a-1 b-0 b-2"}
    assert four == {"c1": "a-0 b-1", "c2": "b-0 a-1", "c3": "a-2 b-3", "c4": "b-2"}


@pytest.mark.parametrize("sizes", [(1, 2, 4, 2), (4, 3, 1, 4)])
def test_each_topic_stays_evenly_split_while_members_change(sizes: tuple[int, ...]) -> None:
    shares: dict[str, str] = {}
    for size in sizes:
        group = [member(f"c{i}", "a b", shares.get(f"c{i}", "")) for i in range(size)]
        shares = assign("sticky", "a:12 b:12", *group)
        for topic in "ab":
            assert {share.count(topic) for share in shares.values()} == {12 // size}


def test_member_leaves_and_the_others_keep_theirs() -> None:
    shares = assign("sticky", "t:6", member("c1", "t", "t-0 t-3"), member("c3", "t", "t-2 t-5"))
    assert shares == {"c1": "t-0 t-3 t-1", "c3": "t-2 t-5 t-4"}


def test_topic_that_grows_moves_nothing() -> None:
    shares = assign("sticky", "t:5", member("c1", "t", "t-0 t-2"), member("c2", "t", "t-1"))
    assert shares == {"c1": "t-0 t-2 t-4", "c2": "t-1 t-3"}


def test_topic_that_is_deleted_is_forgotten() -> None:
    shares = assign(
        "sticky", "a:2 c:2", member("c1", "a b c", "a-0 b-0 c-0"), member("c2", "a b c", "a-1 b-1")
    )
    assert shares == {"c1": "a-0 c-0", "c2": "a-1 c-1"}


def test_only_subscribed_topic_is_deleted_and_nobody_has_anything() -> None:
    assert assign("sticky", "", member("c1", "t", "t-0 t-1")) == {"c1": ""}


def test_partition_beyond_the_end_of_its_topic_is_not_assigned() -> None:
    shares = assign("sticky", "t:2", member("c1", "t", "t-0 t-5"), member("c2", "t", "t-6"))
    assert shares == {"c1": "t-0", "c2": "t-1"}


def test_two_thousand_members_leave_all_their_partitions_alone() -> None:
    names = [f"c{number}" for number in range(2000)]
    counts = " ".join(f"t{number}:10" for number in range(300))
    topics = " ".join(f"t{number}" for number in range(300))
    before = assign("sticky", counts, *(member(name, topics) for name in names))
    after = assign("sticky", counts, *(member(name, topics, before[name]) for name in names))
    assert set(loads(before).values()) == {1, 2}
    assert {k: set(v.split()) for k, v in after.items()} == {
        k: set(v.split()) for k, v in before.items()
    }


# ---- generations


def test_member_of_an_older_generation_keeps_what_nobody_else_claims() -> None:
    shares = assign(
        "sticky",
        "t:4",
        member("c1", "t", "t-0 t-1", generation_id=1),
        member("c2", "t", "t-1 t-2", generation_id=5),
    )
    assert shares == {"c1": "t-0 t-3", "c2": "t-1 t-2"}


def test_member_without_a_generation_loses_to_one_with() -> None:
    shares = assign(
        "sticky",
        "t:3",
        member("c1", "t", "t-0 t-2", generation_id=-1),
        member("c2", "t", "t-1 t-2", generation_id=0),
    )
    assert shares == {"c1": "t-0", "c2": "t-1 t-2"}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (1, 0, 2)])
def test_newest_of_three_generations_has_the_partition(order: tuple[int, ...]) -> None:
    group = [member(f"c{i}", "t", "t-0", generation_id=i) for i in range(3)]
    assert assign("sticky", "t:1", *(group[i] for i in order))["c2"] == "t-0"


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (0, 2, 1)])
def test_newest_has_what_two_of_an_older_generation_claim(order: tuple[int, ...]) -> None:
    group = [
        member("c1", "t", "t-0", generation_id=1),
        member("c2", "t", "t-0", generation_id=1),
        member("c3", "t", "t-0", generation_id=2),
    ]
    shares = assign("cooperative-sticky", "t:1", *(group[i] for i in order))
    assert shares == {"c1": "", "c2": "", "c3": "t-0"}


def test_sticky_member_with_corrupt_user_data_begins_anew() -> None:
    shares = assign(
        "sticky",
        "t:4",
        member("c1", "t", "t-0 t-1", user_data=b"\xff\xff"),
        member("c2", "t", "t-2 t-3"),
    )
    assert shares == {"c1": "t-0 t-1", "c2": "t-2 t-3"}


def test_sticky_data_of_version_0_count() -> None:
    version_0 = bytes.fromhex("00000001000174000000020000000100000002")
    shares = assign("sticky", "t:4", member("c1", "t", user_data=version_0), member("c2", "t"))
    assert shares == {"c1": "t-1 t-2", "c2": "t-0 t-3"}
