import random

import pytest

from protocol.topic_partition import TopicPartition
from spark_connector.split import (
    JOINED_RANGES,
    OffsetRange,
    Task,
    limit_batch,
    plan_ranges,
    plan_tasks,
)

T0, T1, T2 = (TopicPartition("t", n) for n in range(3))


def test_a_partition_without_news_has_no_range() -> None:
    assert plan_ranges({T0: 5, T1: 7}, {T0: 5, T1: 9}) == [OffsetRange(T1, 7, 9)]


def test_all_there_is_fits_below_the_limit() -> None:
    assert limit_batch({T0: 0, T1: 5}, {T0: 10, T1: 5}, 10) == {T0: 10, T1: 5}


def test_a_limit_is_shared_in_proportion() -> None:
    start = {T0: 100, T1: 0}
    assert limit_batch(start, {T0: 400, T1: 100}, 40) == {T0: 130, T1: 10}


def test_a_nearly_idle_partition_gets_something_beside_a_busy_one() -> None:
    end = limit_batch({T0: 0, T1: 0}, {T0: 1_000_000, T1: 1}, 10)
    assert end == {T0: 9, T1: 1}


@pytest.mark.parametrize(
    ("sizes", "shares"),
    [
        ([1, 3, 2], [0, 1, 1]),
        ([1, 1, 2], [0, 1, 1]),
        ([1, 1, 98], [0, 0, 2]),
        ([4, 5, 6, 7, 8], [0, 0, 1, 0, 1]),
    ],
)
def test_with_fewer_offsets_than_partitions_shares_stay_in_proportion(
    sizes: list[int], shares: list[int]
) -> None:
    partitions = [TopicPartition("t", n) for n in range(len(sizes))]
    end = dict(zip(partitions, sizes, strict=True))
    assert [*limit_batch(dict.fromkeys(partitions, 0), end, 2).values()] == shares


def test_a_partition_without_news_stays_where_it_is() -> None:
    assert limit_batch({T0: 7, T1: 0}, {T0: 7, T1: 9}, 3) == {T0: 7, T1: 3}


@pytest.mark.parametrize("seed", range(20))
def test_a_batch_has_exactly_the_limit_and_the_batches_reach_the_end(seed: int) -> None:
    rng = random.Random(seed)
    partitions = [TopicPartition("t", n) for n in range(rng.randint(1, 9))]
    place = {p: rng.randint(0, 50) for p in partitions}
    end = {p: offset + rng.choice([0, 1, 5, 300]) for p, offset in place.items()}
    most = rng.randint(1, 60)
    left = sum(end.values()) - sum(place.values())
    while left:
        batch = limit_batch(place, end, most)
        took = {p: batch[p] - place[p] for p in partitions}
        assert all(0 <= took[p] <= end[p] - place[p] for p in partitions), (took, place, end)
        assert sum(took.values()) == min(most, left)
        place = batch
        left -= sum(took.values())
    assert place == end


def test_an_end_before_its_start_is_an_error_and_not_an_empty_range() -> None:
    with pytest.raises(ValueError, match="t-0 is to be read from offset 106 to 103"):
        plan_ranges({T0: 106}, {T0: 103})


def ranges(*sizes: int) -> list[OffsetRange]:
    """Return a range of each size, each of a partition of its own."""
    return [OffsetRange(TopicPartition("t", n), 10, 10 + size) for n, size in enumerate(sizes)]


def sizes(tasks: list[Task]) -> list[list[int]]:
    return [[r.size for r in task] for task in tasks]


def test_a_task_reads_a_range_unless_more_is_asked_for() -> None:
    assert sizes(plan_tasks(ranges(5, 1))) == [[5], [1]]


# The expectations are those of Spark's KafkaOffsetRangeCalculatorSuite.
@pytest.mark.parametrize(
    ("given", "least", "tasks"),
    [
        ((1, 1, 1), 3, [1, 1, 1]),
        ((1, 1, 1), 1, [1, 1, 1]),
        ((5,), 3, [1, 2, 2]),
        ((2, 4), 3, [2, 2, 2]),
        ((1,), 3, [1]),
        ((100, 10), 4, [33, 33, 34, 10]),
        ((1000, 100), 10, [111] * 8 + [112, 100]),
    ],
)
def test_large_ranges_are_divided_until_there_are_enough_tasks(
    given: tuple[int, ...], least: int, tasks: list[int]
) -> None:
    planned = plan_tasks(ranges(*given), min_partitions=least)
    assert [size for task in sizes(planned) for size in task] == tasks


def test_no_task_has_more_than_the_most_records() -> None:
    planned = plan_tasks(ranges(10, 3), max_records=4)
    assert sizes(planned) == [[3], [3], [4], [3]]
    assert [(r.start, r.end) for (r,) in planned[:3]] == [(10, 13), (13, 16), (16, 20)]


def test_small_ranges_share_a_task_and_large_ones_stand_alone() -> None:
    planned = plan_tasks(ranges(3, 90, 3, 3, 80, 3), joined_offsets=8)
    assert sizes(planned) == [[90], [80], [3, 3], [3, 3]]


def test_a_joined_task_keeps_to_the_most_records() -> None:
    assert sizes(plan_tasks(ranges(2, 2, 2), max_records=4, joined_offsets=100)) == [[2, 2], [2]]


def test_who_asks_for_many_tasks_gets_no_joined_ones() -> None:
    planned = plan_tasks(ranges(1, 1, 1), min_partitions=2, joined_offsets=100)
    assert sizes(planned) == [[1], [1], [1]]


def test_a_task_has_a_bound_on_its_ranges() -> None:
    planned = plan_tasks(ranges(*[1] * (JOINED_RANGES + 1)), joined_offsets=5_000)
    assert [len(task) for task in planned] == [JOINED_RANGES, 1]


@pytest.mark.parametrize("seed", range(20))
def test_tasks_read_all_of_the_ranges_once(seed: int) -> None:
    rng = random.Random(seed)
    whole = ranges(*[rng.choice([1, 2, 50, 3000]) for _ in range(rng.randint(1, 30))])
    planned = plan_tasks(
        whole,
        min_partitions=rng.choice([None, 1, 10, 100]),
        max_records=rng.choice([None, 1, 7, 500]),
        joined_offsets=rng.choice([0, 10, 1000]),
    )
    read = sorted((r.partition, n) for task in planned for r in task for n in range(r.start, r.end))
    assert read == [(r.partition, n) for r in whole for n in range(r.start, r.end)]
