"""OffsetFetch reads the positions that a group has committed.

v0 reads them from ZooKeeper, later versions from `__consumer_offsets`. v2 adds an error of the
whole request, and from then on a null list of topics means all topics. v3 adds the throttle time,
v5 leader epochs (KIP-320). v4 adds no field (KIP-219).
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT16, INT32, INT64, STRING, Array, message, nested, wire


@nested
class OffsetFetchRequestTopic:
    """A topic of OffsetFetchRequest."""

    name: str = wire(STRING)
    partition_indexes: Sequence[int] = wire(Array(INT32))


@message(api=ApiKey.OFFSET_FETCH, versions="0-5", flexible="6+")
class OffsetFetchRequest:
    """Ask for the committed offsets of partitions."""

    group_id: str = wire(STRING, until=7, default="")
    topics: Sequence[OffsetFetchRequestTopic] | None = wire(
        Array(OffsetFetchRequestTopic), until=7, default=(), nullable=2
    )


@nested
class OffsetFetchResponsePartition:
    """A partition of OffsetFetchResponse."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, since=5, until=7, default=-1)  # -1: not known
    metadata: str | None = wire(STRING, nullable=0)
    error_code: int = wire(INT16)


@nested
class OffsetFetchResponseTopic:
    """A topic of OffsetFetchResponse."""

    name: str = wire(STRING)
    partitions: Sequence[OffsetFetchResponsePartition] = wire(Array(OffsetFetchResponsePartition))


@message(api=ApiKey.OFFSET_FETCH, versions="0-5", flexible="6+")
class OffsetFetchResponse:
    """The committed offset of each partition, or -1 if there is none."""

    throttle_time_ms: int = wire(INT32, since=3, default=0)
    topics: Sequence[OffsetFetchResponseTopic] = wire(
        Array(OffsetFetchResponseTopic), until=7, default=()
    )
    error_code: int = wire(INT16, since=2, until=7, default=0)


def error_response(request: OffsetFetchRequest, code: ErrorCode) -> OffsetFetchResponse:
    """Refuse the whole request: v0 and v1 carry the error for each partition, later ones once."""
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=-1, metadata="", error_code=code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
    )
