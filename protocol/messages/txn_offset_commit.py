"""TxnOffsetCommit commits the positions of a group in a producer's transaction (KIP-98).

They count once the transaction is committed. v1 adds no field (KIP-219), v2 leader epochs
(KIP-320), v3 generation and member (KIP-447), and is flexible.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT16, INT32, INT64, STRING, Array, message, nested, wire


@nested
class TxnOffsetCommitRequestPartition:
    """A partition of TxnOffsetCommitRequest."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, since=2, default=-1)  # -1: not known
    committed_metadata: str | None = wire(STRING, nullable=0)


@nested
class TxnOffsetCommitRequestTopic:
    """A topic of TxnOffsetCommitRequest."""

    name: str = wire(STRING)
    partitions: Sequence[TxnOffsetCommitRequestPartition] = wire(
        Array(TxnOffsetCommitRequestPartition)
    )


@message(api=ApiKey.TXN_OFFSET_COMMIT, versions="0-3", flexible="3+")
class TxnOffsetCommitRequest:
    """Commit offsets with the transaction. Without a member the group is not asked."""

    transactional_id: str = wire(STRING)
    group_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    generation_id: int = wire(INT32, since=3, default=-1)
    member_id: str = wire(STRING, since=3, default="")
    group_instance_id: str | None = wire(STRING, since=3, default=None, nullable=3)
    topics: Sequence[TxnOffsetCommitRequestTopic] = wire(Array(TxnOffsetCommitRequestTopic))


@nested
class TxnOffsetCommitResponsePartition:
    """A partition of TxnOffsetCommitResponse."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@nested
class TxnOffsetCommitResponseTopic:
    """A topic of TxnOffsetCommitResponse."""

    name: str = wire(STRING)
    partitions: Sequence[TxnOffsetCommitResponsePartition] = wire(
        Array(TxnOffsetCommitResponsePartition)
    )


@message(api=ApiKey.TXN_OFFSET_COMMIT, versions="0-3", flexible="3+")
class TxnOffsetCommitResponse:
    """The result for each partition."""

    throttle_time_ms: int = wire(INT32, default=0)
    topics: Sequence[TxnOffsetCommitResponseTopic] = wire(Array(TxnOffsetCommitResponseTopic))


def error_response(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    """Return the same error for every partition of `request`."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
