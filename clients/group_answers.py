"""What brokers answer the admin client about groups. Raises BrokerError for what spoils the answer.

What is asked is in `offsets.requests`, where it is more than a name. Pure.
"""

from clients.admin_requests import Verdicts, raise_for, verdict
from clients.cluster_view import BrokerEndpoint
from clients.descriptions import GroupListing
from offsets.requests import commit_results, delete_results, fetched_offsets
from protocol.messages.delete_groups import DeleteGroupsResponse
from protocol.messages.describe_groups import DescribeGroupsResponse, DescribeGroupsResponseGroup
from protocol.messages.list_groups import ListGroupsResponse
from protocol.messages.offset_commit import OffsetCommitResponse
from protocol.messages.offset_delete import OffsetDeleteResponse
from protocol.messages.offset_fetch import OffsetFetchResponse
from protocol.topic_partition import OffsetAndMetadata, TopicPartition


def listed_groups(broker: BrokerEndpoint, response: ListGroupsResponse) -> list[GroupListing]:
    """The groups a broker coordinates."""
    raise_for(response.error_code, f"groups of broker {broker.node_id}")
    return [GroupListing(g.group_id, g.protocol_type, broker) for g in response.groups]


def described_group(group_id: str, response: DescribeGroupsResponse) -> DescribeGroupsResponseGroup:
    """The one group that was asked for."""
    (group,) = response.groups
    raise_for(group.error_code, group_id)
    return group


def committed_offsets(
    group_id: str, response: OffsetFetchResponse
) -> dict[TopicPartition, OffsetAndMetadata]:
    """By partition; without those for which nothing is committed."""
    raise_for(response.error_code, f"offsets of group {group_id}")
    committed = fetched_offsets(response)
    for partition, offset in committed.items():
        raise_for(offset.error, f"offset of group {group_id} for {partition}")
    return {
        partition: OffsetAndMetadata(offset.offset, offset.metadata, offset.leader_epoch)
        for partition, offset in committed.items()
        if offset.offset >= 0
    }


def all_committed(group_id: str, response: OffsetCommitResponse) -> None:
    """Raises BrokerError for the first partition that is not."""
    for partition, code in commit_results(response).items():
        raise_for(code, f"commit of group {group_id} for {partition}")


def group_deleted(group_id: str, response: DeleteGroupsResponse) -> None:
    """Raises BrokerError if the one group that was to go is not gone."""
    (result,) = response.results
    raise_for(result.error_code, group_id)


def offsets_deleted(group_id: str, response: OffsetDeleteResponse) -> Verdicts[TopicPartition]:
    """By partition, None or what spoke against it."""
    raise_for(response.error_code, group_id)
    return {tp: verdict(code, str(tp)) for tp, code in delete_results(response).items()}
