"""Topics that are deleted, come later, or have an offset that is no number."""

import asyncio

import pytest

from clients.high_level.connector import ConsumerConnector
from clients.serializers import str_decoder
from groups.zookeeper.filters import Whitelist
from groups.zookeeper.membership_errors import ConsumerRebalanceFailed
from protocol.topic_partition import TopicPartition
from tests.clients.high_level.connector.topic_stage import TopicStage, drain, open_streams, values
from tests.stage.cluster import DevCluster
from tests.stage.waiting import DEADLINE_S, until
from zk.znodes import ConsumerOffset, PartitionOwner


def test_a_topic_that_is_deleted_while_it_is_consumed_leaves_the_others_alone(
    dev_cluster: DevCluster,
) -> None:
    doomed, kept = TopicStage(dev_cluster, "doomed"), TopicStage(dev_cluster, "kept")

    async def scene() -> None:
        await doomed.produce(10)
        async with kept.connector(auto_commit_interval_ms=100) as connector:
            streams = await open_streams(connector, {"doomed": 1, "kept": 1})
            assert len(await drain(streams["doomed"][0], count=10)) == 10
            zookeeper = await doomed.zookeeper()
            offsets = ConsumerOffset.path("kept", "doomed", 0)
            while not await zookeeper.exists(offsets):
                await asyncio.sleep(0.02)
            gone = await asyncio.to_thread(
                doomed.cluster.run, "kbroker", "topics", "delete", "doomed"
            )
            assert gone.returncode == 0, gone.stderr
            await until(
                lambda: "doomed" not in connector.metrics.owned_partitions_count_by_topic,
                "the topic is given up",
            )
            while await zookeeper.exists(PartitionOwner.path("kept", "doomed", 0)):
                await asyncio.sleep(0.02)
            await zookeeper.close()
            sent = await kept.produce(10)
            assert values(await drain(streams["kept"][0], count=10)) == sorted(sent)
            assert connector.metrics.rebalance_error is None

    asyncio.run(asyncio.wait_for(scene(), DEADLINE_S))


@pytest.mark.fault("strangers-129")
def test_a_topic_that_is_deleted_leaves_a_group_at_its_coordinator_and_comes_back(
    dev_cluster: DevCluster,
) -> None:
    doomed, kept = TopicStage(dev_cluster, "perishing"), TopicStage(dev_cluster, "staying")
    settings = {
        "bootstrap.servers": dev_cluster.address("bootstrap"),
        "membership": "coordinator",
        "group.id": "perishing",
        "auto.offset.reset": "smallest",
        "auto.commit.enable": "false",
        "allow.auto.create.topics": "false",
        "consumer.timeout.ms": 500,
    }

    async def scene() -> None:
        await doomed.produce(10)
        async with ConsumerConnector(settings) as connector:
            streams = await open_streams(connector, {"perishing": 1, "staying": 1})
            assert len(await drain(streams["perishing"][0], count=10)) == 10
            gone = await asyncio.to_thread(
                dev_cluster.run, "kbroker", "topics", "delete", "perishing"
            )
            assert gone.returncode == 0, gone.stderr
            await until(
                lambda: {p.topic for p in connector.assignment()} == {"staying"},
                "the topic is given up",
            )
            sent = await kept.produce(10)
            assert values(await drain(streams["staying"][0], count=10)) == sorted(sent)
            await connector.commit_offsets()
            await asyncio.to_thread(dev_cluster.create_topic, "perishing", 2)
            await until(lambda: len(connector.assignment()) == 4, "the topic is there again")

    asyncio.run(asyncio.wait_for(scene(), DEADLINE_S))


def test_an_offset_that_is_no_number_is_named_and_holds_up_its_partition_alone(
    dev_cluster: DevCluster,
) -> None:
    stage = TopicStage(dev_cluster, "nonsense")

    async def scene() -> None:
        await stage.produce(10)
        path = ConsumerOffset.path("nonsense", "nonsense", 0)
        session = await stage.zookeeper()
        await session.create(path, b"forty-two", make_parents=True)
        async with stage.connector(rebalance_max_retries=4) as connector:
            with pytest.raises(ConsumerRebalanceFailed, match=f"{path}: b'forty-two' is not a dec"):
                await open_streams(connector, {"nonsense": 1})
            assert path in (connector.metrics.rebalance_error or "")
            other = TopicPartition("nonsense", 1)
            await until(
                lambda: connector.metrics.consumer_lag.keys() == {other}, "the other topic alone"
            )
            await session.set(path, b"3")
            await until(
                lambda: connector.metrics.rebalance_error is None, "a rebalance without error"
            )
            assert connector.metrics.owned_partitions_count == 2
        await session.close()

    asyncio.run(scene())


def test_a_filter_takes_topics_that_come_later(dev_cluster: DevCluster) -> None:
    stage = TopicStage(dev_cluster, "wild-one")

    async def scene() -> None:
        first = await stage.produce(10)
        async with stage.connector() as connector:
            streams = await connector.create_message_streams_by_filter(
                Whitelist("wild-.*"), 2, str_decoder, str_decoder
            )
            assert values(await drain(*streams, count=10)) == sorted(first)
            later = await asyncio.to_thread(TopicStage, dev_cluster, "wild-two", 3)
            second = await later.produce(10)
            messages = await drain(*streams, count=10)
            assert values(messages) == sorted(second)
            assert {message.topic for message in messages} == {"wild-two"}

    asyncio.run(scene())
