"""Commands write to ZooKeeper, and refuse what needs a broker."""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, cast

import attrs
import click
import pytest
from click.testing import CliRunner

from broker.kbroker.cluster_access import ClusterAccess, NeedsBrokers
from broker.kbroker.open_cluster import names_zookeeper_alone
from broker.kbroker.over_zookeeper import OverZooKeeper
from broker.kbroker.reassign.throttle import limit_speed, unlimit_speed
from clients.admin import PREFERRED, UNCLEAN
from clients.admin.descriptions import ConfigResource, NewPartitions, NewTopic
from clients.command_line.output import Target, target_options
from clients.errors import DeadlineExceeded
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import TopicPartition
from zk.api import Watch, ZkSession
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import (
    STARTUP_PATHS,
    BrokerId,
    ConfigChange,
    DeleteTopic,
    Endpoint,
    EntityConfig,
    PartitionState,
    PreferredReplicaElection,
    ReassignPartitions,
    TopicAssignment,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC = ConfigResource.topic("t")


@attrs.define(eq=False)
class Cluster:
    """The znodes of three brokers and of a topic `t` on them, led by broker 1."""

    zk: MemorySession
    access: ClusterAccess

    async def read_json(self, path: str) -> Any:
        data, _ = await self.zk.get(path)
        return json.loads(data or b"null")

    async def list_changes(self) -> list[str]:
        names, _ = await self.zk.children(ConfigChange.directory())
        paths = [f"{ConfigChange.directory()}/{name}" for name in names]
        return [(await self.read_json(path))["entity_path"] for path in paths]

    async def elect(self, partition: TopicPartition, leader: int) -> None:
        """Write a partition's state with this leader, as the controller does."""
        state = PartitionState(leader, 1, (0, 1, 2), 1).encode()
        path = PartitionState.path(*partition)
        if await self.zk.exists(path):
            await self.zk.set(path, state)
        else:
            await self.zk.create(path, state, make_parents=True)


@asynccontextmanager
async def open_cluster(timeout_ms: int = 5000) -> AsyncIterator[Cluster]:
    session = MemoryZooKeeper().session()
    await session.start()
    for path in STARTUP_PATHS:
        await session.ensure_path(path)
    for broker in range(3):
        endpoint = Endpoint("PLAINTEXT", "h", 9092 + broker)
        content = BrokerId((endpoint,), 0, rack=f"r{broker}").encode()
        await session.create(BrokerId.path(broker), content, ephemeral=True)
    assignment = TopicAssignment({0: (0, 1), 1: (1, 2)})
    await session.create(TopicAssignment.path("t"), assignment.encode())
    cluster = Cluster(session, OverZooKeeper(session, timeout_ms))
    await cluster.elect(T0, 1)
    await cluster.elect(T1, 1)
    yield cluster
    await session.close()


async def test_a_topic_is_created_with_its_settings_and_nobody_is_notified() -> None:
    async with open_cluster() as cluster:
        await cluster.access.create_topic(NewTopic("new", 3, 2, {"retention.ms": "5"}))
        node = TopicAssignment.decode((await cluster.zk.get(TopicAssignment.path("new")))[0])
        assert sorted(node.partitions) == [0, 1, 2]
        assert all(len(set(replicas)) == 2 for replicas in node.partitions.values())
        config = await cluster.read_json(EntityConfig.path("topics", "new"))
        assert config == {"version": 1, "config": {"retention.ms": "5"}}
        assert await cluster.list_changes() == []


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("t", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NewTopic("a/b", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("u", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("u", 1, 1, {"no.such": "1"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("u", assignments={0: (0, 0)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
async def test_a_topic_that_cannot_be_is_refused_and_leaves_no_trace(
    topic: NewTopic, code: ErrorCode
) -> None:
    async with open_cluster() as cluster:
        with pytest.raises(ApiError) as refused:
            await cluster.access.create_topic(topic)
        assert refused.value.code is code
        assert (await cluster.zk.children("/brokers/topics"))[0] == ["t"]
        assert (await cluster.zk.children("/config/topics"))[0] == []


async def test_partitions_are_added_behind_those_that_are_there() -> None:
    async with open_cluster() as cluster:
        await cluster.access.create_partitions("t", NewPartitions(3, ((2, 0),)))
        partitions = (await cluster.read_json(TopicAssignment.path("t")))["partitions"]
        assert partitions == {"0": [0, 1], "1": [1, 2], "2": [2, 0]}
        with pytest.raises(ApiError, match="INVALID_PARTITIONS"):
            await cluster.access.create_partitions("t", NewPartitions(3))


async def test_no_partition_is_added_to_what_moves_or_is_about_to_go() -> None:
    async with open_cluster() as cluster:
        await cluster.access.reassign({T0: (2, 1)})
        with pytest.raises(ApiError, match="REASSIGNMENT_IN_PROGRESS"):
            await cluster.access.create_partitions("t", NewPartitions(3))
        await cluster.zk.create(DeleteTopic.path("t"), None)
        with pytest.raises(ApiError, match="INVALID_TOPIC_EXCEPTION"):
            await cluster.access.create_partitions("t", NewPartitions(3))


async def test_a_topic_is_marked_once_and_a_strange_or_internal_one_never() -> None:
    async with open_cluster() as cluster:
        await cluster.zk.create(
            TopicAssignment.path("__consumer_offsets"), TopicAssignment({0: (0,)}).encode()
        )
        names = ["t", "never", "__consumer_offsets"]
        verdicts = await cluster.access.delete_topics(names)
        assert verdicts["t"] is None
        assert [error.code for error in verdicts.values() if error] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]
        assert await cluster.zk.get(DeleteTopic.path("t")) is not None
        again = (await cluster.access.delete_topics(["t"]))["t"]
        assert again is not None
        assert "already marked" in again.detail
        assert await cluster.access.list_marked_topics() == ["t"]


async def test_settings_are_merged_and_brokers_notified_after_they_stand() -> None:
    async with open_cluster() as cluster:
        broker, defaults = ConfigResource.broker(1), ConfigResource.broker_defaults()
        changes = {
            TOPIC: {"retention.ms": "5", "segment.ms": "9"},
            broker: {"a": "b"},
            defaults: {"c": "d"},
        }
        assert set((await cluster.access.change_configs(changes)).values()) == {None}
        await cluster.access.change_configs({TOPIC: {"retention.ms": None, "flush.ms": "7"}})
        own = await cluster.access.describe_own_configs([TOPIC, broker, defaults])
        assert own[TOPIC] == {"segment.ms": "9", "flush.ms": "7"}
        assert (own[broker], own[defaults]) == ({"a": "b"}, {"c": "d"})
        assert await cluster.list_changes() == [
            "topics/t",
            "brokers/1",
            "brokers/<default>",
            "topics/t",
        ]


@attrs.define(eq=False)
class Interrupted:
    """A session in which another client writes right after the first read of `path`."""

    zk: MemorySession
    path: str
    write: Coroutine[Any, Any, Any] | None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.zk, name)

    async def get(self, path: str, watch: Watch | None = None) -> Any:
        try:
            return await self.zk.get(path, watch)
        finally:
            if path == self.path and self.write is not None:
                write, self.write = self.write, None
                await write


@pytest.mark.parametrize("exists", [True, False])
async def test_settings_that_another_client_writes_meanwhile_stay(exists: bool) -> None:
    async with open_cluster() as cluster:
        path = EntityConfig.path("topics", "t")
        theirs = EntityConfig({"flush.ms": "7"}).encode()
        if exists:
            await cluster.access.change_configs({TOPIC: {"segment.ms": "9"}})
        write = (cluster.zk.set if exists else cluster.zk.create)(path, theirs)

        session = cast(ZkSession, Interrupted(cluster.zk, path, write))
        await OverZooKeeper(session, 5000).change_configs({TOPIC: {"retention.ms": "5"}})

        own = await cluster.access.describe_own_configs([TOPIC])
        assert own[TOPIC] == {"flush.ms": "7", "retention.ms": "5"}


async def test_settings_of_a_topic_that_is_deleted_meanwhile_are_not_written() -> None:
    async with open_cluster() as cluster:
        path = EntityConfig.path("topics", "t")
        deletion = cluster.zk.delete_recursive(TopicAssignment.path("t"))
        session = cast(ZkSession, Interrupted(cluster.zk, path, deletion))

        verdicts = await OverZooKeeper(session, 5000).change_configs({TOPIC: {"flush.ms": "7"}})

        error = verdicts[TOPIC]
        assert error is not None
        assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await cluster.zk.exists(path) is None


async def test_settings_are_written_before_the_first_broker_has_started() -> None:
    zk = MemoryZooKeeper().session()
    await zk.start()
    defaults = ConfigResource.broker_defaults()
    access = OverZooKeeper(zk, 5000)

    assert await access.change_configs({defaults: {"a": "b"}}) == {defaults: None}
    assert await access.describe_own_configs([defaults]) == {defaults: {"a": "b"}}


async def test_settings_that_cannot_be_are_not_written() -> None:
    async with open_cluster() as cluster:
        verdicts = await cluster.access.change_configs(
            {TOPIC: {"retention.ms": "soon"}, ConfigResource.topic("never"): {"flush.ms": "7"}}
        )
        assert [error.code for error in verdicts.values() if error] == [
            ErrorCode.INVALID_CONFIG,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert await cluster.list_changes() == []


async def test_a_reassignment_is_written_once_and_seen_until_it_is_taken_away() -> None:
    async with open_cluster() as cluster:
        assert await cluster.access.reassign({T0: (2, 1)}) == {T0: None}
        assert await cluster.read_json(ReassignPartitions.path()) == {
            "version": 1,
            "partitions": [{"topic": "t", "partition": 0, "replicas": [2, 1]}],
        }
        moving = (await cluster.access.list_reassignments())[T0]
        assert (moving.replicas, moving.adding, moving.removing) == ((0, 1), (2,), (0,))
        with pytest.raises(ApiError, match="existing assignment running"):
            await cluster.access.reassign({T1: (0, 1)})
        await cluster.zk.delete(ReassignPartitions.path())
        assert await cluster.access.list_reassignments() == {}


async def test_what_brokers_were_asked_to_move_is_seen_too() -> None:
    async with open_cluster() as cluster:
        node = TopicAssignment({0: (0, 1), 1: (1, 2)}).reassign({0: ((2, 0, 1), (2,), (0,))})
        await cluster.zk.set(TopicAssignment.path("t"), node.encode())
        ((partition, moving),) = (await cluster.access.list_reassignments()).items()
        assert (partition, moving.adding, moving.removing) == (T0, (2,), (0,))


async def test_an_election_is_asked_for_where_needed_and_told_when_the_controller_has_tried() -> (
    None
):
    async with open_cluster() as cluster:
        election = asyncio.ensure_future(cluster.access.elect(PREFERRED, [T0, T1]))
        while await cluster.zk.exists(PreferredReplicaElection.path()) is None:
            await asyncio.sleep(0)
        assert (await cluster.read_json(PreferredReplicaElection.path()))["partitions"] == [
            {"topic": "t", "partition": 0}
        ]
        await cluster.elect(T0, 0)
        await cluster.zk.delete(PreferredReplicaElection.path())
        verdicts = await election
        assert verdicts[T0] is None
        assert [error.code for error in verdicts.values() if error] == [
            ErrorCode.ELECTION_NOT_NEEDED
        ]


async def test_an_election_that_changes_nothing_has_failed() -> None:
    async with open_cluster() as cluster:
        election = asyncio.ensure_future(cluster.access.elect(PREFERRED, None))
        while await cluster.zk.exists(PreferredReplicaElection.path()) is None:
            await asyncio.sleep(0)
        await cluster.zk.delete(PreferredReplicaElection.path())
        ((partition, error),) = (await election).items()
        assert partition == T0
        assert error is not None
        assert error.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


@pytest.mark.virtual_time
async def test_without_a_controller_an_election_is_not_waited_for_for_ever() -> None:
    async with open_cluster(timeout_ms=1000) as cluster:
        with pytest.raises(DeadlineExceeded, match="no controller"):
            await cluster.access.elect(PREFERRED, [T0])


async def test_a_leader_that_does_not_live_is_none() -> None:
    async with open_cluster() as cluster:
        await cluster.zk.delete(BrokerId.path(1))
        topic = (await cluster.access.describe_topics(["t"]))["t"]
        assert [partition.leader for partition in topic.partitions.values()] == [-1, -1]
        with pytest.raises(ApiError, match="The topic 'never' does not exist"):
            await cluster.access.describe_topics(["never"])


async def test_limits_of_speed_are_set_on_what_moves_and_stay_as_long_as_anything_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with open_cluster() as cluster:
        brokers = [ConfigResource.broker(broker_id) for broker_id in range(3)]
        plan, current = {T0: (2, 1)}, {T0: (0, 1), T1: (1, 2)}
        await limit_speed(cluster.access, plan, current, 1000)
        rates = {
            "leader.replication.throttled.rate": "1000",
            "follower.replication.throttled.rate": "1000",
        }
        own = await cluster.access.describe_own_configs([TOPIC, *brokers])
        assert [own[broker] for broker in brokers] == [rates, rates, rates]
        assert own[TOPIC] == {
            "leader.replication.throttled.replicas": "0:0,0:1",
            "follower.replication.throttled.replicas": "0:2",
        }
        await cluster.access.reassign({T1: (0, 1)})
        await unlimit_speed(cluster.access, plan)
        assert (
            "Throttles stay while other partitions are being moved: t-1" in capsys.readouterr().err
        )
        assert await cluster.access.describe_own_configs([TOPIC, *brokers]) == own
        await cluster.zk.delete(ReassignPartitions.path())
        await unlimit_speed(cluster.access, plan)
        assert set(
            map(len, (await cluster.access.describe_own_configs([TOPIC, *brokers])).values())
        ) == {0}


class OneSilent(OverZooKeeper):
    """Access to a cluster whose broker 1 does not respond when its settings are read."""

    async def describe_own_configs(
        self, resources: Iterable[ConfigResource]
    ) -> dict[ConfigResource, dict[str, str | None]]:
        wanted = list(resources)
        if ConfigResource.broker(1) in wanted:
            raise DeadlineExceeded("1: no answer")
        return await super().describe_own_configs(wanted)


async def test_a_broker_that_does_not_answer_keeps_its_limits_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with open_cluster() as cluster:
        plan = {T0: (2, 1)}
        await limit_speed(cluster.access, plan, {T0: (0, 1)}, 1000)
        await unlimit_speed(OneSilent(cluster.zk, 5000), plan)
        printed = capsys.readouterr().err
        assert "Throttles of broker 1 stay, if it has any: 1: no answer" in printed
        assert "Clearing throttles on topic t, broker 0, broker 2\n" in printed
        brokers = [ConfigResource.broker(broker_id) for broker_id in range(3)]
        own = await cluster.access.describe_own_configs([TOPIC, *brokers])
        assert [len(own[resource]) for resource in (TOPIC, *brokers)] == [0, 0, 2, 0]


async def test_what_only_brokers_can_do_is_wrong_usage() -> None:
    async with open_cluster() as cluster:
        for call in (
            cluster.access.create_topic(NewTopic("new", 1)),
            cluster.access.elect(UNCLEAN, [T0]),
            cluster.access.cancel_reassignments([T0]),
            cluster.access.describe_min_insync_replicas(["t"]),
        ):
            with pytest.raises(NeedsBrokers, match="needs the brokers"):
                await call


@pytest.mark.parametrize(
    ("args", "env", "through"),
    [
        (["--zookeeper", "z:1"], {}, True),
        (["--zookeeper", "z:1"], {"KGROUP_BOOTSTRAP_SERVER": "b:1"}, True),
        (["--zookeeper", "z:1", "-b", "b:1"], {}, False),
        ([], {"KGROUP_ZOOKEEPER": "z:1"}, False),
        ([], {}, False),
    ],
)
def test_zookeeper_is_written_to_only_when_the_command_line_names_it_alone(
    args: list[str], env: dict[str, str], through: bool
) -> None:
    results = []

    @click.command()
    @target_options
    def command(target: Target) -> None:
        results.append(names_zookeeper_alone(click.get_current_context()))

    clean: dict[str, str | None] = {"KGROUP_BOOTSTRAP_SERVER": None, "KGROUP_ZOOKEEPER": None}
    CliRunner().invoke(command, args, env={**clean, **env}, catch_exceptions=False)
    assert results == [through]
