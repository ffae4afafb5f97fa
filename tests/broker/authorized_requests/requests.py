"""Requests that name topics, groups or configs, as small as they may be."""

from __future__ import annotations

from typing import Any

from protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsRequestResource
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
)
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from protocol.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
)
from protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestResource,
)
from protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
)
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from protocol.records.batch import encode_batch
from protocol.records.compression import Codec
from protocol.records.legacy import encode_messages
from tests.broker.replication.replicas import batch

TOPIC_CONFIGS, BROKER_CONFIGS = 2, 4


def produce(*topics: str, records: bytes | None = None, transaction: str | None = None) -> Any:
    return ProduceRequest(
        transactional_id=transaction,
        acks=-1,
        timeout_ms=5000,
        topic_data=[
            ProduceRequestTopic(
                name=name,
                partition_data=[ProduceRequestPartition(index=0, records=records or batch(b"a"))],
            )
            for name in topics
        ],
    )


def produce_compressed(*topics: str) -> Any:
    records = encode_batch([(0, None, b"a" * 100, ())], codec=Codec.GZIP)
    return produce(*topics, records=records)


def produce_old(*topics: str) -> Any:
    return produce(*topics, records=encode_messages([(0, 7, None, b"a", ())], 1))


def fetch(*topics: str, session: tuple[int, int] = (0, -1), replica_id: int = -1) -> Any:
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=100,
        min_bytes=1,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            FetchRequestTopic(
                topic=name,
                partitions=[
                    FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
                ],
            )
            for name in topics
        ],
    )


def list_offsets(*topics: str, timestamp: int = -1) -> Any:
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsRequestTopic(
                name=name,
                partitions=[ListOffsetsRequestPartition(partition_index=0, timestamp=timestamp)],
            )
            for name in topics
        ],
    )


def list_offsets_at_time(*topics: str) -> Any:
    return list_offsets(*topics, timestamp=0)


def metadata(*topics: str, creates: bool = False) -> Any:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=creates,
    )


def offset_commit(*topics: str, group_id: str = "g") -> Any:
    return OffsetCommitRequest(
        group_id=group_id,
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=7, committed_metadata=""
                    )
                ],
            )
            for name in topics
        ],
    )


def offset_fetch(*topics: str, group_id: str = "g") -> Any:
    return OffsetFetchRequest(
        group_id=group_id,
        topics=[OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in topics],
    )


def offset_delete(*topics: str, group_id: str = "g") -> Any:
    return OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
            )
            for name in topics
        ],
    )


def offset_for_leader_epoch(*topics: str) -> Any:
    return OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderEpochRequestTopic(
                topic=name,
                partitions=[OffsetForLeaderEpochRequestPartition(partition=0, leader_epoch=0)],
            )
            for name in topics
        ]
    )


def delete_records(*topics: str) -> Any:
    return DeleteRecordsRequest(
        timeout_ms=5000,
        topics=[
            DeleteRecordsRequestTopic(
                name=name, partitions=[DeleteRecordsRequestPartition(partition_index=0, offset=1)]
            )
            for name in topics
        ],
    )


def create_topics(*topics: str) -> Any:
    return CreateTopicsRequest(
        timeout_ms=5000,
        topics=[
            CreateTopicsRequestTopic(
                name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
            )
            for name in topics
        ],
    )


def delete_topics(*topics: str) -> Any:
    return DeleteTopicsRequest(topic_names=topics, timeout_ms=5000)


def create_partitions(*topics: str) -> Any:
    return CreatePartitionsRequest(
        timeout_ms=5000,
        validate_only=False,
        topics=[
            CreatePartitionsRequestTopic(name=name, count=2, assignments=None) for name in topics
        ],
    )


def describe_configs(*names: str, kind: int = TOPIC_CONFIGS) -> Any:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequestResource(
                resource_type=kind, resource_name=name, configuration_keys=None
            )
            for name in names
        ]
    )


def alter_configs(*names: str, kind: int = TOPIC_CONFIGS) -> Any:
    return AlterConfigsRequest(
        resources=[
            AlterConfigsRequestResource(resource_type=kind, resource_name=name, configs=[])
            for name in names
        ],
        validate_only=False,
    )


def incremental_alter_configs(*names: str, kind: int = TOPIC_CONFIGS) -> Any:
    return IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequestResource(
                resource_type=kind, resource_name=name, configs=[]
            )
            for name in names
        ],
        validate_only=False,
    )
