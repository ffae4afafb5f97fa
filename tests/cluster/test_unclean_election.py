"""A leader is lost, and one is elected that lacks its last messages: what groups read then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from clients.admin import UNCLEAN, Admin, NewTopic
from clients.high_level.connector import ConsumerConnector
from clients.high_level.streams import MessageStream
from clients.producer.producer import Producer
from protocol.topic_partition import TopicPartition
from tests.cluster.restartable_cluster import RestartableCluster, create, partition_state, play
from tests.stage.waiting import until
from zk.api import ZkSession

TOPIC = "t"
PARTITION = TopicPartition(TOPIC, 0)
KEPT, LOST, LATER = range(100), range(100, 400), range(1000, 2000)
SETTINGS = {"zookeeper.session.timeout.ms": "2000", "group.initial.rebalance.delay.ms": "0"}


async def produce(bootstrap: str, numbers: Iterable[int]) -> None:
    async with Producer({"bootstrap.servers": bootstrap}) as producer:
        for number in numbers:
            await producer.send(TOPIC, str(number).encode(), partition=0)
        await producer.flush()


@asynccontextmanager
async def member(bootstrap: str, group: str) -> AsyncIterator[MessageStream]:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "membership": "coordinator",
        "auto.offset.reset": "smallest",
    }
    async with ConsumerConnector(settings) as connector:
        (stream,) = (await connector.create_message_streams({TOPIC: 1}))[TOPIC]
        yield stream


async def take(stream: MessageStream, count: int) -> list[int]:
    return [int((await anext(stream)).value) for _ in range(count)]


@pytest.mark.fault("strangers-45")
def test_what_takes_the_offsets_of_lost_messages_is_read_by_all_groups(tmp_path: Path) -> None:
    async def scenario(cluster: RestartableCluster) -> None:
        bootstrap = cluster.bootstrap
        async with cluster.dev.zookeeper_session() as zk, Admin(bootstrap) as admin:
            await create(admin, NewTopic(TOPIC, assignments={0: [1, 2]}))
            await produce(bootstrap, KEPT)

            async with member(bootstrap, "live") as live:
                assert await take(live, 100) == list(KEPT)

                # Broker 2 lacks what is produced without it.
                await cluster.stop(2)
                await until(lambda: in_sync(zk, [1]), "broker 1 alone in sync")
                await produce(bootstrap, LOST)
                assert await take(live, 300) == list(LOST)
                async with member(bootstrap, "gone") as stream:
                    assert await take(stream, 400) == [*KEPT, *LOST]
                    # The last one counts as consumed when another is asked for.
                    asking = asyncio.ensure_future(anext(stream))
                    await asyncio.sleep(0)
                    asking.cancel()

                await cluster.stop(1)
                await cluster.start(2)
                await until(lambda: is_elected(admin), "broker 2 elected")
                await produce(bootstrap, LATER)
                assert await take(live, 1000) == list(LATER)
                async with member(bootstrap, "gone") as again:
                    assert await take(again, 1000) == list(LATER)

    async def in_sync(zk: ZkSession, isr: list[int]) -> bool:
        return list((await partition_state(zk, TOPIC, 0)).isr) == isr

    async def is_elected(admin: Admin) -> bool:
        verdicts = await admin.elect_leaders(UNCLEAN, [PARTITION])
        return verdicts[PARTITION] is None

    with RestartableCluster.running(tmp_path, 3, SETTINGS) as cluster:
        play(scenario(cluster))
