"""DescribeGroups: the state and members of groups."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import BOOL, BYTES, INT16, INT32, STRING, Array, message, nested, wire


@message(api=ApiKey.DESCRIBE_GROUPS, versions="0-4", flexible="5+")
class DescribeGroupsRequest:
    """Ask for groups by id."""

    groups: Sequence[str] = wire(Array(STRING))
    include_authorized_operations: bool = wire(BOOL, since=3, default=False)


@nested
class DescribeGroupsResponseMember:
    """A member of DescribeGroupsResponse."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=4, default=None, nullable=4)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    member_metadata: bytes = wire(BYTES)
    member_assignment: bytes = wire(BYTES)


@nested
class DescribeGroupsResponseGroup:
    """A group of DescribeGroupsResponse."""

    error_code: int = wire(INT16)
    group_id: str = wire(STRING)
    group_state: str = wire(STRING)
    protocol_type: str = wire(STRING)
    protocol_data: str = wire(STRING)
    members: Sequence[DescribeGroupsResponseMember] = wire(Array(DescribeGroupsResponseMember))
    authorized_operations: int = wire(INT32, since=3, default=-2147483648)


@message(api=ApiKey.DESCRIBE_GROUPS, versions="0-4", flexible="5+")
class DescribeGroupsResponse:
    """Each group; one that is not known has the state "Dead"."""

    throttle_time_ms: int = wire(INT32, since=1, default=0)
    groups: Sequence[DescribeGroupsResponseGroup] = wire(Array(DescribeGroupsResponseGroup))


def error_response(request: DescribeGroupsRequest, code: ErrorCode) -> DescribeGroupsResponse:
    """The answer that gives every group of `request` the same error."""
    return DescribeGroupsResponse(groups=[group_error(g, code) for g in request.groups])


def group_error(group_id: str, code: ErrorCode, state: str = "") -> DescribeGroupsResponseGroup:
    """A group of which nothing can be said but an error, or that it is dead."""
    return DescribeGroupsResponseGroup(
        error_code=code,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=[],
    )
