"""Users get no other error than KgroupError if a client's peers are dead, refuse, or lie."""

import asyncio
import inspect
import queue
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

import clients.errors
import groups.zookeeper.member
import offsets.store
from clients import blocking
from clients.admin import (
    LATEST_TIME,
    PREFERRED,
    Admin,
    ConfigResource,
    NewPartitions,
    NewTopic,
    TopicPartitionReplica,
)
from clients.errors import (
    BrokerError,
    ClientError,
    CommitFailed,
    CompressionUnavailable,
    KgroupError,
    SettingError,
    ZooKeeperError,
    from_zookeeper,
)
from clients.group_reader import GroupReader
from clients.high_level.connector import ConsumerConnector
from clients.migrator import Migrator
from clients.producer.producer import Producer, ProducerData
from clients.sessions import Sessions
from clients.simple_consumer import FetchRequest, SimpleConsumer
from groups.zookeeper.filters import Whitelist
from groups.zookeeper.registration import STATIC
from offsets.migration import Command, Run
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import FetchResponse, FetchResponsePartition, FetchResponseTopic
from protocol.messages.list_offsets import (
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from protocol.records.batch import encode_batch
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
from tests.stage.clock import run_in_own_time
from zk.api import ConnectionLoss, NoAuth, NoNode, SessionExpired
from zk.memory import MemorySession, MemoryZooKeeper
from zk.migration_znodes import GroupMigration, MigrationMember, OffsetStorage
from zk.znodes import (
    BrokerId,
    ConsumerOffset,
    ConsumerRegistration,
    Endpoint,
    PartitionOwner,
    TopicAssignment,
    ZnodeError,
)

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC = ConfigResource.topic("t")
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


ADMIN: Calls = {
    "create_topics": lambda admin: admin.create_topics([NewTopic("t", 1, 1)]),
    "create_partitions": lambda admin: admin.create_partitions({"t": NewPartitions(2)}),
    "delete_topics": lambda admin: admin.delete_topics(["t"]),
    "list_topics": lambda admin: admin.list_topics(),
    "describe_topics": lambda admin: admin.describe_topics(["t"]),
    "describe_cluster": lambda admin: admin.describe_cluster(),
    "describe_all": lambda admin: admin.describe_all(),
    "describe_configs": lambda admin: admin.describe_configs([TOPIC, ConfigResource.broker(0)]),
    "alter_configs": lambda admin: admin.alter_configs({TOPIC: {"a": "b"}}),
    "incremental_alter_configs": lambda admin: admin.incremental_alter_configs(
        {TOPIC: {"a": None}}
    ),
    "alter_partition_reassignments": lambda admin: admin.alter_partition_reassignments({P0: [0]}),
    "list_partition_reassignments": lambda admin: admin.list_partition_reassignments([P0]),
    "elect_leaders": lambda admin: admin.elect_leaders(PREFERRED, [P0]),
    "alter_replica_log_dirs": lambda admin: admin.alter_replica_log_dirs({REPLICA: "/d"}),
    "describe_log_dirs": lambda admin: admin.describe_log_dirs(0),
    "controlled_shutdown": lambda admin: admin.controlled_shutdown(0),
    "list_offsets": lambda admin: admin.list_offsets({P0: LATEST_TIME, P1: 7}),
    "list_groups": lambda admin: admin.list_groups(),
    "describe_groups": lambda admin: admin.describe_groups(["g", "t"]),
    "group_offsets": lambda admin: admin.group_offsets("g", [P0, P1]),
    "commit_group_offsets": lambda admin: admin.commit_group_offsets(
        "g", {P0: OffsetAndMetadata(1)}
    ),
    "delete_groups": lambda admin: admin.delete_groups(["g"]),
    "delete_group_offsets": lambda admin: admin.delete_group_offsets("g", [P0]),
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
    "partitions": lambda producer: producer.partitions("t"),
    "flush": lambda producer: producer.flush(),
}

OLD_PRODUCER: Calls = {
    "send": lambda producer: producer.send(ProducerData("t", b"k", [b"v", b"w"])),
    "flush": lambda producer: producer.flush(),
}

MADE_OR_ENDED = {"close", "for_leader", "shutdown"}
"""Calls that each test of a client makes anyway."""
OF_TWINS = {"encode", "is_ready_for", "buffer"}
"""The steps of `send`, public for the blocking twins, which are tested themselves."""


def test_every_public_call_of_a_client_is_among_those_tried() -> None:
    for client, calls in ((Admin, ADMIN), (SimpleConsumer, SIMPLE_CONSUMER), (Producer, PRODUCER)):
        assert calls.keys() == public_calls(client) - MADE_OR_ENDED - OF_TWINS


def public_calls(client: type) -> set[str]:
    return {
        name for name, member in inspect.getmembers(client, callable) if not name.startswith("_")
    }


# --- the peers

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


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail if asyncio logs an error that nobody awaited."""
    yield
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


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


def against(lie: Lie, scene: Callable[[str], Awaitable[None]], shift: int = 0) -> None:
    """Run a scene with the address of a broker that tells this lie."""

    async def run() -> None:
        truth = ScriptedBroker({"t": 2})
        async with LyingBroker(lie, truth, shift) as broker:
            await scene(broker.bootstrap)

    run_in_own_time(run())


async def admin_scene(bootstrap: str) -> None:
    async with Admin({"bootstrap.servers": bootstrap, **IMPATIENT}) as admin:
        await outcomes(admin, ADMIN, 2)


async def simple_consumer_scene(bootstrap: str) -> None:
    host, port = bootstrap.split(":")
    async with SimpleConsumer(host, int(port), 30) as consumer:
        await outcomes(consumer, SIMPLE_CONSUMER, 2)


async def following_scene(bootstrap: str) -> None:
    settings = {"bootstrap.servers": bootstrap, **IMPATIENT}
    try:
        consumer = await SimpleConsumer.for_leader(settings, "t", 0)
    except KgroupError:
        return
    async with consumer:
        await outcomes(consumer, SIMPLE_CONSUMER, 1)


async def producer_scene(bootstrap: str, **more: Any) -> None:
    settings = {
        "bootstrap.servers": bootstrap,
        "max.block.ms": 60,
        "delivery.timeout.ms": 60,
        **IMPATIENT,
        **more,
    }
    async with Producer(settings) as producer:
        await outcomes(producer, PRODUCER, 2)


async def idempotent_producer_scene(bootstrap: str) -> None:
    await producer_scene(bootstrap, **{"enable.idempotence": True})


async def old_producer_scene(bootstrap: str) -> None:
    settings = {
        "bootstrap.servers": bootstrap,
        "producer.type": "sync",
        "retry.backoff.ms": 5,
        "request.timeout.ms": 30,
        "message.send.max.retries": 1,
    }
    async with Producer(settings) as producer:
        await outcomes(producer, OLD_PRODUCER, 2)


SCENES = [
    admin_scene,
    simple_consumer_scene,
    following_scene,
    producer_scene,
    idempotent_producer_scene,
    old_producer_scene,
]


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("lie", [*lies()])
def test_a_broker_that_refuses_or_lies_is_a_kgroup_error(
    lie: Lie, scene: Callable[[str], Awaitable[None]], logged: None
) -> None:
    against(lie, scene)


@pytest.mark.parametrize("scene", SCENES)
def test_a_broker_that_mixes_up_its_answers_is_a_kgroup_error(
    scene: Callable[[str], Awaitable[None]], logged: None
) -> None:
    against(empty, scene, shift=1)


@pytest.mark.parametrize("scene", SCENES)
def test_a_broker_that_is_gone_is_a_kgroup_error(
    scene: Callable[[str], Awaitable[None]], logged: None
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    run_in_own_time(scene(f"127.0.0.1:{port}"))  # type: ignore[arg-type]


# --- members of groups, and those who look at them


async def stream_of(connector: ConsumerConnector) -> Any:
    """Join, and read a message."""
    streams = await connector.create_message_streams({"t": 1})
    return await anext(streams["t"][0])


async def streams_of_a_filter(connector: ConsumerConnector) -> Any:
    streams = await connector.create_message_streams_by_filter(Whitelist("t"))
    return await anext(streams[0])


async def listener_set(connector: ConsumerConnector) -> None:
    connector.set_consumer_rebalance_listener(None)  # type: ignore[arg-type]


CONNECTOR: Calls = {
    "set_consumer_rebalance_listener": listener_set,
    "create_message_streams": stream_of,
    "create_message_streams_by_filter": streams_of_a_filter,
    "commit": lambda connector: connector.commit(SimpleNamespace(topic_partition=P0, offset=0)),
    "commit_offsets": lambda connector: connector.commit_offsets({P0: OffsetAndMetadata(1)}),
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

READER: Calls = {
    "names": lambda reader: reader.names(),
    "groups": lambda reader: reader.groups(["g", "h"]),
    "group": lambda reader: reader.group("g"),
    "group_in_zookeeper": lambda reader: reader.group_in_zookeeper("g"),
    "log_offsets": lambda reader: reader.log_offsets([P0]),
    "zookeeper_names": lambda reader: reader.zookeeper_names(),
    "owners": lambda reader: reader.owners(reader.sessions.zk, "g"),
    "offsets": lambda reader: reader.offsets(reader.sessions.zk, "g"),
}
MIGRATOR: Calls = {
    "look": lambda migrator: migrator.look(),
    "carry_out": lambda migrator: migrator.carry_out(
        Run(command=Command.START, target=OffsetStorage.KAFKA, wait_ms=50)
    ),
}


def test_every_public_call_of_those_in_groups_is_among_those_tried() -> None:
    for client, calls in (
        (ConsumerConnector, CONNECTOR),
        (GroupReader, READER),
        (Migrator, MIGRATOR),
    ):
        assert calls.keys() == public_calls(client) - MADE_OR_ENDED


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


async def connector_scene(bootstrap: str, zk: MemorySession | None = None, **more: Any) -> None:
    settings = {**MEMBER, "bootstrap.servers": bootstrap, **more}
    for name, call in CONNECTOR.items():
        session = zk or await tree_of(TOPICS)
        async with ConsumerConnector(settings, zk=session) as connector:
            await outcomes(connector, {name: call}, 2)
            assert connector.metrics is not None


async def connector_with_offsets_in_kafka_scene(bootstrap: str) -> None:
    await connector_scene(bootstrap, **{"offsets.storage": "kafka"})


async def reader_scene(bootstrap: str, zk: MemorySession | None = None) -> None:
    zk = zk or await tree_with()
    async with Admin({"bootstrap.servers": bootstrap, **IMPATIENT}) as admin:
        await outcomes(GroupReader(Sessions(admin, zk)), READER, 1)
        await outcomes(Migrator(zk, admin, "g"), MIGRATOR, 1)


GROUP_SCENES = [connector_scene, connector_with_offsets_in_kafka_scene, reader_scene]


@pytest.mark.parametrize("scene", GROUP_SCENES)
@pytest.mark.parametrize("lie", [*lies()])
def test_a_broker_that_lies_to_a_group_is_a_kgroup_error(
    lie: Lie, scene: Callable[[str], Awaitable[None]], logged: None
) -> None:
    against(lie, scene)


@pytest.mark.parametrize("scene", GROUP_SCENES)
def test_a_broker_that_mixes_up_its_answers_to_a_group_is_a_kgroup_error(
    scene: Callable[[str], Awaitable[None]], logged: None
) -> None:
    against(empty, scene, shift=1)


@pytest.mark.parametrize("scene", GROUP_SCENES)
def test_a_broker_of_a_group_that_is_gone_is_a_kgroup_error(
    scene: Callable[[str], Awaitable[None]], logged: None
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    run_in_own_time(scene(f"127.0.0.1:{port}"))  # type: ignore[arg-type]


@pytest.mark.parametrize("scene", [connector_scene, reader_scene])
@pytest.mark.parametrize("content", [None, b"", b"nonsense", b"{}", b"-1", b"\xff"])
def test_a_zookeeper_that_lies_is_a_kgroup_error(
    content: bytes | None,
    scene: Callable[[str, MemorySession], Awaitable[None]],
    logged: None,
) -> None:
    async def run(bootstrap: str) -> None:
        await scene(bootstrap, await tree_with(content))

    against(refusing(ErrorCode.GROUP_ID_NOT_FOUND), run)


@pytest.mark.parametrize(
    ("scene", "end"),
    [
        (connector_scene, "closed"),
        (connector_scene, "refuses"),
        (connector_scene, "suspended"),
        (reader_scene, "closed"),
        (reader_scene, "suspended"),
    ],
)
def test_a_zookeeper_that_is_out_of_reach_is_a_kgroup_error(
    scene: Callable[[str, MemorySession], Awaitable[None]], end: str, logged: None
) -> None:
    async def run(bootstrap: str) -> None:
        zk = await tree_with()
        if end == "suspended":
            zk._zookeeper.suspend(zk)
        elif end == "closed":
            await zk.close()
        else:
            zk._zookeeper.read_only |= {*zk._zookeeper.tree}
        await scene(bootstrap, zk)

    against(empty, run)


async def test_a_zookeeper_that_is_gone_is_a_zookeeper_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    settings = {**MEMBER, "zookeeper.connect": f"127.0.0.1:{port}"}
    for call in ("create_message_streams", "create_message_streams_by_filter", "commit_offsets"):
        connector = ConsumerConnector(settings)
        for _ in range(2):  # it may be called again, when ZooKeeper may be back
            with pytest.raises(ZooKeeperError, match="no session with ZooKeeper"):
                await CONNECTOR[call](connector)
        await connector.shutdown()


@pytest.mark.parametrize(("host", "port"), [("", 9092), ("a..b", 9092), ("h", 0)])
def test_a_broker_under_no_address_does_no_harm_to_those_who_consume_from_another(
    host: str, port: int
) -> None:
    async def consume() -> None:
        async with ScriptedBroker({"t": 2}) as broker:
            broker.answers[ApiKey.LIST_OFFSETS] = starts
            broker.answers[ApiKey.FETCH] = one_message
            zk = await tree_of(TOPICS)
            for broker_id, *address in ((7, host, port), (0, "127.0.0.1", broker.port)):
                content = BrokerId((Endpoint("PLAINTEXT", *address),), 0).encode()
                await zk.create(f"/brokers/ids/{broker_id}", content, make_parents=True)
            patient = {**MEMBER, "consumer.timeout.ms": 5000, "socket.timeout.ms": 1000}
            async with ConsumerConnector(patient, zk=zk) as connector:
                message = await stream_of(connector)
                assert message.value == b"v"

    run_in_own_time(consume())


def starts(request: Any) -> ListOffsetsResponse:
    topics = [
        ListOffsetsResponseTopic(
            name=topic.name,
            partitions=[
                ListOffsetsResponsePartition(
                    partition_index=partition.partition_index, error_code=0, offset=0
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return ListOffsetsResponse(topics=topics)


def one_message(request: Any) -> FetchResponse:
    log = encode_batch([(0, None, b"v", ())])
    topics = [
        FetchResponseTopic(
            topic=topic.topic,
            partitions=[
                FetchResponsePartition(
                    partition_index=partition.partition,
                    error_code=0,
                    high_watermark=1,
                    records=log if partition.fetch_offset == 0 else b"",
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return FetchResponse(responses=topics)


# --- blocking twins


@contextmanager
def broker_in_a_thread(lie: Lie) -> Iterator[str]:
    """Yield the address of a lying broker that serves in a thread."""
    started: queue.Queue[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()

    async def serve() -> None:
        async with LyingBroker(lie, ScriptedBroker({"t": 2})) as broker:
            done = asyncio.Event()
            started.put((broker.bootstrap, asyncio.get_running_loop(), done))
            await done.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    bootstrap, loop, done = started.get()
    try:
        yield bootstrap
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join()


def blocking_outcomes(client: Any, calls: Mapping[str, Callable[[Any], Any]]) -> None:
    for call in calls.values():
        with suppress(KgroupError):
            call(client)


BLOCKING_LIES = [hanging_up, garbage_later, empty, refusing(CODES[0]), inventing(1, HONEST)]


@pytest.mark.parametrize("lie", BLOCKING_LIES)
def test_the_blocking_twins_raise_kgroup_errors_too(lie: Lie) -> None:
    sending = {**PRODUCER, "send": lambda producer: producer.send("t", b"v").result(5)}
    with broker_in_a_thread(lie) as bootstrap:
        settings = {"bootstrap.servers": bootstrap, **IMPATIENT}
        with blocking.Admin(settings) as admin:
            blocking_outcomes(admin, ADMIN)
        host, port = bootstrap.split(":")
        with blocking.SimpleConsumer(host, int(port), 30) as consumer:
            blocking_outcomes(consumer, SIMPLE_CONSUMER)
        with suppress(KgroupError):
            blocking.SimpleConsumer.for_leader(settings, "t", 0).close()
        limits = {"max.block.ms": 60, "delivery.timeout.ms": 60}
        with blocking.Producer({**settings, **limits}) as producer:
            blocking_outcomes(producer, sending)


BLOCKING_CONNECTOR: Mapping[str, Callable[[Any], Any]] = {
    **CONNECTOR,
    "set_consumer_rebalance_listener": lambda c: c.set_consumer_rebalance_listener(None),
    "create_message_streams": lambda c: next(c.create_message_streams({"t": 1})["t"][0]),
    "create_message_streams_by_filter": lambda c: next(
        c.create_message_streams_by_filter(Whitelist("t"))[0]
    ),
}


@pytest.mark.parametrize("lie", BLOCKING_LIES)
def test_the_blocking_member_and_old_producer_raise_kgroup_errors_too(lie: Lie) -> None:
    with broker_in_a_thread(lie) as bootstrap:
        for name, call in BLOCKING_CONNECTOR.items():
            session = asyncio.run(tree_with())
            member = {**MEMBER, "bootstrap.servers": bootstrap}
            with blocking.ConsumerConnector(member, zk=session) as connector:
                blocking_outcomes(connector, {name: call})
        settings = {
            "bootstrap.servers": bootstrap,
            "producer.type": "sync",
            "retry.backoff.ms": 5,
            "request.timeout.ms": 30,
            "message.send.max.retries": 1,
        }
        with blocking.Producer(settings) as producer:
            blocking_outcomes(producer, OLD_PRODUCER)


def test_a_blocking_member_without_zookeeper_raises_a_zookeeper_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    connector = blocking.ConsumerConnector({**MEMBER, "zookeeper.connect": f"127.0.0.1:{port}"})
    for name in ("create_message_streams", "create_message_streams_by_filter", "commit_offsets"):
        with pytest.raises(ZooKeeperError):
            BLOCKING_CONNECTOR[name](connector)
    connector.close()


# --- the classes


def test_every_error_of_a_client_is_a_kgroup_error() -> None:
    named = [getattr(clients.errors, name) for name in clients.errors.__all__]
    errors = {kind for kind in named if inspect.isclass(kind)}
    assert all(issubclass(kind, KgroupError) for kind in errors)
    for module in (clients.errors, groups.zookeeper.member, offsets.store):
        raised = {
            kind
            for _, kind in inspect.getmembers(module, inspect.isclass)
            if issubclass(kind, Exception) and kind.__module__ == module.__name__
        }
        assert raised <= errors
    assert issubclass(SettingError, ValueError)
    assert issubclass(BrokerError, ApiError)
    assert issubclass(CompressionUnavailable, RuntimeError)


def test_an_error_says_whether_the_same_call_may_succeed_later() -> None:
    assert BrokerError(ErrorCode.NOT_CONTROLLER).retriable
    assert not BrokerError(ErrorCode.MESSAGE_TOO_LARGE).retriable
    assert CommitFailed({P0: ErrorCode.NOT_COORDINATOR}).retriable
    assert not SettingError("acks", "is odd").retriable
    assert not ClientError("what").retriable


@pytest.mark.parametrize(
    ("cause", "retriable"),
    [
        (ConnectionLoss("away"), True),
        (SessionExpired("over"), True),
        (NoNode("/a"), False),
        (NoAuth("/a"), False),
        (ZnodeError("/a", "it is no number"), False),
    ],
)
def test_what_zookeeper_says_is_a_zookeeper_error_with_its_cause(
    cause: Exception, retriable: bool
) -> None:
    with pytest.raises(ZooKeeperError, match=r"^(ZooKeeper: |/a)") as raised, from_zookeeper():
        raise cause
    assert raised.value.__cause__ is cause
    assert raised.value.retriable is retriable
