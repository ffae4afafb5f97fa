"""What commands write to ZooKeeper, and what they refuse to, with no broker to ask."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import click
import pytest
from click.testing import CliRunner

from broker.kbroker.cluster_access import ClusterAccess, NeedsBrokers, names_zookeeper_alone
from broker.kbroker.over_zookeeper import OverZooKeeper
from broker.kbroker.reassign.throttle import limit_speed, unlimit_speed
from clients.admin import PREFERRED, UNCLEAN
from clients.admin.descriptions import ConfigResource, NewPartitions, NewTopic
from clients.errors import DeadlineExceeded
from clients.output import Target, target_options
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import TopicPartition
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
    """Three brokers' znodes, and a topic `t` on them, led by the second of its replicas."""

    zk: MemorySession
    access: ClusterAccess

    async def json(self, path: str) -> Any:
        data, _ = await self.zk.get(path)
        return json.loads(data or b"null")

    async def changes(self) -> list[str]:
        names, _ = await self.zk.children(ConfigChange.directory())
        paths = [f"{ConfigChange.directory()}/{name}" for name in names]
        return [(await self.json(path))["entity_path"] for path in paths]

    async def leads(self, partition: TopicPartition, leader: int) -> None:
        """Have a partition be led, as the controller writes it."""
        state = PartitionState(leader, 1, (0, 1, 2), 1).encode()
        path = PartitionState.path(*partition)
        if await self.zk.exists(path):
            await self.zk.set(path, state)
        else:
            await self.zk.create(path, state, make_parents=True)


@asynccontextmanager
async def cluster(timeout_ms: int = 5000) -> AsyncIterator[Cluster]:
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
    made = Cluster(session, OverZooKeeper(session, timeout_ms))
    await made.leads(T0, 1)
    await made.leads(T1, 1)
    yield made
    await session.close()


async def test_a_topic_is_created_with_its_settings_and_nobody_is_notified() -> None:
    async with cluster() as made:
        await made.access.create_topic(NewTopic("new", 3, 2, {"retention.ms": "5"}))
        node = TopicAssignment.decode((await made.zk.get(TopicAssignment.path("new")))[0])
        assert sorted(node.partitions) == [0, 1, 2]
        assert all(len(set(replicas)) == 2 for replicas in node.partitions.values())
        config = await made.json(EntityConfig.path("topics", "new"))
        assert config == {"version": 1, "config": {"retention.ms": "5"}}
        assert await made.changes() == []


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
    async with cluster() as made:
        with pytest.raises(ApiError) as refused:
            await made.access.create_topic(topic)
        assert refused.value.code is code
        assert (await made.zk.children("/brokers/topics"))[0] == ["t"]
        assert (await made.zk.children("/config/topics"))[0] == []


async def test_partitions_are_added_behind_those_that_are_there() -> None:
    async with cluster() as made:
        await made.access.create_partitions("t", NewPartitions(3, ((2, 0),)))
        partitions = (await made.json(TopicAssignment.path("t")))["partitions"]
        assert partitions == {"0": [0, 1], "1": [1, 2], "2": [2, 0]}
        with pytest.raises(ApiError, match="INVALID_PARTITIONS"):
            await made.access.create_partitions("t", NewPartitions(3))


async def test_no_partition_is_added_to_what_moves_or_is_about_to_go() -> None:
    async with cluster() as made:
        await made.access.reassign({T0: (2, 1)})
        with pytest.raises(ApiError, match="REASSIGNMENT_IN_PROGRESS"):
            await made.access.create_partitions("t", NewPartitions(3))
        await made.zk.create(DeleteTopic.path("t"), None)
        with pytest.raises(ApiError, match="INVALID_TOPIC_EXCEPTION"):
            await made.access.create_partitions("t", NewPartitions(3))


