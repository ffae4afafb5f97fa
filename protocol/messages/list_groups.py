"""ListGroups lists the groups that a broker coordinates.

v1 adds the throttle time, v4 the states of the groups (KIP-518), v5 their types (KIP-848). v2 adds
no field (KIP-219), v3 is v2 in the flexible encoding. Our brokers have groups of one type, and
serve up to v4.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT16, INT32, STRING, Array, message, nested, wire


@message(api=ApiKey.LIST_GROUPS, versions="0-5", served="0-4", flexible="3+")
class ListGroupsRequest:
    """Ask for the groups of this broker that are in one of the states, or for all groups."""

    states_filter: Sequence[str] = wire(Array(STRING), since=4, default=())
    types_filter: Sequence[str] = wire(Array(STRING), since=5, default=())


@nested
class ListGroupsResponseGroup:
    """A group of ListGroupsResponse."""

    group_id: str = wire(STRING)
    protocol_type: str = wire(STRING)
    group_state: str = wire(STRING, since=4, default="")
    group_type: str = wire(STRING, since=5, default="")


@message(api=ApiKey.LIST_GROUPS, versions="0-5", flexible="3+")
class ListGroupsResponse:
    """The ids, protocol types and states of the groups."""

    throttle_time_ms: int = wire(INT32, since=1, default=0)
    error_code: int = wire(INT16)
    groups: Sequence[ListGroupsResponseGroup] = wire(Array(ListGroupsResponseGroup))


def error_response(request: ListGroupsRequest, code: ErrorCode) -> ListGroupsResponse:
    """Return the error and no groups."""
    return ListGroupsResponse(error_code=code, groups=[])
