"""Settings of the offsets topic and of commits, under Kafka's names with the defaults of 2.3."""

from __future__ import annotations

import attrs

from protocol.settings import between, ge, gt, setting


@attrs.frozen
class OffsetsConfig:
    """How `__consumer_offsets` is made, written and loaded."""

    topic_num_partitions: int = setting(
        "offsets.topic.num.partitions",
        50,
        validator=ge(1),
        doc="Partitions the topic is created with; a group's home depends on it for ever.",
    )
    topic_replication_factor: int = setting(
        "offsets.topic.replication.factor",
        3,
        validator=between(1, 32767),
        doc="Replicas of each partition; with fewer brokers alive the topic is not created.",
    )
    topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes",
        104_857_600,
        validator=ge(14),
        doc="Segment size of the topic: small, so that compaction and loading are fast.",
    )
    topic_compression_codec: int = setting(
        "offsets.topic.compression.codec",
        0,
        validator=between(0, 4),
        doc="Codec of the batches written: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
    )
    load_buffer_bytes: int = setting(
        "offsets.load.buffer.size",
        5_242_880,
        validator=ge(1),
        doc="Bytes read at a time while loading; a batch larger than it is read whole.",
    )
    metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes",
        4096,
        validator=ge(0),
        doc="Longest note with a commit, inclusive, counted in UTF-16 units as Kafka does.",
    )
    retention_minutes: int = setting(
        "offsets.retention.minutes",
        10_080,
        validator=ge(1),
        doc="How long offsets are kept once their group has no members (KIP-211).",
    )
    retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        600_000,
        validator=ge(1),
        doc="How often expired offsets are looked for.",
    )
    commit_timeout_ms: int = setting(
        "offsets.commit.timeout.ms",
        5000,
        validator=gt(0),
        doc="How long a commit may wait to be replicated before it is answered as timed out.",
    )
