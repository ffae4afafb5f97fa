"""Requests about groups with an authorizer: each of several gets its own result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.network.authorization import CLUSTER, Resource, group, transactional_id
from protocol.acls import Operation
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.list_groups import ListGroupsRequest
from tests.broker.authorized_requests.requests import offset_commit, offset_delete, offset_fetch
from tests.broker.authorized_requests.stage import (
    GROUP_FAILED,
    MISSING,
    TRANSACTION_FAILED,
    Stage,
    errors,
    text_of,
)


def describe_groups(*group_ids: str) -> Any:
    return DescribeGroupsRequest(groups=group_ids)


def delete_groups(*group_ids: str) -> Any:
    return DeleteGroupsRequest(groups_names=group_ids)


@pytest.mark.parametrize(
    ("build", "operation"),
    [(describe_groups, Operation.DESCRIBE), (delete_groups, Operation.DELETE)],
)
def test_refused_group_gets_the_error_and_the_other_is_served(
    stage: Stage, build: Callable[..., Any], operation: Operation
) -> None:
    name = stage.new_topic()
    allowed, refused = stage.new_group(name), stage.new_group(name)
    permissions = [(operation, group(refused)), (operation, group(MISSING))]
    existing = stage.call(build(refused), *permissions)
    missing = stage.call(build(MISSING), *permissions)
    assert text_of(existing, refused) == text_of(missing, MISSING)
    together = errors(stage.call(build(refused, allowed), *permissions))
    assert together == {refused: GROUP_FAILED, allowed: ErrorCode.NONE}
    assert (
        stage.call(offset_fetch(name, group_id=refused)).topics[0].partitions[0].committed_offset
        == 7
    )


@pytest.mark.parametrize(
    ("build", "operation", "version", "code_at"),
    [
        (offset_commit, Operation.READ, None, "topic"),
        (offset_commit, Operation.READ, 0, "topic"),
        (offset_fetch, Operation.DESCRIBE, None, ""),
        (offset_fetch, Operation.DESCRIBE, 1, "topic"),
        (offset_delete, Operation.DELETE, None, ""),
    ],
)
def test_refused_group_gets_nothing_of_its_offsets(
    stage: Stage, build: Callable[..., Any], operation: Operation, version: int | None, code_at: str
) -> None:
    name = stage.new_topic()
    permission = (operation, group("g"))
    refused = errors(stage.call(build(name, group_id="g"), permission, version=version))
    if code_at == "topic":
        assert refused.pop("", ErrorCode.NONE) == ErrorCode.NONE
        assert list(refused) == [name]
    assert set(refused.values()) == {GROUP_FAILED}


def test_groups_are_listed_with_a_permission_of_the_cluster_or_their_own(stage: Stage) -> None:
    name = stage.new_topic()
    allowed, refused = stage.new_group(name), stage.new_group(name)
    of_cluster = (Operation.DESCRIBE, CLUSTER)
    of_group = (Operation.DESCRIBE, group(refused))

    def listed(*permissions: tuple[Operation, Resource]) -> set[str]:
        response = stage.call(ListGroupsRequest(), *permissions)
        assert response.error_code == ErrorCode.NONE
        return {entry.group_id for entry in response.groups} & {allowed, refused}

    assert listed(of_group) == {allowed, refused}
    assert listed(of_cluster) == {allowed, refused}
    assert listed(of_cluster, of_group) == {allowed}


@pytest.mark.parametrize(
    ("key_type", "resource", "code"),
    [(0, group("g"), GROUP_FAILED), (1, transactional_id("g"), TRANSACTION_FAILED)],
)
def test_coordinator_is_named_to_those_who_may_describe(
    stage: Stage, key_type: int, resource: Resource, code: ErrorCode
) -> None:
    request = FindCoordinatorRequest(key="g", key_type=key_type)
    response = stage.call(request, (Operation.DESCRIBE, resource))
    assert (response.error_code, response.node_id) == (code, -1)
