"""Make ListOffsets requests from plain mappings, and read their responses. Pure.

Requests to a group's coordinator are in `offsets.requests`.
"""

from collections.abc import Mapping

from protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
)
from protocol.topic_partition import TopicPartition, by_topic

CONSUMER_REPLICA_ID = -1
"""Replica id of a client that is no replica."""
DEBUGGING_REPLICA_ID = -2
"""Replica id of a client to whom a leader tells its log's end, and not the high watermark."""


def list_offsets_request(
    times: Mapping[TopicPartition, int],
    *,
    max_num_offsets: int = 1,
    isolation: int = 0,
    replica_id: int = CONSUMER_REPLICA_ID,
) -> ListOffsetsRequest:
    """Ask for each partition's offset at a time: ms since the epoch, EARLIEST_TIME, LATEST_TIME."""
    return ListOffsetsRequest(
        replica_id=replica_id,
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
    """Return the responses by partition. The offset is the newest of version 0's list."""
    return {
        TopicPartition(topic.name, response_partition.partition_index): _with_offset(
            response_partition
        )
        for topic in response.topics
        for response_partition in topic.partitions
    }


def _with_offset(response_partition: ListOffsetsResponsePartition) -> ListOffsetsResponsePartition:
    if not response_partition.old_style_offsets:
        return response_partition
    return ListOffsetsResponsePartition(
        partition_index=response_partition.partition_index,
        error_code=response_partition.error_code,
        old_style_offsets=response_partition.old_style_offsets,
        # Version 0 lists the newest offset first.
        offset=response_partition.old_style_offsets[0],
    )
