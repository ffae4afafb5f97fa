"""OffsetCommit, OffsetFetch and OffsetDelete from plain mappings, and such from their responses.

As whoever is no member of a generation asks a group's coordinator: members of ZooKeeper groups,
the simple consumer, the admin client. Pure.
"""

from collections.abc import Iterable, Mapping

import attrs

from protocol.errors import ErrorCode
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
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from protocol.topic_partition import OffsetAndMetadata, TopicPartition, by_topic


@attrs.frozen
class FetchedOffset:
    """What a coordinator says of a partition: offset -1 and no error is "nothing committed"."""

    offset: int
    metadata: str
    leader_epoch: int
    error: ErrorCode


def commit_request(
    group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> OffsetCommitRequest:
    """Commit from outside the group: no generation, no member."""
    return OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[_committed(partition, offsets[partition]) for partition in same_topic],
            )
            for topic, same_topic in by_topic(offsets)
        ],
    )


def _committed(
    partition: TopicPartition, offset: OffsetAndMetadata
) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=partition.partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def commit_results(response: OffsetCommitResponse) -> dict[TopicPartition, ErrorCode]:
    """Each partition's error code."""
    return {
        TopicPartition(topic.name, answer.partition_index): ErrorCode.of(answer.error_code)
        for topic in response.topics
        for answer in topic.partitions
    }


def fetch_offsets_request(
    group: str, partitions: Iterable[TopicPartition] | None
) -> OffsetFetchRequest:
    """Ask for what a group has committed; None asks for all (version 2 and up)."""
    topics = None
    if partitions is not None:
        topics = [
            OffsetFetchRequestTopic(name=topic, partition_indexes=[p.partition for p in same_topic])
            for topic, same_topic in by_topic(partitions)
        ]
    return OffsetFetchRequest(group_id=group, topics=topics)


def fetch_results(response: OffsetFetchResponse) -> dict[TopicPartition, FetchedOffset]:
    """The answers by partition; the error of the whole response is not looked at."""
    return {
        TopicPartition(topic.name, answer.partition_index): FetchedOffset(
            answer.committed_offset,
            answer.metadata or "",
            answer.committed_leader_epoch,
            ErrorCode.of(answer.error_code),
        )
        for topic in response.topics
        for answer in topic.partitions
    }


def delete_offsets_request(group: str, partitions: Iterable[TopicPartition]) -> OffsetDeleteRequest:
    """Ask to forget what a group has committed for these."""
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
    """Each partition's error code; the error of the whole response is not looked at."""
    return {
        TopicPartition(topic.name, answer.partition_index): ErrorCode.of(answer.error_code)
        for topic in response.topics
        for answer in topic.partitions
    }
