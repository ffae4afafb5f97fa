"""What streams hand out: compressed messages, resets, time-outs, the end."""

import asyncio
import contextlib
import time

import pytest

from clients import blocking
from clients.errors import ConsumerTimeout, OffsetOutOfRange
from clients.high_level.connector import ConsumerConnector
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.clients.high_level.connector.topic_stage import (
    SILENCE_MS,
    TopicStage,
    drain,
    open_streams,
    values,
)
from tests.stage.cluster import DevCluster
from tests.stage.waiting import DEADLINE_S, until_equal
from zk.znodes import ConsumerOffset


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_messages_come_out_one_by_one(dev_cluster: DevCluster, codec: str) -> None:
    stage = TopicStage(dev_cluster, f"compressed-{codec}")

    async def scene() -> None:
        settings = {"compression.type": codec, "linger.ms": "50"}
        sent = await stage.produce(400, **settings)
        async with stage.connector() as connector:
            (stream,) = (await open_streams(connector, {stage.name: 1}))[stage.name]
            await connector.commit_offsets({TopicPartition(stage.name, 0): OffsetAndMetadata(57)})
            assert values(await drain(stream, count=len(sent))) == sorted(sent)

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("reset", "stored", "expected"),
    [
        ("smallest", 10_000, 10),
        ("smallest", -1, 10),
        ("largest", 10_000, 0),
        ("largest", -1, 0),
        ("largest", 4, 6),
    ],
)
def test_an_offset_out_of_range_is_reset(
    dev_cluster: DevCluster, reset: str, stored: int, expected: int
) -> None:
    stage = TopicStage(dev_cluster, f"reset-{reset}{stored}", partitions=1)

    async def scene() -> None:
        await stage.produce(10)
        session = await stage.zookeeper()
        path = ConsumerOffset.path(stage.name, stage.name, 0)
        await session.create(path, b"%d" % stored, make_parents=True)
        await session.close()
        async with stage.connector(auto_offset_reset=reset) as connector:
            (stream,) = (await open_streams(connector, {stage.name: 1}))[stage.name]
            assert len(await drain(stream, count=expected)) == expected

            async def committed() -> dict[int, int]:
                await connector.commit_offsets()
                return await stage.committed()

            await until_equal(committed, {0: 10})
        assert await stage.committed() == {0: 10}

    asyncio.run(scene())


def test_shutdown_ends_streams_that_are_waited_for_and_may_be_repeated(
    dev_cluster: DevCluster,
) -> None:
    stage = TopicStage(dev_cluster, "ended")

    async def scene() -> None:
        connector = stage.connector(consumer_timeout_ms=-1)
        streams = (await open_streams(connector, {"ended": 3}))["ended"]  # one without a partition
        reading = asyncio.ensure_future(drain(*streams, count=0))
        await asyncio.sleep(0.1)
        await asyncio.gather(connector.shutdown(), connector.shutdown())
        assert await asyncio.wait_for(reading, DEADLINE_S) == []
        assert await stage.owners() == {}

    asyncio.run(scene())


def test_without_a_reset_a_group_with_no_offset_is_told_so_by_its_stream(
    dev_cluster: DevCluster,
) -> None:
    stage = TopicStage(dev_cluster, "no-reset", partitions=1)

    async def scene() -> None:
        await stage.produce(10)
        async with stage.connector(auto_offset_reset="none") as connector:
            (stream,) = (await open_streams(connector, {"no-reset": 1}))["no-reset"]
            for _ in range(2):
                with pytest.raises(OffsetOutOfRange, match="no offset is committed"):
                    await anext(stream)
            assert await stage.committed() == {}

    asyncio.run(scene())


def test_brokers_may_be_named_instead_of_looked_up(dev_cluster: DevCluster) -> None:
    stage = TopicStage(dev_cluster, "named-brokers")

    async def scene() -> None:
        sent = await stage.produce(10)
        bootstrap = dev_cluster.address("bootstrap")
        async with stage.connector(bootstrap_servers=bootstrap) as connector:
            (stream,) = (await open_streams(connector, {stage.name: 1}))[stage.name]
            assert values(await drain(stream, count=len(sent))) == sorted(sent)

    asyncio.run(scene())


def test_less_than_one_stream_is_refused(dev_cluster: DevCluster) -> None:
    async def scene() -> None:
        connector = ConsumerConnector({"group.id": "g", "zookeeper.connect": "localhost:1"})
        with pytest.raises(ValueError, match="'t': 0 streams"):
            await open_streams(connector, {"t": 0})

    asyncio.run(scene())


def test_the_blocking_twin_iterates_and_commits(dev_cluster: DevCluster) -> None:
    stage = TopicStage(dev_cluster, "blocking")
    sent = asyncio.run(stage.produce(10))
    settings = {
        "zookeeper.connect": dev_cluster.address("zookeeper"),
        "group.id": "blocking",
        "auto.offset.reset": "smallest",
        "consumer.timeout.ms": SILENCE_MS,
    }

    with blocking.ConsumerConnector(settings) as connector:
        (stream,) = connector.create_message_streams({"blocking": 1})["blocking"]
        seen: list[str] = []
        ends = time.monotonic() + DEADLINE_S
        while len(seen) < len(sent) and time.monotonic() < ends:
            with contextlib.suppress(ConsumerTimeout):
                for message in stream:
                    seen.append(message.value.decode())
        connector.commit_offsets()
        assert sorted(seen) == sorted(sent)
        assert connector.metrics.owned_partitions_count == 2
        assert asyncio.run(stage.committed()) == {0: 5, 1: 5}
