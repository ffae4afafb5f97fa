"""Requests that write many things to ZooKeeper, and what they say of each when time is over."""

from __future__ import annotations

import asyncio
import inspect
import random
from typing import Any

import pytest

from broker.authorization.acl_authorizer import AclAuthorizer
from broker.authorization.acl_index import Policy
from broker.handlers import (
    alter_client_quotas,
    alter_user_scram_credentials,
    create_acls,
    delete_acls,
)
from broker.network.deferred import Deferred
from broker.network.purgatory import Purgatory
from protocol.acls import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from protocol.errors import ErrorCode
from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntity,
    AlterClientQuotasRequestEntry,
    AlterClientQuotasRequestOp,
)
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsRequestDeletion,
    AlterUserScramCredentialsRequestUpsertion,
)
from protocol.messages.create_acls import CreateAclsRequest, CreateAclsRequestCreation
from protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsRequestFilter
from protocol.sasl.scram import SHA_256
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


async def test_acls_that_are_deleted_are_no_failure_because_others_are_late() -> None:
    session = await silent_session("b")
    # They were there before nothing was heard any more.
    before = AclAuthorizer(session.session, Policy(), asyncio.ensure_future, random.Random(0))
    await before.start()
    bindings = [
        AclBinding(
            ResourcePattern(ResourceType.TOPIC, name, PatternType.LITERAL),
            AclEntry("User:alice", Operation.READ),
        )
        for name in ("a", "b", "c")
    ]
    assert await before.add(bindings) == [None, None, None]
    authorizer = AclAuthorizer(session, Policy(), asyncio.ensure_future, random.Random(0))
    filters = [
        DeleteAclsRequestFilter(
            resource_type_filter=resource.kind,
            resource_name_filter=resource.name,
            pattern_type_filter=resource.pattern,
            principal_filter=entry.principal,
            host_filter=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        for resource, entry in ((binding.resource, binding.entry) for binding in bindings)
    ]
    request = DeleteAclsRequest(filters=filters)
    wait = delete_acls.handle(authorizer, make_deferred(), 100, request, context())
    results = (await said_late(wait)).filter_results
    assert [result.error_code for result in results] == [ErrorCode.NONE, LATE, LATE]
    assert [[acl.resource_name for acl in result.matching_acls] for result in results] == [
        ["a"],
        [],
        [],
    ]


class Active:
    """A controller that is the active one."""

    is_active = True


async def test_credentials_that_are_written_are_no_failure_because_others_are_late() -> None:
    session = await silent_session("b")
    upsertions = [
        AlterUserScramCredentialsRequestUpsertion(
            name=name,
            mechanism=1,
            iterations=4096,
            salt=b"salt",
            salted_password=SHA_256.salt_password("secret", b"salt", 4096),
        )
        for name in ("a", "b", "c")
    ]
    # A mistake is one, however late the others are.
    deletions = [AlterUserScramCredentialsRequestDeletion(name="nobody", mechanism=1)]
    request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
    active: Any = Active()
    wait = alter_user_scram_credentials.handle(
        active, session, None, make_deferred(), 100, request, context()
    )
    results = {result.user: result.error_code for result in (await said_late(wait)).results}
    assert results == {
        "nobody": ErrorCode.RESOURCE_NOT_FOUND,
        "a": ErrorCode.NONE,
        "b": LATE,
        "c": LATE,
    }
