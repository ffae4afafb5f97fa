"""Simulated rebalances: complete, even, and with the moves of the real assignors."""

import random

import pytest

from clients.watching.assignment_simulation import SimulatedMember, Simulation, simulate
from groups.assignors.assignor_table import ASSIGNORS
from protocol.topic_partition import TopicPartition


def partitions(*numbers: int, topic: str = "t") -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for number in numbers)


def two_members_and_a_new_one(assignor: str) -> Simulation:
    members = [
        SimulatedMember("m1", ("t",), partitions(0, 1, 2)),
        SimulatedMember("m2", ("t",), partitions(3, 4, 5)),
        SimulatedMember("m3", ("t",)),
    ]
    return simulate(assignor, members, {"t": 6})


def test_range_moves_what_sticky_keeps() -> None:
    by_range = two_members_and_a_new_one("range")
    assert by_range.shares == {
        "m1": partitions(0, 1),
        "m2": partitions(2, 3),
        "m3": partitions(4, 5),
    }
    assert (by_range.kept, by_range.moved, by_range.rounds) == (3, 3, 1)

    sticky = two_members_and_a_new_one("sticky")
    assert (sticky.kept, sticky.moved, sticky.rounds) == (4, 2, 1)


def test_cooperative_sticky_needs_a_second_round_for_what_moves() -> None:
    result = two_members_and_a_new_one("cooperative-sticky")
    assert (result.kept, result.moved, result.rounds) == (4, 2, 2)
    assert result.sizes == (2, 2)


def test_partitions_of_a_member_that_left_count_as_moved() -> None:
    members = [SimulatedMember("m1", ("t",), partitions(0))]
    result = simulate("sticky", members, {"t": 2}, left={"m2": partitions(1)})
    assert (result.kept, result.moved) == (1, 1)


def test_weights_show_the_member_that_has_most_to_do() -> None:
    members = [SimulatedMember("m1", ("t",)), SimulatedMember("m2", ("t",))]
    weights = {TopicPartition("t", 0): 90, TopicPartition("t", 1): 10}
    result = simulate("range", members, {"t": 2}, weights=weights)
    assert result.weight_of == {"m1": 90, "m2": 10}
    assert result.load == pytest.approx(1.8)


def test_without_any_weight_no_load_is_told() -> None:
    members = [SimulatedMember("m1", ("t",))]
    assert simulate("range", members, {"t": 2}, weights={}).load is None


def test_without_members_nothing_can_be_simulated() -> None:
    with pytest.raises(ValueError, match="no members"):
        simulate("range", [], {"t": 1})


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_every_partition_has_one_owner_whatever_members_owned(assignor: str) -> None:
    for seed in range(100):
        rng = random.Random(seed)
        counts = {f"t{number}": rng.randint(1, 9) for number in range(rng.randint(1, 4))}
        every = [TopicPartition(topic, n) for topic, count in counts.items() for n in range(count)]

        # Some partitions have an owner, others were those of members that left.
        owner_of = {partition: rng.randrange(6) for partition in every}
        owned = {
            number: tuple(p for p in every if owner_of[p] == number and rng.random() < 0.8)
            for number in range(rng.randint(1, 5))
        }
        members = [SimulatedMember(f"m{n}", tuple(counts), share) for n, share in owned.items()]
        result = simulate(assignor, members, counts)

        shared_out = [partition for share in result.shares.values() for partition in share]
        assert sorted(shared_out) == sorted(every), seed
        assert result.kept + result.moved == sum(map(len, owned.values())), seed
        if "sticky" in assignor:
            smallest, largest = result.sizes
            assert largest - smallest <= 1, seed
