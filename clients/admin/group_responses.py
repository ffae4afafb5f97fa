"""Read the responses that the admin client gets about groups. Pure.

Raises BrokerError for a response that is an error as a whole. The requests are in
`offsets.requests`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from clients.admin.descriptions import GroupListing, GroupMemberId
from clients.admin.verdicts import Verdicts, make_verdict, raise_for, verdicts_of
from clients.cluster_view import BrokerEndpoint
from clients.errors import BrokerError, left_out
from groups.coordinator.subscriptions import CONSUMER
from offsets.requests import commit_results, delete_results, fetch_results
from protocol.api_key import ApiKey
from protocol.consumer_protocol import (
    Assignment,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import (
    DescribeGroupsResponse,
    DescribeGroupsResponseGroup,
    DescribeGroupsResponseMember,
)
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from protocol.messages.consumer_group_describe import (
        ConsumerGroupDescribeResponse,
        ConsumerGroupDescribeResponseMember,
    )
    from protocol.messages.delete_groups import DeleteGroupsResponse
    from protocol.messages.leave_group import LeaveGroupResponse
    from protocol.messages.list_groups import ListGroupsResponse
    from protocol.messages.offset_commit import OffsetCommitResponse
    from protocol.messages.offset_delete import OffsetDeleteResponse
    from protocol.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup


def listed_groups(broker: BrokerEndpoint, response: ListGroupsResponse) -> list[GroupListing]:
    """Return the groups that a broker coordinates."""
    raise_for(ApiKey.LIST_GROUPS, response.error_code, f"groups of broker {broker.node_id}")
    return [
        GroupListing(
            group.group_id,
            group.protocol_type,
            broker,
            group.group_state or None,
            group.group_type.lower() or None,
        )
        for group in response.groups
    ]


def described_groups(
    response: DescribeGroupsResponse,
) -> dict[str, DescribeGroupsResponseGroup | BrokerError]:
    """Return each group, or its error."""
    return {
        group.group_id: make_verdict(ApiKey.DESCRIBE_GROUPS, group.error_code, group.group_id)
        or group
        for group in response.groups
    }


def described_consumer_groups(
    response: ConsumerGroupDescribeResponse,
) -> dict[str, DescribeGroupsResponseGroup]:
    """Return groups of the protocol `consumer` in the form of classic ones, without others."""
    return {
        group.group_id: DescribeGroupsResponseGroup(
            error_code=ErrorCode.NONE,
            group_id=group.group_id,
            group_state=group.group_state,
            protocol_type=CONSUMER,
            protocol_data=group.assignor_name,
            members=[_classic_member(member) for member in group.members],
        )
        for group in response.groups
        if not group.error_code
    }


def _classic_member(member: ConsumerGroupDescribeResponseMember) -> DescribeGroupsResponseMember:
    partitions = tuple(
        TopicPartition(of_topic.topic_name, partition_id)
        for of_topic in member.assignment.topic_partitions
        for partition_id in of_topic.partitions
    )
    return DescribeGroupsResponseMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=encode_subscription(Subscription(tuple(member.subscribed_topic_names))),
        member_assignment=encode_assignment(Assignment(partitions)),
    )


def committed_offsets(
    group_id: str,
    partitions: Collection[TopicPartition] | None,
    response: OffsetFetchResponse | OffsetFetchResponseGroup,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the committed offsets; partitions without one are absent. None asks for all.

    The response is that of one group, or the part of one group in a response for many.
    """
    raise_for(ApiKey.OFFSET_FETCH, response.error_code, f"offsets of group {group_id}")
    committed = fetch_results(response)

    # A partition that the response lacks must not pass for one without an offset.
    for partition in partitions or ():
        if partition not in committed:
            raise left_out(f"offset of group {group_id} for {partition}")

    for partition, offset in committed.items():
        raise_for(ApiKey.OFFSET_FETCH, offset.error, f"offset of group {group_id} for {partition}")

    return {
        partition: OffsetAndMetadata(offset.offset, offset.metadata, offset.leader_epoch)
        for partition, offset in committed.items()
        # -1: nothing is committed.
        if offset.offset >= 0
    }


def commit_verdicts(
    group_id: str, partitions: Collection[TopicPartition], response: OffsetCommitResponse
) -> Verdicts[TopicPartition]:
    """Return None or an error for each partition."""
    verdicts = {
        partition: make_verdict(
            ApiKey.OFFSET_COMMIT, code, f"commit of group {group_id} for {partition}"
        )
        for partition, code in commit_results(response).items()
    }
    return verdicts_of(partitions, verdicts)


def group_deleted(group_id: str, response: DeleteGroupsResponse) -> None:
    """Raise BrokerError if the one group of the request was not deleted."""
    for result in response.results:
        if result.group_id == group_id:
            return raise_for(ApiKey.DELETE_GROUPS, result.error_code, group_id)

    raise left_out(group_id)


def members_removed(
    group_id: str, members: Collection[GroupMemberId], response: LeaveGroupResponse
) -> Verdicts[GroupMemberId]:
    """Return None or an error for each member."""
    raise_for(ApiKey.LEAVE_GROUP, response.error_code, group_id)
    verdicts = {
        GroupMemberId(result.member_id, result.group_instance_id): make_verdict(
            ApiKey.LEAVE_GROUP,
            ErrorCode.of(result.error_code),
            result.member_id or str(result.group_instance_id),
        )
        for result in response.members
    }
    return verdicts_of(members, verdicts)


def offsets_deleted(
    group_id: str, partitions: Collection[TopicPartition], response: OffsetDeleteResponse
) -> Verdicts[TopicPartition]:
    """Return None or an error for each partition."""
    raise_for(ApiKey.OFFSET_DELETE, response.error_code, group_id)
    verdicts = {
        partition: make_verdict(ApiKey.OFFSET_DELETE, code, str(partition))
        for partition, code in delete_results(response).items()
    }
    return verdicts_of(partitions, verdicts)
