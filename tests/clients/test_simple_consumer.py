"""The simple consumer's calls against a scripted broker."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from clients.errors import ConnectionFailed
from clients.simple_consumer import LATEST_TIME, FetchRequest, SimpleConsumer
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages import fetch as fetch_messages
from protocol.messages import offset_commit, offset_fetch
from protocol.messages.fetch import FetchResponse, FetchResponsePartition, FetchResponseTopic
from protocol.messages.list_offsets import (
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from protocol.records.batch import encode_batch
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.clients.scripted_broker import HANG_UP, ScriptedBroker, all_versions

P0 = TopicPartition("t", 0)


def with_consumer(scenario: Callable[[SimpleConsumer, ScriptedBroker], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with ScriptedBroker({"t": 2}) as broker:
            broker.answers[ApiKey.FETCH] = echo_offsets
            async with SimpleConsumer("127.0.0.1", broker.port, 5_000, -1, "me") as consumer:
                return await scenario(consumer, broker)

    return asyncio.run(asyncio.wait_for(run(), 20))


def echo_offsets(request: fetch_messages.FetchRequest) -> FetchResponse:
    """Every partition has one record at the offset asked for."""
    return FetchResponse(
        responses=[
            FetchResponseTopic(
                topic=topic.topic,
                partitions=[
                    FetchResponsePartition(
                        partition_index=p.partition,
                        error_code=0,
                        high_watermark=100,
                        records=encode_batch(
                            [(0, None, b"%d" % p.fetch_offset, ())], base_offset=p.fetch_offset
                        ),
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def listed(**answer: Any) -> ListOffsetsResponse:
    partition = ListOffsetsResponsePartition(partition_index=0, **{"error_code": 0, **answer})
    return ListOffsetsResponse(topics=[ListOffsetsResponseTopic(name="t", partitions=[partition])])


def test_fetch_reads_from_the_offset_asked_for() -> None:
    async def scenario(consumer: SimpleConsumer, broker: ScriptedBroker) -> None:
        fetched = await consumer.fetch(FetchRequest("t", 0, 7, 1000))
        assert [(r.offset, r.value) for r in fetched] == [(7, b"7")]
        header, _ = broker.requests[-1]
        assert header.client_id == "me"

    with_consumer(scenario)


def test_multifetch_answers_in_the_order_asked_also_for_a_partition_asked_twice() -> None:
    async def scenario(consumer: SimpleConsumer, broker: ScriptedBroker) -> None:
        asked = [FetchRequest("t", 1, 5), FetchRequest("t", 0, 6), FetchRequest("t", 1, 8)]
        fetched = await consumer.multifetch(asked)
        assert [part.records[0].offset for part in fetched] == [5, 6, 8]

    with_consumer(scenario)


def test_call_whose_connection_is_lost_is_made_once_more_on_a_new_one() -> None:
    async def scenario(consumer: SimpleConsumer, broker: ScriptedBroker) -> None:
        answers: list[Any] = [lambda request: HANG_UP, echo_offsets]
        broker.answers[ApiKey.FETCH] = lambda request: answers.pop(0)(request)
        fetched = await consumer.fetch(FetchRequest("t", 0, 7))
        assert fetched.records[0].offset == 7
        assert broker.connections == 2

    with_consumer(scenario)


def test_call_whose_connection_is_lost_twice_fails() -> None:
    async def scenario(consumer: SimpleConsumer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.FETCH] = lambda request: HANG_UP
        with pytest.raises(ConnectionFailed):
            await consumer.fetch(FetchRequest("t", 0, 7))
        assert len(broker.asked(ApiKey.FETCH)) == 2

    with_consumer(scenario)


def test_call_after_close_connects_again() -> None:
    async def scenario(consumer: SimpleConsumer, broker: ScriptedBroker) -> None:
        await consumer.fetch(FetchRequest("t", 0, 7))
        await consumer.close()
        await consumer.fetch(FetchRequest("t", 0, 7))
        assert broker.connections == 2

    with_consumer(scenario)


def test_offsets_before_a_time_are_asked_in_the_old_way_and_come_newest_first() -> None:
    async def scenario(consumer: SimpleConsumer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.API_VERSIONS] = lambda r: all_versions(LIST_OFFSETS=(0, 5))
        broker.answers[ApiKey.LIST_OFFSETS] = lambda r: listed(old_style_offsets=[9, 5, 0])
        assert await consumer.get_offsets_before("t", 0, LATEST_TIME, 10) == [9, 5, 0]
        header, request = broker.requests[-1]
        assert header.api_version == 0
        assert request.topics[0].partitions[0].max_num_offsets == 10

    with_consumer(scenario)


def test_offsets_before_a_time_come_alone_from_a_broker_without_the_old_way() -> None:
    async def scenario(consumer: SimpleConsumer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.API_VERSIONS] = lambda r: all_versions(LIST_OFFSETS=(1, 5))
        broker.answers[ApiKey.LIST_OFFSETS] = lambda r: listed(offset=9)
        assert await consumer.get_offsets_before("t", 0, LATEST_TIME, 10) == [9]

    with_consumer(scenario)


def test_latest_offset_of_a_partition_led_elsewhere_is_an_error() -> None:
    async def scenario(consumer: SimpleConsumer, broker: ScriptedBroker) -> None:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        broker.answers[ApiKey.LIST_OFFSETS] = lambda r: listed(error_code=code)
        with pytest.raises(ApiError, match="NOT_LEADER_OR_FOLLOWER: t-0"):
            await consumer.earliest_or_latest_offset("t", 0, LATEST_TIME)

    with_consumer(scenario)


def test_commit_says_of_each_partition_whether_it_was_kept() -> None:
    async def scenario(consumer: SimpleConsumer, broker: ScriptedBroker) -> None:
        code = ErrorCode.NOT_COORDINATOR
        broker.answers[ApiKey.OFFSET_COMMIT] = lambda request: offset_commit.error_response(
            request, code, 2
        )
        results = await consumer.commit_offsets("g", {P0: OffsetAndMetadata(5, "note")})
        assert results == {P0: code}
        (request,) = broker.asked(ApiKey.OFFSET_COMMIT)
        partition = request.topics[0].partitions[0]
        assert (partition.committed_offset, partition.committed_metadata) == (5, "note")
        assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")

    with_consumer(scenario)


def test_commit_goes_out_in_the_version_the_caller_chose() -> None:
    async def scenario(consumer: SimpleConsumer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.OFFSET_COMMIT] = lambda request: offset_commit.error_response(
            request, ErrorCode.NONE, 1
        )
        await consumer.commit_offsets("g", {P0: 5}, version=1)
        assert broker.requests[-1][0].api_version == 1

    with_consumer(scenario)


def test_fetched_offset_carries_note_epoch_and_error() -> None:
    async def scenario(consumer: SimpleConsumer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.OFFSET_FETCH] = lambda request: offset_fetch.OffsetFetchResponse(
            topics=[
                offset_fetch.OffsetFetchResponseTopic(
                    name="t",
                    partitions=[
                        offset_fetch.OffsetFetchResponsePartition(
                            partition_index=0,
                            committed_offset=5,
                            committed_leader_epoch=3,
                            metadata="note",
                            error_code=0,
                        )
                    ],
                )
            ]
        )
        committed = (await consumer.fetch_offsets("g", [P0]))[P0]
        assert (committed.offset, committed.metadata, committed.leader_epoch) == (5, "note", 3)
        assert committed.error is ErrorCode.NONE

    with_consumer(scenario)


def test_fetching_offsets_from_the_wrong_broker_is_an_error() -> None:
    async def scenario(consumer: SimpleConsumer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.OFFSET_FETCH] = lambda request: offset_fetch.error_response(
            request, ErrorCode.NOT_COORDINATOR, 5
        )
        with pytest.raises(ApiError, match="NOT_COORDINATOR"):
            await consumer.fetch_offsets("g", [P0])

    with_consumer(scenario)


def test_coordinator_is_found() -> None:
    async def scenario(consumer: SimpleConsumer, broker: ScriptedBroker) -> None:
        found = await consumer.find_coordinator("g")
        assert (found.node_id, found.port) == (0, broker.port)

    with_consumer(scenario)


def test_consumer_for_a_partition_is_of_the_broker_that_leads_it() -> None:
    async def scenario() -> tuple[int, int]:
        async with ScriptedBroker(node_id=2) as leader, ScriptedBroker({"t": 2}) as broker:
            broker.peers[2] = leader.port
            broker.leaders[TopicPartition("t", 1)] = 2
            settings = {"bootstrap.servers": broker.bootstrap, "client.id": "x"}
            consumer = await SimpleConsumer.for_leader(settings, "t", 1)
            return consumer.port, leader.port

    found, leader = asyncio.run(scenario())
    assert found == leader
