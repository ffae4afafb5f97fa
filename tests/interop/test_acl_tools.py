"""ACLs that Kafka's tool and broker share with ours, in one ZooKeeper."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from broker.server import Broker
from broker.settings.config import load_broker_config
from clients.admin import Admin, NewTopic
from clients.errors import BrokerError
from clients.producer.producer import Producer
from protocol.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from protocol.errors import ErrorCode
from tests.stage.stock_kafka import run_tool, stock_broker
from tests.stage.waiting import until_equal

TOOL = "kafka.admin.AclCommand"
AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
ANYBODY = "User:ANONYMOUS"


@contextlib.asynccontextmanager
async def our_broker(zookeeper: str, directory: Path) -> AsyncIterator[Broker]:
    """A broker of ours with an authorizer, in this process."""
    config, _ = load_broker_config(
        {
            "broker.id": "1",
            "zookeeper.connect": zookeeper,
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(directory),
            "authorizer.class.name": AUTHORIZER,
            "offsets.topic.replication.factor": "1",
        }
    )
    broker = Broker(config)
    try:
        await broker.start()
        yield broker
    finally:
        await broker.close()


async def tool(*args: str) -> str:
    return await asyncio.to_thread(run_tool, TOOL, *args)


async def test_stock_tool_writes_acls_that_our_broker_obeys_and_lists_ours(
    zk_chroot: str, tmp_path: Path
) -> None:
    # Before the broker starts: nobody may do anything otherwise.
    in_zookeeper = ("--authorizer-properties", f"zookeeper.connect={zk_chroot}")
    may = ("--allow-principal", ANYBODY)
    await tool(*in_zookeeper, "--add", *may, "--cluster")
    started = our_broker(zk_chroot, tmp_path / "log")
    async with started as broker, Admin(broker.bootstrap) as admin:
        assert await admin.create_topics([NewTopic("orders", 1, 1)]) == {"orders": None}
        async with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
            with pytest.raises(BrokerError) as refused:
                await producer.send_and_wait("orders", b"v")
            assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED

        # The broker follows what the tool writes.
        producing = ("--producer", "--topic", "ord", "--transactional-id", "x")
        prefixed = ("--resource-pattern-type", "prefixed")
        await tool(*in_zookeeper, "--add", *may, *producing, *prefixed)
        wanted = AclFilter(ResourceType.TRANSACTIONAL_ID)

        async def transactional() -> set[Operation]:
            return {acl.entry.operation for acl in await admin.describe_acls(wanted)}

        await until_equal(transactional, {Operation.WRITE, Operation.DESCRIBE})
        async with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
            await producer.send_and_wait("orders", b"v")

        # The tool asks our broker for ours.
        ours = acl(ResourceType.GROUP, "g-", Operation.READ, PatternType.PREFIXED)
        assert await admin.create_acls([ours]) == {ours: None}
        listed = await tool("--bootstrap-server", broker.bootstrap, "--list")
        assert "resourceType=GROUP, name=g-, patternType=PREFIXED" in listed
        assert "name=ord, patternType=PREFIXED" in listed
        assert "principal=User:ANONYMOUS, host=*, operation=READ" in listed


def acl(
    kind: ResourceType,
    name: str,
    operation: Operation,
    pattern: PatternType = PatternType.LITERAL,
) -> AclBinding:
    return AclBinding(ResourcePattern(kind, name, pattern), AclEntry(ANYBODY, operation))


SHARED = [
    acl(ResourceType.TOPIC, "t", Operation.READ),
    acl(ResourceType.TOPIC, "p-", Operation.WRITE, PatternType.PREFIXED),
    acl(ResourceType.TRANSACTIONAL_ID, "x", Operation.WRITE),
    acl(ResourceType.TRANSACTIONAL_ID, "y-", Operation.DESCRIBE, PatternType.PREFIXED),
]
"""ACLs of literal and prefixed names, of types that are spelled in one word and in two."""


async def test_stock_and_our_brokers_follow_each_others_acls(
    zk_chroot: str, tmp_path: Path
) -> None:
    everybody = acl(ResourceType.CLUSTER, "kafka-cluster", Operation.ALL)
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": ANYBODY}
    async with contextlib.AsyncExitStack() as stack:
        stock = await asyncio.to_thread(
            stack.enter_context, stock_broker(zk_chroot, tmp_path / "stock", settings)
        )
        theirs = await stack.enter_async_context(Admin(stock))
        assert await theirs.create_acls([everybody]) == {everybody: None}
        broker = await stack.enter_async_context(our_broker(zk_chroot, tmp_path / "log"))
        ours = await stack.enter_async_context(Admin(broker.bootstrap))

        for writer, readers in ((ours, (theirs, ours)), (theirs, (ours, theirs))):
            assert set((await writer.create_acls(SHARED)).values()) == {None}
            await all_have(readers, {everybody, *SHARED})
            await writer.delete_acls([AclFilter.exactly(binding) for binding in SHARED])
            await all_have(readers, {everybody})


async def all_have(admins: Sequence[Admin], expected: set[AclBinding]) -> None:
    """Wait until all brokers know these ACLs and no others."""
    for admin in admins:

        async def known(admin: Admin = admin) -> set[AclBinding]:
            return set(await admin.describe_acls())

        await until_equal(known, expected)
