"""DeleteGroups: delete groups without members; the response waits until that is replicated.

Each group has an error of its own. The empty name is a group like any other, as it may commit.
"""

from __future__ import annotations

from broker.network.authorization import group
from broker.network.dispatch import Outcome
from broker.network.pending_responses import respond_when_done
from broker.network.request_context import RequestContext, authorize
from groups.coordinator.coordinator import GroupCoordinator
from groups.coordinator.responses import Done
from groups.runtime.runtime import Pending
from protocol.acls import Operation
from protocol.errors import ApiError, ErrorCode
from protocol.messages.delete_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteGroupsResponseResult,
)


def handle(
    coordinator: GroupCoordinator, request: DeleteGroupsRequest, context: RequestContext
) -> Outcome:
    """Delete the groups that are coordinated here."""
    pending: dict[str, Pending] = {}
    refused: dict[str, ErrorCode] = {}
    # A group that is named twice is deleted once.
    for group_id in dict.fromkeys(request.groups_names):
        if not authorize(context, Operation.DELETE, group(group_id)):
            refused[group_id] = ErrorCode.GROUP_AUTHORIZATION_FAILED
            continue
        try:
            pending[group_id] = coordinator.delete_group(group_id)
        except ApiError as error:
            refused[group_id] = error.code

    # One response, when all deletions have ended.
    def render(responses: list[Done]) -> DeleteGroupsResponse:
        deleted = {
            group_id: response.error for group_id, response in zip(pending, responses, strict=True)
        }
        return DeleteGroupsResponse(
            results=[
                DeleteGroupsResponseResult(group_id=group_id, error_code=error)
                for group_id, error in (refused | deleted).items()
            ]
        )

    late = Done(ErrorCode.REQUEST_TIMED_OUT)
    timeout_ms = coordinator.config.commit_timeout_ms
    return respond_when_done([*pending.values()], timeout_ms, late, render)
