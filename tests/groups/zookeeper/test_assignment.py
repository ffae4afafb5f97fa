"""The assignors: vectors of Kafka's arithmetic, and its PartitionAssignorTest."""

from collections import Counter
from collections.abc import Iterable
from itertools import chain, cycle
from random import Random
from typing import TypeVar

import pytest

from groups.zookeeper.assignment import (
    ASSIGNORS,
    Assignment,
    assign_clustered,
    assign_range,
    assign_round_robin,
    assign_round_robin_1_0,
    java_sorted,
)
from protocol.java_hash import java_string_hash
from protocol.topic_partition import TopicPartition

T = TypeVar("T")


def a_group(random: Random) -> tuple[dict[str, list[str]], dict[str, range]]:
    """Return threads and partitions by topic, within the bounds of Kafka's own test."""
    topics = random.randint(1, random.choice([20, 100]))
    partitions = {f"topic{i}": range(random.randint(8, 119)) for i in range(topics)}
    threads: dict[str, list[str]] = {}
    for member in range(random.randint(1, 10)):
        for topic in random.sample(sorted(partitions), random.randint(0, len(partitions))):
            threads.setdefault(topic, []).extend(
                f"g_c{member}-{i}" for i in range(random.randint(1, 8))
            )
    return threads, partitions


def shuffle(random: Random, items: Iterable[T]) -> list[T]:
    """Return them in another order."""
    listed = list(items)
    return random.sample(listed, len(listed))


def shares(assignment: Assignment) -> dict[str, list[tuple[str, int]]]:
    by_thread: dict[str, list[tuple[str, int]]] = {}
    for partition, thread in assignment.items():
        by_thread.setdefault(thread, []).append(tuple(partition))
    return by_thread


def test_range_gives_the_first_threads_one_more() -> None:
    threads = {"t": ["C2-1", "C2-0", "C1-1", "C1-0"]}
    assert shares(assign_range(threads, {"t": range(5)})) == {
        "C1-0": [("t", 0), ("t", 1)],
        "C1-1": [("t", 2)],
        "C2-0": [("t", 3)],
        "C2-1": [("t", 4)],
    }


def test_range_leaves_threads_without_partitions_when_there_are_too_many() -> None:
    threads = {"t": ["C1-0", "C1-1", "C2-0", "C2-1"]}
    assert shares(assign_range(threads, {"t": range(3)})) == {
        "C1-0": [("t", 0)],
        "C1-1": [("t", 1)],
        "C2-0": [("t", 2)],
    }


def test_range_orders_threads_as_strings_so_ten_comes_before_two() -> None:
    threads = {"t": [f"C1-{i}" for i in range(11)]}
    assignment = assign_range(threads, {"t": range(12)})
    assert [assignment[TopicPartition("t", p)] for p in range(12)] == [
        *("C1-0", "C1-0", "C1-1", "C1-10", "C1-2", "C1-3"),
        *("C1-4", "C1-5", "C1-6", "C1-7", "C1-8", "C1-9"),
    ]


def test_range_counts_positions_in_the_sorted_list_not_partition_ids() -> None:
    assert shares(assign_range({"t": ["a-0", "b-0"]}, {"t": [40, 7, 100]})) == {
        "a-0": [("t", 7), ("t", 40)],
        "b-0": [("t", 100)],
    }


def test_round_robin_deals_in_the_order_of_java_hashes() -> None:
    threads = {t: ["g_c1-0", "g_c1-1", "g_c2-0"] for t in ("topic1", "topic2")}
    assert list(assign_round_robin(threads, {"topic1": range(3), "topic2": range(3)}).items()) == [
        (("topic1", 0), "g_c1-0"),
        (("topic1", 1), "g_c1-1"),
        (("topic1", 2), "g_c2-0"),
        (("topic2", 0), "g_c1-0"),
        (("topic2", 1), "g_c1-1"),
        (("topic2", 2), "g_c2-0"),
    ]


