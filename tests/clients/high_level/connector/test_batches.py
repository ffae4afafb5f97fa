"""Lists of messages, of members of both kinds: no commit covers the list being worked on."""

import asyncio
import contextlib
import time
from typing import Any

import pytest

from clients import blocking
from clients.admin import Admin
from clients.errors import ConsumerTimeout
from clients.high_level.connector import ConsumerConnector
from clients.high_level.streams import MessageStream
from clients.producer.producer import Producer
from tests.clients.high_level.connector.topic_stage import SILENCE_MS, TopicStage, open_streams
from tests.stage.cluster import DevCluster
from tests.stage.waiting import DEADLINE_S, until

MEMBERSHIPS = ["zookeeper", "coordinator"]


class BatchStage(TopicStage):
    """A topic whose group is of either kind."""

    def __init__(self, cluster: DevCluster, membership: str, name: str) -> None:
        super().__init__(cluster, f"{name}-{membership}")
        self.is_kept_by_coordinator = membership == "coordinator"

    def settings(self, **more: Any) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "group.id": self.name,
            "auto.offset.reset": "earliest",
            "consumer.timeout.ms": SILENCE_MS,
            "auto.commit.interval.ms": 50,
            **more,
        }
        if self.is_kept_by_coordinator:
            address = self.cluster.address("bootstrap")
            return {"bootstrap.servers": address, "membership": "coordinator", **settings}

        settings |= {"auto.offset.reset": "smallest", "rebalance.backoff.ms": 200}
        settings |= {"zookeeper.connect": self.cluster.address("zookeeper")}
        return {**settings, "rebalance.max.retries": 50}

    async def committed(self) -> dict[int, int]:
        if not self.is_kept_by_coordinator:
            return await super().committed()

        async with Admin({"bootstrap.servers": self.cluster.address("bootstrap")}) as admin:
            offsets = await admin.group_offsets(self.name)
        return {partition.partition: offset.offset for partition, offset in offsets.items()}

    def connector(self, **settings: Any) -> ConsumerConnector:
        return ConsumerConnector(self.settings(**settings))

    async def committed_after(self, connector: ConsumerConnector) -> dict[int, int]:
        """Commit what counts as consumed; return the offsets of partitions with any."""
        await connector.commit_offsets()
        committed = await self.committed()
        return {partition: offset for partition, offset in committed.items() if offset}


async def next_list(stream: MessageStream) -> list[str]:
    """Take the next list, however long the broker is silent."""
    ends = time.monotonic() + DEADLINE_S
    while time.monotonic() < ends:
        with contextlib.suppress(ConsumerTimeout):
            return [message.value for message in await anext(stream.batches())]
    raise AssertionError("no list came")


async def lists_until_silence(stream: MessageStream) -> list[str]:
    values = []
    with contextlib.suppress(ConsumerTimeout):
        async for messages in stream.batches():
            values += [message.value for message in messages]
    return values


@pytest.mark.parametrize("membership", MEMBERSHIPS)
def test_a_commit_covers_the_lists_before_the_one_being_worked_on(
    dev_cluster: DevCluster, membership: str
) -> None:
    stage = BatchStage(dev_cluster, membership, "lists")

    async def scene() -> None:
        sent = await stage.produce(200)
        async with stage.connector() as connector:
            (stream,) = (await open_streams(connector, {stage.name: 1}))[stage.name]
            worked_on = await next_list(stream)
            assert await stage.committed_after(connector) == {}

            done = worked_on
            while len(done) < len(sent):
                worked_on = await next_list(stream)
                committed = await stage.committed_after(connector)
                assert sum(committed.values()) == len(done)
                done = done + worked_on
            assert sorted(done) == sorted(sent)

            assert await lists_until_silence(stream) == []
            assert await stage.committed_after(connector) == {0: 100, 1: 100}

    asyncio.run(scene())


@pytest.mark.parametrize("membership", MEMBERSHIPS)
def test_a_list_in_work_goes_to_who_gets_its_partition_in_a_rebalance(
    dev_cluster: DevCluster, membership: str
) -> None:
    stage = BatchStage(dev_cluster, membership, "lists-move")
    # Members are dealt partitions in the order of these names: the second one gets partition 1.
    name = "group.instance.id" if membership == "coordinator" else "consumer.id"

    async def scene() -> None:
        async with Producer({"bootstrap.servers": dev_cluster.address("bootstrap")}) as producer:
            for number in range(20):
                await producer.send(stage.name, b"v%d" % number, partition=1)

        async with stage.connector(**{name: "a"}) as first:
            (stream,) = (await open_streams(first, {stage.name: 1}))[stage.name]
            in_work = await next_list(stream)
            async with stage.connector(**{name: "b"}) as second:
                (other,) = (await open_streams(second, {stage.name: 1}))[stage.name]
                await until(lambda: len(first.assignment()) == 1, "the first has one left")
                assert await stage.committed_after(first) == {}

                # The whole list comes again, and does not count for who had it.
                assert (await next_list(other))[: len(in_work)] == in_work
                assert await lists_until_silence(stream) == []
                assert await stage.committed_after(first) == {}

                assert await lists_until_silence(other) == []
                assert await stage.committed_after(second) == {1: 20}

    asyncio.run(scene())


@pytest.mark.parametrize("membership", MEMBERSHIPS)
def test_a_list_in_work_comes_again_after_a_close(dev_cluster: DevCluster, membership: str) -> None:
    stage = BatchStage(dev_cluster, membership, "lists-closed")

    async def scene() -> None:
        sent = await stage.produce(20)
        async with stage.connector() as connector:
            (stream,) = (await open_streams(connector, {stage.name: 1}))[stage.name]
            done = await next_list(stream)
            while len(done) < 20:
                in_work = await next_list(stream)
                done = done + in_work

        async with stage.connector() as connector:
            (stream,) = (await open_streams(connector, {stage.name: 1}))[stage.name]
            again = await next_list(stream)
        assert again == in_work
        assert sorted(done) == sorted(sent)

    asyncio.run(scene())


@pytest.mark.parametrize("membership", MEMBERSHIPS)
def test_the_blocking_twin_iterates_lists_and_commits_as_the_original(
    dev_cluster: DevCluster, membership: str
) -> None:
    stage = BatchStage(dev_cluster, membership, "lists-blocking")
    sent = asyncio.run(stage.produce(20))

    with blocking.ConsumerConnector(stage.settings()) as connector:
        (stream,) = connector.create_message_streams({stage.name: 1})[stage.name]
        batches = stream.batches()
        seen: list[bytes] = []
        in_work: list[bytes] = []
        ends = time.monotonic() + DEADLINE_S
        while len(seen) < len(sent) and time.monotonic() < ends:
            with contextlib.suppress(ConsumerTimeout):
                in_work = [message.value for message in next(batches)]
                seen += in_work
        assert sorted(seen) == sorted(value.encode() for value in sent)

        # The last list is in work; after the next question nothing is.
        connector.commit_offsets()
        assert sum(asyncio.run(stage.committed()).values()) == len(sent) - len(in_work)
        with pytest.raises(ConsumerTimeout):
            next(batches)
        connector.commit_offsets()
        assert asyncio.run(stage.committed()) == {0: 10, 1: 10}
    assert list(batches) == []
