"""Names and settings a broker refuses, and znodes that nobody can read."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from clients.admin import Admin, NewTopic
from clients.high_level.connector import ConsumerConnector
from clients.producer.producer import Producer
from groups.zookeeper.filters import Whitelist
from protocol.errors import ErrorCode
from protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestAssignment,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
)
from protocol.messages.metadata import MetadataRequest
from protocol.topic_partition import TopicPartition
from tests.cluster.consumer_group import MemberProcesses
from tests.cluster.raw_client import RawClient
from tests.stage.cluster import DevCluster
from tests.stage.waiting import block_until

METADATA_VERSION, CREATE_VERSION = 5, 3
PATIENCE_S = 30.0


def topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    configs: dict[str, str] | None = None,
    assignments: Sequence[tuple[int, list[int]]] = (),
) -> CreateTopicsRequestTopic:
    return CreateTopicsRequestTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreateTopicsRequestAssignment(partition_index=p, broker_ids=b) for p, b in assignments
        ],
        configs=[CreateTopicsRequestConfig(name=k, value=v) for k, v in (configs or {}).items()],
    )


BAD_TOPICS = [
    (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (topic("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (topic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (topic("ümlaut"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (topic("with_under"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (topic("none", partitions=0), ErrorCode.INVALID_PARTITIONS),
    (topic("unreplicated", replicas=0), ErrorCode.INVALID_REPLICATION_FACTOR),
    (topic("replicated", replicas=2), ErrorCode.INVALID_REPLICATION_FACTOR),
    (topic("unheard-of", configs={"no.such": "1"}), ErrorCode.INVALID_CONFIG),
    (topic("worded", configs={"retention.ms": "long"}), ErrorCode.INVALID_CONFIG),
    (topic("below", configs={"segment.bytes": "13"}), ErrorCode.INVALID_CONFIG),
    (topic("both", assignments=[(0, [0])]), ErrorCode.INVALID_REQUEST),
    (
        topic("replica-twice", -1, -1, assignments=[(0, [0, 0])]),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ),
    (
        topic("gap", -1, -1, assignments=[(1, [0])]),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ),
]


def test_each_bad_topic_has_its_error_and_the_good_ones_beside_it_are_created(
    dev_cluster: DevCluster,
) -> None:
    with RawClient(dev_cluster) as client:
        first = CreateTopicsRequest(
            topics=[topic("with.under")], timeout_ms=10_000, validate_only=False
        )
        assert client.ask(first, CREATE_VERSION).topics[0].error_code == ErrorCode.NONE
        request = CreateTopicsRequest(
            topics=[*(bad for bad, _ in BAD_TOPICS), topic("good-beside-bad")],
            timeout_ms=10_000,
            validate_only=False,
        )
        answer = client.ask(request, CREATE_VERSION)
        assert {t.name: ErrorCode.of(t.error_code).name for t in answer.topics} == {
            **{bad.name: code.name for bad, code in BAD_TOPICS},
            "good-beside-bad": "NONE",
        }
        assert all(t.error_message for t in answer.topics if t.error_code)
        metadata = client.ask(
            MetadataRequest(topics=None, allow_auto_topic_creation=False), METADATA_VERSION
        )
        created = {t.name for t in metadata.topics}
        assert created & {bad.name for bad, _ in BAD_TOPICS} == set()
        assert {"with.under", "good-beside-bad"} <= created


# ---- znodes

UNREADABLE = {
    "no-json": b"no JSON",
    "empty": None,
    "odd": b'{"version": 1, "partitions": {"zero": "0"}}',
}


async def test_a_topic_nobody_can_read_is_named_and_others_are_created_and_led(
    dev_cluster: DevCluster,
) -> None:
    bootstrap = dev_cluster.address("bootstrap")
    async with dev_cluster.zookeeper_session() as zk, Admin(bootstrap) as admin:
        for name, content in UNREADABLE.items():
            await zk.create(f"/brokers/topics/{name}", content)
        try:
            assert await admin.create_topics([NewTopic("beside", 2, 1)]) == {"beside": None}
            assert set((await admin.describe_topics(["beside"]))["beside"].partitions) == {0, 1}
            assert {*UNREADABLE} & {*await admin.list_topics()} == set()
            said = dev_cluster.log()
            assert all(f"left out {name}: /brokers/topics/" in said for name in UNREADABLE)
        finally:
            for name in UNREADABLE:
                await zk.delete(f"/brokers/topics/{name}")


async def test_a_member_nobody_can_read_is_named_and_the_others_consume_on_and_wait_for_its_end(
    dev_cluster: DevCluster, tmp_path: Path
) -> None:
    """Members that cannot know what it consumes must not share its partitions among themselves."""
    bootstrap, partition = dev_cluster.address("bootstrap"), TopicPartition("read", 1)
    async with dev_cluster.zookeeper_session() as zk, Admin(bootstrap) as admin:
        assert await admin.create_topics([NewTopic("read", 2, 1)]) == {"read": None}
        nonsense = "/consumers/readers/ids/readers_x"
        with MemberProcesses(dev_cluster, "readers", "read", 2, {}, tmp_path) as group:
            group.start("a")
            async with Producer(bootstrap_servers=bootstrap) as producer:
                # A member that has not joined yet would give up: it owns partitions before it has.
                sent = await producer.send_and_wait("read", b"before", partition=1)
                await group.consumes({partition: {sent.offset: b"before"}}, PATIENCE_S)
                await zk.create(nonsense, b"no JSON")
                await asyncio.to_thread(
                    block_until, lambda: nonsense in group.errors("a"), "its name"
                )
                sent = await producer.send_and_wait("read", b"while", partition=1)
                await group.consumes({partition: {sent.offset: b"while"}}, PATIENCE_S)
            await zk.delete(nonsense)
            group.start("b")
            await group.settled(zk, PATIENCE_S)


async def test_a_broker_and_a_topic_nobody_can_read_do_not_keep_a_consumer_from_the_others(
    dev_cluster: DevCluster,
) -> None:
    bootstrap, zookeeper = dev_cluster.address("bootstrap"), dev_cluster.address("zookeeper")
    async with dev_cluster.zookeeper_session() as zk, Producer(bootstrap_servers=bootstrap) as out:
        await out.send_and_wait("filtered-1", b"here")
        nonsense = ("/brokers/ids/77", "/brokers/ids/x", "/brokers/topics/filtered-2")
        for path in nonsense:
            await zk.create(path, b"no JSON")
        try:
            async with ConsumerConnector(
                zookeeper_connect=zookeeper, group_id="filtering", auto_offset_reset="smallest"
            ) as connector:
                async with asyncio.timeout(PATIENCE_S):
                    (stream,) = await connector.create_message_streams_by_filter(
                        Whitelist("filtered-.*")
                    )
                    assert (await anext(stream)).value == b"here"
        finally:
            for path in nonsense:
                await zk.delete(path)
