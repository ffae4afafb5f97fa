"""Sticky assignments of members with different subscriptions."""

from random import Random

import pytest

from tests.groups.assignors.scenes import assign, loads, member


def as_sets(shares: dict[str, str]) -> dict[str, set[str]]:
    return {member_id: set(share.split()) for member_id, share in shares.items()}


# ---- without history


def test_members_of_mixed_topics_share_what_they_have_in_common() -> None:
    shares = assign(
        "sticky", "t1:3 t2:2", member("c1", "t1"), member("c2", "t1 t2"), member("c3", "t1")
    )
    assert shares == {"c1": "t1-0 t1-2", "c2": "t2-0 t2-1", "c3": "t1-1"}


def test_topic_with_one_subscriber_goes_there_first() -> None:
    shares = assign("sticky", "a:2 b:2", member("c1", "a b"), member("c2", "a"))
    assert shares == {"c1": "b-0 b-1", "c2": "a-0 a-1"}


def test_topics_that_do_not_exist_do_not_make_subscriptions_differ() -> None:
    shares = assign("sticky", "t:3", member("c1", "t gone"), member("c2", "t"))
    assert shares == {"c1": "t-0 t-2", "c2": "t-1"}


def test_member_without_topics_gets_nothing() -> None:
    shares = assign("sticky", "t:3", member("c1", ""), member("c2", "t"))
    assert shares == {"c1": "", "c2": "t-0 t-1 t-2"}


def test_poor_case_of_round_robin_is_balanced() -> None:
    shares = assign(
        "sticky",
        "t1:2 t2:1 t3:2 t4:1 t5:2",
        member("c1", "t1 t2 t3 t4 t5"),
        member("c2", "t1 t3 t5"),
        member("c3", "t1 t3 t5"),
        member("c4", "t1 t2 t3 t4 t5"),
    )
    assert set(loads(shares).values()) == {2}


# ---- members and topics come and go


def test_member_with_a_new_subscription_gets_only_what_nobody_has() -> None:
    before = assign("sticky", "a:3 b:3", member("c1", "a"), member("c2", "b"))
    after = assign(
        "sticky", "a:3 b:3", member("c1", "a b", before["c1"]), member("c2", "b", before["c2"])
    )
    assert as_sets(after) == as_sets(before)


def test_member_that_unsubscribes_gives_the_topic_away() -> None:
    shares = assign(
        "sticky", "a:2 b:2", member("c1", "a", "a-0 b-0"), member("c2", "a b", "a-1 b-1")
    )
    assert shares == {"c1": "a-0 a-1", "c2": "b-1 b-0"}


def test_new_member_takes_from_the_one_that_holds_most() -> None:
    shares = assign(
        "sticky",
        "a:4 b:2",
        member("c1", "a", "a-0 a-1 a-2 a-3"),
        member("c2", "b", "b-0 b-1"),
        member("c3", "a b"),
    )
    assert loads(shares) == {"c1": 2, "c2": 2, "c3": 2}
    assert shares["c2"] == "b-0 b-1"


def test_member_leaves_and_only_its_partitions_move() -> None:
    shares = assign(
        "sticky", "a:2 b:3", member("c1", "a b", "a-0 b-1"), member("c3", "b", "b-0 b-2")
    )
    assert shares == {"c1": "a-0 b-1 a-1", "c3": "b-0 b-2"}


def test_topic_is_deleted_and_the_others_stay() -> None:
    shares = assign("sticky", "a:2", member("c1", "a b", "a-0 b-0 b-1"), member("c2", "a", "a-1"))
    assert shares == {"c1": "a-0", "c2": "a-1"}


def test_member_does_not_give_one_topic_and_get_another_in_exchange() -> None:
    # Topic by topic, c4 would take a-0 from c2, and c2 then b-3 from c1.
    shares = assign(
        "sticky",
        "a:1 b:6",
        member("c1", "b", "b-0 b-2 b-3"),
        member("c2", "a b", "a-0 b-1"),
        member("c3", "b", "b-4 b-5"),
        member("c4", "a b"),
    )
    assert shares == {"c1": "b-0 b-2", "c2": "a-0 b-1", "c3": "b-4 b-5", "c4": "b-3"}


def test_assignment_that_no_single_move_improves_stays() -> None:
    before = {"c1": "t1-0", "c2": "t2-0 t3-0", "c3": "t4-0 t5-0 t6-0"}
    shares = assign(
        "sticky",
        "t1:1 t2:1 t3:1 t4:1 t5:1 t6:1",
        member("c1", "t1 t2", before["c1"]),
        member("c2", "t1 t2 t3 t4", before["c2"]),
        member("c3", "t2 t3 t4 t5 t6", before["c3"]),
    )
    assert shares == before


