"""JoinGroup: become a member of a group; the response waits for the other members."""

from __future__ import annotations

from functools import lru_cache, partial
from sys import intern

from broker.network.authorization import group
from broker.network.dispatch import Outcome
from broker.network.pending_responses import NO_TIME_LIMIT_MS, respond_when_done
from broker.network.request_context import RequestContext, authorize, client_host
from groups.coordinator.coordinator import GroupCoordinator
from groups.coordinator.membership.events import Disconnected, Join
from groups.coordinator.membership.responses import Joined
from protocol.acls import Operation
from protocol.errors import ApiError, ErrorCode
from protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

FIRST_VERSION_OF_MEMBER_IDS = 4
"""From this version on a client joins a second time, with the id that it was given (KIP-394)."""
FIRST_VERSION_OF_NULL_PROTOCOL = 7
FIRST_VERSION_OF_SKIPPING = 9

_kept_number = lru_cache(maxsize=256)(int)
"""Return one object for equal numbers, as `intern` does for texts."""


def handle(
    coordinator: GroupCoordinator, request: JoinGroupRequest, context: RequestContext
) -> Outcome:
    """Join. Errors come in a response that keeps the member's id."""
    version = context.api_version
    try:
        coordinator.require_group_id(request.group_id)
        coordinator.require_static_members(request.group_instance_id)
        event = _event(coordinator, request, context)
        pending = coordinator.submit(event)
    except ApiError as error:
        return _response(Joined(error.code, request.member_id), version)

    def render(responses: list[Joined]) -> JoinGroupResponse:
        (joined,) = responses
        # It may have waited for others, whose metadata it gets (fault strangers-15).
        if not authorize(context, Operation.READ, group(request.group_id)):
            joined = Joined(ErrorCode.GROUP_AUTHORIZATION_FAILED, request.member_id)
        return _response(joined, version)

    # Only a broker that stops gives up waiting.
    late = Joined(ErrorCode.NOT_COORDINATOR, request.member_id)
    member_id = event.member_id or event.new_member_id
    disconnected = Disconnected(event.request_id, event.group_id, member_id)
    return respond_when_done(
        [pending], NO_TIME_LIMIT_MS, late, render, partial(coordinator.end_parked, disconnected)
    )


def _event(
    coordinator: GroupCoordinator, request: JoinGroupRequest, context: RequestContext
) -> Join:
    version = context.api_version
    rebalance_timeout_ms = request.rebalance_timeout_ms

    # Members keep these values, which many have in common.
    client_id = intern(context.client_id)
    protocols = tuple(
        (intern(protocol.name), bytes(protocol.metadata)) for protocol in request.protocols
    )
    return Join(
        coordinator.next_request_id(),
        request.group_id,
        request.member_id,
        request.group_instance_id,
        coordinator.new_member_id(request.group_instance_id or client_id),
        client_id,
        intern(client_host(context)),
        _kept_number(request.session_timeout_ms),
        # Version 0 has one timeout for both.
        _kept_number(request.session_timeout_ms if version == 0 else rebalance_timeout_ms),
        intern(request.protocol_type),
        protocols,
        needs_member_id=version >= FIRST_VERSION_OF_MEMBER_IDS,
        can_skip_assignment=version >= FIRST_VERSION_OF_SKIPPING,
        reason=request.reason,
        connection=context.connection,
        record_max_bytes=coordinator.record_max_bytes(request.group_id),
    )


def _response(joined: Joined, version: int) -> JoinGroupResponse:
    protocol_name = joined.protocol_name
    # Older versions have no null.
    if protocol_name is None and version < FIRST_VERSION_OF_NULL_PROTOCOL:
        protocol_name = ""
    return JoinGroupResponse(
        error_code=joined.error,
        generation_id=joined.generation_id,
        protocol_type=joined.protocol_type,
        protocol_name=protocol_name,
        leader=joined.leader_id,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata,
            )
            for member in joined.members
        ],
    )
