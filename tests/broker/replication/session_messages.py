"""Requests and responses of fetch sessions, as small as they may be."""

from __future__ import annotations

from itertools import count

from broker.replication.fetch_sessions import (
    FetchSessions,
)
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    FetchRequest,
    FetchRequestForgottenTopic,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponsePartition,
)
from protocol.topic_partition import TopicPartition

A, B, C, D = (TopicPartition("t", number) for number in range(4))
TEMPLATE = FetchRequest(max_wait_ms=1, min_bytes=1, topics=())


def sessions(slots: int = 3) -> FetchSessions:
    """Make sessions whose ids are 1, 2, 3 …"""
    return FetchSessions(slots, count(1).__next__)


def requested(topic_partition: TopicPartition, offset: int = 0) -> FetchRequestPartition:
    return FetchRequestPartition(
        partition=topic_partition.partition,
        fetch_offset=offset,
        log_start_offset=0,
        partition_max_bytes=100,
    )


def request(
    *partitions: TopicPartition,
    session: tuple[int, int] = (0, 0),
    forgotten: tuple[TopicPartition, ...] = (),
    replica: int = -1,
    offset: int = 0,
) -> FetchRequest:
    return FetchRequest(
        replica_id=replica,
        max_wait_ms=1,
        min_bytes=1,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            FetchRequestTopic(
                topic="t",
                partitions=[requested(topic_partition, offset) for topic_partition in partitions],
            )
        ],
        forgotten_topics_data=[
            FetchRequestForgottenTopic(
                topic="t", partitions=[topic_partition.partition for topic_partition in forgotten]
            )
        ],
    )


def part(
    topic_partition: TopicPartition,
    *,
    high_watermark: int = 0,
    log_start: int = 0,
    records: bytes = b"",
) -> FetchResponsePartition:
    return FetchResponsePartition(
        partition_index=topic_partition.partition,
        error_code=ErrorCode.NONE,
        high_watermark=high_watermark,
        log_start_offset=log_start,
        records=records,
    )


def created(known: FetchSessions, size: int, now_ms: int = 0, replica: int = -1) -> int:
    """Return the id of a new session of so many partitions; 0 if there was no room."""
    partitions = [TopicPartition("t", number) for number in range(size)]
    context = known.open(request(*partitions, replica=replica), now_ms)
    return context.build_response([]).session_id
