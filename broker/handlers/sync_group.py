"""SyncGroup: get a member's assignment; the response waits for the leader's."""

from __future__ import annotations

from functools import partial

from broker.network.authorization import group
from broker.network.dispatch import Outcome
from broker.network.pending_responses import NO_TIME_LIMIT_MS, respond_when_done
from broker.network.request_context import RequestContext, authorize
from groups.coordinator.coordinator import GroupCoordinator
from groups.coordinator.membership.events import Disconnected, Sync
from groups.coordinator.membership.responses import Synced
from protocol.acls import Operation
from protocol.errors import ApiError, ErrorCode
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

FIRST_VERSION_OF_PROTOCOL = 5


def handle(
    coordinator: GroupCoordinator, request: SyncGroupRequest, context: RequestContext
) -> Outcome:
    """Sync. Raises ApiError."""
    coordinator.require_group_id(request.group_id)
    coordinator.require_static_members(request.group_instance_id)
    if context.api_version >= FIRST_VERSION_OF_PROTOCOL and (
        request.protocol_type is None or request.protocol_name is None
    ):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"group {request.group_id}")

    try:
        event = _event(coordinator, request)
        pending = coordinator.submit(event)
    except ApiError as error:
        # A client that is syncing knows no loading: let it join again.
        if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, str(error)) from error
        raise

    def render(responses: list[Synced]) -> SyncGroupResponse:
        (synced,) = responses
        # It may have waited for its leader (fault strangers-15).
        if not authorize(context, Operation.READ, group(request.group_id)):
            synced = Synced(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return SyncGroupResponse(
            error_code=synced.error,
            protocol_type=synced.protocol_type,
            protocol_name=synced.protocol_name,
            assignment=synced.assignment,
        )

    # Only a broker that stops gives up waiting.
    late = Synced(ErrorCode.NOT_COORDINATOR)
    disconnected = Disconnected(event.request_id, event.group_id, event.member_id)
    return respond_when_done(
        [pending], NO_TIME_LIMIT_MS, late, render, partial(coordinator.end_parked, disconnected)
    )


def _event(coordinator: GroupCoordinator, request: SyncGroupRequest) -> Sync:
    return Sync(
        coordinator.next_request_id(),
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        request.protocol_type,
        request.protocol_name,
        [
            (assignment.member_id, bytes(assignment.assignment))
            for assignment in request.assignments
        ],
    )