def test_round_robin_of_kafka_1_0_deals_in_another_order() -> None:
    threads, partitions = {"a": ["x-0"], "b": ["x-0"]}, {"a": [0, 10], "b": [0]}
    older, newer = (
        [f"{topic}-{number}" for topic, number in assign(threads, partitions)]
        for assign in (assign_round_robin, assign_round_robin_1_0)
    )
    assert older == ["a-10", "a-0", "b-0"]
    assert newer == ["a-0", "b-0", "a-10"]


def test_round_robin_passes_over_threads_that_lack_the_topic() -> None:
    threads = {"topic1": ["c1-0", "c2-0"], "topic2": ["c2-0"]}
    assert shares(assign_round_robin(threads, {"topic1": range(3), "topic2": range(2)})) == {
        "c1-0": [("topic1", 0), ("topic1", 2)],
        "c2-0": [("topic1", 1), ("topic2", 0), ("topic2", 1)],
    }


def test_round_robin_breaks_a_tie_of_hashes_by_name() -> None:
    threads = {"BB": ["x-0", "y-0"], "Aa": ["x-0", "y-0"]}
    assert list(assign_round_robin(threads, {"BB": [0], "Aa": [0]}).items()) == [
        (("Aa", 0), "x-0"),
        (("BB", 0), "y-0"),
    ]


@pytest.mark.parametrize("strategy", sorted(ASSIGNORS))
@pytest.mark.parametrize(
    ("threads", "partitions"),
    [({}, {}), ({"t": []}, {"t": [0]}), ({"t": ["a-0"]}, {}), ({"t": ["a-0"]}, {"u": [0]})],
)
def test_where_nothing_can_be_assigned_nothing_is(
    strategy: str, threads: dict[str, list[str]], partitions: dict[str, list[int]]
) -> None:
    assert ASSIGNORS[strategy](threads, partitions) == {}


@pytest.mark.parametrize("strategy", sorted(ASSIGNORS))
@pytest.mark.parametrize("seed", range(20))
def test_every_partition_that_somebody_wants_gets_one_thread_that_wants_it(
    strategy: str, seed: int
) -> None:
    threads, partitions = a_group(Random(seed))
    assignment = ASSIGNORS[strategy](threads, partitions)
    assert assignment.keys() == {TopicPartition(t, p) for t in threads for p in partitions[t]}
    assert all(thread in threads[partition.topic] for partition, thread in assignment.items())


@pytest.mark.parametrize("strategy", sorted(ASSIGNORS))
@pytest.mark.parametrize("seed", range(5))
def test_in_whatever_order_the_group_was_read_the_assignment_is_the_same(
    strategy: str, seed: int
) -> None:
    random = Random(seed)
    threads, partitions = a_group(random)
    leaders = {
        TopicPartition(t, p): random.randint(0, 5) for t in partitions for p in partitions[t]
    }
    once = ASSIGNORS[strategy](threads, partitions, leaders)
    shuffled = {t: random.sample(threads[t], len(threads[t])) for t in shuffle(random, threads)}
    shuffled_partitions = {t: shuffle(random, partitions[t]) for t in shuffle(random, partitions)}
    assert ASSIGNORS[strategy](shuffled, shuffled_partitions, leaders) == once


@pytest.mark.parametrize("seed", range(20))
def test_range_deals_as_the_arithmetic_of_kafka_does(seed: int) -> None:
    threads, partitions = a_group(Random(seed))
    assignment = assign_range(threads, partitions)
    for topic, consumers in threads.items():
        ordered = sorted(consumers)
        number_per_consumer = len(partitions[topic]) // len(ordered)
        consumers_with_one_more = len(partitions[topic]) % len(ordered)
        for position, consumer in enumerate(ordered):
            start = number_per_consumer * position + min(position, consumers_with_one_more)
            count = number_per_consumer + (0 if position + 1 > consumers_with_one_more else 1)
            mine = [p for (t, p), who in assignment.items() if (t, who) == (topic, consumer)]
            assert mine == list(range(start, start + count))


