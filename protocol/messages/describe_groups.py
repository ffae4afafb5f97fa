"""DescribeGroups reads the state and the members of groups.

v1 adds the throttle time, v3 the authorized operations (KIP-430), v4 the instance ids of static
members (KIP-345). v2 adds no field (KIP-219), v5 is v4 in the flexible encoding.

Two tagged fields are ours, for a group that has members in ZooKeeper besides those at its
coordinator. Other brokers and clients skip them, as they do with tags that they do not know
(KIP-482).
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import BOOL, BYTES, INT16, INT32, STRING, Array, message, nested, wire

TAG_OF_ZOOKEEPER_MEMBERS = 0x4B67
"""Far above the tags that Kafka gives its fields, which count from 0."""
NOT_ASKED = -(2**31)
"""The authorized operations of a group if the request does not ask for them."""


@message(api=ApiKey.DESCRIBE_GROUPS, versions="0-5", flexible="5+")
class DescribeGroupsRequest:
    """Ask for groups by id."""

    groups: Sequence[str] = wire(Array(STRING))
    include_authorized_operations: bool = wire(BOOL, since=3, default=False)
    include_zookeeper_members: bool = wire(
        BOOL, since=5, default=False, tag=TAG_OF_ZOOKEEPER_MEMBERS
    )


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
    protocol_data: str = wire(STRING)  # name of the assignor that the group has chosen
    members: Sequence[DescribeGroupsResponseMember] = wire(Array(DescribeGroupsResponseMember))
    # A bit for the number of each operation that the client may do.
    authorized_operations: int = wire(INT32, since=3, default=NOT_ASKED)
    # The ids of members that registered in ZooKeeper, if the request asks for them.
    zookeeper_members: Sequence[str] = wire(
        Array(STRING), since=5, default=(), tag=TAG_OF_ZOOKEEPER_MEMBERS
    )


@message(api=ApiKey.DESCRIBE_GROUPS, versions="0-5", flexible="5+")
class DescribeGroupsResponse:
    """The groups; a group that does not exist has the state "Dead"."""

    throttle_time_ms: int = wire(INT32, since=1, default=0)
    groups: Sequence[DescribeGroupsResponseGroup] = wire(Array(DescribeGroupsResponseGroup))


def error_response(request: DescribeGroupsRequest, code: ErrorCode) -> DescribeGroupsResponse:
    """Return the same error for every group of `request`."""
    return DescribeGroupsResponse(
        groups=[group_error(group_id, code) for group_id in request.groups]
    )


def group_error(group_id: str, code: ErrorCode, state: str = "") -> DescribeGroupsResponseGroup:
    """Return a group without members: the error that prevents more, or the state of a dead one."""
    return DescribeGroupsResponseGroup(
        error_code=code,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=[],
    )
