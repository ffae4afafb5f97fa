"""LeaveGroup: remove members from their group."""

from __future__ import annotations

from broker.network.request_context import RequestContext
from groups.coordinator.coordinator import GroupCoordinator
from groups.coordinator.membership.events import Leave, Leaver
from groups.coordinator.membership.responses import Left
from protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeaveGroupResponseMember,
)

FIRST_VERSION_OF_SEVERAL_MEMBERS = 3


def handle(
    coordinator: GroupCoordinator, request: LeaveGroupRequest, context: RequestContext
) -> LeaveGroupResponse:
    """Remove the members that the request names. Raises ApiError."""
    coordinator.require_group_id(request.group_id)
    is_one = context.api_version < FIRST_VERSION_OF_SEVERAL_MEMBERS
    leavers = (
        [Leaver(request.member_id)]
        if is_one
        else [
            Leaver(member.member_id, member.group_instance_id, member.reason)
            for member in request.members
        ]
    )
    event = Leave(
        coordinator.next_request_id(),
        request.group_id,
        leavers,
        context.client_id,
        context.connection,
    )

    # Nothing is waited for: a member is gone as soon as the coordinator says so.
    left: Left = coordinator.submit(event).response
    if is_one:
        return LeaveGroupResponse(error_code=left.error or left.errors[0])
    return LeaveGroupResponse(
        error_code=left.error,
        members=[
            LeaveGroupResponseMember(
                member_id=leaver.member_id,
                group_instance_id=leaver.group_instance_id,
                error_code=error,
            )
            for leaver, error in zip(leavers, left.errors, strict=True)
        ],
    )
