"""OffsetForLeaderEpoch finds the offset at which a leader epoch ended (KIP-101).

v1 adds the epoch that the response is about (KIP-279). v2 adds the throttle time and the epoch that
the sender believes to be current (KIP-320), v3 the replica id. v4 is v3 in the flexible
encoding.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT16, INT32, INT64, STRING, Array, message, nested, wire


@nested
class OffsetForLeaderEpochRequestPartition:
    """A partition of OffsetForLeaderEpochRequest."""

    partition: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, since=2, default=-1)  # -1: not known
    leader_epoch: int = wire(INT32)


@nested
class OffsetForLeaderEpochRequestTopic:
    """A topic of OffsetForLeaderEpochRequest."""

    topic: str = wire(STRING)
    partitions: Sequence[OffsetForLeaderEpochRequestPartition] = wire(
        Array(OffsetForLeaderEpochRequestPartition)
    )


@message(api=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="0-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    """Ask where `leader_epoch` of each partition ended; consumers are replica -2."""

    replica_id: int = wire(INT32, since=3, default=-2)
    topics: Sequence[OffsetForLeaderEpochRequestTopic] = wire(
        Array(OffsetForLeaderEpochRequestTopic)
    )


@nested
class OffsetForLeaderEpochResponsePartition:
    """A partition of OffsetForLeaderEpochResponse."""

    error_code: int = wire(INT16)
    partition: int = wire(INT32)
    leader_epoch: int = wire(INT32, since=1, default=-1)
    end_offset: int = wire(INT64, default=-1)


@nested
class OffsetForLeaderEpochResponseTopic:
    """A topic of OffsetForLeaderEpochResponse."""

    topic: str = wire(STRING)
    partitions: Sequence[OffsetForLeaderEpochResponsePartition] = wire(
        Array(OffsetForLeaderEpochResponsePartition)
    )


@message(api=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="0-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    """The largest epoch not above the requested one, and its end offset; -1 if there is none."""

    throttle_time_ms: int = wire(INT32, since=2, default=0)
    topics: Sequence[OffsetForLeaderEpochResponseTopic] = wire(
        Array(OffsetForLeaderEpochResponseTopic)
    )


def error_response(
    request: OffsetForLeaderEpochRequest, code: ErrorCode
) -> OffsetForLeaderEpochResponse:
    """Return the same error for every partition of `request`."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponseTopic(
                topic=topic.topic,
                partitions=[
                    OffsetForLeaderEpochResponsePartition(
                        error_code=code, partition=partition.partition
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
