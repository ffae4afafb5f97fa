"""OffsetCommit stores the positions of a group.

v0 stores them in ZooKeeper, later versions in `__consumer_offsets`. v1 adds generation and member
and has a timestamp for each offset; v2 to v4 have a retention time instead. v3 adds the throttle
time, v6 leader epochs (KIP-320), v7 static members (KIP-345). v4 adds no field (KIP-219), v8 is v7
in the flexible encoding.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT16, INT32, INT64, STRING, Array, message, nested, wire


@nested
class OffsetCommitRequestPartition:
    """A partition of OffsetCommitRequest."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, since=6, default=-1)  # -1: not known
    commit_timestamp: int = wire(INT64, since=1, until=1, default=-1)  # -1: when it arrives
    committed_metadata: str | None = wire(STRING, nullable=0)


@nested
class OffsetCommitRequestTopic:
    """A topic of OffsetCommitRequest."""

    name: str = wire(STRING)
    partitions: Sequence[OffsetCommitRequestPartition] = wire(Array(OffsetCommitRequestPartition))


@message(api=ApiKey.OFFSET_COMMIT, versions="0-8", flexible="8+")
class OffsetCommitRequest:
    """Commit offsets. A group without members uses generation -1 and member id ""."""

    group_id: str = wire(STRING)
    generation_id_or_member_epoch: int = wire(INT32, since=1, default=-1)
    member_id: str = wire(STRING, since=1, default="")
    group_instance_id: str | None = wire(STRING, since=7, default=None, nullable=7)
    retention_time_ms: int = wire(INT64, since=2, until=4, default=-1)  # -1: the broker's
    topics: Sequence[OffsetCommitRequestTopic] = wire(Array(OffsetCommitRequestTopic))


@nested
class OffsetCommitResponsePartition:
    """A partition of OffsetCommitResponse."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@nested
class OffsetCommitResponseTopic:
    """A topic of OffsetCommitResponse."""

    name: str = wire(STRING)
    partitions: Sequence[OffsetCommitResponsePartition] = wire(Array(OffsetCommitResponsePartition))


@message(api=ApiKey.OFFSET_COMMIT, versions="0-8", flexible="8+")
class OffsetCommitResponse:
    """The result for each partition."""

    throttle_time_ms: int = wire(INT32, since=3, default=0)
    topics: Sequence[OffsetCommitResponseTopic] = wire(Array(OffsetCommitResponseTopic))


def error_response(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """Return the same error for every partition of `request`."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
