"""Where a consumer is, and how it goes elsewhere: the same with both memberships."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from clients.admin import Admin, NewTopic
from clients.high_level.connector import ConsumerConnector
from clients.high_level.seeking import Timestamp
from clients.producer.producer import Producer
from protocol.special_values import EARLIEST_TIME, LATEST_TIME
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.cluster import DevCluster

T0_MS = 1_700_000_000_000
LEFT, RIGHT = TopicPartition("t", 0), TopicPartition("t", 1)
SETTINGS = (
    "--set",
    "group.initial.rebalance.delay.ms=0",
    "--set",
    "offsets.topic.num.partitions=3",
)
IDLE_MS = 1000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    with DevCluster(tmp_path_factory.mktemp("places") / "dev", SETTINGS) as cluster:
        asyncio.run(fill(cluster.address("bootstrap")))
        yield cluster


async def fill(bootstrap: str) -> None:
    """Two partitions with ten messages each, a second apart."""
    async with Admin(bootstrap) as admin, Producer({"bootstrap.servers": bootstrap}) as producer:
        await admin.create_topics([NewTopic("t", 2, 1)])
        for number in range(20):
            value = f"{number % 2}:{number // 2}".encode()
            at_ms = T0_MS + number // 2 * 1000
            await producer.send("t", value, partition=number % 2, timestamp_ms=at_ms)
        await producer.flush()


@pytest.fixture(params=["zookeeper", "coordinator"])
def settings(request: pytest.FixtureRequest, cluster: DevCluster) -> dict[str, Any]:
    """The settings of a member of a group that nobody has used."""
    membership = str(request.param)
    address = {"zookeeper.connect": cluster.address("zookeeper")}
    if membership == "coordinator":
        address = {"bootstrap.servers": cluster.address("bootstrap")}
    return {
        **address,
        "membership": membership,
        "group.id": f"{membership}-{request.node.originalname}"[:60],
        "auto.offset.reset": "smallest",
        "consumer.timeout.ms": IDLE_MS,
        "offsets.storage": "kafka",
        "dual.commit.enabled": False,
    }


async def read(stream: Any, number: int) -> list[str]:
    """The next messages of a stream, as partition:offset."""
    read: list[str] = []
    async for message in stream:
        read.append(message.value.decode())
        if len(read) == number:
            break
    return read


async def rest(stream: Any) -> list[str]:
    """All messages until none comes for a while."""
    from clients.errors import ConsumerTimeout

    read: list[str] = []
    try:
        async for message in stream:
            read.append(message.value.decode())
    except ConsumerTimeout:
        return sorted(read)
    raise AssertionError("the stream has ended")


def of(partition: int, *offsets: int) -> list[str]:
    return [f"{partition}:{offset}" for offset in offsets]


def test_position_is_the_next_message_and_committed_what_was_committed(
    settings: dict[str, Any],
) -> None:
    async def scene() -> None:
        async with ConsumerConnector(settings) as connector:
            (stream,) = (await connector.create_message_streams({"t": 1}))["t"]
            assert connector.assignment() == {LEFT, RIGHT}
            assert await connector.committed(LEFT) is None
            first = (await read(stream, 1))[0]
            partition = TopicPartition("t", int(first[0]))
            assert connector.position(partition) == 1
            await connector.commit_offsets({partition: OffsetAndMetadata(1, "here")})
            # With the epoch of the leader that wrote the message before it.
            assert await connector.committed(partition) == OffsetAndMetadata(1, "here", 0)

    asyncio.run(scene())


def test_seek_goes_back_and_forward(settings: dict[str, Any]) -> None:
    async def scene() -> None:
        async with ConsumerConnector(settings) as connector:
            (stream,) = (await connector.create_message_streams({"t": 1}))["t"]
            assert len(await rest(stream)) == 20
            await connector.seek(LEFT, 7)
            assert connector.position(LEFT) == 7
            assert await rest(stream) == of(0, 7, 8, 9)
            await connector.seek(RIGHT, EARLIEST_TIME)
            assert len(await rest(stream)) == 10
            await connector.seek(LEFT, Timestamp(T0_MS + 7500))
            assert await rest(stream) == of(0, 8, 9)
            await connector.seek(LEFT, Timestamp(T0_MS * 2))
            await connector.seek(RIGHT, LATEST_TIME)
            assert (connector.position(LEFT), connector.position(RIGHT)) == (10, 10)
            await connector.seek(LEFT, 3)
            await connector.commit_offsets()
            committed = await connector.committed(LEFT)
            assert committed is not None
            assert committed.offset == 3

    asyncio.run(scene())


def test_paused_partition_is_kept_and_the_others_go_on(settings: dict[str, Any]) -> None:
    async def scene() -> None:
        async with ConsumerConnector(settings) as connector:
            (stream,) = (await connector.create_message_streams({"t": 1}))["t"]
            connector.pause(LEFT)
            assert await rest(stream) == of(1, *range(10))
            connector.resume(LEFT)
            two = await read(stream, 2)
            assert two == of(0, 0, 1)
            connector.pause(LEFT)
            assert await rest(stream) == []
            # The message in hand counts, since the next one was asked for.
            await connector.commit_offsets()
            committed = await connector.committed(LEFT)
            assert committed is not None
            assert committed.offset == 2
            assert connector.position(LEFT) == 2
            connector.resume(LEFT)
            assert await rest(stream) == of(0, *range(2, 10))

    asyncio.run(scene())


def test_partition_that_is_not_ours_is_refused(settings: dict[str, Any]) -> None:
    async def scene() -> None:
        async with ConsumerConnector(settings) as connector:
            await connector.create_message_streams({"t": 1})
            other = TopicPartition("other", 0)
            with pytest.raises(ValueError, match="other-0 is not assigned"):
                await connector.seek(other, 0)
            with pytest.raises(ValueError, match="other-0"):
                connector.pause(LEFT, other)
            with pytest.raises(ValueError, match="other-0"):
                connector.position(other)
            with pytest.raises(ValueError, match="no offset -5"):
                await connector.seek(LEFT, -5)

    asyncio.run(scene())
