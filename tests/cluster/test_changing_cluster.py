"""Our clients while the brokers of a replicated cluster are killed, restarted and moved.

One cluster serves all scenarios; each leaves it whole.
"""

import asyncio
import contextlib
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from typing import Any, Self

import attrs
import pytest

from clients.admin import PREFERRED, Admin, NewTopic
from clients.high_level.connector import ConsumerConnector
from clients.high_level.streams import MessageStream
from clients.producer.deliveries import RecordMetadata
from clients.producer.producer import Producer
from protocol.topic_partition import TopicPartition
from tests.cluster.restartable_cluster import (
    POLL_S,
    RestartableCluster,
    controller,
    create,
    partition_state,
    play,
)
from tests.stage.topic_contents import contents
from tests.stage.waiting import DEADLINE_S
from zk.api import ZkSession
from zk.consumer_znodes import PartitionOwner

BROKERS, PARTITIONS = 3, 3
FAILED_OVER_S = 10.0
"""From an election to the next acknowledged record: far less than any time-out of a client. An idle
machine takes a tenth of a second."""

SETTINGS = {
    "zookeeper.session.timeout.ms": "2000",
    "offsets.topic.num.partitions": "3",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "auto.leader.rebalance.enable": "false",
}
BY_HAND = {"offsets.storage": "kafka", "auto.commit.enable": "false"}
HOWEVER_LONG = {"offsets.commit.max.retries": "60"}
"""A coordinator that was killed is replaced when its session has ended, and not before."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestartableCluster]:
    directory = tmp_path_factory.mktemp("changing")
    with RestartableCluster.running(directory, BROKERS, SETTINGS) as cluster:
        yield cluster


@attrs.define(eq=False)
class Numbers:
    """Sends to each partition the numbers from 0 on; `close` ends it and raises what went wrong."""

    bootstrap: str
    topic: str
    idempotent: bool = True
    settings: dict[str, Any] = attrs.field(factory=dict)
    acknowledged: dict[int, list[RecordMetadata]] = attrs.field(factory=lambda: defaultdict(list))
    """By partition, in the order sent."""
    _stopping: bool = False
    _tasks: asyncio.TaskGroup = attrs.field(factory=asyncio.TaskGroup)

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._tasks.create_task(self._run())
        return self

    async def __aexit__(self, *failure: Any) -> None:
        self._stopping = True
        async with asyncio.timeout(DEADLINE_S):
            await self._tasks.__aexit__(*failure)

    async def more(self, partition: int, count: int = 20) -> None:
        """Return when so many more have been sent and acknowledged."""
        count += len(self.acknowledged[partition])
        async with asyncio.timeout(DEADLINE_S):
            while len(self.acknowledged[partition]) < count:
                await asyncio.sleep(POLL_S / 4)

    async def _run(self) -> None:
        named = {"bootstrap.servers": self.bootstrap, "acks": "all", "linger.ms": 1}
        settings = {**named, "enable.idempotence": self.idempotent, **self.settings}
        async with (
            Producer(settings) as producer,
            asyncio.TaskGroup() as tasks,
        ):
            for partition in range(PARTITIONS):
                tasks.create_task(self._send(producer, partition))

    async def _send(self, producer: Producer, partition: int) -> None:
        sent: list[asyncio.Future[RecordMetadata]] = []
        while not self._stopping:
            value = b"%d" % len(sent)
            sent.append(await producer.send(self.topic, value, partition=partition))
            sent[-1].add_done_callback(
                lambda done: self.acknowledged[partition].append(done.result())
            )
            await asyncio.sleep(0.004)
        await asyncio.gather(*sent)
        # From Python 3.12 on it does not wait for the callbacks of what is done.
        await asyncio.sleep(0)
        assert len(self.acknowledged[partition]) == len(sent)


@attrs.define(eq=False)
class Reader:
    """A member of a group; reads from `async with` on, to the end of the block."""

    cluster: RestartableCluster
    topic: str
    group: str
    settings: dict[str, Any] = attrs.field(factory=dict)
    values: dict[int, list[int]] = attrs.field(factory=lambda: defaultdict(list))
    connector: ConsumerConnector = attrs.field(init=False)
    _tasks: asyncio.TaskGroup = attrs.field(factory=asyncio.TaskGroup)

    async def __aenter__(self) -> Self:
        self.connector = ConsumerConnector(
            {
                "zookeeper.connect": self.cluster.dev.address("zookeeper"),
                "group.id": self.group,
                "auto.offset.reset": "smallest",
                "auto.commit.interval.ms": "200",
                **self.settings,
            }
        )
        await self._tasks.__aenter__()
        streams = await self.connector.create_message_streams({self.topic: 1})
        self._tasks.create_task(self._read(streams[self.topic][0]))
        return self

    async def __aexit__(self, *failure: Any) -> None:
        await self.connector.shutdown()
        async with asyncio.timeout(DEADLINE_S):
            await self._tasks.__aexit__(*failure)

    async def _read(self, stream: MessageStream) -> None:
        async for message in stream:
            self.values[message.partition].append(int(message.value))


async def has_all(numbers: Numbers, *readers: Reader) -> None:
    """Return when the readers together have all that has been acknowledged by now."""
    wanted = {p: len(acknowledged) for p, acknowledged in numbers.acknowledged.items()}
    async with asyncio.timeout(DEADLINE_S):
        while any(
            not set(range(count)) <= {each for reader in readers for each in reader.values[p]}
            for p, count in wanted.items()
        ):
            await asyncio.sleep(POLL_S)


async def assert_in_order(cluster: RestartableCluster, numbers: Numbers) -> None:
    """Each number is where it was said to be, and in its turn; only once, with idempotence."""
    for partition, acknowledged in numbers.acknowledged.items():
        records = await contents(cluster.bootstrap, TopicPartition(numbers.topic, partition))
        values = [int(record.value or b"") for record in records]
        for number, at in enumerate(acknowledged):
            assert values[at.offset] == number
        kept = values if numbers.idempotent else list(dict.fromkeys(values))
        assert kept == list(range(len(acknowledged)))


async def owned_since(zk: ZkSession, group: str, topic: str) -> list[int]:
    """When, in ZooKeeper's count, each partition was given to the member that has it."""
    stats = [await zk.exists(PartitionOwner.path(group, topic, p)) for p in range(PARTITIONS)]
    return [stat.czxid for stat in stats if stat is not None]


