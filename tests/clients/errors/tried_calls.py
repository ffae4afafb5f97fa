"""Every public call of the clients, and brokers that refuse and lie to them."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from clients.admin import (
    LATEST_TIME,
    PREFERRED,
    AclBinding,
    AclEntry,
    AclFilter,
    ConfigResource,
    GroupMemberId,
    NewPartitions,
    NewTopic,
    Operation,
    ResourcePattern,
    ResourceType,
    ScramDeletion,
    TopicPartitionReplica,
)
from clients.errors import KgroupError
from clients.group_metadata import ConsumerGroupMetadata
from clients.high_level.connector import ConsumerConnector
from clients.producer.deliveries import Delivery
from clients.producer.producer import Producer, ProducerData
from clients.producer.shared_delivery import SharedDelivery
from clients.simple_consumer import FetchRequest
from groups.zookeeper.filters import Whitelist
from groups.zookeeper.registration import STATIC
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.records.batch import BatchBuilder
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.clients.lying_broker import (
    HONEST,
    Lie,
    LyingBroker,
    empty,
    garbage,
    garbage_later,
    hanging_up,
    hanging_up_later,
    inventing,
    refusing,
    refusing_all,
    silent,
)
from tests.clients.scripted_broker import ScriptedBroker
from tests.stage.clock import ImpatientLoop, OwnTimeLoop, run_in_own_time
from zk.memory import MemorySession, MemoryZooKeeper
from zk.migration_znodes import GroupMigration, MigrationMember
from zk.znodes import (
    BrokerId,
    ConsumerOffset,
    ConsumerRegistration,
    Endpoint,
    PartitionOwner,
    TopicAssignment,
)

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC = ConfigResource.topic("t")
ENTRY = AclEntry("User:a", Operation.READ)
ACL = AclBinding(ResourcePattern(ResourceType.TOPIC, "t"), ENTRY)
ACL_OF_ALL = AclBinding(ResourcePattern(ResourceType.TOPIC, "*"), ENTRY)
REPLICA = TopicPartitionReplica(P0, 0)

IMPATIENT = {
    "request.timeout.ms": 30,
    "socket.connection.setup.timeout.ms": 30,
    "default.api.timeout.ms": 60,
    "retry.backoff.ms": 5,
    "reconnect.backoff.ms": 1,
    "reconnect.backoff.max.ms": 5,
}

Calls = Mapping[str, Callable[[Any], Awaitable[Any]]]


async def await_delivery(delivery: Awaitable[asyncio.Future[Any]]) -> Any:
    return await (await delivery)


def encoded_batch() -> tuple[BatchBuilder, SharedDelivery]:
    """Return a batch of one record, and what is told how its delivery ends."""
    builder = BatchBuilder()
    builder.try_append(1_000, None, b"v")
    return builder, SharedDelivery(1)


async def send_encoded(producer: Producer) -> None:
    """Send a batch that is encoded already; raise what its delivery ends with."""
    builder, delivery = encoded_batch()
    await producer.send_batch(P0, builder, cast(Delivery, delivery))
    await producer.flush()
    if delivery.error is not None:
        raise delivery.error


async def send_in_transaction(producer: Producer) -> None:
    async with producer.transaction():
        await producer.send("t", b"v")
        await producer.send_offsets_to_transaction(
            {P0: OffsetAndMetadata(1)}, ConsumerGroupMetadata("g", 1, "m")
        )


ADMIN: Calls = {
    "create_topics": lambda admin: admin.create_topics([NewTopic("t", 1, 1)]),
    "create_partitions": lambda admin: admin.create_partitions({"t": NewPartitions(2)}),
    "delete_topics": lambda admin: admin.delete_topics(["t"]),
    "list_topics": lambda admin: admin.list_topics(),
    "describe_topics": lambda admin: admin.describe_topics(["t"]),
    "describe_cluster": lambda admin: admin.describe_cluster(),
    "describe_all": lambda admin: admin.describe_all(),
    "describe_configs": lambda admin: admin.describe_configs([TOPIC, ConfigResource.broker(0)]),
    "describe_each_config": lambda admin: admin.describe_each_config([TOPIC]),
    "alter_configs": lambda admin: admin.alter_configs({TOPIC: {"a": "b"}}),
    "incremental_alter_configs": lambda admin: admin.incremental_alter_configs(
        {TOPIC: {"a": None}}
    ),
    "describe_client_quotas": lambda admin: admin.describe_client_quotas({"user": None}),
    "alter_client_quotas": lambda admin: admin.alter_client_quotas(
        {(("user", "u"),): {"producer_byte_rate": 1.0}}
    ),
    "describe_acls": lambda admin: admin.describe_acls(),
    "create_acls": lambda admin: admin.create_acls([ACL, ACL_OF_ALL]),
    "delete_acls": lambda admin: admin.delete_acls([AclFilter.exactly(ACL), AclFilter()]),
    "alter_partition_reassignments": lambda admin: admin.alter_partition_reassignments({P0: [0]}),
    "list_partition_reassignments": lambda admin: admin.list_partition_reassignments([P0]),
    "describe_user_scram_credentials": lambda admin: admin.describe_user_scram_credentials(["u"]),
    "alter_user_scram_credentials": lambda admin: admin.alter_user_scram_credentials(
        [ScramDeletion("u", "SCRAM-SHA-256")]
    ),
    "elect_leaders": lambda admin: admin.elect_leaders(PREFERRED, [P0]),
    "alter_replica_log_dirs": lambda admin: admin.alter_replica_log_dirs({REPLICA: "/d"}),
    "describe_log_dirs": lambda admin: admin.describe_log_dirs(0),
    "controlled_shutdown": lambda admin: admin.controlled_shutdown(0),
    "list_offsets": lambda admin: admin.list_offsets({P0: LATEST_TIME, P1: 7}),
    "first_timestamps": lambda admin: admin.first_timestamps({P0: 0, P1: 7}),
    "list_groups": lambda admin: admin.list_groups(),
    "groups_of_each_broker": lambda admin: admin.groups_of_each_broker(),
    "describe_groups": lambda admin: admin.describe_groups(["g", "t"]),
    "describe_each_group": lambda admin: admin.describe_each_group(["g", "t"]),
    "group_offsets": lambda admin: admin.group_offsets("g", [P0, P1]),
    "offsets_of_each_group": lambda admin: admin.offsets_of_each_group(["g", "t"]),
    "commit_group_offsets": lambda admin: admin.commit_group_offsets(
        "g", {P0: OffsetAndMetadata(1)}
    ),
    "alter_group_offsets": lambda admin: admin.alter_group_offsets("g", {P0: OffsetAndMetadata(1)}),
    "delete_groups": lambda admin: admin.delete_groups(["g"]),
    "remove_group_members": lambda admin: admin.remove_group_members(
        "g", [GroupMemberId("m"), GroupMemberId("", "i")], "kicked"
    ),
    "delete_group_offsets": lambda admin: admin.delete_group_offsets("g", [P0]),
    "transactions_of_each_broker": lambda admin: admin.transactions_of_each_broker(),
    "list_transactions": lambda admin: admin.list_transactions(
        states=["Ongoing"], producer_ids=[0], min_duration_ms=0
    ),
    "describe_transactions": lambda admin: admin.describe_transactions(["t", "g"]),
    "describe_each_transaction": lambda admin: admin.describe_each_transaction(["t", "g"]),
    "fence_producers": lambda admin: admin.fence_producers(["t", "g"]),
    "describe_producers": lambda admin: admin.describe_producers([P0, P1]),
    "producers_of_each_partition": lambda admin: admin.producers_of_each_partition(
        [P0, P1], broker=0
    ),
    "abort_transaction": lambda admin: admin.abort_transaction(P0, 0, 0),
}

SIMPLE_CONSUMER: Calls = {
    "fetch": lambda consumer: consumer.fetch(FetchRequest("t", 0, 0)),
    "multifetch": lambda consumer: consumer.multifetch(
        [FetchRequest("t", 0, 0), FetchRequest("t", 0, 5), FetchRequest("t", 1, 0)]
    ),
    "get_offsets_before": lambda consumer: consumer.get_offsets_before("t", 0, LATEST_TIME, 2),
    "earliest_or_latest_offset": lambda consumer: consumer.earliest_or_latest_offset(
        "t", 0, LATEST_TIME
    ),
    "commit_offsets": lambda consumer: consumer.commit_offsets("g", {P0: 1}),
    "fetch_offsets": lambda consumer: consumer.fetch_offsets("g", [P0, P1]),
    "find_coordinator": lambda consumer: consumer.find_coordinator("g"),
}

PRODUCER: Calls = {
    "send": lambda producer: await_delivery(producer.send("t", b"v")),
    "send_and_wait": lambda producer: producer.send_and_wait("t", b"v", key=b"k", partition=0),
    "send_many": lambda producer: await_delivery(
        producer.send_many("t", [b"v", b"w"], [b"k", None])
    ),
    "send_batch": send_encoded,
    "partitions": lambda producer: producer.partitions("t"),
    "flush": lambda producer: producer.flush(),
}

TRANSACTIONS: Calls = {
    "init_transactions": lambda producer: producer.init_transactions(),
    "begin_transaction": lambda producer: producer.begin_transaction(),
    "transaction": send_in_transaction,
    "send_offsets_to_transaction": lambda producer: producer.send_offsets_to_transaction(
        {P0: OffsetAndMetadata(1)}, ConsumerGroupMetadata("g", 1, "m")
    ),
    "commit_transaction": lambda producer: producer.commit_transaction(),
    "abort_transaction": lambda producer: producer.abort_transaction(),
}

OLD_PRODUCER: Calls = {
    "send": lambda producer: producer.send(ProducerData("t", b"k", [b"v", b"w"])),
    "flush": lambda producer: producer.flush(),
}

MADE_OR_ENDED = {"close", "for_leader", "shutdown"}
"""Calls that each test of a client makes anyway."""
ASK_NOBODY = {"use_numbers", "note_unknown"}
"""Calls that no broker hears of."""


def public_calls(client: type) -> set[str]:
    return {
        name for name, member in inspect.getmembers(client, callable) if not name.startswith("_")
    }


CODES = [
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
]
NOTHING_HONEST: frozenset[ApiKey] = frozenset()
VERSIONS_HONEST = frozenset({ApiKey.API_VERSIONS})
STORIES = 6


def lies() -> Iterator[Any]:
    for lie in (silent, hanging_up, hanging_up_later, garbage, garbage_later, empty):
        yield pytest.param(lie, id=lie.__name__)
    for code in CODES:
        yield pytest.param(refusing(code), id=f"refusing-{code.name}")
        yield pytest.param(refusing_all(code), id=f"refusing-all-{code.name}")
    for seed in range(STORIES):
        yield pytest.param(inventing(seed, HONEST), id=f"inventing-{seed}")
        yield pytest.param(inventing(seed, VERSIONS_HONEST), id=f"inventing-metadata-too-{seed}")
    yield pytest.param(inventing(0, NOTHING_HONEST), id="inventing-all")


async def outcomes(client: Any, calls: Calls, times: int) -> None:
    """Make all calls at the same time, twice; only KgroupError may be raised."""
    for _ in range(times):
        raised = await asyncio.gather(
            *(call(client) for call in calls.values()), return_exceptions=True
        )
        wrong = {
            name: error
            for name, error in zip(calls, raised, strict=True)
            if isinstance(error, BaseException) and not isinstance(error, KgroupError)
        }
        for error in wrong.values():
            raise error
        assert not wrong


def against(
    lie: Lie,
    scene: Callable[[str], Awaitable[None]],
    shift: int = 0,
    *,
    is_asked: bool = True,
    truth: ScriptedBroker | None = None,
    loop: Callable[[], OwnTimeLoop] = ImpatientLoop,
) -> None:
    """Run a scene with the address of a broker that tells this lie, where it is not honest.

    `is_asked` is False where the scene may end before a request is sent. `loop` is a patient one
    for a scene with threads, for what comes from them may take a while.
    """

    async def run() -> None:
        async with LyingBroker(lie, truth or ScriptedBroker({"t": 2}), shift) as broker:
            await scene(broker.bootstrap)
        assert broker.num_requests or not is_asked, "nobody was lied to"

    run_in_own_time(run(), loop=loop)


async def stream_of(connector: ConsumerConnector) -> Any:
    """Join, and read a message."""
    streams = await connector.create_message_streams({"t": 1})
    return await anext(streams["t"][0])


async def streams_of_a_filter(connector: ConsumerConnector) -> Any:
    streams = await connector.create_message_streams_by_filter(Whitelist("t"))
    return await anext(streams[0])


async def listener_set(connector: ConsumerConnector) -> None:
    connector.set_consumer_rebalance_listener(None)  # type: ignore[arg-type]


async def assigned(connector: ConsumerConnector) -> frozenset[TopicPartition]:
    return connector.assignment()


async def position(connector: ConsumerConnector) -> None:
    """Join, and look where each partition stands, if any is ours by then."""
    await stream_of(connector)
    for partition in connector.assignment():
        connector.position(partition)


async def seek_to_committed(connector: ConsumerConnector) -> None:
    await stream_of(connector)
    await connector.seek_to_committed()


async def group_metadata(connector: ConsumerConnector) -> None:
    connector.group_metadata()


async def pause(connector: ConsumerConnector) -> None:
    await stream_of(connector)
    connector.pause(*connector.assignment())


async def resume(connector: ConsumerConnector) -> None:
    await stream_of(connector)
    connector.resume(*connector.assignment())


async def seek(connector: ConsumerConnector) -> None:
    await stream_of(connector)
    for partition in connector.assignment():
        await connector.seek(partition, LATEST_TIME)


CONNECTOR: Calls = {
    "set_consumer_rebalance_listener": listener_set,
    "create_message_streams": stream_of,
    "create_message_streams_by_filter": streams_of_a_filter,
    "commit": lambda connector: connector.commit(SimpleNamespace(topic_partition=P0, offset=0)),
    "commit_offsets": lambda connector: connector.commit_offsets({P0: OffsetAndMetadata(1)}),
    "assignment": assigned,
    "position": position,
    "group_metadata": group_metadata,
    "seek_to_committed": seek_to_committed,
    "committed": lambda connector: connector.committed(P0),
    "pause": pause,
    "resume": resume,
    "seek": seek,
}
MEMBER = {
    "group.id": "g",
    "zookeeper.connect": "z:1",
    "zookeeper.connection.timeout.ms": 50,
    "consumer.timeout.ms": 60,
    "rebalance.backoff.ms": 5,
    "rebalance.max.retries": 1,
    "refresh.leader.backoff.ms": 5,
    "socket.timeout.ms": 30,
    "fetch.wait.max.ms": 10,
    "offsets.channel.socket.timeout.ms": 30,
    "offsets.channel.backoff.ms": 5,
    "offsets.commit.max.retries": 1,
    "auto.commit.interval.ms": 20,
    "auto.offset.reset": "smallest",
}
MEMBER_AT_A_COORDINATOR = {
    "group.id": "g",
    "membership": "coordinator",
    "heartbeat.interval.ms": 10,
    "fetch.max.wait.ms": 10,
    "consumer.timeout.ms": 60,
    "auto.commit.interval.ms": 20,
    "auto.offset.reset": "earliest",
    **IMPATIENT,
}

TOPICS = {TopicAssignment.path("t"): TopicAssignment({0: (0,), 1: (0,)}).encode()}


async def tree_of(nodes: Mapping[str, bytes]) -> MemorySession:
    zk = MemoryZooKeeper().session()
    await zk.start()
    for path, content in nodes.items():
        await zk.create(path, content, make_parents=True)
    return zk


async def tree_with(content: bytes | None = None) -> MemorySession:
    """Return a session on a group's tree; `content` replaces the data of its nodes."""
    honest = {
        **TOPICS,
        ConsumerOffset.path("g", "t", 0): ConsumerOffset(3).encode(),
        PartitionOwner.path("g", "t", 0): b"g_a-0",
        ConsumerRegistration.path("g", "g_b"): ConsumerRegistration({"t": 1}, STATIC, 0).encode(),
        GroupMigration.path("g"): b"",
        MigrationMember.path("g", "g_b"): MigrationMember(0, "zookeeper").encode(),
        "/brokers/ids/0": BrokerId((Endpoint("PLAINTEXT", "127.0.0.1", 1),), 0).encode(),
    }
    return await tree_of(honest if content is None else dict.fromkeys(honest, content))
