"""Fill a cluster with something of every kind that brokers and groups keep."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from clients.admin import Admin, ConfigResource, NewTopic
from clients.cluster import Cluster
from clients.high_level.connector import ConsumerConnector
from clients.producer.producer import Producer
from offsets.migration import Command
from protocol.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.cluster import DevCluster
from tests.stage.raw_transaction import RawTransaction, run_with_cluster
from tests.stage.topic_contents import contents
from tests.stage.waiting import until

DIRECTORIES = ("disk-a", "disk-b")
FOREVER_MIN = 2**31 - 1
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "log.index.size.max.bytes": "4096",
    "offsets.retention.minutes": str(FOREVER_MIN),
    "transactional.id.expiration.ms": str(FOREVER_MIN),
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""Of brokers that write an archive, and of those that start on it: nothing is too old."""
CLEANING = {"log.cleaner.backoff.ms": "200"}
RESTING = {"log.cleaner.enable": "false"}

FIRST_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FORMATS = ("0.9.0", "0.10.1", "0.11.0")
_COMPACTED = {
    "segment.bytes": "300",
    "min.cleanable.dirty.ratio": "0.0",
    "delete.retention.ms": "86400000",
}


def arguments(directory: Path, *more: Mapping[str, str]) -> tuple[str, ...]:
    """The options of `kbroker dev` for an archive that lies at `directory`."""
    dirs = ",".join(str(directory / name) for name in DIRECTORIES)
    settings = {"log.dirs": dirs, **SETTINGS}
    for others in more:
        settings |= others
    return tuple(word for pair in settings.items() for word in ("--set", "=".join(pair)))


def fill(cluster: DevCluster) -> None:
    """Write one of everything. What is open when the cluster ends stays open."""
    asyncio.run(_fill_topics(cluster.address("bootstrap")))
    asyncio.run(_fill_transactions(cluster.address("bootstrap")))
    asyncio.run(_fill_groups(cluster))
    _migrate(cluster)
    _reset(cluster)
    _alter(cluster)


# ---- topics


