"""ListOffsets from plain mappings, and plain mappings from its responses.

What is asked of a group's coordinator is in `offsets.requests`. Pure.
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

EARLIEST_TIME = -2
"""Instead of a time: where the log starts."""
LATEST_TIME = -1
"""Instead of a time: where the log ends, for a consumer (the high watermark)."""

CONSUMER_REPLICA_ID = -1
"""Who asks: no replica, a consumer."""


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
