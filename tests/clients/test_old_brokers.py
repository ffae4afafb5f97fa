"""Clients of brokers that do not know ApiVersions, with the versions of their time."""

from __future__ import annotations

from typing import Any

import pytest

from clients.admin import Admin, GroupMemberId
from clients.cluster import Cluster
from clients.config import ClusterConfig
from clients.errors import ConnectionFailed, UnsupportedApi
from clients.simple_consumer import FetchRequest, SimpleConsumer
from clients.transport.broker_versions import versions_of
from clients.transport.connection import Connection
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchResponse, FetchResponsePartition, FetchResponseTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.list_offsets import (
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from protocol.records.legacy import encode_messages
from protocol.settings import SettingError, load
from protocol.special_values import LATEST_TIME
from protocol.topic_partition import TopicPartition
from tests.clients.scripted_broker import HANG_UP, ScriptedBroker

P0 = TopicPartition("t", 0)
RELEASE = {"broker.version.fallback": "0.8.2.2"}


def aged() -> ScriptedBroker:
    """Return a broker that closes the connection on unknown requests, as all did before 0.10."""
    broker = ScriptedBroker(topics={"t": 1})
    broker.answers[ApiKey.API_VERSIONS] = lambda request: HANG_UP
    return broker


def versions_used(broker: ScriptedBroker, key: ApiKey) -> set[int]:
    return {header.api_version for header, _ in broker.requests if header.api_key == key}


def settings(broker: ScriptedBroker, **others: Any) -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap, **RELEASE, **others}


# ---- what releases speak


@pytest.mark.parametrize(
    ("release", "key", "newest"),
    [
        ("0.8", ApiKey.PRODUCE, 0),
        ("0.8.0", ApiKey.PRODUCE, 0),
        ("0.8.1.1", ApiKey.OFFSET_COMMIT, 0),
        ("0.8.2.2", ApiKey.OFFSET_COMMIT, 1),
        ("0.9", ApiKey.FETCH, 1),
        ("0.9.0.1", ApiKey.PRODUCE, 1),
        ("0.9.0", ApiKey.LIST_GROUPS, 0),
        ("0.10", ApiKey.FETCH, 2),
        ("0.10.0", ApiKey.FETCH, 2),
        ("0.10.0.1", ApiKey.METADATA, 1),
        ("0.10.1", ApiKey.FETCH, 3),
        ("1", ApiKey.FETCH, 3),
        ("2.8.2", ApiKey.LIST_OFFSETS, 1),
    ],
)
def test_each_release_speaks_what_it_brought_and_all_before(
    release: str, key: ApiKey, newest: int
) -> None:
    assert versions_of(release)[key] == (0, newest)


def test_release_does_not_speak_what_came_later() -> None:
    assert ApiKey.FIND_COORDINATOR not in versions_of("0.8.1")
    assert ApiKey.LIST_GROUPS not in versions_of("0.8.2")


@pytest.mark.parametrize("release", ["0.7.2", "0", "old", "0.8.x", "0.1_0", "0.8."])
def test_release_that_is_none_is_refused_by_its_setting(release: str) -> None:
    with pytest.raises(SettingError, match=r"broker\.version\.fallback"):
        load(ClusterConfig, {"broker.version.fallback": release})


# ---- connecting


async def test_broker_that_closes_on_api_versions_is_taken_for_the_release_told() -> None:
    async with aged() as broker:
        connection = await Connection.open("127.0.0.1", broker.port, broker_version="0.8.2")

        assert connection.versions == versions_of("0.8.2")
        assert (await connection.call(FindCoordinatorRequest(key="g"))).port == broker.port
        assert versions_used(broker, ApiKey.FIND_COORDINATOR) == {0}
        with pytest.raises(UnsupportedApi, match="no version of LIST_GROUPS"):
            connection.send(ListGroupsRequest())
        await connection.close()


async def test_broker_that_closes_is_not_guessed_to_be_old_and_the_setting_is_named() -> None:
    async with aged() as broker:
        with pytest.raises(ConnectionFailed, match=r"broker\.version\.fallback"):
            await Connection.open("127.0.0.1", broker.port)


async def test_broker_that_answers_is_believed_whatever_it_was_taken_for() -> None:
    async with ScriptedBroker() as broker:
        connection = await Connection.open("127.0.0.1", broker.port, broker_version="0.8.2")
        assert connection.version_of(ApiKey.FETCH) > 0
        await connection.close()


