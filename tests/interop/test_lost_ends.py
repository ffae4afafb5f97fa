"""Our members tell stock brokers the epoch of what was read, and learn where a log lost its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from uuid import uuid4

import attrs
import pytest

from clients.admin import Admin, NewTopic
from clients.high_level.connector import ConsumerConnector
from clients.producer.producer import Producer
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.kraft_kafka import kraft_broker
from tests.stage.stock_kafka import stock_broker
from tests.stage.zookeeper import zookeeper_session
from zk.znodes import PartitionState

TOPIC = "t"
PARTITION = TopicPartition(TOPIC, 0)
OLD, NEW = range(50), range(50, 100)

StartBroker = Callable[[Path, str], AbstractContextManager[str]]


def start_stock(directory: Path, zookeeper: str) -> AbstractContextManager[str]:
    return stock_broker(zookeeper, directory)


def start_kraft(directory: Path, zookeeper: str) -> AbstractContextManager[str]:
    return kraft_broker(directory)


async def produce(bootstrap: str, numbers: Iterable[int]) -> None:
    async with Producer({"bootstrap.servers": bootstrap}) as producer:
        for number in numbers:
            await producer.send_and_wait(TOPIC, str(number).encode())


async def read_from(bootstrap: str, committed: OffsetAndMetadata) -> list[int]:
    """Read the topic to its end as a new member of a group that has committed this."""
    group = f"g-{uuid4().hex[:8]}"
    async with Admin(bootstrap) as admin:
        await admin.commit_group_offsets(group, {PARTITION: committed})
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "membership": "coordinator"}
    async with ConsumerConnector(settings) as connector:
        (stream,) = (await connector.create_message_streams({TOPIC: 1}))[TOPIC]
        values = [int((await anext(stream)).value)]
        while values[-1] != NEW[-1]:
            values.append(int((await anext(stream)).value))
        return values


async def elect_in(zookeeper: str) -> None:
    """Have the next start be an election: one broker alone has nobody to lead after it."""
    async with zookeeper_session(zookeeper) as zk:
        path = PartitionState.path(*PARTITION)
        state = PartitionState.decode((await zk.get(path))[0])
        await zk.set(path, attrs.evolve(state, leader_epoch=state.leader_epoch + 1).encode())


@pytest.mark.parametrize("start", [start_stock, start_kraft])
async def test_a_group_goes_back_to_where_the_log_and_it_part_and_no_other_does(
    start: StartBroker, zookeeper: str, tmp_path: Path
) -> None:
    path = f"{zookeeper}/lost-{uuid4().hex[:8]}"
    with start(tmp_path, path) as bootstrap:
        async with Admin(bootstrap) as admin:
            assert await admin.create_topics([NewTopic(TOPIC, 1, 1)]) == {TOPIC: None}
        await produce(bootstrap, OLD)
        first = await epoch_of(bootstrap)

    # In KRaft each start is an election.
    if start is start_stock:
        await elect_in(path)
    with start(tmp_path, path) as bootstrap:
        await produce(bootstrap, NEW)
        latest = await epoch_of(bootstrap)
        assert latest > first

        # The log has no more than 50 messages of the first epoch.
        assert await read_from(bootstrap, OffsetAndMetadata(80, "", first)) == list(NEW)
        for epoch in (-1, latest, latest + 7):
            place = OffsetAndMetadata(80, "", epoch)
            assert await read_from(bootstrap, place) == list(range(80, 100))
        assert await read_from(bootstrap, OffsetAndMetadata(50, "", first)) == list(NEW)


async def epoch_of(bootstrap: str) -> int:
    async with Admin(bootstrap) as admin:
        described = await admin.describe_topics([TOPIC])
    return described[TOPIC].partitions[0].leader_epoch
