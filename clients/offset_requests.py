"""Requests about offsets from plain mappings, and plain mappings from their responses.

Shared by the simple consumer and the admin client; pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

import attrs

from protocol.errors import ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
)
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

EARLIEST_TIME = -2
"""Instead of a time: where the log starts."""
LATEST_TIME = -1
"""Instead of a time: where the log ends, for a consumer (the high watermark)."""

CONSUMER_REPLICA_ID = -1
"""Who asks: no replica, a consumer."""


@attrs.frozen
class CommittedOffset:
    """What a group has committed for a partition: offset -1 and no error is "nothing"."""

    offset: int
    metadata: str
    leader_epoch: int
    error: ErrorCode


def by_topic(
    partitions: Iterable[TopicPartition],
) -> Iterator[tuple[str, list[TopicPartition]]]:
    """The partitions of each topic, as every request lists them."""
    for topic, same_topic in groupby(sorted(partitions), key=lambda partition: partition.topic):
        yield topic, list(same_topic)


def list_offsets_request(
    times: Mapping[TopicPartition, int], *, max_num_offsets: int = 1, isolation: int = 0
) -> ListOffsetsRequest:
    """Ask for each partition's offset at a time: ms since the epoch, or one of the two above."""
    return ListOffsetsRequest(
        replica_id=CONSUMER_REPLICA_ID,
        isolation_level=isolation,
        topics=[
            ListOffsetsRequestTopic(
                name=topic,
                partitions=[
                    ListOffsetsRequestPartition(
                        partition_index=partition.partition,
                        timestamp=times[partition],
                        max_num_offsets=max_num_offsets,
                    )
                    for partition in partitions
                ],
            )
            for topic, partitions in by_topic(times)
        ],
    )


def listed_offsets(
    response: ListOffsetsResponse,
) -> dict[TopicPartition, ListOffsetsResponsePartition]:
    """The answers by partition. Of the list that version 0 has, the newest is the offset."""
    return {
        TopicPartition(topic.name, answer.partition_index): _of_today(answer)
        for topic in response.topics
        for answer in topic.partitions
    }


def _of_today(answer: ListOffsetsResponsePartition) -> ListOffsetsResponsePartition:
    if not answer.old_style_offsets:
        return answer
    return ListOffsetsResponsePartition(
        partition_index=answer.partition_index,
        error_code=answer.error_code,
        old_style_offsets=answer.old_style_offsets,
        offset=answer.old_style_offsets[0],
    )


def commit_request(
    group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> OffsetCommitRequest:
    """Commit from outside the group: no generation, no member."""
    return OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition.partition,
                        committed_offset=offsets[partition].offset,
                        committed_leader_epoch=offsets[partition].leader_epoch,
                        committed_metadata=offsets[partition].metadata,
                    )
                    for partition in partitions
                ],
            )
            for topic, partitions in by_topic(offsets)
        ],
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
            OffsetFetchRequestTopic(name=topic, partition_indexes=[p.partition for p in same])
            for topic, same in by_topic(partitions)
        ]
    return OffsetFetchRequest(group_id=group, topics=topics)


def committed_offsets(response: OffsetFetchResponse) -> dict[TopicPartition, CommittedOffset]:
    """The answers by partition; the error of the whole response is not looked at."""
    return {
        TopicPartition(topic.name, answer.partition_index): CommittedOffset(
            answer.committed_offset,
            answer.metadata or "",
            answer.committed_leader_epoch,
            ErrorCode.of(answer.error_code),
        )
        for topic in response.topics
        for answer in topic.partitions
    }
