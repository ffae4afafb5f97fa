"""ListGroups: the groups this broker coordinates, with or without members."""

from __future__ import annotations

from collections.abc import Callable

from broker.network.authorization import CLUSTER, group
from broker.network.request_context import RequestContext, authorize
from groups.coordinator.coordinator import GroupCoordinator
from groups.coordinator.listing import GroupOverview
from protocol.acls import Operation
from protocol.messages.list_groups import (
    ListGroupsRequest,
    ListGroupsResponse,
    ListGroupsResponseGroup,
)


def handle(
    coordinator: GroupCoordinator, request: ListGroupsRequest, context: RequestContext
) -> ListGroupsResponse:
    """List the groups that are loaded and that the sender may know of.

    The error says that there may be more groups, in partitions that are not served.
    """
    error, groups = coordinator.overviews()
    # Without states the filter is off (KIP-518).
    wanted_states = request.states_filter
    may_describe = _may_describe(context)
    return ListGroupsResponse(
        error_code=error,
        groups=[
            ListGroupsResponseGroup(
                group_id=overview.group_id,
                protocol_type=overview.protocol_type,
                group_state=overview.state,
            )
            for overview in groups
            if (not wanted_states or overview.state in wanted_states) and may_describe(overview)
        ],
    )


def _may_describe(context: RequestContext) -> Callable[[GroupOverview], bool]:
    """Return the filter of groups: DESCRIBE of the cluster allows all."""
    if authorize(context, Operation.DESCRIBE, CLUSTER, quietly=True):
        return lambda overview: True
    return lambda overview: authorize(
        context, Operation.DESCRIBE, group(overview.group_id), quietly=True
    )
