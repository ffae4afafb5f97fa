"""DescribeGroups: state and members of groups; each has an error of its own."""

from __future__ import annotations

from broker.network.request_context import RequestContext
from groups.coordinator.coordinator import GroupCoordinator
from groups.coordinator.listing import GroupDescription
from offsets.records import GroupMember
from protocol.errors import ApiError, ErrorCode
from protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseGroup,
    DescribeGroupsResponseMember,
    group_error,
)


def handle(
    coordinator: GroupCoordinator, request: DescribeGroupsRequest, context: RequestContext
) -> DescribeGroupsResponse:
    """Describe the groups coordinated here; a group of which nothing is known is Dead."""
    return DescribeGroupsResponse(groups=[_group(coordinator, g) for g in request.groups])


def _group(coordinator: GroupCoordinator, group_id: str) -> DescribeGroupsResponseGroup:
    try:
        return _described(coordinator.describe(group_id))
    except ApiError as error:
        return group_error(group_id, error.code)


def _described(group: GroupDescription) -> DescribeGroupsResponseGroup:
    return DescribeGroupsResponseGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=[_member(member) for member in group.members],
    )


def _member(member: GroupMember) -> DescribeGroupsResponseMember:
    return DescribeGroupsResponseMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.subscription,
        member_assignment=member.assignment,
    )