async def test_a_topic_is_marked_once_and_a_strange_or_internal_one_never() -> None:
    async with cluster() as made:
        await made.zk.create(
            TopicAssignment.path("__consumer_offsets"), TopicAssignment({0: (0,)}).encode()
        )
        names = ["t", "never", "__consumer_offsets"]
        verdicts = await made.access.delete_topics(names)
        assert verdicts["t"] is None
        assert [e.code for e in verdicts.values() if e] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]
        assert await made.zk.get(DeleteTopic.path("t")) is not None
        again = (await made.access.delete_topics(["t"]))["t"]
        assert again is not None
        assert "already marked" in again.detail
        assert await made.access.list_marked_topics() == ["t"]


async def test_settings_are_merged_and_brokers_notified_after_they_stand() -> None:
    async with cluster() as made:
        broker, defaults = ConfigResource.broker(1), ConfigResource.broker_defaults()
        changes = {
            TOPIC: {"retention.ms": "5", "segment.ms": "9"},
            broker: {"a": "b"},
            defaults: {"c": "d"},
        }
        assert set((await made.access.change_configs(changes)).values()) == {None}
        await made.access.change_configs({TOPIC: {"retention.ms": None, "flush.ms": "7"}})
        own = await made.access.describe_own_configs([TOPIC, broker, defaults])
        assert own[TOPIC] == {"segment.ms": "9", "flush.ms": "7"}
        assert (own[broker], own[defaults]) == ({"a": "b"}, {"c": "d"})
        assert await made.changes() == ["topics/t", "brokers/1", "brokers/<default>", "topics/t"]


