"""Settings of transactions and of their topic, under Kafka's names with the defaults of 2.8."""

from __future__ import annotations

from protocol.frozen import frozen
from protocol.settings import ge, int16, int32, setting


@frozen
class TransactionsConfig:
    """Settings for creating, writing and loading `__transaction_state`, and of transactions."""

    # ---- the topic
    topic_num_partitions: int = setting(
        "transaction.state.log.num.partitions",
        50,
        validator=ge(1),
        doc="Partitions of the topic when it is created; the coordinator of a transactional id "
        "depends on it.",
    )
    topic_replication_factor: int = setting(
        "transaction.state.log.replication.factor",
        3,
        validator=int16(1),
        doc="Replicas of each partition; with fewer live brokers the topic is not created.",
    )
    topic_min_isr: int = setting(
        "transaction.state.log.min.isr",
        2,
        validator=ge(1),
        doc="Replicas that must be in sync for the state of a transaction to be written.",
    )
    topic_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes",
        104_857_600,
        # Least segment.bytes of any topic: the overhead of one record of message format v0.
        validator=ge(14),
        doc="Segment size of the topic: small, so that compaction and loading are fast.",
    )

    # ---- loading
    load_buffer_bytes: int = setting(
        "transaction.state.log.load.buffer.size",
        5_242_880,
        validator=ge(1),
        doc="Bytes per read while loading; a larger batch is read whole.",
    )

    # ---- transactions
    max_timeout_ms: int = setting(
        "transaction.max.timeout.ms",
        900_000,
        validator=ge(1),
        doc="Longest transaction.timeout.ms that a producer may ask for.",
    )
    partition_verification_enable: bool = setting(
        "transaction.partition.verification.enable",
        False,
        doc="True: a leader appends the first batch of a transaction only if its coordinator says "
        "that the partition belongs to it (KIP-890). Kafka has it since 3.6, where it is true.",
    )
    abort_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        validator=int32(1),
        doc="Time between two looks for transactions that are open for too long.",
    )

    # ---- expiry
    id_expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        604_800_000,
        validator=int32(1),
        doc="Time after its last transaction for which a transactional id is kept; "
        "producers in logs are kept as long.",
    )
    expiry_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        validator=int32(1),
        doc="Time between two looks for transactional ids that have expired.",
    )
