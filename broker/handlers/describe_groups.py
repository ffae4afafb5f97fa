"""DescribeGroups: state and members of groups; each group has an error of its own."""

from __future__ import annotations

from collections.abc import Sequence

from broker.coordinators.zookeeper_members import ZooKeeperMemberIds, ZooKeeperMembers
from broker.network.authorization import group, operations_mask
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext, authorize
from groups.coordinator.coordinator import GroupCoordinator
from groups.coordinator.listing import GroupDetails, MemberDetails
from protocol.acls import Operation
from protocol.errors import ApiError, ErrorCode
from protocol.messages.describe_groups import (
    NOT_ASKED,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseGroup,
    DescribeGroupsResponseMember,
    group_error,
)


def handle(
    coordinator: GroupCoordinator,
    zookeeper: ZooKeeperMembers,
    request: DescribeGroupsRequest,
    context: RequestContext,
) -> DescribeGroupsResponse | Wait:
    """Describe the groups coordinated here. An unknown group is Dead."""
    with_operations = request.include_authorized_operations

    def render(zookeeper_members: ZooKeeperMemberIds) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(
            groups=[
                _describe(
                    coordinator,
                    group_id,
                    context,
                    with_operations,
                    zookeeper_members.get(group_id, ()),
                )
                for group_id in request.groups
            ]
        )

    if not request.include_zookeeper_members:
        return render({})
    visible = [
        group_id
        for group_id in request.groups
        if authorize(context, Operation.DESCRIBE, group(group_id), quietly=True)
    ]
    return zookeeper.find(visible, render)


def _describe(
    coordinator: GroupCoordinator,
    group_id: str,
    context: RequestContext,
    with_operations: bool,
    zookeeper_members: Sequence[str],
) -> DescribeGroupsResponseGroup:
    if not authorize(context, Operation.DESCRIBE, group(group_id)):
        return group_error(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    try:
        details = coordinator.describe(group_id)
    except ApiError as error:
        # It is coordinated elsewhere, or still being loaded.
        return group_error(group_id, error.code)

    operations = NOT_ASKED
    if with_operations:
        operations = operations_mask(context.sender, group(group_id))
    return _response_group(details, operations, zookeeper_members)


def _response_group(
    description: GroupDetails, operations: int, zookeeper_members: Sequence[str]
) -> DescribeGroupsResponseGroup:
    return DescribeGroupsResponseGroup(
        error_code=ErrorCode.NONE,
        group_id=description.group_id,
        group_state=description.state,
        protocol_type=description.protocol_type,
        protocol_data=description.protocol,
        members=[_response_member(member) for member in description.members],
        authorized_operations=operations,
        zookeeper_members=zookeeper_members,
    )


def _response_member(member: MemberDetails) -> DescribeGroupsResponseMember:
    return DescribeGroupsResponseMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata,
        member_assignment=member.assignment,
    )
