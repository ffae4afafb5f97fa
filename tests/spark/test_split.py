import random

import pytest

from protocol.topic_partition import TopicPartition
from spark_connector.split import OffsetRange, limit_batch, plan_ranges

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