async def _fill_topics(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        topics = {
            "small-segments": {"segment.bytes": "400"},
            "emptied": {"segment.bytes": "300"},
            "compacted": {"cleanup.policy": "compact", **_COMPACTED},
            "compacted-and-deleted": {"cleanup.policy": "compact,delete", **_COMPACTED},
            "compacted-once": {"cleanup.policy": "compact", **_COMPACTED},
            "append-time": {"message.timestamp.type": "LogAppendTime"},
            "mixed-formats": {"message.format.version": "0.9.0", "segment.bytes": "400"},
            **{f"codec-{codec}": {"compression.type": "producer"} for codec in CODECS},
            **{f"format-{number}": {"message.format.version": number} for number in FORMATS},
        }
        created = await admin.create_topics(
            NewTopic(name, 2, 1, configs=configs) for name, configs in topics.items()
        )
        assert not any(created.values()), created

        for codec in CODECS:
            await _send(bootstrap, f"codec-{codec}", compression_type=codec)
        for number, codec in zip(FORMATS, ("snappy", "gzip", "lz4"), strict=True):
            await _send(bootstrap, f"format-{number}")
            await _send(bootstrap, f"format-{number}", compression_type=codec)
        for name in ("small-segments", "append-time", "emptied", "mixed-formats"):
            await _send(bootstrap, name)
        for name in ("compacted", "compacted-and-deleted", "compacted-once"):
            await _send_to_compact(bootstrap, name)

        mixed = ConfigResource.topic("mixed-formats")
        verdicts = await admin.alter_configs({mixed: {"segment.bytes": "400"}})
        assert not any(verdicts.values()), verdicts
        await _send(bootstrap, "mixed-formats")

        # A deleted topic's files wait for their removal; one of its name may be there again.
        for name in ("deleted", "made-again"):
            created = await admin.create_topics([NewTopic(name, 1, 1)])
            assert not any(created.values()), created
            await _send(bootstrap, name)
            await admin.delete_topics([name])
        await until(partial(_is_created, admin, "made-again"), "the topic is created again")
        await _send(bootstrap, "made-again")

        # An emptied log begins where it ends.
        partition = TopicPartition("emptied", 0)
        await _delete_records(bootstrap, partition)
        # Compaction has left holes in a log that is compacted no more.
        once = ConfigResource.topic("compacted-once")
        verdicts = await admin.alter_configs({once: {"segment.bytes": "300"}})
        assert not any(verdicts.values()), verdicts


async def _is_created(admin: Admin, name: str) -> bool:
    """Create a topic, unless the one of its name is being deleted."""
    return not any((await admin.create_topics([NewTopic(name, 2, 1)])).values())


async def _send(bootstrap: str, topic: str, **settings: object) -> None:
    async with Producer({"bootstrap.servers": bootstrap}, **settings) as producer:
        for number in range(24):
            headers = (
                [("h", b"%d" % number)] if not topic.startswith(("format-0.", "mixed")) else []
            )
            await producer.send_and_wait(
                topic,
                b"value %d of " % number + topic.encode(),
                key=b"key-%d" % (number % 7) if number % 5 else None,
                partition=0 if topic in ("deleted", "made-again") else number % 2,
                headers=headers,
                timestamp_ms=FIRST_MS + number * 1000,
            )


async def _send_to_compact(bootstrap: str, topic: str) -> None:
    """Keys that come again, tombstones among them, until the cleaner has removed records."""
    async with Producer({"bootstrap.servers": bootstrap}) as producer:
        for number in range(40):
            value = None if number in (20, 21) else b"%d" % number
            await producer.send_and_wait(
                topic,
                value,
                key=b"key-%d" % (number % 4),
                partition=0,
                timestamp_ms=FIRST_MS + number,
            )

    async def is_cleaned() -> bool:
        return len(await contents(bootstrap, TopicPartition(topic, 0))) < 20

    await until(is_cleaned, f"{topic} is compacted")


async def _delete_records(bootstrap: str, partition: TopicPartition) -> None:
    async def delete(cluster: Cluster) -> None:
        part = DeleteRecordsRequestPartition(partition_index=partition.partition, offset=-1)
        topic = DeleteRecordsRequestTopic(name=partition.topic, partitions=[part])
        leader = await cluster.leader(partition)
        connection = await cluster.connection(leader)
        response = await connection.call(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000))
        assert response.topics[0].partitions[0].error_code == 0

    await run_with_cluster(bootstrap, delete)


# ---- transactions and idempotent producers


