"""DeleteGroups through its handler, over a coordinator whose log is in memory."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from broker.handlers import delete_groups
from broker.network.deferred import Deferred
from broker.network.purgatory import Purgatory, Wait
from broker.network.request_context import RequestContext
from groups.coordinator.coordinator import GroupCoordinator
from groups.runtime.memory_partition_log import MemoryPartitionLog
from groups.runtime.runtime import Pending
from offsets.config import OffsetsConfig
from offsets.records import CommittedOffset
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeleteGroupsRequest
from tests.broker.replication.replicas import AtOnce
from tests.stage.bytecodes import bytecodes_of
from tests.stage.coordinator import (
    commit,
    coordinator_of_nothing,
    coordinator_over,
    coordinator_still_loading,
)

CONTEXT = RequestContext(1, "client", "PLAINTEXT", "127.0.0.1:1", 0)
OFFSETS = {("t", 0): CommittedOffset(42)}


def delete(coordinator: GroupCoordinator, *groups: str) -> Any:
    deferred = Deferred(asyncio.ensure_future, Purgatory().touch, AtOnce())
    request = DeleteGroupsRequest(groups_names=groups)
    return delete_groups.handle(coordinator, deferred, request, CONTEXT)


def errors(response: Any) -> dict[str, ErrorCode]:
    return {result.group_id: ErrorCode.of(result.error_code) for result in response.results}


def waiting() -> tuple[Wait, MemoryPartitionLog]:
    """A deletion that waits for followers, of a group and of another that is not there."""
    log = MemoryPartitionLog()
    coordinator = coordinator_over(log, OffsetsConfig(commit_timeout_ms=1234))
    commit(coordinator, "g", OFFSETS)
    log.replicas = 3
    wait = delete(coordinator, "g", "none")
    assert isinstance(wait, Wait)
    return wait, log


def test_each_group_is_answered_for_itself_and_once() -> None:
    coordinator = coordinator_over(MemoryPartitionLog())
    commit(coordinator, "g", OFFSETS)
    response = delete(coordinator, "none", "g", "none")
    assert errors(response) == {"none": ErrorCode.GROUP_ID_NOT_FOUND, "g": ErrorCode.NONE}
    assert len(response.results) == 2
    assert not coordinator.shard("g").offsets.groups()


def test_group_without_a_name_that_has_committed_can_be_deleted() -> None:
    coordinator = coordinator_over(MemoryPartitionLog())
    commit(coordinator, "", OFFSETS)
    assert errors(delete(coordinator, "")) == {"": ErrorCode.NONE}


def test_group_without_its_coordinator_is_refused() -> None:
    assert errors(delete(coordinator_of_nothing(), "g")) == {"g": ErrorCode.NOT_COORDINATOR}
    loading = coordinator_still_loading()
    assert errors(delete(loading, "g")) == {"g": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


def test_deletion_of_nothing_is_answered() -> None:
    assert delete(coordinator_over(MemoryPartitionLog())).results == []


def test_deletion_waits_until_it_is_replicated() -> None:
    wait, log = waiting()
    (pending,) = wait.keys
    assert isinstance(pending, Pending)
    assert pending.response is None
    assert wait.timeout_ms == 1234
    assert wait.try_complete(False) is None
    log.replicate(0)
    assert errors(wait.try_complete(False)) == {
        "g": ErrorCode.NONE,
        "none": ErrorCode.GROUP_ID_NOT_FOUND,
    }


def test_deletion_that_is_not_replicated_in_time_timed_out() -> None:
    wait, _ = waiting()
    assert errors(wait.try_complete(True)) == {
        "g": ErrorCode.REQUEST_TIMED_OUT,
        "none": ErrorCode.GROUP_ID_NOT_FOUND,
    }


FEW, MANY = 100, 1_000


def with_groups(number: int) -> tuple[GroupCoordinator, MemoryPartitionLog, list[str]]:
    log = MemoryPartitionLog()
    coordinator = coordinator_over(log)
    groups = [f"g{index}" for index in range(number)]
    for group_id in groups:
        commit(coordinator, group_id, OFFSETS)
    return coordinator, log, groups


@pytest.mark.fault("groups-8")
def test_many_groups_are_deleted_some_a_turn() -> None:
    coordinator, _, groups = with_groups(MANY)
    left = coordinator.shard("g0").offsets.groups

    async def scenario() -> tuple[list[int], dict[str, ErrorCode]]:
        wait = delete(coordinator, *groups)
        assert isinstance(wait, Wait)
        counts = [MANY, len(left())]
        while left():
            await asyncio.sleep(0)
            counts.append(len(left()))
        await asyncio.sleep(0)
        return counts, errors(wait.try_complete(False))

    counts, said = asyncio.run(scenario())
    slices = [before - after for before, after in pairwise(counts)]
    assert max(slices) == delete_groups.SLICE_GROUPS
    assert said == dict.fromkeys(groups, ErrorCode.NONE)


def test_groups_that_no_turn_came_to_in_time_are_said_to_be_late() -> None:
    coordinator, _, groups = with_groups(MANY)

    async def scenario() -> dict[str, ErrorCode]:
        return errors(delete(coordinator, *groups).try_complete(True))

    said = asyncio.run(scenario())
    done = [group_id for group_id, error in said.items() if error is ErrorCode.NONE]
    assert done == groups[: delete_groups.SLICE_GROUPS]
    assert set(said.values()) == {ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT}


def cost_of_deletion(number: int) -> int:
    """Count what the deletion of many groups costs while nothing of it is replicated."""
    coordinator, log, groups = with_groups(number)
    log.replicas = 3

    async def scenario() -> int:
        return bytecodes_of(lambda: [coordinator.delete_group(group_id) for group_id in groups])

    return asyncio.run(scenario())


@pytest.mark.fault("groups-8")
def test_a_group_costs_the_same_however_many_are_deleted() -> None:
    assert cost_of_deletion(MANY) < 1.3 * cost_of_deletion(FEW) * MANY / FEW
