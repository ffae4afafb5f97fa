"""DescribeGroups: state and members of groups; each group has an error of its own."""

from __future__ import annotations

from broker.network.authorization import Operation, group
from broker.network.request_context import RequestContext, authorize
from groups.coordinator.coordinator import GroupCoordinator
from groups.coordinator.listing import GroupDetails
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
    """Describe the groups coordinated here. An unknown group is Dead."""
    return DescribeGroupsResponse(
        groups=[_describe(coordinator, group_id, context) for group_id in request.groups]
    )


def _describe(
    coordinator: GroupCoordinator, group_id: str, context: RequestContext
) -> DescribeGroupsResponseGroup:
    if not authorize(context, Operation.DESCRIBE, group(group_id)):
        return group_error(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    try:
        return _response_group(coordinator.describe(group_id))
    except ApiError as error:
        # It is coordinated elsewhere, or still being loaded.
        return group_error(group_id, error.code)


def _response_group(description: GroupDetails) -> DescribeGroupsResponseGroup:
    return DescribeGroupsResponseGroup(
        error_code=ErrorCode.NONE,
        group_id=description.group_id,
        group_state=description.state,
        protocol_type=description.protocol_type,
        protocol_data=description.protocol,
        members=[_response_member(member) for member in description.members],
    )


def _response_member(member: GroupMember) -> DescribeGroupsResponseMember:
    return DescribeGroupsResponseMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.subscription,
        member_assignment=member.assignment,
    )
