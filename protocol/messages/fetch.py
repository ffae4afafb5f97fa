"""Fetch reads record batches from an offset on, for consumers and for followers.

v0 and v1 carry message format 0, v2 and v3 format 1, later versions format 2.
v1 adds the throttle time, v3 a limit for the whole response (KIP-74), v4 transactions (KIP-98),
v5 the log start offset (KIP-107), v7 fetch sessions (KIP-227), v9 leader epochs (KIP-320), v10
zstd (KIP-110), v11 the rack of the reader (KIP-392), v12 the epoch of the reader's last record
(KIP-595). v6 adds only an error code, v8 nothing.

Left out are tagged fields of v12 that only brokers without ZooKeeper use: the cluster id of a
request, and of a response the current leader and the snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT8, INT16, INT32, INT64, RECORDS, STRING, Array, message, nested, wire


@nested
class FetchRequestPartition:
    """A partition of FetchRequest."""

    partition: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, since=9, default=-1)  # -1: not known
    fetch_offset: int = wire(INT64)
    last_fetched_epoch: int = wire(INT32, since=12, default=-1)  # -1: not known
    log_start_offset: int = wire(INT64, since=5, default=-1)  # of a follower; -1: a consumer
    partition_max_bytes: int = wire(INT32)


@nested
class FetchRequestTopic:
    """A topic of FetchRequest."""

    topic: str = wire(STRING)
    partitions: Sequence[FetchRequestPartition] = wire(Array(FetchRequestPartition))


@nested
class FetchRequestForgottenTopic:
    """A forgotten topic of FetchRequest."""

    topic: str = wire(STRING)
    partitions: Sequence[int] = wire(Array(INT32))


@message(api=ApiKey.FETCH, versions="0-12", flexible="12+")
class FetchRequest:
    """Read from each partition and wait up to `max_wait_ms` for `min_bytes` in all."""

    replica_id: int = wire(INT32, default=-1)  # -1: a consumer
    max_wait_ms: int = wire(INT32)
    min_bytes: int = wire(INT32)
    max_bytes: int = wire(INT32, since=3, default=0x7FFFFFFF)
    isolation_level: int = wire(INT8, since=4, default=0)  # 0: read uncommitted, 1: committed
    session_id: int = wire(INT32, since=7, default=0)
    session_epoch: int = wire(INT32, since=7, default=-1)  # -1: without a session, 0: a new one
    topics: Sequence[FetchRequestTopic] = wire(Array(FetchRequestTopic))
    # Partitions to remove from the session.
    forgotten_topics_data: Sequence[FetchRequestForgottenTopic] = wire(
        Array(FetchRequestForgottenTopic), since=7, default=()
    )
    rack_id: str = wire(STRING, since=11, default="")


@nested
class FetchResponseAbortedTransaction:
    """An aborted transaction of FetchResponse."""

    producer_id: int = wire(INT64)
    first_offset: int = wire(INT64)


@nested
class FetchResponseEpochEndOffset:
    """The largest epoch up to the last fetched one that the leader's log has, and its end."""

    epoch: int = wire(INT32, default=-1)
    end_offset: int = wire(INT64, default=-1)


NOT_DIVERGING = FetchResponseEpochEndOffset()


@nested
class FetchResponsePartition:
    """A partition of FetchResponse."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    high_watermark: int = wire(INT64)
    last_stable_offset: int = wire(INT64, since=4, default=-1)
    log_start_offset: int = wire(INT64, since=5, default=-1)
    aborted_transactions: Sequence[FetchResponseAbortedTransaction] | None = wire(
        Array(FetchResponseAbortedTransaction), since=4, default=None, nullable=4
    )
    preferred_read_replica: int = wire(INT32, since=11, default=-1)  # -1: the leader
    records: Any = wire(RECORDS, nullable=0)
    # Where the reader's log and the leader's part, if they do.
    diverging_epoch: FetchResponseEpochEndOffset = wire(
        FetchResponseEpochEndOffset, since=12, default=NOT_DIVERGING, tag=0
    )


@nested
class FetchResponseTopic:
    """A topic of FetchResponse."""

    topic: str = wire(STRING)
    partitions: Sequence[FetchResponsePartition] = wire(Array(FetchResponsePartition))


@message(api=ApiKey.FETCH, versions="0-12", flexible="12+")
class FetchResponse:
    """Record batches in the order of the request; session 0 means that there is none."""

    throttle_time_ms: int = wire(INT32, since=1, default=0)
    error_code: int = wire(INT16, since=7, default=0)
    session_id: int = wire(INT32, since=7, default=0)
    responses: Sequence[FetchResponseTopic] = wire(Array(FetchResponseTopic))


def error_response(request: FetchRequest, code: ErrorCode) -> FetchResponse:
    """Return the same error for every partition of `request`."""
    return FetchResponse(
        error_code=code,
        responses=[
            FetchResponseTopic(
                topic=topic.topic,
                partitions=[
                    partition_error(partition.partition, code) for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def partition_error(partition_index: int, code: ErrorCode) -> FetchResponsePartition:
    """Return a partition with an error: no high watermark, and records that are empty, not null."""
    return FetchResponsePartition(
        partition_index=partition_index,
        error_code=code,
        high_watermark=-1,
        records=b"",
    )
