"""Requests that write many things to ZooKeeper, and what they say of each when time is over."""

from __future__ import annotations

import asyncio
import inspect
import random
from typing import Any

import pytest

from broker.authorization.acl_authorizer import AclAuthorizer
from broker.authorization.acl_index import Policy
from broker.handlers import alter_client_quotas, create_acls
from broker.network.deferred import Deferred
from broker.network.purgatory import Purgatory
from protocol.acls import Operation, PatternType, Permission, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntity,
    AlterClientQuotasRequestEntry,
    AlterClientQuotasRequestOp,
)
from protocol.messages.create_acls import CreateAclsRequest, CreateAclsRequestCreation
from tests.broker.replication.replicas import AtOnce, context
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import EntityConfig

pytestmark = pytest.mark.fault("scale-S4")
LATE = ErrorCode.REQUEST_TIMED_OUT


def make_deferred() -> Deferred:
    return Deferred(asyncio.ensure_future, Purgatory().touch, AtOnce())


class Silent:
    """A session in which nothing is heard any more of what concerns nodes of one name."""

    def __init__(self, session: MemorySession, name: str) -> None:
        self.session = session
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        method = getattr(self.session, attribute)
        if not inspect.iscoroutinefunction(method):
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            if f"/{self.name}'" in repr(args):
                await asyncio.Event().wait()
            return await method(*args, **kwargs)

        return call


async def silent_session(name: str) -> Any:
    session = MemoryZooKeeper().session()
    await session.start()
    await session.ensure_path(EntityConfig.directory("users"))
    return Silent(session, name)


async def said_late(wait: Any) -> Any:
    """Return the response to a request whose time is over."""
    for _ in range(50):
        await asyncio.sleep(0)
    return wait.try_complete(True)


async def test_quotas_that_are_written_are_no_failure_because_others_are_late() -> None:
    session = await silent_session("b")
    names = ("a", "b", "c")
    request = AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequestEntry(
                entity=[AlterClientQuotasRequestEntity(entity_type="user", entity_name=name)],
                ops=[AlterClientQuotasRequestOp(key="producer_byte_rate", value=1.0, remove=False)],
            )
            for name in names
        ],
        validate_only=False,
    )
    wait = alter_client_quotas.handle(session, make_deferred(), 100, request, context())
    entries = (await said_late(wait)).entries
    assert [entry.error_code for entry in entries] == [ErrorCode.NONE, LATE, LATE]
    assert [entry.entity[0].entity_name for entry in entries] == list(names)


async def test_acls_that_are_written_are_no_failure_because_others_are_late() -> None:
    session = await silent_session("b")
    authorizer = AclAuthorizer(session, Policy(), asyncio.ensure_future, random.Random(0))
    await authorizer.start()
    request = CreateAclsRequest(
        creations=[
            CreateAclsRequestCreation(
                resource_type=ResourceType.TOPIC,
                resource_name=name,
                resource_pattern_type=PatternType.LITERAL,
                principal="User:alice",
                host="*",
                operation=Operation.READ,
                permission_type=Permission.ALLOW,
            )
            for name in ("a", "b", "c")
        ]
    )
    wait = create_acls.handle(authorizer, make_deferred(), 100, request, context())
    results = (await said_late(wait)).results
    assert [result.error_code for result in results] == [ErrorCode.NONE, LATE, LATE]
