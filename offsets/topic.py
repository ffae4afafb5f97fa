"""`__consumer_offsets`: the compacted topic that keeps committed offsets and groups.

A group lives in one partition of it, chosen by Java's hash of its id; whoever leads that partition
is the group's coordinator. Kafka's docs, "Distribution: Consumer Offset Tracking"; the settings
of the topic are those the Java broker creates it with.
"""

from __future__ import annotations

from functools import lru_cache

from offsets.config import OffsetsConfig
from protocol.java_hash import group_partition
from protocol.topic_partition import TopicPartition

OFFSETS_TOPIC = "__consumer_offsets"
CACHED_GROUPS = 65_536

partition_for = lru_cache(maxsize=CACHED_GROUPS)(group_partition)
"""`partition_for(group_id, num_partitions)`: remembered, because every request asks it."""


def offsets_partition(partition: int) -> TopicPartition:
    """The name of one partition of the topic."""
    return TopicPartition(OFFSETS_TOPIC, partition)


def topic_properties(config: OffsetsConfig) -> dict[str, str]:
    """The settings the topic is created with; `producer` keeps the codec its writer chose."""
    return {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.topic_segment_bytes),
    }
