"""A broker and a group of ours on the ZooKeepers that Kafka came with before."""

import asyncio
from pathlib import Path

import pytest

from clients.high_level.connector import ConsumerConnector
from clients.producer.producer import Producer
from tests.stage.cluster import DevCluster
from tests.stage.waiting import DEADLINE_S
from tests.stage.zookeeper import OLD_VERSIONS, ZooKeepers, zookeeper_session
from zk.znodes import BrokerId

TOPIC, PARTITIONS, MESSAGES = "t", 2, 20


@pytest.mark.parametrize("version", OLD_VERSIONS)
def test_a_broker_makes_its_chroot_and_registers_and_a_group_consumes_without_a_suspension(
    zookeepers: ZooKeepers, tmp_path: Path, version: str
) -> None:
    hosts = f"{zookeepers.server(version).connect_string}/kafka/{version}"

    async def scenario(cluster: DevCluster) -> None:
        async with zookeeper_session(hosts) as zk:
            assert await zk.exists(BrokerId.path(0))

        bootstrap = {"bootstrap.servers": cluster.address("bootstrap")}
        values = {b"%d" % number for number in range(MESSAGES)}
        async with Producer(bootstrap) as producer:
            await asyncio.gather(*[await producer.send(TOPIC, value) for value in values])

        settings = {
            "zookeeper.connect": hosts,
            "group.id": "g",
            "auto.offset.reset": "smallest",
            "zookeeper.session.timeout.ms": "20000",
        }
        async with ConsumerConnector(settings) as connector, asyncio.timeout(DEADLINE_S):
            ((stream,),) = (await connector.create_message_streams({TOPIC: 1})).values()
            consumed = [(await anext(stream)).value for _ in values]
        assert set(consumed) == values

    arguments = ("--zookeeper", hosts, "--set", f"num.partitions={PARTITIONS}")
    with DevCluster(tmp_path, arguments) as cluster:
        asyncio.run(scenario(cluster))
        log = cluster.log()
    assert "connected" in log
    assert "suspended" not in log
