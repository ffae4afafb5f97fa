"""Several offsets of a partition take several requests, and cost what they are."""

import pytest

from clients.groups.partition_rounds import partition_rounds
from protocol.topic_partition import TopicPartition
from tests.stage.bytecodes import bytecodes_of

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_each_pair_is_asked_once_in_as_few_rounds_as_can_be() -> None:
    rounds = list(partition_rounds([(A, 1), (B, 7), (A, 2), (A, 1)]))

    assert sorted(pair for asked in rounds for pair in asked.items()) == [(A, 1), (A, 2), (B, 7)]
    assert len(rounds) == 2


def test_nothing_takes_no_round() -> None:
    assert list(partition_rounds([])) == []


@pytest.mark.fault("scale-C7")
def test_many_offsets_of_one_partition_beside_many_partitions_cost_no_more_than_their_sum() -> None:
    def cost(size: int) -> int:
        asked = [(A, offset) for offset in range(size)]
        asked += [(TopicPartition("t", number), 0) for number in range(1, size)]
        return bytecodes_of(lambda: list(partition_rounds(asked)))

    assert cost(1_000) < 15 * cost(100)
