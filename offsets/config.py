"""Settings of the offsets topic and of commits, under Kafka's names with the defaults of 2.3."""

from __future__ import annotations

from protocol.frozen import frozen
from protocol.settings import between, ge, gt, int16, int64, setting


@frozen
class OffsetsConfig:
    """Settings for creating, writing and loading `__consumer_offsets`."""

    # ---- the topic
    topic_num_partitions: int = setting(
        "offsets.topic.num.partitions",
        50,
        validator=ge(1),
        doc="Partitions of the topic when it is created; the coordinator of a group depends on it.",
    )
    topic_replication_factor: int = setting(
        "offsets.topic.replication.factor",
        3,
        validator=int16(1),
        doc="Replicas of each partition; with fewer live brokers the topic is not created.",
    )
    topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes",
        104_857_600,
        # Least segment.bytes of any topic: the overhead of one record of message format v0.
        validator=ge(14),
        doc="Segment size of the topic: small, so that compaction and loading are fast.",
    )
    topic_compression_codec: int = setting(
        "offsets.topic.compression.codec",
        0,
        validator=between(0, 4),
        doc="Codec of the batches that are written: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
    )

    # ---- loading
    load_buffer_bytes: int = setting(
        "offsets.load.buffer.size",
        5_242_880,
        validator=ge(1),
        doc="Bytes per read while loading; a larger batch is read whole.",
    )

    # ---- commits
    metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes",
        4096,
        validator=ge(0),
        doc="Largest offset metadata, in UTF-16 code units, as Kafka counts.",
    )

    # ---- expiry
    retention_minutes: int = setting(
        "offsets.retention.minutes",
        # Seven days (KIP-186).
        10_080,
        validator=ge(1),
        doc="Minutes for which offsets are kept after their group has lost its members (KIP-211).",
    )
    retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        600_000,
        validator=int64(1),
        doc="Time between two checks for expired offsets.",
    )
    commit_timeout_ms: int = setting(
        "offsets.commit.timeout.ms",
        5000,
        validator=gt(0),
        doc="Time after which a commit that is not replicated yet fails with a timeout.",
    )
