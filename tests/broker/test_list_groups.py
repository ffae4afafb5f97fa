"""ListGroups through its handler."""

from broker.handlers import list_groups
from broker.network.request_context import RequestContext
from groups.runtime.memory_partition_log import MemoryPartitionLog
from offsets.records import CommittedOffset
from protocol.errors import ErrorCode
from protocol.messages.list_groups import ListGroupsRequest
from tests.stage.coordinator import commit, coordinator_over, coordinator_still_loading

CONTEXT = RequestContext(2, "client", "PLAINTEXT", "127.0.0.1:1", 0)


def test_group_that_only_commits_is_listed_without_a_protocol_type() -> None:
    coordinator = coordinator_over(MemoryPartitionLog())
    commit(coordinator, "g", {("t", 0): CommittedOffset(42)})
    response = list_groups.handle(coordinator, ListGroupsRequest(), CONTEXT)
    assert response.error_code == ErrorCode.NONE
    assert [(g.group_id, g.protocol_type) for g in response.groups] == [("g", "")]


def test_groups_are_listed_by_state_on_request() -> None:
    coordinator = coordinator_over(MemoryPartitionLog())
    commit(coordinator, "g", {("t", 0): CommittedOffset(42)})

    def listed(*states: str) -> list[tuple[str, str]]:
        request = ListGroupsRequest(states_filter=states)
        response = list_groups.handle(coordinator, request, CONTEXT)
        return [(g.group_id, g.group_state) for g in response.groups]

    assert listed() == listed("Stable", "Empty") == [("g", "Empty")]
    assert listed("Stable") == []


def test_while_a_partition_is_loaded_the_list_says_so() -> None:
    response = list_groups.handle(coordinator_still_loading(), ListGroupsRequest(), CONTEXT)
    assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert response.groups == []