async def test_settings_that_cannot_be_are_not_written() -> None:
    async with cluster() as made:
        verdicts = await made.access.change_configs(
            {TOPIC: {"retention.ms": "soon"}, ConfigResource.topic("never"): {"flush.ms": "7"}}
        )
        assert [error.code for error in verdicts.values() if error] == [
            ErrorCode.INVALID_CONFIG,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert await made.changes() == []


async def test_a_reassignment_is_written_once_and_seen_until_it_is_taken_away() -> None:
    async with cluster() as made:
        assert await made.access.reassign({T0: (2, 1)}) == {T0: None}
        assert await made.json(ReassignPartitions.path()) == {
            "version": 1,
            "partitions": [{"topic": "t", "partition": 0, "replicas": [2, 1]}],
        }
        moving = (await made.access.list_reassignments())[T0]
        assert (moving.replicas, moving.adding, moving.removing) == ((0, 1), (2,), (0,))
        with pytest.raises(ApiError, match="existing assignment running"):
            await made.access.reassign({T1: (0, 1)})
        await made.zk.delete(ReassignPartitions.path())
        assert await made.access.list_reassignments() == {}


async def test_what_brokers_were_asked_to_move_is_seen_too() -> None:
    async with cluster() as made:
        node = TopicAssignment({0: (0, 1), 1: (1, 2)}).reassign({0: ((2, 0, 1), (2,), (0,))})
        await made.zk.set(TopicAssignment.path("t"), node.encode())
        ((partition, moving),) = (await made.access.list_reassignments()).items()
        assert (partition, moving.adding, moving.removing) == (T0, (2,), (0,))


async def test_an_election_is_asked_for_where_needed_and_told_when_the_controller_has_tried() -> (
    None
):
    async with cluster() as made:
        election = asyncio.ensure_future(made.access.elect(PREFERRED, [T0, T1]))
        while await made.zk.exists(PreferredReplicaElection.path()) is None:
            await asyncio.sleep(0)
        assert (await made.json(PreferredReplicaElection.path()))["partitions"] == [
            {"topic": "t", "partition": 0}
        ]
        await made.leads(T0, 0)
        await made.zk.delete(PreferredReplicaElection.path())
        verdicts = await election
        assert verdicts[T0] is None
        assert [e.code for e in verdicts.values() if e] == [ErrorCode.ELECTION_NOT_NEEDED]


async def test_an_election_that_changes_nothing_has_failed() -> None:
    async with cluster() as made:
        election = asyncio.ensure_future(made.access.elect(PREFERRED, None))
        while await made.zk.exists(PreferredReplicaElection.path()) is None:
            await asyncio.sleep(0)
        await made.zk.delete(PreferredReplicaElection.path())
        ((partition, error),) = (await election).items()
        assert partition == T0
        assert error is not None
        assert error.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


@pytest.mark.virtual_time
async def test_without_a_controller_an_election_is_not_waited_for_for_ever() -> None:
    async with cluster(timeout_ms=1000) as made:
        with pytest.raises(DeadlineExceeded, match="no controller"):
            await made.access.elect(PREFERRED, [T0])


async def test_a_leader_that_does_not_live_is_none() -> None:
    async with cluster() as made:
        await made.zk.delete(BrokerId.path(1))
        topic = (await made.access.describe_topics(["t"]))["t"]
        assert [partition.leader for partition in topic.partitions.values()] == [-1, -1]
        with pytest.raises(ApiError, match="The topic 'never' does not exist"):
            await made.access.describe_topics(["never"])


async def test_limits_of_speed_are_set_on_what_moves_and_stay_as_long_as_anything_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with cluster() as made:
        brokers = [ConfigResource.broker(each) for each in range(3)]
        plan, current = {T0: (2, 1)}, {T0: (0, 1), T1: (1, 2)}
        await limit_speed(made.access, plan, current, 1000)
        rates = {
            "leader.replication.throttled.rate": "1000",
            "follower.replication.throttled.rate": "1000",
        }
        own = await made.access.describe_own_configs([TOPIC, *brokers])
        assert [own[each] for each in brokers] == [rates, rates, rates]
        assert own[TOPIC] == {
            "leader.replication.throttled.replicas": "0:0,0:1",
            "follower.replication.throttled.replicas": "0:2",
        }
        await made.access.reassign({T1: (0, 1)})
        await unlimit_speed(made.access, plan)
        assert "Throttles stay while others are on the move: t-1" in capsys.readouterr().err
        assert await made.access.describe_own_configs([TOPIC, *brokers]) == own
        await made.zk.delete(ReassignPartitions.path())
        await unlimit_speed(made.access, plan)
        assert set(
            map(len, (await made.access.describe_own_configs([TOPIC, *brokers])).values())
        ) == {0}


class OneSilent(OverZooKeeper):
    """Where broker 1 answers nobody, and its own settings cannot be asked for."""

    async def describe_own_configs(
        self, resources: Iterable[ConfigResource]
    ) -> dict[ConfigResource, dict[str, str | None]]:
        asked = list(resources)
        if ConfigResource.broker(1) in asked:
            raise DeadlineExceeded("1: no answer")
        return await super().describe_own_configs(asked)


async def test_a_broker_that_does_not_answer_keeps_its_limits_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with cluster() as made:
        plan = {T0: (2, 1)}
        await limit_speed(made.access, plan, {T0: (0, 1)}, 1000)
        await unlimit_speed(OneSilent(made.zk, 5000), plan)
        said = capsys.readouterr().err
        assert "Throttles of broker 1 stay, if it has any: 1: no answer" in said
        assert "Clearing throttles on topic t, broker 0, broker 2\n" in said
        brokers = [ConfigResource.broker(each) for each in range(3)]
        own = await made.access.describe_own_configs([TOPIC, *brokers])
        assert [len(own[each]) for each in (TOPIC, *brokers)] == [0, 0, 2, 0]


async def test_what_only_brokers_can_do_is_wrong_usage() -> None:
    async with cluster() as made:
        for call in (
            made.access.create_topic(NewTopic("new", 1)),
            made.access.elect(UNCLEAN, [T0]),
            made.access.cancel_reassignments([T0]),
            made.access.describe_min_insync_replicas(["t"]),
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
    found = []

    @click.command()
    @target_options
    def command(target: Target) -> None:
        found.append(names_zookeeper_alone(click.get_current_context()))

    clean: dict[str, str | None] = {"KGROUP_BOOTSTRAP_SERVER": None, "KGROUP_ZOOKEEPER": None}
    CliRunner().invoke(command, args, env={**clean, **env}, catch_exceptions=False)
    assert found == [through]