def test_quarter_of_two_hundred_members_leaves_and_the_rest_keep_most() -> None:
    rng = Random(5)
    topics = [f"t{number}" for number in range(40)]
    counts = " ".join(f"{topic}:{rng.randint(1, 20)}" for topic in topics)
    topics_of = {f"c{i}": " ".join(rng.sample(topics, rng.randint(1, 20))) for i in range(200)}
    before = assign("sticky", counts, *(member(name, words) for name, words in topics_of.items()))
    rest = rng.sample(sorted(topics_of), 150)
    after = assign("sticky", counts, *(member(m, topics_of[m], before[m]) for m in rest))

    # Loads only grow, so nobody has to give much away.
    moved = sum(len(set(before[m].split()) - set(after[m].split())) for m in rest)
    assert sum(loads(after).values()) == sum(loads(before).values())
    assert moved <= 10


# ---- generations


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (1, 0, 2)])
def test_three_generations_of_a_claim_give_a_valid_assignment(order: tuple[int, ...]) -> None:
    group = [
        member("c1", "t1 t2 t3", "t1-0", generation_id=1),
        member("c2", "t1 t2", "t1-0", generation_id=2),
        member("c3", "t1", "t1-0", generation_id=3),
    ]
    shares = assign("sticky", "t1:1 t2:1 t3:1", *(group[i] for i in order))
    assert shares == {"c1": "t3-0", "c2": "t2-0", "c3": "t1-0"}


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2)])
def test_partition_that_has_to_move_prefers_its_owner_before(order: tuple[int, ...]) -> None:
    group = [
        member("c1", "t", "t-0 t-1 t-2 t-3 t-4 t-5 t-6", generation_id=5),
        member("c2", "t"),
        member("c3", "t", "t-6", generation_id=3),
        member("c4", "t u", "t-6", generation_id=4),
    ]
    shares = assign("sticky", "t:7 u:1", *(group[i] for i in order))
    assert shares["c4"] == "t-6 u-0"


def test_owner_before_that_has_unsubscribed_does_not_get_it() -> None:
    shares = assign(
        "sticky",
        "t:4 u:1",
        member("c1", "t", "t-0 t-1 t-2 t-3", generation_id=5),
        member("c2", "u", "t-0 t-1 t-2 t-3", generation_id=4),
        member("c3", "t"),
    )
    assert shares["c2"] == "u-0"
    assert loads(shares) == {"c1": 2, "c2": 1, "c3": 2}


# ---- cooperative


def test_cooperative_withholds_what_moves_until_it_is_released() -> None:
    owner = member("c1", "a", "a-0 a-1 a-2")
    first = assign("cooperative-sticky", "a:3 b:1", owner, member("c2", "a b"))
    second = assign(
        "cooperative-sticky",
        "a:3 b:1",
        member("c1", "a", first["c1"], generation_id=2),
        member("c2", "a b", first["c2"], generation_id=2),
    )
    assert first == {"c1": "a-0 a-1", "c2": "b-0"}
    assert second == {"c1": "a-0 a-1", "c2": "b-0 a-2"}


def test_cooperative_gives_what_two_claim_to_nobody() -> None:
    shares = assign(
        "cooperative-sticky",
        "a:2 b:1",
        member("c1", "a", "a-0 a-1", generation_id=3),
        member("c2", "a b", "a-1 b-0", generation_id=3),
    )
    assert shares == {"c1": "a-0", "c2": "b-0"}


def test_cooperative_late_member_waits_until_the_owner_has_released() -> None:
    # c2 still claims what c1 has got since. It gets it back, but not while c1 holds it.
    shares = assign(
        "cooperative-sticky",
        "a:4 b:1",
        member("c1", "a b", "a-0 a-1 a-2 a-3", generation_id=4),
        member("c2", "a", "a-3", generation_id=3),
    )
    assert "a-3" not in shares["c1"] + shares["c2"]


def test_cooperative_withholds_what_its_owner_no_longer_subscribes_to() -> None:
    shares = assign(
        "cooperative-sticky", "a:1 b:1", member("c1", "a", "a-0 b-0"), member("c2", "b")
    )
    assert shares == {"c1": "a-0", "c2": ""}


def test_cooperative_members_of_old_subscriptions_keep_theirs() -> None:
    # Subscriptions of version 0 have neither partitions nor a generation.
    shares = assign("cooperative-sticky", "t:2", member("c1", "t"), member("c2", "t"))
    assert shares == {"c1": "t-0", "c2": "t-1"}
