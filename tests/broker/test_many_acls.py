"""CreateAcls, DeleteAcls and DescribeAcls of very many ACLs: some of them in each turn of the loop.

The turns within the authorizer are those of test_acl_authorizer.py.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from broker.authorization.acl_authorizer import AclAuthorizer
from broker.authorization.acl_index import Policy
from broker.handlers import create_acls, delete_acls, describe_acls
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
from protocol.api_key import ApiKey
from protocol.messages.create_acls import CreateAclsRequest, CreateAclsRequestCreation
from protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsRequestFilter
from protocol.messages.describe_acls import DescribeAclsRequest
from tests.broker.received import received
from tests.broker.replication.replicas import AtOnce, context
from zk.memory import MemoryZooKeeper

VERSION = 2
A_TURN = 10
MANY = 50 * A_TURN


@pytest.fixture(autouse=True)
def few_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    for handler in (create_acls, delete_acls, describe_acls):
        monkeypatch.setattr(handler, "ACLS_A_TURN", A_TURN)


def make_deferred() -> Deferred:
    return Deferred(asyncio.ensure_future, Purgatory().touch, AtOnce())


async def make_authorizer(*names: str) -> AclAuthorizer:
    session = MemoryZooKeeper().session()
    await session.start()
    authorizer = AclAuthorizer(session, Policy(), asyncio.ensure_future, random.Random(0))
    acls = [
        AclBinding(
            ResourcePattern(ResourceType.TOPIC, names[n % len(names)]),
            AclEntry(f"User:{n}", Operation.READ),
        )
        for n in range(MANY if names else 0)
    ]
    await authorizer.add(acls)
    return authorizer


async def ended(key: ApiKey, wait: Any) -> tuple[Any, int]:
    """Return the response as it is sent, and the turns of the loop that it took."""
    turns = 0
    while (response := wait.try_complete(False)) is None:
        await asyncio.sleep(0)
        turns += 1
    return received(key, VERSION, response), turns


def one_of(n: int) -> CreateAclsRequestCreation:
    return CreateAclsRequestCreation(
        resource_type=ResourceType.TOPIC,
        resource_name="t",
        resource_pattern_type=PatternType.LITERAL,
        principal=f"User:{n}",
        host="*",
        operation=Operation.READ,
        permission_type=Permission.ALLOW,
    )


def of_principal(principal: str | None) -> DeleteAclsRequestFilter:
    return DeleteAclsRequestFilter(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=principal,
        host_filter=None,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )


def describe(authorizer: AclAuthorizer, principal: str | None) -> Any:
    request = DescribeAclsRequest(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=principal,
        host_filter=None,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )
    return describe_acls.handle(authorizer, make_deferred(), 1000, request, context(VERSION))


@pytest.mark.fault("strangers-11")
async def test_acls_to_be_created_are_read_and_answered_for_in_turns() -> None:
    authorizer = await make_authorizer()
    request = CreateAclsRequest(creations=[one_of(n) for n in range(MANY)])
    wait = create_acls.handle(authorizer, make_deferred(), 1000, request, context(VERSION))
    response, turns = await ended(ApiKey.CREATE_ACLS, wait)
    assert [result.error_code for result in response.results] == [0] * MANY
    assert turns >= 2 * MANY // A_TURN


@pytest.mark.fault("strangers-11")
async def test_filters_of_a_deletion_are_read_and_answered_for_in_turns() -> None:
    authorizer = await make_authorizer("t")
    filters = [of_principal(f"User:{n + 1}") for n in range(MANY)]
    request = DeleteAclsRequest(filters=filters)
    wait = delete_acls.handle(authorizer, make_deferred(), 1000, request, context(VERSION))
    response, turns = await ended(ApiKey.DELETE_ACLS, wait)
    deleted = [[acl.principal for acl in one.matching_acls] for one in response.filter_results]
    assert deleted == [*([f"User:{n + 1}"] for n in range(MANY - 1)), []]
    assert turns >= 3 * MANY // A_TURN - 1


@pytest.mark.fault("strangers-11")
async def test_acls_that_one_filter_deletes_are_answered_for_in_turns() -> None:
    authorizer = await make_authorizer("t")
    request = DeleteAclsRequest(filters=[of_principal(None)])
    wait = delete_acls.handle(authorizer, make_deferred(), 1000, request, context(VERSION))
    response, turns = await ended(ApiKey.DELETE_ACLS, wait)
    (result,) = response.filter_results
    assert {acl.principal for acl in result.matching_acls} == {f"User:{n}" for n in range(MANY)}
    assert turns >= MANY // A_TURN


@pytest.mark.fault("strangers-11")
@pytest.mark.parametrize("names", [["t"], ["t", "u"], [f"t{n}" for n in range(MANY)]])
@pytest.mark.parametrize("principal", [None, "User:7"])
async def test_acls_are_described_some_of_them_a_turn(
    names: list[str], principal: str | None
) -> None:
    authorizer = await make_authorizer(*names)
    response, turns = await ended(ApiKey.DESCRIBE_ACLS, describe(authorizer, principal))
    described = [
        (resource.resource_name, acl.principal)
        for resource in response.resources
        for acl in resource.acls
    ]
    asked = range(MANY) if principal is None else [7]
    assert sorted(described) == sorted((names[n % len(names)], f"User:{n}") for n in asked)
    assert len(response.resources) == (len(names) if principal is None else 1)
    assert turns >= MANY // A_TURN


async def test_acls_that_are_described_are_those_of_one_moment() -> None:
    authorizer = await make_authorizer("t")
    wait = describe(authorizer, None)
    create = CreateAclsRequest(creations=[one_of(MANY)])
    await ended(
        ApiKey.CREATE_ACLS,
        create_acls.handle(authorizer, make_deferred(), 1000, create, context(VERSION)),
    )
    response, _ = await ended(ApiKey.DESCRIBE_ACLS, wait)
    assert len(response.resources[0].acls) == MANY