async def _fill_transactions(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        names = ("transactions", "open-transaction", "idempotent")
        await admin.create_topics(
            NewTopic(name, 1, 1, configs={"segment.bytes": "400"}) for name in names
        )
    async with Producer({"bootstrap.servers": bootstrap}, enable_idempotence=True) as producer:
        for number in range(12):
            await producer.send_and_wait(
                "idempotent", b"%d" % number, partition=0, timestamp_ms=FIRST_MS + number
            )

    async def transact(cluster: Cluster) -> None:
        closed, still_open = (
            TopicPartition("transactions", 0),
            TopicPartition("open-transaction", 0),
        )
        for number in range(6):
            name = "commits" if number % 2 else "aborts"
            transaction = await RawTransaction.begin(cluster, name)
            await transaction.add(closed)
            await transaction.add_group("group-in-transactions")
            await transaction.write(closed, b"%s %d" % (name.encode(), number), FIRST_MS + number)
            await transaction.commit_offset("group-in-transactions", closed, number)
            await transaction.end(commits=name == "commits")
        transaction = await RawTransaction.begin(cluster, "stays-open")
        await transaction.add(still_open)
        await transaction.write(still_open, b"open", FIRST_MS)

    await run_with_cluster(bootstrap, transact)


# ---- groups


async def _fill_groups(cluster: DevCluster) -> None:
    where = {
        "bootstrap.servers": cluster.address("bootstrap"),
        "zookeeper.connect": cluster.address("zookeeper"),
    }
    async with Admin(where["bootstrap.servers"]) as admin:
        await admin.commit_group_offsets(
            "offsets-alone", {TopicPartition("codec-none", 0): OffsetAndMetadata(5, "a note")}
        )
        await admin.commit_group_offsets(
            "to-be-reset",
            {TopicPartition("codec-none", p): OffsetAndMetadata(9, "") for p in (0, 1)},
        )
    kinds = {
        "at-coordinator": {"membership": "coordinator"},
        "static": {
            "membership": "coordinator",
            "group.instance.id": "instance-1",
            "session.timeout.ms": "1800000",
        },
        "in-zookeeper": {"membership": "zookeeper", "offsets.storage": "zookeeper"},
        "in-both": {
            "membership": "zookeeper",
            "offsets.storage": "kafka",
            "dual.commit.enabled": "true",
        },
    }
    for group, kind in kinds.items():
        at = "zookeeper.connect" if kind["membership"] == "zookeeper" else "bootstrap.servers"
        await _consume(group, {**kind, at: where[at]})


async def _consume(group: str, settings: Mapping[str, str]) -> None:
    given = {"group.id": group, "auto.offset.reset": "earliest", **settings}
    if given["membership"] == "zookeeper":
        given["auto.offset.reset"] = "smallest"
    async with ConsumerConnector(given) as connector:
        (stream,) = (await connector.create_message_streams({"codec-none": 1}))["codec-none"]
        for _ in range(8):
            await anext(stream)
        await connector.commit_offsets()


def _migrate(cluster: DevCluster) -> None:
    """Groups whose offsets are on their way to Kafka, one at each step, without members now."""
    steps = ("start", "verify", "finalize", "rollback")
    stages = {
        "migration-started": ("start",),
        "migration-verified": ("start", "verify"),
        "migration-finalized": ("start", "verify", "finalize"),
        "migration-rolled-back": ("start", "rollback"),
    }
    assert set(steps) <= set(Command)
    for group, verbs in stages.items():
        member = cluster.begin(
            "kgroup",
            *("consume", "--topic", "codec-none", "--group", group, "--from-beginning"),
            *("--property", "offsets.storage=zookeeper"),
            *("--property", "auto.commit.interval.ms=100"),
        )
        try:
            for _ in range(24):
                assert member.stdout is not None
                assert member.stdout.readline()
            for verb in verbs:
                proof = ("--seconds", "1") if verb in ("verify", "rollback") else ()
                done = cluster.run("kgroup", "migrate", verb, group, *proof)
                assert done.returncode == 0, f"{group} {verb}: {done.stdout}{done.stderr}"
        finally:
            member.terminate()
            member.communicate()


def _reset(cluster: DevCluster) -> None:
    reset = ("reset", "to-be-reset", "--all-topics", "--execute")
    _run(cluster, "kgroup", *reset, "--to-earliest", "--reason", "for the archive")
    _run(cluster, "kgroup", *reset, "--to-offset", "4")
    _run(cluster, "kgroup", "undo", "2")


# ---- what administrators set


def _alter(cluster: DevCluster) -> None:
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        words = ("users", "create", "alice", "--mechanism", mechanism, "--password-stdin")
        done = cluster.run("kbroker", *words, stdin="secret\n")
        assert done.returncode == 0, done.stderr
    acl = ("acls", "add", "--allow-principal", "User:alice")
    _run(cluster, "kbroker", *acl, "--operation", "Read", "--topic", "codec-none")
    _run(
        cluster,
        "kbroker",
        *(*acl, "--producer", "--topic", "codec-"),
        *("--resource-pattern-type", "prefixed"),
    )
    _run(
        cluster,
        "kbroker",
        "acls",
        "add",
        "--deny-principal",
        "User:*",
        "--deny-host",
        "198.51.100.3",
        "--cluster",
    )
    quotas = ("quotas", "alter", "--add")
    _run(cluster, "kbroker", *quotas, "producer_byte_rate=100000000", "--user", "alice")
    _run(cluster, "kbroker", *quotas, "consumer_byte_rate=100000000", "--client-default")
    _run(cluster, "kbroker", *quotas, "connection_creation_rate=100000", "--ip", "127.0.0.9")
    configs = ("configs", "alter")
    _run(cluster, "kbroker", *configs, "--broker-defaults", "--add", "log.cleaner.threads=2")
    _run(
        cluster,
        "kbroker",
        *configs,
        "--broker",
        "0",
        "--add",
        "log.flush.interval.messages=1000000",
    )
    _run(cluster, "kbroker", *configs, "--topic", "codec-none", "--add", "retention.ms=-1")


def _run(cluster: DevCluster, program: str, *words: str) -> None:
    done = cluster.run(program, *words)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
