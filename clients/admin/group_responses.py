"""What brokers answer the admin client about groups. Raises BrokerError for what spoils the answer.

What is asked is in `offsets.requests`, where it is more than a name. Pure.
"""

from collections.abc import Collection

from clients.admin.descriptions import GroupListing
from clients.admin.requests import Verdicts, of_all, raise_for, verdict
from clients.cluster_view import BrokerEndpoint
from clients.errors import left_out
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
    for group in response.groups:
        if group.group_id == group_id:
            raise_for(group.error_code, group_id)
            return group
    raise left_out(group_id)


def committed_offsets(
    group_id: str, asked: Collection[TopicPartition] | None, response: OffsetFetchResponse
) -> dict[TopicPartition, OffsetAndMetadata]:
    """By partition; without those for which nothing is committed. None asked for all there are."""
    raise_for(response.error_code, f"offsets of group {group_id}")
    committed = fetched_offsets(response)
    for partition in asked or ():
        if partition not in committed:
            raise left_out(f"offset of group {group_id} for {partition}")
    for partition, offset in committed.items():
        raise_for(offset.error, f"offset of group {group_id} for {partition}")
    return {
        partition: OffsetAndMetadata(offset.offset, offset.metadata, offset.leader_epoch)
        for partition, offset in committed.items()
        if offset.offset >= 0
    }


def all_committed(
    group_id: str, asked: Collection[TopicPartition], response: OffsetCommitResponse
) -> None:
    """Raises BrokerError for the first partition that is not."""
    results = commit_results(response)
    for partition in asked:
        what = f"commit of group {group_id} for {partition}"
        if partition not in results:
            raise left_out(what)
        raise_for(results[partition], what)


def group_deleted(group_id: str, response: DeleteGroupsResponse) -> None:
    """Raises BrokerError if the one group that was to go is not gone."""
    for result in response.results:
        if result.group_id == group_id:
            return raise_for(result.error_code, group_id)
    raise left_out(group_id)


def offsets_deleted(
    group_id: str, asked: Collection[TopicPartition], response: OffsetDeleteResponse
) -> Verdicts[TopicPartition]:
    """By partition, None or what spoke against it."""
    raise_for(response.error_code, group_id)
    verdicts = {tp: verdict(code, str(tp)) for tp, code in delete_results(response).items()}
    return of_all(asked, verdicts)
