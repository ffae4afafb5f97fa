"""Whatever brokers and ZooKeeper do to members of groups, their calls raise KgroupErrors."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from clients.admin import Admin
from clients.command_line.sessions import Sessions
from clients.errors import ZooKeeperError
from clients.groups.group_facts import CoordinatorFacts, GroupFacts, MemberFacts
from clients.groups.group_reader import GroupReader
from clients.groups.zookeeper_groups import ZooKeeperGroups
from clients.high_level.connector import ConsumerConnector
from clients.migrator import Migrator
from offsets.migration import Command, Run
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchResponse, FetchResponsePartition, FetchResponseTopic
from protocol.messages.list_offsets import (
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from protocol.records.batch import encode_batch
from tests.clients.errors.tried_calls import (
    ASK_NOBODY,
    CONNECTOR,
    IMPATIENT,
    MADE_OR_ENDED,
    MEMBER,
    MEMBER_AT_A_COORDINATOR,
    P0,
    TOPICS,
    Calls,
    against,
    lies,
    outcomes,
    public_calls,
    stream_of,
    tree_of,
    tree_with,
)
from tests.clients.lying_broker import Lie, empty, refusing
from tests.clients.scripted_broker import ScriptedBroker
from tests.stage.clock import ImpatientLoop, OwnTimeLoop, run_in_own_time
from zk.memory import MemorySession
from zk.migration_znodes import OffsetStorage
from zk.znodes import BrokerId, Endpoint

CONSUMING = GroupFacts(
    "g",
    coordinator=CoordinatorFacts(
        "Stable",
        protocol_type="consumer",
        members=(MemberFacts("m", partitions=(P0,), topics=frozenset({P0.topic})),),
    ),
)
READER: Calls = {
    "names": lambda reader: reader.names(),
    "groups": lambda reader: reader.groups(["g", "h"]),
    "group": lambda reader: reader.group("g"),
    "group_in_zookeeper": lambda reader: reader.group_in_zookeeper("g"),
    "groups_in_zookeeper": lambda reader: reader.groups_in_zookeeper(["g", "h"]),
    "log_offsets": lambda reader: reader.log_offsets([P0]),
    "logs_of": lambda reader: reader.logs_of([], [P0]),
    "with_unowned": lambda reader: reader.with_unowned([CONSUMING]),
    "zookeeper_names": lambda reader: reader.zookeeper_names(),
}
ZOOKEEPER_GROUPS: Calls = {
    "member_lists": lambda groups: groups.member_lists(),
    "facts": lambda groups: groups.facts(["g", "h"]),
    "owners": lambda groups: groups.owners("g"),
    "offsets": lambda groups: groups.offsets(["g"]),
    "migration_modes": lambda groups: groups.migration_modes(["g"]),
}
AT_A_COORDINATOR = ("create_message_streams", "commit_offsets", "committed", "seek")
"""Calls whose way is another one there."""
PATIENCE_S = 0.1

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
        (ZooKeeperGroups, ZOOKEEPER_GROUPS),
        (Migrator, MIGRATOR),
    ):
        assert calls.keys() == public_calls(client) - MADE_OR_ENDED - ASK_NOBODY


async def connector_scene(bootstrap: str, zk: MemorySession | None = None, **more: Any) -> None:
    settings = {**MEMBER, "bootstrap.servers": bootstrap, **more}
    for name, call in CONNECTOR.items():
        session = zk or await tree_of(TOPICS)
        async with ConsumerConnector(settings, zk=session) as connector:
            await outcomes(connector, {name: call}, 2)
            assert connector.metrics is not None


async def connector_with_offsets_in_kafka_scene(bootstrap: str) -> None:
    await connector_scene(bootstrap, **{"offsets.storage": "kafka"})


async def connector_at_a_coordinator_scene(bootstrap: str) -> None:
    settings = {**MEMBER_AT_A_COORDINATOR, "bootstrap.servers": bootstrap}
    for name in AT_A_COORDINATOR:
        async with ConsumerConnector(settings) as connector:
            # A member goes on trying to join, as all consumers do; an application may cancel it.
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    await outcomes(connector, {name: CONNECTOR[name]}, 2)
            assert connector.metrics is not None


async def reader_scene(bootstrap: str, zk: MemorySession | None = None) -> None:
    zk = zk or await tree_with()
    async with Admin({"bootstrap.servers": bootstrap, **IMPATIENT}) as admin:
        await outcomes(GroupReader(Sessions(admin, zk)), READER, 1)
        await outcomes(ZooKeeperGroups(zk), ZOOKEEPER_GROUPS, 1)
        await outcomes(Migrator(zk, admin, "g"), MIGRATOR, 1)


GROUP_SCENES = [
    connector_scene,
    connector_with_offsets_in_kafka_scene,
    connector_at_a_coordinator_scene,
    reader_scene,
]


def loop_of(scene: Callable[[str], Awaitable[None]]) -> Callable[[], OwnTimeLoop]:
    # The heartbeats of a member at a coordinator have a thread.
    return OwnTimeLoop if scene is connector_at_a_coordinator_scene else ImpatientLoop


@pytest.mark.parametrize("scene", GROUP_SCENES)
@pytest.mark.parametrize("lie", [*lies()])
def test_a_broker_that_lies_to_a_group_is_a_kgroup_error(
    lie: Lie, scene: Callable[[str], Awaitable[None]], logged: None
) -> None:
    against(lie, scene, loop=loop_of(scene))


@pytest.mark.parametrize("scene", GROUP_SCENES)
def test_a_broker_that_mixes_up_its_answers_to_a_group_is_a_kgroup_error(
    scene: Callable[[str], Awaitable[None]], logged: None
) -> None:
    against(empty, scene, shift=1, loop=loop_of(scene))


@pytest.mark.parametrize("scene", GROUP_SCENES)
def test_a_broker_of_a_group_that_is_gone_is_a_kgroup_error(
    scene: Callable[[str], Awaitable[None]], logged: None
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    run_in_own_time(scene(f"127.0.0.1:{port}"), loop=loop_of(scene))  # type: ignore[arg-type]


@pytest.mark.parametrize("scene", [connector_scene, reader_scene])
@pytest.mark.parametrize("content", [None, b"", b"nonsense", b"{}", b"-1", b"\xff"])
def test_a_zookeeper_that_lies_is_a_kgroup_error(
    content: bytes | None,
    scene: Callable[[str, MemorySession], Awaitable[None]],
    logged: None,
) -> None:
    async def run(bootstrap: str) -> None:
        await scene(bootstrap, await tree_with(content))

    against(refusing(ErrorCode.GROUP_ID_NOT_FOUND), run, is_asked=False)


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

    against(empty, run, is_asked=False)


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

    run_in_own_time(consume(), loop=ImpatientLoop)


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
