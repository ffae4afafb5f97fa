"""The assignors: vectors of Kafka 0.10.2's arithmetic, and its PartitionAssignorTest."""

from collections import Counter
from random import Random

import pytest

from groups.zookeeper.assignment import (
    ASSIGNORS,
    Assignment,
    assign_clustered,
    assign_range,
    assign_round_robin,
    java_sorted,
)
from protocol.topic_partition import TopicPartition


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
    random = Random(seed)
    partitions = {f"topic{i}": range(random.randint(8, 119)) for i in range(random.randint(1, 20))}
    threads: dict[str, list[str]] = {}
    for member in range(random.randint(1, 10)):
        for topic in random.sample(sorted(partitions), random.randint(0, len(partitions))):
            threads.setdefault(topic, []).extend(
                f"g_c{member}-{i}" for i in range(random.randint(1, 8))
            )
    assignment = ASSIGNORS[strategy](threads, partitions)
    assert assignment.keys() == {TopicPartition(t, p) for t in threads for p in partitions[t]}
    assert all(thread in threads[partition.topic] for partition, thread in assignment.items())


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
