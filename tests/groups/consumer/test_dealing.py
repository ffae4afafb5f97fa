"""Partitions among the streams of a member."""

from collections import Counter

import pytest

from groups.consumer.dealing import deal
from protocol.topic_partition import TopicPartition


def partitions(*numbers: int) -> list[TopicPartition]:
    return [TopicPartition("t", number) for number in numbers]


def dealt(streams: dict[int, int]) -> dict[TopicPartition, int]:
    return {TopicPartition("t", number): stream for number, stream in streams.items()}


def test_partitions_are_dealt_in_order_and_evenly() -> None:
    assert deal(partitions(4, 0, 2, 1, 3), 2, {}) == dealt({0: 0, 1: 1, 2: 0, 3: 1, 4: 0})


def test_partition_that_stays_keeps_its_stream() -> None:
    before = dealt({0: 0, 1: 1, 2: 0, 3: 1})
    assert deal(partitions(1, 3, 5, 7), 2, before) == dealt({1: 1, 3: 1, 5: 0, 7: 0})


def test_what_the_member_has_no_longer_does_not_count() -> None:
    before = dealt({0: 0, 1: 1, 2: 0})
    assert deal(partitions(1, 9), 2, before) == dealt({1: 1, 9: 0})


@pytest.mark.parametrize("num_streams", [1, 3, 8])
def test_all_streams_get_as_many_whatever_their_number(num_streams: int) -> None:
    streams = Counter(deal(partitions(*range(20)), num_streams, {}).values())
    assert max(streams.values()) - min(streams.values()) <= 1
    assert len(streams) == num_streams
