"""Build OffsetCommit, OffsetFetch and OffsetDelete from mappings; read their responses. Pure."""

from collections.abc import Iterable, Mapping

from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from protocol.topic_partition import OffsetAndMetadata, TopicPartition, by_topic


@frozen
class FetchedOffset:
    """A coordinator's result for a partition: offset -1 without error means "nothing committed"."""

    offset: int
    metadata: str
    leader_epoch: int
    error: ErrorCode


@frozen
class Committer:
    """A member that commits, in its generation; by default somebody outside of generations.

    That are members of ZooKeeper groups, the simple consumer, and the admin client.
    """

    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


NO_MEMBER = Committer()


def commit_request(
    group: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    committer: Committer = NO_MEMBER,
) -> OffsetCommitRequest:
    """Build a commit."""
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=committer.generation_id,
        member_id=committer.member_id,
        group_instance_id=committer.group_instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[_commit_of(partition, offsets[partition]) for partition in same_topic],
            )
            for topic, same_topic in by_topic(offsets)
        ],
    )


def _commit_of(
    partition: TopicPartition, offset: OffsetAndMetadata
) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=partition.partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def commit_results(response: OffsetCommitResponse) -> dict[TopicPartition, ErrorCode]:
    """Return error codes by partition."""
    return {
        TopicPartition(topic.name, result.partition_index): ErrorCode.of(result.error_code)
        for topic in response.topics
        for result in topic.partitions
    }


def fetch_offsets_request(
    group: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool = False
) -> OffsetFetchRequest:
    """Build a request for committed offsets; None asks for all (version 2 and up).

    With `require_stable` (version 7 and up) an offset of an open transaction is an error.
    """
    # A null list asks for all topics, an empty one for none.
    topics = None
    if partitions is not None:
        topics = [
            OffsetFetchRequestTopic(name=topic, partition_indexes=[p.partition for p in same_topic])
            for topic, same_topic in by_topic(partitions)
        ]
    return OffsetFetchRequest(group_id=group, topics=topics, require_stable=require_stable)


def fetch_groups_request(group_ids: Iterable[str]) -> OffsetFetchRequest:
    """Build a request for all committed offsets of several groups (version 8 and up)."""
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in group_ids]
    )


def fetch_results(
    response: OffsetFetchResponse | OffsetFetchResponseGroup,
) -> dict[TopicPartition, FetchedOffset]:
    """Return the results by partition. The error of the whole response is the caller's."""
    return {
        TopicPartition(topic.name, result.partition_index): FetchedOffset(
            result.committed_offset,
            result.metadata or "",
            result.committed_leader_epoch,
            ErrorCode.of(result.error_code),
        )
        for topic in response.topics
        for result in topic.partitions
    }


def delete_offsets_request(group: str, partitions: Iterable[TopicPartition]) -> OffsetDeleteRequest:
    """Build a request to delete a group's offsets of these partitions."""
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[
                    OffsetDeleteRequestPartition(partition_index=p.partition) for p in same_topic
                ],
            )
            for topic, same_topic in by_topic(partitions)
        ],
    )


def delete_results(response: OffsetDeleteResponse) -> dict[TopicPartition, ErrorCode]:
    """Return error codes by partition. The error of the whole response is the caller's."""
    return {
        TopicPartition(topic.name, result.partition_index): ErrorCode.of(result.error_code)
        for topic in response.topics
        for result in topic.partitions
    }