async def next_leader(zk: ZkSession, topic: str, partition: int, before: int) -> None:
    """Return when another is elected."""
    async with asyncio.timeout(DEADLINE_S):
        while (await partition_state(zk, topic, partition)).leader in (before, -1):
            await asyncio.sleep(POLL_S / 4)


@contextlib.asynccontextmanager
async def topic_named(cluster: RestartableCluster, topic: str) -> AsyncIterator[Admin]:
    """A new topic with a replica at each broker, and a client that has made it."""
    async with Admin(cluster.bootstrap) as admin:
        await create(admin, NewTopic(topic, PARTITIONS, BROKERS))
        yield admin


@pytest.mark.parametrize("idempotent", [False, True])
def test_records_keep_their_order_when_their_leader_is_killed(
    cluster: RestartableCluster, idempotent: bool
) -> None:
    topic = f"numbers-{idempotent}"

    async def scenario() -> None:
        async with (
            topic_named(cluster, topic),
            cluster.dev.zookeeper_session() as zk,
            Numbers(cluster.bootstrap, topic, idempotent) as numbers,
        ):
            await numbers.more(0)
            leader = (await partition_state(zk, topic, 0)).leader
            async with cluster.without(leader):
                await next_leader(zk, topic, 0, leader)
                async with asyncio.timeout(FAILED_OVER_S):
                    await numbers.more(0, 1)
                await numbers.more(0)
            await numbers.more(0)
            await cluster.in_sync(zk)
        await assert_in_order(cluster, numbers)

    play(scenario())


def test_records_keep_their_order_when_their_leader_hangs_and_goes_on_later(
    cluster: RestartableCluster,
) -> None:
    """It is stopped for longer than its session, with requests on their way to it."""
    topic, timeout_s = "hung", 4

    async def scenario() -> None:
        settings = {"request.timeout.ms": timeout_s * 1000}
        async with (
            topic_named(cluster, topic),
            cluster.dev.zookeeper_session() as zk,
            Numbers(cluster.bootstrap, topic, settings=settings) as numbers,
        ):
            await numbers.more(0)
            leader = (await partition_state(zk, topic, 0)).leader
            async with cluster.stopped(leader), asyncio.timeout(timeout_s + FAILED_OVER_S):
                await numbers.more(0)
            await cluster.in_sync(zk)
            await numbers.more(0)
        await assert_in_order(cluster, numbers)

    play(scenario())


