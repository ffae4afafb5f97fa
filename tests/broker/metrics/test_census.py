"""A census is taken in slices, none of which grows with what is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from broker.metrics.census import SLICE, Census
from broker.metrics.counts import Counts
from groups.coordinator.membership.state import GroupState
from groups.coordinator.shard import GroupShard
from offsets.records import CommittedOffset, OffsetKey, encode_key, encode_value

TOPICS = 10_000
GROUPS = 5 * SLICE + 7


def count_longest_slice(slices: Iterator[None], count: Callable[[], int]) -> int:
    """Return the most that was counted between two yields."""
    counted = [0]
    counted += (count() for _ in slices)
    counted.append(count())
    return max(after - before for before, after in pairwise(counted))


def test_groups_of_one_partition_are_counted_in_slices() -> None:
    shard, census = GroupShard(), Census()
    value = encode_value(CommittedOffset(1))
    shard.replay(
        (encode_key(OffsetKey(f"g-{number}", "t", partition)), value)
        for number in range(GROUPS)
        for partition in range(2)
    )

    slices = census.count_groups([shard])
    assert 0 < count_longest_slice(slices, census.groups.total) <= SLICE
    assert census.groups == {GroupState.EMPTY.value: GROUPS}
    assert census.offsets == 2 * GROUPS


def test_topics_are_added_up_in_slices_and_deleted_ones_stay_in_the_total() -> None:
    counts, census = Counts.of_apis([]), Census()
    for number in range(TOPICS):
        counts.count_append(f"t-{number}", size=10, messages=1)

    slices = census.count_topics(counts, lambda name: not name.endswith("7"))
    assert 0 < count_longest_slice(slices, lambda: census.topics.messages_in) <= SLICE
    assert census.topics.messages_in == TOPICS
    assert len(counts.topics) == TOPICS - TOPICS // 10

    later = Census()
    assert list(later.count_topics(counts, lambda name: True))
    assert later.topics.messages_in == TOPICS
