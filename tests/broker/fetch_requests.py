"""Requests to fetch, handled without a network."""

from __future__ import annotations

from typing import Any

from broker.handlers import fetch
from protocol.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from protocol.records.batch import decode_records
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import Replicas, context

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def request(
    *parts: tuple[TopicPartition, int],
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    epoch: int = -1,
    last_epoch: int = -1,
    session: tuple[int, int] = (0, -1),
    replica: int = -1,
    isolation: int = 0,
) -> FetchRequest:
    return FetchRequest(
        replica_id=replica,
        isolation_level=isolation,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            FetchRequestTopic(
                topic=topic_partition.topic,
                partitions=[
                    FetchRequestPartition(
                        partition=topic_partition.partition,
                        fetch_offset=offset,
                        current_leader_epoch=epoch,
                        last_fetched_epoch=last_epoch,
                        partition_max_bytes=partition_max_bytes,
                    )
                ],
            )
            for topic_partition, offset in parts
        ],
    )


def handle(
    replicas: Replicas,
    fetch_request: FetchRequest,
    fetch_max_bytes: int = 1 << 30,
    *,
    version: int = 12,
) -> Any:
    return fetch.handle(
        replicas.manager,
        replicas.cache,
        replicas.sessions,
        fetch_max_bytes,
        replicas.deferred,
        replicas.leader_quota,
        fetch_request,
        context(version),
    )


def parts(response: FetchResponse) -> list[FetchResponsePartition]:
    return [p for topic in response.responses for p in topic.partitions]


def values(part: FetchResponsePartition) -> list[bytes | None]:
    data = part.records if isinstance(part.records, bytes) else part.records.read()
    return [record.value for record in decode_records(data)]
