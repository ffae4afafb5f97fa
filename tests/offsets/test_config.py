"""Kafka's names and defaults of the offsets settings."""

import pytest

from offsets.config import OffsetsConfig
from protocol.settings import SettingError, load


def test_defaults_are_those_of_kafka() -> None:
    assert load(OffsetsConfig, {})[0] == OffsetsConfig(
        topic_num_partitions=50,
        topic_replication_factor=3,
        topic_segment_bytes=104_857_600,
        topic_compression_codec=0,
        load_buffer_bytes=5_242_880,
        metadata_max_bytes=4096,
        commit_timeout_ms=5000,
    )


def test_every_name_is_kafkas() -> None:
    given = {
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "2",
        "offsets.topic.segment.bytes": "14",
        "offsets.topic.compression.codec": "4",
        "offsets.load.buffer.size": "5",
        "offset.metadata.max.bytes": "6",
        "offsets.commit.timeout.ms": "7",
    }
    assert load(OffsetsConfig, given)[0] == OffsetsConfig(
        topic_num_partitions=1,
        topic_replication_factor=2,
        topic_segment_bytes=14,
        topic_compression_codec=4,
        load_buffer_bytes=5,
        metadata_max_bytes=6,
        commit_timeout_ms=7,
    )


def test_codec_nobody_knows_is_refused_by_its_setting() -> None:
    with pytest.raises(SettingError, match=r"offsets\.topic\.compression\.codec"):
        load(OffsetsConfig, {"offsets.topic.compression.codec": "5"})
