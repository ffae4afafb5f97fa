"""The simple consumer's calls against a scripted broker."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from clients.errors import ConnectionFailed, DeadlineExceeded
from clients.simple_consumer import EARLIEST_TIME, LATEST_TIME, FetchRequest, SimpleConsumer
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages import fetch as fetch_messages
from protocol.messages import offset_commit, offset_fetch
from protocol.messages.fetch import FetchResponse, FetchResponsePartition, FetchResponseTopic
from protocol.messages.find_coordinator import FindCoordinatorResponse
from protocol.messages.list_offsets import (
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from protocol.records.batch import encode_batch
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.clients.scripted_broker import HANG_UP, SILENCE, ScriptedBroker, all_versions
from tests.stage.clock import run_in_own_time

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def with_consumer(scenario: Callable[[SimpleConsumer, ScriptedBroker], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with ScriptedBroker({"t": 2}) as broker:
            broker.answers[ApiKey.FETCH] = echo_offsets
            async with SimpleConsumer("127.0.0.1", broker.port, 5_000, -1, "me") as consumer:
                return await scenario(consumer, broker)

    return run_in_own_time(run())


def echo_offsets(request: fetch_messages.FetchRequest) -> FetchResponse:
    """Respond with one record for each partition, at the fetch offset."""
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
    partition = ListOffsetsResponsePartition(**{"partition_index": 0, "error_code": 0, **answer})
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


def test_fewer_than_one_offset_cannot_be_asked_for() -> None:
    async def scenario(consumer: SimpleConsumer, broker: ScriptedBroker) -> None:
        with pytest.raises(ValueError, match="max_num_offsets 0"):
            await consumer.get_offsets_before("t", 0, LATEST_TIME, 0)

    with_consumer(scenario)


def test_error_of_offsets_before_a_time_is_raised_and_not_taken_for_none() -> None:
    """KAFKA-576."""

    async def scenario(consumer: SimpleConsumer, broker: ScriptedBroker) -> None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker.answers[ApiKey.LIST_OFFSETS] = lambda r: listed(error_code=code)
        with pytest.raises(ApiError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await consumer.get_offsets_before("t", 0, LATEST_TIME, 1)

    with_consumer(scenario)


def test_earliest_offset_from_a_broker_that_answers_without_one_is_an_error() -> None:
    """KAFKA-576."""

    async def scenario(consumer: SimpleConsumer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.API_VERSIONS] = lambda r: all_versions(LIST_OFFSETS=(0, 0))
        broker.answers[ApiKey.LIST_OFFSETS] = lambda r: listed(old_style_offsets=[])
        with pytest.raises(ApiError, match="OFFSET_NOT_AVAILABLE"):
            await consumer.earliest_or_latest_offset("t", 0, EARLIEST_TIME)

    with_consumer(scenario)


def test_latest_offset_is_had_from_a_broker_that_knows_only_the_old_way() -> None:
    async def scenario(consumer: SimpleConsumer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.API_VERSIONS] = lambda r: all_versions(LIST_OFFSETS=(0, 0))
        broker.answers[ApiKey.LIST_OFFSETS] = lambda r: listed(old_style_offsets=[9])
        assert await consumer.earliest_or_latest_offset("t", 0, LATEST_TIME) == 9

    with_consumer(scenario)


def test_cancelled_call_is_not_made_again() -> None:
    """KAFKA-1886, KAFKA-2241."""

    async def scenario(consumer: SimpleConsumer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.FETCH] = lambda request: SILENCE
        call = asyncio.create_task(consumer.fetch(FetchRequest("t", 0, 7)))
        await broker.received(ApiKey.FETCH)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        broker.answers[ApiKey.FETCH] = echo_offsets
        assert len(broker.asked(ApiKey.FETCH)) == 1

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
            request, code
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
            request, ErrorCode.NONE
        )
        await consumer.commit_offsets("g", {P0: 5}, version=1)
        assert broker.requests[-1][0].api_version == 1

    with_consumer(scenario)


@pytest.mark.parametrize("version", [0, 1])
def test_offsets_are_committed_and_fetched_in_the_version_the_caller_chose(version: int) -> None:
    """KAFKA-1870: version 0 is ZooKeeper, later ones the coordinator."""

    async def scenario(consumer: SimpleConsumer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.OFFSET_COMMIT] = lambda request: offset_commit.error_response(
            request, ErrorCode.NONE
        )
        broker.answers[ApiKey.OFFSET_FETCH] = lambda request: offset_fetch.error_response(
            request, ErrorCode.NONE
        )
        await consumer.commit_offsets("g", {P0: 5}, version=version)
        await consumer.fetch_offsets("g", [P0], version=version)
        asked = [header.api_version for header, _ in broker.requests[-2:]]
        assert asked == [version, version]

    with_consumer(scenario)


def test_commit_that_another_broker_coordinates_is_made_there() -> None:
    async def scenario(consumer: SimpleConsumer, broker: ScriptedBroker) -> None:
        def answer(code: ErrorCode) -> Callable[[Any], Any]:
            return lambda request: offset_commit.error_response(request, code)

        async with ScriptedBroker() as coordinator:
            broker.answers[ApiKey.OFFSET_COMMIT] = answer(ErrorCode.NOT_COORDINATOR)
            coordinator.answers[ApiKey.OFFSET_COMMIT] = answer(ErrorCode.NONE)
            broker.answers[ApiKey.FIND_COORDINATOR] = coordinator.answers[ApiKey.FIND_COORDINATOR]
            assert await consumer.commit_offsets("g", {P0: 5}) == {P0: ErrorCode.NONE}
            assert len(coordinator.asked(ApiKey.OFFSET_COMMIT)) == 1

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
            request, ErrorCode.NOT_COORDINATOR
        )
        with pytest.raises(ApiError, match="NOT_COORDINATOR"):
            await consumer.fetch_offsets("g", [P0])

    with_consumer(scenario)


def test_coordinator_is_found() -> None:
    async def scenario(consumer: SimpleConsumer, broker: ScriptedBroker) -> None:
        coordinator = await consumer.find_coordinator("g")
        assert (coordinator.node_id, coordinator.port) == (0, broker.port)

    with_consumer(scenario)


def with_moving_leader(
    scenario: Callable[[SimpleConsumer, ScriptedBroker, ScriptedBroker], Awaitable[Any]],
    **settings: Any,
) -> None:
    """Run a scenario with a consumer of t-1, first led by the first of two brokers."""

    async def run() -> None:
        async with ScriptedBroker({"t": 2}, 1) as first, ScriptedBroker({"t": 2}, 2) as second:
            for broker, peer in ((first, second), (second, first)):
                broker.peers[peer.node_id] = peer.port
                broker.answers[ApiKey.FETCH] = echo_offsets
                broker.leaders[P1] = 1
            named = {"bootstrap.servers": f"{first.bootstrap},{second.bootstrap}"}
            fast = {"retry.backoff.ms": 1, "reconnect.backoff.ms": 1, **settings}
            async with await SimpleConsumer.for_leader(named | fast, "t", 1) as consumer:
                assert consumer.port == first.port
                await scenario(consumer, first, second)

    run_in_own_time(run())


def led_elsewhere(request: fetch_messages.FetchRequest) -> FetchResponse:
    def refused(partition: int) -> FetchResponsePartition:
        return fetch_messages.partition_error(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    return FetchResponse(
        responses=[
            FetchResponseTopic(
                topic=topic.topic, partitions=[refused(p.partition) for p in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def test_fetch_follows_a_leader_that_has_moved() -> None:
    async def scenario(
        consumer: SimpleConsumer, first: ScriptedBroker, second: ScriptedBroker
    ) -> None:
        first.answers[ApiKey.FETCH] = led_elsewhere
        first.leaders[P1] = second.leaders[P1] = 2
        fetched = await consumer.fetch(FetchRequest("t", 1, 7))
        assert fetched.records[0].offset == 7
        assert consumer.port == second.port

    with_moving_leader(scenario)


def test_fetch_follows_the_leader_when_its_broker_is_gone() -> None:
    async def scenario(
        consumer: SimpleConsumer, first: ScriptedBroker, second: ScriptedBroker
    ) -> None:
        await first.__aexit__()
        second.leaders[P1] = 2
        fetched = await consumer.fetch(FetchRequest("t", 1, 7))
        assert fetched.records[0].offset == 7

    with_moving_leader(scenario)


def test_fetch_follows_the_leader_though_all_bootstrap_servers_are_gone() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 2}, 1) as first, ScriptedBroker({"t": 2}, 2) as second:
            first.peers[2], second.peers[1] = second.port, first.port
            second.answers[ApiKey.FETCH] = echo_offsets
            settings = {"bootstrap.servers": first.bootstrap, "reconnect.backoff.ms": 1}
            async with await SimpleConsumer.for_leader(settings, "t", 1) as consumer:
                await first.__aexit__()
                fetched = await consumer.fetch(FetchRequest("t", 1, 7))
                assert fetched.records[0].offset == 7
                assert consumer.port == second.port

    run_in_own_time(scenario())


def test_who_follows_commits_once_a_coordinator_has_been_found_and_has_loaded() -> None:
    async def scenario(
        consumer: SimpleConsumer, first: ScriptedBroker, second: ScriptedBroker
    ) -> None:
        nowhere = FindCoordinatorResponse(
            error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, node_id=-1, host="", port=-1
        )
        at_second = second.answers[ApiKey.FIND_COORDINATOR]
        answers = [lambda r: nowhere, at_second]
        first.answers[ApiKey.FIND_COORDINATOR] = lambda r: answers[0](r)
        second.answers[ApiKey.FIND_COORDINATOR] = lambda r: answers.pop(0)(r)
        codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2 + [ErrorCode.NONE]
        first.answers[ApiKey.OFFSET_COMMIT] = lambda request: offset_commit.error_response(
            request, ErrorCode.NOT_COORDINATOR
        )
        second.answers[ApiKey.OFFSET_COMMIT] = lambda request: offset_commit.error_response(
            request, codes.pop(0)
        )

        assert await consumer.commit_offsets("g", {P1: 7}) == {P1: ErrorCode.NONE}
        assert codes == []

    with_moving_leader(scenario)


def test_offsets_are_committed_by_way_of_the_new_leader_when_its_broker_is_gone() -> None:
    async def scenario(
        consumer: SimpleConsumer, first: ScriptedBroker, second: ScriptedBroker
    ) -> None:
        await first.__aexit__()
        second.leaders[P1] = 2
        second.answers[ApiKey.OFFSET_COMMIT] = lambda request: offset_commit.error_response(
            request, ErrorCode.NONE
        )
        assert await consumer.commit_offsets("g", {P1: 7}) == {P1: ErrorCode.NONE}
        assert (await consumer.find_coordinator("g")).port == second.port

    with_moving_leader(scenario)


def test_fetch_waits_for_the_leader_to_say_that_it_leads() -> None:
    async def scenario(
        consumer: SimpleConsumer, first: ScriptedBroker, second: ScriptedBroker
    ) -> None:
        answers = [led_elsewhere, led_elsewhere, echo_offsets]
        first.answers[ApiKey.FETCH] = lambda request: answers.pop(0)(request)
        fetched = await consumer.fetch(FetchRequest("t", 1, 7))
        assert fetched.records[0].offset == 7
        assert answers == []

    with_moving_leader(scenario)


def test_offsets_are_asked_of_the_leader_that_has_moved() -> None:
    async def scenario(
        consumer: SimpleConsumer, first: ScriptedBroker, second: ScriptedBroker
    ) -> None:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        first.answers[ApiKey.LIST_OFFSETS] = lambda r: listed(partition_index=1, error_code=code)
        second.answers[ApiKey.LIST_OFFSETS] = lambda r: listed(partition_index=1, offset=9)
        first.leaders[P1] = second.leaders[P1] = 2
        assert await consumer.earliest_or_latest_offset("t", 1, LATEST_TIME) == 9

    with_moving_leader(scenario)


def test_partition_that_stays_without_leader_ends_in_deadline_exceeded() -> None:
    async def scenario(
        consumer: SimpleConsumer, first: ScriptedBroker, second: ScriptedBroker
    ) -> None:
        first.answers[ApiKey.FETCH] = led_elsewhere
        first.leaders[P1] = second.leaders[P1] = -1
        with pytest.raises(DeadlineExceeded, match="leader of t-1"):
            await consumer.fetch(FetchRequest("t", 1, 7))

    with_moving_leader(scenario, **{"default.api.timeout.ms": 50})


def test_other_partitions_that_are_led_elsewhere_are_not_followed() -> None:
    async def scenario(
        consumer: SimpleConsumer, first: ScriptedBroker, second: ScriptedBroker
    ) -> None:
        first.answers[ApiKey.FETCH] = led_elsewhere
        fetched = await consumer.fetch(FetchRequest("t", 0, 7))
        assert fetched.error is ErrorCode.NOT_LEADER_OR_FOLLOWER

    with_moving_leader(scenario)


def test_consumer_for_a_partition_is_of_the_broker_that_leads_it() -> None:
    async def scenario() -> tuple[int, int]:
        async with ScriptedBroker(node_id=2) as leader, ScriptedBroker({"t": 2}) as broker:
            broker.peers[2] = leader.port
            broker.leaders[TopicPartition("t", 1)] = 2
            settings = {"bootstrap.servers": broker.bootstrap, "client.id": "x"}
            consumer = await SimpleConsumer.for_leader(settings, "t", 1)
            return consumer.port, leader.port

    port, leader = asyncio.run(scenario())
    assert port == leader
