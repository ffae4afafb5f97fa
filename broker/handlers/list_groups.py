"""ListGroups: the groups this broker coordinates, with or without members."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from broker.network.authorization import CLUSTER, group
from broker.network.deferred import Deferred
from broker.network.dispatch import Outcome
from broker.network.fair_line import owner_of
from broker.network.request_context import RequestContext, authorize
from groups.coordinator.coordinator import GroupCoordinator
from groups.coordinator.listing import GroupOverview
from protocol.acls import Operation
from protocol.encoding import Encoded, EncodedArray, encode_element
from protocol.errors import ErrorCode
from protocol.messages.list_groups import (
    ListGroupsRequest,
    ListGroupsResponse,
    ListGroupsResponseGroup,
    error_response,
)

GROUPS_A_TURN = 1000
"""Groups listed in one turn of the loop: some 3 ms, and more where ACLs decide."""
TURNS_TIMEOUT_MS = 30_000
"""A request waits no longer for further turns of the loop."""


def handle(
    coordinator: GroupCoordinator,
    deferred: Deferred,
    request: ListGroupsRequest,
    context: RequestContext,
) -> Outcome:
    """List the groups that are loaded and that the sender may know of, some of them a turn.

    The error says that there may be more groups, in partitions that are not served.
    """
    error, overviews = coordinator.overviews()
    # Without states the filter is off (KIP-518).
    wanted_states = request.states_filter
    may_describe = _may_describe(context)
    chunks: list[Encoded] = []
    count = 0

    def list_some() -> ListGroupsResponse | None:
        nonlocal count
        some = list(islice(overviews, GROUPS_A_TURN))
        is_all = len(some) < GROUPS_A_TURN
        groups = [
            ListGroupsResponseGroup(
                group_id=overview.group_id,
                protocol_type=overview.protocol_type,
                group_state=overview.state,
            )
            for overview in some
            if (not wanted_states or overview.state in wanted_states) and may_describe(overview)
        ]
        if is_all and not chunks:
            return ListGroupsResponse(error_code=error, groups=groups)

        # To encode all of them at the end would take a turn for itself.
        count += len(groups)
        version = context.api_version
        encoded = [encode_element(group, ListGroupsResponse, version).body for group in groups]
        chunks.append(Encoded(ListGroupsResponseGroup, b"".join(encoded)))
        if not is_all:
            return None
        return ListGroupsResponse(error_code=error, groups=EncodedArray(count, chunks))  # type: ignore[arg-type]

    def respond_late() -> ListGroupsResponse:
        return error_response(request, ErrorCode.REQUEST_TIMED_OUT)

    return deferred.respond_in_turns(list_some, TURNS_TIMEOUT_MS, respond_late, owner_of(context))


def _may_describe(context: RequestContext) -> Callable[[GroupOverview], bool]:
    """Return the filter of groups: DESCRIBE of the cluster allows all."""
    if authorize(context, Operation.DESCRIBE, CLUSTER, quietly=True):
        return lambda overview: True
    return lambda overview: authorize(
        context, Operation.DESCRIBE, group(overview.group_id), quietly=True
    )
