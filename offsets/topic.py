"""`__consumer_offsets`: the compacted topic that keeps committed offsets and groups.

A group lives in one partition of it, chosen by Java's hash of its id; the leader of that partition
is the group's coordinator. The topic is created with the settings of the Java broker. Source:
Kafka's docs, "Distribution: Consumer Offset Tracking".
"""

from __future__ import annotations

from functools import lru_cache

from offsets.config import OffsetsConfig
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.java_hash import group_partition
from protocol.topic_partition import TopicPartition

CACHED_GROUPS = 65_536

partition_for = lru_cache(maxsize=CACHED_GROUPS)(group_partition)
"""`partition_for(group_id, num_partitions)`, cached because every request needs it."""


def offsets_partition(partition: int) -> TopicPartition:
    """Return one partition of the topic."""
    return TopicPartition(OFFSETS_TOPIC, partition)


def topic_properties(config: OffsetsConfig) -> dict[str, str]:
    """Return the settings for creating the topic; `producer` keeps the codec of each batch."""
    return {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.topic_segment_bytes),
    }
