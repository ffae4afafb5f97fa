"""OffsetCommit: keep the positions of a group.

v0 is kept in ZooKeeper, later ones in `__consumer_offsets`. v7: static members (KIP-345).
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
    committed_leader_epoch: int = wire(INT32, since=6, default=-1)
    commit_timestamp: int = wire(INT64, since=1, until=1, default=-1)
    committed_metadata: str | None = wire(STRING, nullable=0)


@nested
class OffsetCommitRequestTopic:
    """A topic of OffsetCommitRequest."""

    name: str = wire(STRING)
    partitions: Sequence[OffsetCommitRequestPartition] = wire(Array(OffsetCommitRequestPartition))


@message(api=ApiKey.OFFSET_COMMIT, versions="0-7", flexible="8+")
class OffsetCommitRequest:
    """Commit offsets. A group without members uses generation -1 and member id ""."""

    group_id: str = wire(STRING)
    generation_id_or_member_epoch: int = wire(INT32, since=1, default=-1)
    member_id: str = wire(STRING, since=1, default="")
    group_instance_id: str | None = wire(STRING, since=7, default=None, nullable=7)
    retention_time_ms: int = wire(INT64, since=2, until=4, default=-1)
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


@message(api=ApiKey.OFFSET_COMMIT, versions="0-7", flexible="8+")
class OffsetCommitResponse:
    """Per partition, whether the offset is kept."""

    throttle_time_ms: int = wire(INT32, since=3, default=0)
    topics: Sequence[OffsetCommitResponseTopic] = wire(Array(OffsetCommitResponseTopic))


def error_response(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """The answer that gives every partition of `request` the same error."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=p.partition_index, error_code=code
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