@pytest.mark.parametrize(
    ("strategy", "name"), [("roundrobin", "[{},{}]"), ("roundrobin-1.0", "{}-{}")]
)
@pytest.mark.parametrize("seed", range(20))
def test_round_robin_deals_to_the_next_thread_in_the_ring_that_wants_the_topic(
    strategy: str, name: str, seed: int
) -> None:
    threads, partitions = a_group(Random(seed))
    ring = cycle(sorted(set(chain.from_iterable(threads.values()))))
    assignment = ASSIGNORS[strategy](threads, partitions)
    hashes = [java_string_hash(name.format(*partition)) for partition in assignment]
    assert hashes == sorted(hashes)
    for (topic, _), thread in assignment.items():
        assert thread == next(candidate for candidate in ring if candidate in threads[topic])


@pytest.mark.parametrize("seed", range(10))
def test_round_robin_of_equal_subscriptions_differs_by_one_at_most(seed: int) -> None:
    random = Random(seed)
    partitions = {f"topic{i}": range(random.randint(8, 119)) for i in range(5)}
    threads = [f"g_c{m}-{s}" for m in range(random.randint(1, 10)) for s in range(4)]
    assignment = assign_round_robin(dict.fromkeys(partitions, threads), partitions)
    counts = Counter(dict.fromkeys(threads, 0))
    counts.update(assignment.values())
    assert max(counts.values()) - min(counts.values()) <= 1


def test_strings_are_ordered_by_utf_16_unit_as_java_does() -> None:
    assert java_sorted(["\ufffd", "\U0001f600", "a", "a"]) == ["a", "\U0001f600", "\ufffd"]


def test_clustered_gives_a_thread_partitions_of_as_few_leaders_as_can_be() -> None:
    leaders = {TopicPartition("t", p): p % 3 for p in range(9)}
    threads = {"t": ["a-0", "b-0", "c-0"]}
    assert shares(assign_clustered(threads, {"t": range(9)}, leaders)) == {
        "a-0": [("t", 0), ("t", 3), ("t", 6)],
        "b-0": [("t", 1), ("t", 4), ("t", 7)],
        "c-0": [("t", 2), ("t", 5), ("t", 8)],
    }


def test_clustered_shares_out_as_many_to_each_as_range_does() -> None:
    leaders = {TopicPartition("t", p): (7 * p) % 4 for p in range(10)}
    threads = {"t": ["a-0", "b-0", "b-1"]}
    clustered = assign_clustered(threads, {"t": range(10)}, leaders)
    ranged = assign_range(threads, {"t": range(10)})
    assert (
        Counter(clustered.values())
        == Counter(ranged.values())
        == {
            "a-0": 4,
            "b-0": 3,
            "b-1": 3,
        }
    )


def test_clustered_without_known_leaders_is_range() -> None:
    threads = {"t": ["a-0", "b-0"]}
    assert assign_clustered(threads, {"t": range(5)}) == assign_range(threads, {"t": range(5)})


class Thread(str):
    """A thread id that counts how often it is looked for."""

    looks = 0

    def __hash__(self) -> int:
        Thread.looks += 1
        return super().__hash__()


@pytest.mark.parametrize("members", [50, 200, 1000])
@pytest.mark.parametrize("strategy", sorted(ASSIGNORS))
def test_a_partition_costs_the_same_however_many_members_do_not_want_it(
    members: int, strategy: str
) -> None:
    threads = {f"t{i}": (Thread(f"g_{i:04}-0"),) for i in range(members)}
    partitions = {topic: range(10) for topic in threads}
    Thread.looks = 0
    assignment = ASSIGNORS[strategy](threads, partitions, {})
    assert len(assignment) == 10 * members
    assert Thread.looks <= 10 * members


@pytest.mark.parametrize("topics", [50, 200, 1000])
@pytest.mark.parametrize("strategy", sorted(ASSIGNORS))
def test_consumers_that_many_topics_share_are_put_in_order_once(topics: int, strategy: str) -> None:
    members = 50
    shared = tuple(Thread(f"g_{i:04}-0") for i in range(members))
    Thread.looks = 0
    partitions = {f"t{i}": range(2) for i in range(topics)}
    assignment = ASSIGNORS[strategy](dict.fromkeys(partitions, shared), partitions, {})
    assert len(assignment) == 2 * topics
    assert Thread.looks <= 10 * members