def test_commits_go_on_and_never_back_when_their_coordinator_is_killed(
    cluster: RestartableCluster,
) -> None:
    topic, group = "committed", "committers"

    async def scenario() -> None:
        seen: list[int] = []
        async with topic_named(cluster, topic) as admin, cluster.dev.zookeeper_session() as zk:
            await admin.group_offsets(group)  # its topic is made
            await cluster.in_sync(zk)
            async with (
                Numbers(cluster.bootstrap, topic) as numbers,
                Reader(cluster, topic, group, BY_HAND | HOWEVER_LONG) as reader,
            ):

                async def commit(count: int) -> None:
                    """So many commits, each of more than the one before; none may fail."""
                    for _ in range(count):
                        read = len(reader.values[0])
                        while len(reader.values[0]) == read:
                            await asyncio.sleep(POLL_S)
                        await reader.connector.commit_offsets()
                        committed = await admin.group_offsets(group)
                        seen.append(committed[TopicPartition(topic, 0)].offset)

                await commit(5)
                coordinator = (await admin.describe_groups([group]))[group].coordinator
                async with cluster.without(coordinator.node_id):
                    await commit(5)
                await commit(5)
                await has_all(numbers, reader)
            await cluster.in_sync(zk)
        assert seen == sorted(seen)
        assert len(set(seen)) == 15

    play(scenario())


def test_a_broker_that_is_back_on_another_port_moves_no_partition_of_a_group(
    cluster: RestartableCluster,
) -> None:
    topic, group = "moved", "stayers"

    async def scenario() -> None:
        async with (
            topic_named(cluster, topic) as admin,
            cluster.dev.zookeeper_session() as zk,
            Numbers(cluster.bootstrap, topic) as numbers,
            Reader(cluster, topic, group) as one,
            Reader(cluster, topic, group) as other,
        ):
            while len(await owned_since(zk, group, topic)) < PARTITIONS or not other.values:
                await asyncio.sleep(POLL_S)
            owned = await owned_since(zk, group, topic)
            broker = (await partition_state(zk, topic, 0)).leader
            await cluster.stop(broker, signal.SIGTERM)
            await numbers.more(0)
            await cluster.start(broker, elsewhere=True)
            await cluster.in_sync(zk)
            async with asyncio.timeout(DEADLINE_S):
                while (await partition_state(zk, topic, 0)).leader != broker:
                    await admin.elect_leaders(PREFERRED, [TopicPartition(topic, 0)])
            await numbers.more(0)
            await has_all(numbers, one, other)
            assert await owned_since(zk, group, topic) == owned

    play(scenario())


def test_a_rolling_restart_is_no_error_to_any_application(cluster: RestartableCluster) -> None:
    """In the end all brokers are elsewhere than the clients were told at their start."""
    topic, group = "rolled", "rollers"

    async def scenario() -> None:
        async with (
            topic_named(cluster, topic),
            cluster.dev.zookeeper_session() as zk,
            Numbers(cluster.bootstrap, topic) as numbers,
            Reader(cluster, topic, group, BY_HAND) as reader,
        ):
            while len(owned := await owned_since(zk, group, topic)) < PARTITIONS:
                await asyncio.sleep(POLL_S)
            for broker in range(BROKERS):
                await cluster.stop(broker, signal.SIGTERM)
                await reader.connector.commit_offsets()
                await cluster.start(broker, elsewhere=True)
                await cluster.in_sync(zk)
                for partition in range(PARTITIONS):
                    await numbers.more(partition)
            await has_all(numbers, reader)
            assert await owned_since(zk, group, topic) == owned
            # No record twice, though no offset of a member was ever committed by the clock.
            assert all(values == sorted(set(values)) for values in reader.values.values())

    play(scenario())


def test_admin_follows_the_controller_when_it_is_killed(cluster: RestartableCluster) -> None:
    async def scenario() -> None:
        async with Admin(cluster.bootstrap) as admin, cluster.dev.zookeeper_session() as zk:
            await cluster.in_sync(zk)
            async with cluster.without(await controller(zk)):
                await create(admin, NewTopic("made-meanwhile", 1, 2))
                assert await admin.delete_topics(["made-meanwhile"]) == {"made-meanwhile": None}
            await cluster.in_sync(zk)

    play(scenario())
