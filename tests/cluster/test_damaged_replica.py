"""Bits that flip in what was synced, on a cluster of three brokers, and what becomes of it.

Where other replicas have the records they are fetched again, whether the damaged one followed or
led. Where none has, the partition alone is off-line, until an operator has it cut.
"""

import asyncio
from pathlib import Path

from clients.admin import Admin, NewTopic
from clients.producer.producer import Producer
from core_log.checkpoint import RECOVERY_POINTS, decode_offsets
from protocol.topic_partition import TopicPartition
from tests.cluster.restartable_cluster import (
    POLL_S,
    RestartableCluster,
    create,
    partition_state,
    play,
)
from tests.stage.topic_contents import contents
from tests.stage.waiting import DEADLINE_S

BROKERS = 3
SETTINGS = {
    "zookeeper.session.timeout.ms": "3000",
    "log.flush.interval.messages": "1",
    "log.flush.offset.checkpoint.interval.ms": "200",
    "auto.leader.rebalance.enable": "false",
}
COUNT = 50
KEPT, ALONE, OTHER = (TopicPartition(topic, 0) for topic in ("kept", "alone", "other"))


def log_file(cluster: RestartableCluster, broker: int, partition: TopicPartition) -> Path:
    [file] = (cluster.dev.directory / f"broker-{broker}" / str(partition)).glob("*.log")
    return file


def flip(file: Path) -> None:
    """One bit in the middle."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


async def filled(cluster: RestartableCluster, partition: TopicPartition) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        for number in range(COUNT):
            await producer.send_and_wait(partition.topic, b"%d" % number, partition=0)


async def synced(cluster: RestartableCluster, broker: int, partition: TopicPartition) -> None:
    """Return when its checkpoint says that all is on disk."""
    checkpoint = cluster.dev.directory / f"broker-{broker}" / RECOVERY_POINTS
    async with asyncio.timeout(DEADLINE_S):
        while not checkpoint.exists():
            await asyncio.sleep(POLL_S)
        while decode_offsets(checkpoint.read_bytes()).get(partition) != COUNT:
            await asyncio.sleep(POLL_S)


async def values(cluster: RestartableCluster, partition: TopicPartition) -> list[int]:
    return [int(r.value or b"") for r in await contents(cluster.bootstrap, partition)]


def test_what_a_replica_has_lost_it_fetches_again_whether_it_followed_or_led(
    tmp_path: Path,
) -> None:
    async def scenario(cluster: RestartableCluster) -> None:
        async with Admin(cluster.bootstrap) as admin:
            await create(admin, NewTopic("kept", 1, 3))
        await filled(cluster, KEPT)
        async with cluster.dev.zookeeper_session() as zk:
            await cluster.in_sync(zk)
            for follows in (True, False):
                leader = (await partition_state(zk, "kept", 0)).leader
                damaged = (leader + 1) % BROKERS if follows else leader
                await synced(cluster, damaged, KEPT)
                intact = log_file(cluster, damaged, KEPT).read_bytes()
                said_before = len(cluster.dev.log(damaged))
                await cluster.stop(damaged)
                flip(log_file(cluster, damaged, KEPT))
                await cluster.start(damaged)
                async with asyncio.timeout(DEADLINE_S):
                    while log_file(cluster, damaged, KEPT).read_bytes() != intact:
                        await asyncio.sleep(POLL_S)
                await cluster.in_sync(zk)
                log = cluster.dev.log(damaged)[said_before:]
                assert log.count("kept-0 is offline: it has lost offsets 25 to 49") == 1
                assert (
                    log.count("kept-0 is truncated at its damage: it loses offsets 25 to 49") == 1
                )
        assert await values(cluster, KEPT) == list(range(COUNT))

    with RestartableCluster.running(tmp_path, BROKERS, SETTINGS) as cluster:
        play(scenario(cluster))


def test_without_another_replica_one_partition_is_off_line_until_it_is_repaired(
    tmp_path: Path,
) -> None:
    async def scenario(cluster: RestartableCluster) -> None:
        async with Admin(cluster.bootstrap) as admin:
            topics = [NewTopic("alone", 1, 1), NewTopic("other", 1, 1)]
            assert await admin.create_topics(topics) == {"alone": None, "other": None}
        for partition in (ALONE, OTHER):
            await filled(cluster, partition)
        await synced(cluster, 0, ALONE)
        await cluster.stop(0)
        flip(log_file(cluster, 0, ALONE))
        await cluster.start(0)
        assert await values(cluster, OTHER) == list(range(COUNT))
        async with Admin(cluster.bootstrap) as admin, asyncio.timeout(DEADLINE_S):
            while (await admin.describe_topics(["alone"]))["alone"].partitions[0].leader != -1:
                await asyncio.sleep(POLL_S)
        assert cluster.dev.log(0).count("alone-0 is offline: it has lost offsets 25 to 49") == 1
        await cluster.stop(0)
        directory = log_file(cluster, 0, ALONE).parent
        told = await asyncio.to_thread(
            cluster.dev.run, "kbroker", "log", "repair", str(directory), "--yes"
        )
        assert told.returncode == 0, told.stderr
        assert "alone-0 was truncated, it has lost offsets 25 to 49" in told.stdout
        await cluster.start(0)
        assert await values(cluster, ALONE) == list(range(25))
        assert await values(cluster, OTHER) == list(range(COUNT))

    with RestartableCluster.running(tmp_path, 1, SETTINGS) as cluster:
        play(scenario(cluster))
