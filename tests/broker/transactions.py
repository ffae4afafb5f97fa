"""Requests of transactional producers and of their coordinators, handled without a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker.handlers import write_txn_markers
from groups.coordinator.coordinator import GroupCoordinator
from protocol.errors import ErrorCode
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.records.batch import encode_batch
from protocol.records.batch_header import TRANSACTIONAL
from protocol.topic_partition import TopicPartition, by_topic
from tests.broker.replication.replicas import NOW_MS, Replicas, context

P = 4000


def in_transaction(
    *values: bytes, producer_id: int = P, epoch: int = 0, sequence: int = 0, flags: int = 0
) -> bytes:
    """Encode a transactional batch."""
    return encode_batch(
        [(NOW_MS, None, value, ()) for value in values],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        flags=TRANSACTIONAL | flags,
    )


def produce_request(
    records: bytes,
    topic: str = "t",
    partition: int = 0,
    *,
    transactional_id: str | None = "x",
    acks: int = -1,
) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            ProduceRequestTopic(
                name=topic,
                partition_data=[ProduceRequestPartition(index=partition, records=records)],
            )
        ],
    )


def marker(
    *partitions: TopicPartition,
    commits: bool = True,
    producer_id: int = P,
    epoch: int = 0,
    coordinator_epoch: int = 0,
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commits,
        topics=[
            WritableTxnMarkerTopic(name=topic, partition_indexes=[tp.partition for tp in same])
            for topic, same in by_topic(partitions)
        ],
        coordinator_epoch=coordinator_epoch,
    )


def write_markers(replicas: Replicas, groups: GroupCoordinator, *markers: WritableTxnMarker) -> Any:
    """Return the response, or the Wait for it."""
    return write_txn_markers.handle(
        replicas.manager,
        groups,
        replicas.deferred,
        1000,
        WriteTxnMarkersRequest(markers=markers),
        context(1),
    )


def marker_codes(response: WriteTxnMarkersResponse) -> list[ErrorCode]:
    return [
        ErrorCode.of(partition.error_code)
        for result in response.markers
        for topic in result.topics
        for partition in topic.partitions
    ]


def commit_request(
    *partitions: tuple[str, int, int],
    group_id: str = "g",
    producer_id: int = P,
    epoch: int = 0,
    metadata: str = "",
    generation_id: int = -1,
    member_id: str = "",
    group_instance_id: str | None = None,
) -> TxnOffsetCommitRequest:
    """Build a commit of (topic, partition, offset), each with a topic entry of its own."""
    return TxnOffsetCommitRequest(
        transactional_id="x",
        group_id=group_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=group_instance_id,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_metadata=metadata,
                    )
                ],
            )
            for topic, partition, offset in partitions
        ],
    )


def commit_codes(response: Any) -> Sequence[ErrorCode]:
    return [
        ErrorCode.of(partition.error_code)
        for topic in response.topics
        for partition in topic.partitions
    ]
