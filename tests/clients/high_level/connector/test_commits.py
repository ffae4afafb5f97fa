"""Commits of a member, by the clock and by hand, and its metrics."""

import asyncio

import pytest

from clients.high_level.connector import ConsumerConnector
from offsets.store_errors import CommitFailed
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.clients.high_level.connector.topic_stage import (
    SILENCE_MS,
    TopicStage,
    drain,
    open_streams,
)
from tests.stage.cluster import DevCluster
from tests.stage.waiting import until, until_equal


def test_a_commit_by_the_clock_needs_no_call(dev_cluster: DevCluster) -> None:
    stage = TopicStage(dev_cluster, "clock", partitions=1)

    async def scene() -> None:
        await stage.produce(10)
        async with stage.connector(auto_commit_interval_ms=100) as connector:
            (stream,) = (await open_streams(connector, {"clock": 1}))["clock"]
            await drain(stream, count=10)
            await until_equal(stage.committed, {0: 10})

    asyncio.run(scene())


def test_without_auto_commit_nothing_is_committed_even_at_the_end(dev_cluster: DevCluster) -> None:
    stage = TopicStage(dev_cluster, "manual")

    async def scene() -> None:
        await stage.produce(10)
        async with stage.connector(auto_commit_enable=False) as connector:
            (stream,) = (await open_streams(connector, {"manual": 1}))["manual"]
            assert len(await drain(stream, count=10)) == 10
        assert await stage.committed() == {}

    asyncio.run(scene())


@pytest.mark.fault("strangers-114")
@pytest.mark.parametrize("membership", ["zookeeper", "coordinator"])
def test_a_commit_after_the_shutdown_fails_once_if_anything_was_left(
    dev_cluster: DevCluster, membership: str
) -> None:
    """A worker whose connector another task has closed would think that it has committed."""
    topic = f"late-{membership}"
    stage = TopicStage(dev_cluster, topic, partitions=1)
    at = "zookeeper.connect" if membership == "zookeeper" else "bootstrap.servers"
    common = {
        at: dev_cluster.address("zookeeper" if membership == "zookeeper" else "bootstrap"),
        "membership": membership,
        "group.id": topic,
        "auto.offset.reset": "smallest",
        "consumer.timeout.ms": SILENCE_MS,
    }

    async def commit_late(count: int, **settings: bool) -> str:
        async with ConsumerConnector(common | settings) as connector:
            (stream,) = (await open_streams(connector, {topic: 1}))[topic]
            await drain(stream, count=count)
        try:
            await connector.commit_offsets()
        except CommitFailed as error:
            await connector.commit_offsets()
            return str(error)
        return ""

    async def scene() -> None:
        await stage.produce(10)
        assert "it was shut down" in await commit_late(5, auto_commit_enable=False)
        assert await commit_late(5) == ""
        assert await commit_late(0, auto_commit_enable=False) == ""

    asyncio.run(scene())


def test_positions_of_partitions_that_stay_survive_a_rebalance_without_any_commit(
    dev_cluster: DevCluster,
) -> None:
    stage = TopicStage(dev_cluster, "retained")

    async def scene() -> None:
        await stage.produce(10)
        async with stage.connector(auto_commit_enable=False, consumer_id="a") as first:
            (stream,) = (await open_streams(first, {"retained": 1}))["retained"]
            assert len(await drain(stream, count=10)) == 10
            async with stage.connector(auto_commit_enable=False, consumer_id="b") as second:
                (other,) = (await open_streams(second, {"retained": 1}))["retained"]
                assert {m.partition for m in await drain(other, count=5)} == {1}
                assert await drain(stream, count=0) == []

    asyncio.run(scene())


def test_what_another_member_owns_cannot_be_committed(dev_cluster: DevCluster) -> None:
    stage = TopicStage(dev_cluster, "not-ours")

    async def scene() -> None:
        async with stage.connector(consumer_id="a") as first:
            await open_streams(first, {"not-ours": 1})
            async with stage.connector(consumer_id="b") as second:
                await open_streams(second, {"not-ours": 1})
                await until(lambda: first.metrics.owned_partitions_count == 1, "the first owns one")
                both = {TopicPartition("not-ours", p): OffsetAndMetadata(7) for p in (0, 1)}
                with pytest.raises(CommitFailed, match="not-ours_b does not own them") as failure:
                    await second.commit_offsets(both)
                assert failure.value.errors.keys() == {TopicPartition("not-ours", 0)}
                assert await stage.committed() == {1: 7}

    asyncio.run(scene())


def test_a_consumer_says_in_numbers_what_it_does(dev_cluster: DevCluster) -> None:
    stage = TopicStage(dev_cluster, "counted")

    async def scene() -> None:
        await stage.produce(20)
        async with stage.connector(consumer_id="a", num_consumer_fetchers=2) as connector:
            (stream,) = (await open_streams(connector, {"counted": 1}))["counted"]
            await drain(stream, count=20)
            await connector.commit_offsets()
            metrics = connector.metrics

        assert metrics.owned_partitions_count_by_topic == {"counted": 2}
        assert metrics.zookeeper_commits_per_sec.count == 2
        assert metrics.kafka_commits_per_sec.count == 0
        assert metrics.rebalance_rate_and_time.count == 1
        assert metrics.rebalance_error is None
        assert metrics.messages_per_sec["counted"].count == 20
        assert metrics.consumer_lag == {TopicPartition("counted", p): 0 for p in (0, 1)}
        assert metrics.fetch_queue_size == {("counted", "counted_a-0"): 0}
        assert sum(rate.count for rate in metrics.requests_per_sec.values()) >= 2

    asyncio.run(scene())
