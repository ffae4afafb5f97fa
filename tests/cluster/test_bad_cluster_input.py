"""What operators get wrong on a cluster: each mistake is named, and the rest goes on.

One cluster of three brokers serves all scenarios; each leaves it whole.
"""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.admin import Admin, NewTopic
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
from zk.znodes import ControllerEpoch, DeleteTopic, PartitionState, TopicAssignment

BROKERS = 3
SETTINGS = {"zookeeper.session.timeout.ms": "2000"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestartableCluster]:
    directory = tmp_path_factory.mktemp("bad-input")
    with RestartableCluster.running(directory, BROKERS, SETTINGS) as cluster:
        yield cluster


# ---- brokers that are not who they say


def started_with(cluster: RestartableCluster, **settings: str) -> subprocess.CompletedProcess[str]:
    """Broker 0's file with other settings, named with underscores for dots, to its end."""
    file = cluster.dev.directory / "broker-0.properties"
    overrides = {"listeners": "PLAINTEXT://127.0.0.1:0"} | {
        name.replace("_", "."): value for name, value in settings.items()
    }
    words = [word for pair in overrides.items() for word in ("--override", "=".join(pair))]
    return cluster.dev.run("kbroker", "start", str(file), *words)


def test_a_second_broker_of_one_id_is_told_where_the_first_is(
    cluster: RestartableCluster, tmp_path: Path
) -> None:
    refused = started_with(cluster, log_dirs=str(tmp_path))
    assert refused.returncode != 0
    assert "broker id 0 is taken: a broker at 127.0.0.1:" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_broker_on_another_brokers_directory_is_told_whose_it_is(
    cluster: RestartableCluster,
) -> None:
    refused = started_with(cluster, broker_id="9")
    assert refused.returncode != 0
    assert f"{cluster.dev.directory}" in refused.stderr
    assert "broker.id 0 is stored where 9 is expected" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_broker_of_another_cluster_is_told_so(
    cluster: RestartableCluster, tmp_path: Path
) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=8\ncluster.id=elsewhere\n")
    refused = started_with(cluster, broker_id="8", log_dirs=str(tmp_path))
    assert refused.returncode != 0
    assert f"{tmp_path}: cluster.id elsewhere is stored where " in refused.stderr
    assert "zookeeper.connect" in refused.stderr
    assert "Traceback" not in refused.stderr


# ---- nodes edited by hand


async def send(cluster: RestartableCluster, topic: str, value: bytes) -> None:
    async with Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"}) as producer:
        await (await producer.send(topic, value))


async def settled(zk: ZkSession, topic: str) -> None:
    """Return when its first partition is led with a state under the present controller's epoch."""
    async with asyncio.timeout(DEADLINE_S):
        while await zk.exists(PartitionState.path(topic, 0)) is None:
            await asyncio.sleep(POLL_S)


def test_with_an_epoch_nobody_can_read_records_flow_on_and_it_is_mended_by_a_number(
    cluster: RestartableCluster,
) -> None:
    async def scenario() -> None:
        async with Admin(cluster.bootstrap) as admin, cluster.dev.zookeeper_session() as zk:
            await create(admin, NewTopic("flows", 1, BROKERS))
            await zk.set(ControllerEpoch.path(), b"one")
            new = TopicAssignment({0: (0, 1, 2)})
            await zk.create(TopicAssignment.path("uncontrolled"), new.encode())
            await send(cluster, "flows", b"meanwhile")
            while "no controller is elected until" not in "".join(map(cluster.dev.log, range(3))):
                await asyncio.sleep(POLL_S)
            assert await zk.exists(PartitionState.path("uncontrolled", 0)) is None
            await zk.set(ControllerEpoch.path(), b"7")
            await settled(zk, "uncontrolled")
            assert (await partition_state(zk, "uncontrolled", 0)).controller_epoch > 7
            await cluster.in_sync(zk)
            await send(cluster, "uncontrolled", b"mended")

    play(scenario())


def test_with_a_state_nobody_can_read_other_partitions_fail_over(
    cluster: RestartableCluster,
) -> None:
    async def scenario() -> None:
        async with Admin(cluster.bootstrap) as admin, cluster.dev.zookeeper_session() as zk:
            await create(admin, NewTopic("broken", 1, 3), NewTopic("beside", 3, 3))
            path = PartitionState.path("broken", 0)
            good, _ = await zk.get(path)
            await zk.set(path, b'{"leader": "nobody"}')
            leader = (await partition_state(zk, "beside", 0)).leader
            async with cluster.without(leader):
                while (await partition_state(zk, "beside", 0)).leader in (leader, -1):
                    await asyncio.sleep(POLL_S)
                await send(cluster, "beside", b"goes on")
            named = f"left out broken-0: {path}: "
            while named not in "".join(map(cluster.dev.log, range(BROKERS))):
                await asyncio.sleep(POLL_S)
            await zk.set(path, good)
            async with cluster.without(await controller(zk)):  # the next one reads it
                pass
            await cluster.in_sync(zk)
            await send(cluster, "broken", b"mended")

    play(scenario())


# ---- topics


def test_a_topic_deleted_while_a_broker_is_down_comes_back_empty_with_other_partitions(
    cluster: RestartableCluster,
) -> None:
    topic = "phoenix"

    async def scenario() -> None:
        async with Admin(cluster.bootstrap) as admin, cluster.dev.zookeeper_session() as zk:
            await create(admin, NewTopic(topic, 2, BROKERS))
            for _ in range(3):
                await send(cluster, topic, b"old")
            down = (await partition_state(zk, topic, 0)).leader
            async with cluster.without(down):
                await zk.create(DeleteTopic.path(topic), None)
                refused = await admin.create_topics([NewTopic(topic, 5, BROKERS - 1)])
                assert "TOPIC_ALREADY_EXISTS" in str(refused[topic])
            async with asyncio.timeout(DEADLINE_S):
                while (await admin.create_topics([NewTopic(topic, 5, BROKERS)]))[topic] is not None:
                    await asyncio.sleep(POLL_S)
            await cluster.in_sync(zk)
            await send(cluster, topic, b"new")
            found = [
                record.value
                for partition in range(5)
                for record in await contents(cluster.bootstrap, TopicPartition(topic, partition))
            ]
            assert found == [b"new"]

    play(scenario())
