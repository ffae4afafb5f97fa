"""Heartbeat: show that a member is alive, and learn whether it has to join again."""

from __future__ import annotations

from broker.network.request_context import RequestContext
from groups.coordinator.coordinator import GroupCoordinator
from groups.coordinator.membership.events import Heartbeat
from groups.runtime.runtime import Pending
from protocol.errors import ApiError, ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(
    coordinator: GroupCoordinator, request: HeartbeatRequest, context: RequestContext
) -> HeartbeatResponse:
    """Restart the member's session. Raises ApiError."""
    coordinator.require_group_id(request.group_id)
    coordinator.require_static_members(request.group_instance_id)
    event = Heartbeat(
        coordinator.next_request_id(),
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
    )

    try:
        pending = coordinator.submit(event)
    except ApiError as error:
        # Its session begins when the group is loaded.
        if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return HeartbeatResponse(error_code=ErrorCode.NONE)
        raise
    return respond(pending)


def respond(pending: Pending) -> HeartbeatResponse:
    """Return the response to a heartbeat that was decided."""
    return HeartbeatResponse(error_code=pending.response.error)