@pytest.mark.parametrize(("release", "newest"), [({}, 1), (RELEASE, 0)])
async def test_broker_is_not_asked_when_told_not_to(release: dict[str, str], newest: int) -> None:
    async with ScriptedBroker(topics={"t": 1}) as broker:
        given = {"bootstrap.servers": broker.bootstrap, "api.version.request": "false", **release}
        config, _ = load(ClusterConfig, given)
        cluster = Cluster(config.bootstrap_servers, config=config)
        assert await cluster.partitions("t") == 1
        await cluster.close()
        assert not broker.asked(ApiKey.API_VERSIONS)
        assert versions_used(broker, ApiKey.METADATA) == {newest}


# ---- asking


async def test_coordinator_before_2_4_is_too_old_to_remove_members() -> None:
    async with aged() as broker:
        settings = {"bootstrap.servers": broker.bootstrap, "broker.version.fallback": "0.9.0"}
        async with Admin(settings) as admin:
            with pytest.raises(UnsupportedApi, match="coordinator is too old for this LEAVE_GROUP"):
                await admin.remove_group_members("g", [GroupMemberId("m")], "kicked")


async def test_all_topics_are_asked_for_as_they_were_then() -> None:
    async with aged() as broker:
        respond = broker.metadata
        broker.answers[ApiKey.METADATA] = lambda request: respond(
            type(request)(topics=request.topics or None)
        )
        async with Admin(settings(broker)) as admin:
            assert await admin.list_topics() == ["t"]
        assert [list(request.topics) for request in broker.asked(ApiKey.METADATA)] == [[]]


async def test_newest_of_the_offsets_listed_is_the_offset() -> None:
    async with aged() as broker:
        broker.answers[ApiKey.LIST_OFFSETS] = lambda request: ListOffsetsResponse(
            topics=[
                ListOffsetsResponseTopic(
                    name="t",
                    partitions=[
                        ListOffsetsResponsePartition(
                            partition_index=0, error_code=0, old_style_offsets=[42, 7]
                        )
                    ],
                )
            ]
        )
        async with Admin(settings(broker)) as admin:
            assert (await admin.list_offsets({P0: LATEST_TIME}))[P0].offset == 42
        async with await SimpleConsumer.for_leader(settings(broker), "t", 0) as consumer:
            assert await consumer.earliest_or_latest_offset("t", 0, LATEST_TIME) == 42
            assert await consumer.get_offsets_before("t", 0, LATEST_TIME, 5) == [42, 7]


def holding(records: bytes) -> Any:
    return lambda request: FetchResponse(
        responses=[
            FetchResponseTopic(
                topic="t",
                partitions=[
                    FetchResponsePartition(
                        partition_index=0, error_code=0, high_watermark=99, records=records
                    )
                ],
            )
        ]
    )


async def test_old_messages_are_fetched_and_have_no_time() -> None:
    rows = [(offset, 5, None, b"%d" % offset, ()) for offset in range(10, 15)]
    async with aged() as broker:
        broker.answers[ApiKey.FETCH] = holding(encode_messages(rows, 0) + bytes(20))
        async with await SimpleConsumer.for_leader(settings(broker), "t", 0) as consumer:
            fetched = await consumer.fetch(FetchRequest("t", 0, 12))

    assert [(r.offset, r.value, r.timestamp_ms) for r in fetched.records] == [
        (offset, b"%d" % offset, -1) for offset in (12, 13, 14)
    ]
    assert (fetched.next_offset, fetched.timestamp_type) == (15, -1)


async def test_message_that_comes_cut_is_an_error_and_not_the_end_of_the_log() -> None:
    whole = encode_messages([(10, 5, None, b"v" * 500, ())], 0)
    async with aged() as broker:
        for size in (1, 12, 30, len(whole) - 1):
            broker.answers[ApiKey.FETCH] = holding(whole[:size])
            async with await SimpleConsumer.for_leader(settings(broker), "t", 0) as consumer:
                fetched = await consumer.fetch(FetchRequest("t", 0, 10, size))
            assert (fetched.error, fetched.next_offset) == (ErrorCode.INVALID_FETCH_SIZE, 10)
        broker.answers[ApiKey.FETCH] = holding(b"")
        async with await SimpleConsumer.for_leader(settings(broker), "t", 0) as consumer:
            assert (await consumer.fetch(FetchRequest("t", 0, 10))).error is ErrorCode.NONE
