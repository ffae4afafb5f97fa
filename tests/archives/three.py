"""Three brokers with a history, a move that is not over, and a reset that was killed."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from clients.admin import Admin, NewTopic
from clients.producer.producer import Producer
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.clients.kgroup.killed_reset import BEGUN
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT
from tests.stage.waiting import until

BROKERS = ("--brokers", "3")
DIRECTORIES = ("broker-0", "broker-1", "broker-2")
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "log.index.size.max.bytes": "4096",
    "log.cleaner.enable": "false",
    "offsets.retention.minutes": str(2**31 - 1),
}
MOVING = "moving"
TARGET = [0, 2]
"""Where its partition is on its way to."""
GROUP = "killed-reset"
TOPICS = ("spread", "at-least-two", "led-by-many", MOVING)
FIRST_MS = 1_700_000_000_000


def arguments() -> tuple[str, ...]:
    """The options of `kbroker dev`."""
    pairs = (word for pair in SETTINGS.items() for word in ("--set", "=".join(pair)))
    return (*BROKERS, *pairs)


def fill(cluster: DevCluster) -> None:
    """Write while brokers come and go. At the end broker 2 is gone, and a partition moves to it."""
    bootstrap = cluster.address("bootstrap")
    asyncio.run(_create(bootstrap))
    asyncio.run(_send(bootstrap, "all are in sync"))
    # Internal topics are created while all brokers are there.
    asyncio.run(_commit(bootstrap))
    reset = ("reset", GROUP, "--topic", "spread", "--to-offset", "4", "--execute")
    done = cluster.run("kgroup", *reset)
    assert done.returncode == 0, done.stdout + done.stderr

    cluster.kill("broker-2", signal.SIGKILL)
    asyncio.run(_send(bootstrap, "broker 2 is gone"))

    # A leader of its own time, which the others follow.
    with cluster.started_again(2) as broker:
        asyncio.run(_until_in_sync(bootstrap, {0, 1, 2}))
        elected = cluster.run("kbroker", "elect", "preferred", "--all")
        assert elected.returncode == 0, elected.stderr
        asyncio.run(_send(bootstrap, "broker 2 leads"))
        # It counts as alive, and fetches nothing.
        broker.send_signal(signal.SIGSTOP)
        _begin_move(cluster)
        broker.kill()
    asyncio.run(_until_in_sync(bootstrap, {0, 1}))
    asyncio.run(_send(bootstrap, "a move is not over"))
    _kill_reset(cluster)


async def _create(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        created = await admin.create_topics(
            [
                NewTopic("spread", 3, 3, configs={"segment.bytes": "400"}),
                NewTopic("at-least-two", 2, 3, configs={"min.insync.replicas": "2"}),
                NewTopic("led-by-many", assignments={0: [2, 1], 1: [2, 0]}),
                NewTopic(MOVING, assignments={0: [0, 1]}),
            ]
        )
        assert not any(created.values()), created


async def _send(bootstrap: str, what: str) -> None:
    settings = {"bootstrap.servers": bootstrap, "acks": "all"}
    async with Admin(bootstrap) as admin, Producer(settings) as producer:
        described = await admin.describe_topics(TOPICS)
        for topic, description in described.items():
            for partition in description.partitions:
                for number in range(6):
                    value = f"{number} in {topic}-{partition} while {what}"
                    await producer.send_and_wait(
                        topic,
                        value.encode(),
                        key=b"%d" % number,
                        partition=partition,
                        timestamp_ms=FIRST_MS + number,
                    )


async def _until_in_sync(bootstrap: str, brokers: set[int]) -> None:
    """Wait until every partition has those of its replicas in sync that are among these."""

    async def are_in_sync() -> bool:
        async with Admin(bootstrap) as admin:
            described = await admin.describe_topics(TOPICS)
        return all(
            {*partition.isr} == brokers & {*partition.replicas} and partition.leader in brokers
            for topic in described.values()
            for partition in topic.partitions.values()
        )

    await until(are_in_sync, f"brokers {brokers} are in sync")


def _begin_move(cluster: DevCluster) -> None:
    plan = cluster.directory / "plan.json"
    moves = [{"topic": MOVING, "partition": 0, "replicas": TARGET}]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    done = cluster.run("kbroker", "reassign", "execute", str(plan))
    assert done.returncode == 0, done.stdout + done.stderr


async def _commit(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        held = {TopicPartition("spread", p): OffsetAndMetadata(5, "") for p in range(3)}
        await admin.commit_group_offsets(GROUP, held)


def _kill_reset(cluster: DevCluster) -> None:
    killed = subprocess.run(
        [sys.executable, "-m", "tests.clients.kgroup.killed_reset", BEGUN, GROUP, "spread"],
        cwd=ROOT,
        env=cluster.env,
        capture_output=True,
        text=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr


def check_and_end(cluster: DevCluster) -> None:
    """What was begun comes to its end: the move, and the reset."""
    bootstrap = cluster.address("bootstrap")
    asyncio.run(_until_moved(bootstrap))
    asyncio.run(_until_in_sync(bootstrap, {0, 1, 2}))

    (entry,) = [item for item in _journal(cluster) if item["status"] == "begun"]
    assert entry["group"] == GROUP
    (settled,) = _journal(cluster, "--settle", str(entry["id"]))
    assert settled["status"] == "abandoned"


async def _until_moved(bootstrap: str) -> None:
    async def is_there() -> bool:
        async with Admin(bootstrap) as admin:
            (topic,) = (await admin.describe_topics([MOVING])).values()
        return list(topic.partitions[0].replicas) == TARGET

    await until(is_there, "the partition is where it was to go")


def _journal(cluster: DevCluster, *words: str) -> list[dict[str, Any]]:
    done = cluster.run("kgroup", "journal", *words, "-o", "json")
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout)["items"])


def replicas_on_disk(directory: Path, topic: str, partition: int) -> list[bytes]:
    """The batches of each broker that has the partition, all segments in one."""
    logs = (directory / name / f"{topic}-{partition}" for name in DIRECTORIES)
    return [
        b"".join(file.read_bytes() for file in sorted(log.glob("*.log")))
        for log in logs
        if log.is_dir()
    ]
