"""DescribeProducers through its handler."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.handlers import describe_producers
from broker.network import long_answers
from broker.network.long_answers import AnswerTooLarge
from broker.network.purgatory import Wait
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopic,
    DescribeProducersResponse,
    DescribeProducersResponseProducer,
)
from tests.broker.received import received
from tests.broker.replication.replicas import NOW_MS, Replicas, context
from tests.broker.test_produce_transactional import T0, ended, sent
from tests.broker.transactions import P, marker, write_markers
from tests.stage.clock import run_in_virtual_time
from tests.stage.coordinator import coordinator_of_nothing


def as_sent(response: Any) -> DescribeProducersResponse:
    made: DescribeProducersResponse = received(ApiKey.DESCRIBE_PRODUCERS, 0, response)
    return made


def describe(replicas: Replicas, *topics: tuple[str, int]) -> Any:
    request = DescribeProducersRequest(
        topics=[
            DescribeProducersRequestTopic(name=name, partition_indexes=[index])
            for name, index in topics
        ]
    )
    return describe_producers.handle(
        replicas.manager, replicas.cache, replicas.deferred, 1000, request, context(0)
    )


def test_producers_are_described_with_their_open_transactions() -> None:
    replicas = Replicas().lead("t")
    sent(replicas, b"a", b"b")
    ended(replicas, commits=True)
    sent(replicas, b"c", sequence=2)
    write_markers(replicas, coordinator_of_nothing(), marker(T0, producer_id=7, epoch=3))
    (topic,) = as_sent(describe(replicas, ("t", 0))).topics
    (partition,) = topic.partitions
    assert (topic.name, partition.partition_index, partition.error_code) == ("t", 0, 0)
    assert list(partition.active_producers) == [
        DescribeProducersResponseProducer(
            producer_id=P,
            producer_epoch=0,
            last_sequence=2,
            last_timestamp=NOW_MS,
            coordinator_epoch=0,
            current_txn_start_offset=3,
        ),
        DescribeProducersResponseProducer(
            producer_id=7, producer_epoch=3, last_timestamp=NOW_MS, coordinator_epoch=0
        ),
    ]


def test_partitions_that_have_no_producers_to_describe_say_why() -> None:
    replicas = Replicas().lead("t")
    replicas.lead("f", leader=1, isr=(0, 1), replicas=(0, 1))
    response = as_sent(describe(replicas, ("f", 0), ("none", 0), ("t", 5), ("a/b", 0), ("t", 0)))
    codes = [ErrorCode.of(t.partitions[0].error_code) for t in response.topics]
    assert codes == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.NONE,
    ]
    messages = [topic.partitions[0].error_message for topic in response.topics]
    assert [message is None for message in messages] == [False] * 4 + [True]


def test_many_producers_are_described_in_several_turns() -> None:
    async def play() -> int:
        replicas = Replicas().lead("t")
        nobody = coordinator_of_nothing()
        many = [marker(T0, producer_id=n) for n in range(12_000)]
        await replicas.ended(write_markers(replicas, nobody, *many))
        wait = describe(replicas, ("t", 0))
        assert isinstance(wait, Wait)
        response = as_sent(await replicas.ended(wait))
        return len(response.topics[0].partitions[0].active_producers)

    assert run_in_virtual_time(play()) == 12_000


@pytest.mark.fault("strangers-8")
def test_a_partition_that_is_named_very_often_is_not_described_beyond_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(long_answers, "MOST_ANSWER_BYTES", 200_000)

    async def play(names: int) -> int:
        replicas = Replicas().lead("t")
        many = [marker(T0, producer_id=n) for n in range(2000)]
        await replicas.ended(write_markers(replicas, coordinator_of_nothing(), *many))
        wait = describe(replicas, *[("t", 0)] * names)
        assert isinstance(wait, Wait)
        while (answer := wait.try_complete(False)) is None:
            await asyncio.sleep(0)
        response = as_sent(answer)
        return sum(len(topic.partitions[0].active_producers) for topic in response.topics)

    assert run_in_virtual_time(play(2)) == 4000
    with pytest.raises(AnswerTooLarge):
        run_in_virtual_time(play(4))
