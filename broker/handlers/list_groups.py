"""ListGroups: the groups this broker coordinates, members or not."""

from __future__ import annotations

from broker.network.request_context import RequestContext
from groups.coordinator.coordinator import GroupCoordinator
from protocol.messages.list_groups import (
    ListGroupsRequest,
    ListGroupsResponse,
    ListGroupsResponseGroup,
)


def handle(
    coordinator: GroupCoordinator, request: ListGroupsRequest, context: RequestContext
) -> ListGroupsResponse:
    """List what is loaded; the error says that there is more than that."""
    error, groups = coordinator.overviews()
    wanted = request.states_filter
    return ListGroupsResponse(
        error_code=error,
        groups=[
            ListGroupsResponseGroup(
                group_id=group.group_id, protocol_type=group.protocol_type, group_state=group.state
            )
            for group in groups
            if not wanted or group.state in wanted
        ],
    )
