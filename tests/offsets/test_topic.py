"""The partition of a group, and the settings of the offsets topic."""

import pytest

from offsets.config import OffsetsConfig
from offsets.topic import offsets_partition, partition_for, topic_properties


@pytest.mark.parametrize(
    ("group", "partition"),
    [
        ("group1", 40),
        ("test-group", 12),
        ("foo", 24),
        ("my_group", 12),
        ("polygenelubricants", 0),
        ("", 0),
    ],
)
def test_group_lives_where_java_puts_it(group: str, partition: int) -> None:
    assert partition_for(group, 50) == partition


def test_topic_is_compacted_in_small_segments_and_keeps_its_writers_codec() -> None:
    assert topic_properties(OffsetsConfig(topic_segment_bytes=1000)) == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "1000",
    }


def test_partition_is_named_as_kafka_names_it() -> None:
    assert str(offsets_partition(7)) == "__consumer_offsets-7"
