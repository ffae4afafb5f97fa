"""DeleteGroups through its handler, over a coordinator whose log is in memory."""

from typing import Any

from broker.handlers import delete_groups
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from groups.coordinator.coordinator import GroupCoordinator
from groups.runtime.memory_partition_log import MemoryPartitionLog
from groups.runtime.runtime import Pending
from offsets.config import OffsetsConfig
from offsets.records import CommittedOffset
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeleteGroupsRequest
from tests.stage.coordinator import (
    commit,
    coordinator_of_nothing,
    coordinator_over,
    coordinator_still_loading,
)

CONTEXT = RequestContext(1, "client", "PLAINTEXT", "127.0.0.1:1", 0)
OFFSETS = {("t", 0): CommittedOffset(42)}


def delete(coordinator: GroupCoordinator, *groups: str) -> Any:
    return delete_groups.handle(coordinator, DeleteGroupsRequest(groups_names=groups), CONTEXT)


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
