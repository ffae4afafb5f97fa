"""ListOffsets finds the offset that belongs to a time.

v0 lists several offsets, those where segments begin. v1 gives one offset and its timestamp
(KIP-79). v2 adds the isolation level and the throttle time, v4 leader epochs (KIP-320), v5 only
OFFSET_NOT_AVAILABLE (KIP-207). v3 adds no field (KIP-219), v6 is v5 in the flexible encoding.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT8, INT16, INT32, INT64, STRING, Array, message, nested, wire


@nested
class ListOffsetsRequestPartition:
    """A partition of ListOffsetsRequest."""

    partition_index: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, since=4, default=-1)  # -1: not known
    timestamp: int = wire(INT64)
    max_num_offsets: int = wire(INT32, until=0, default=1)


@nested
class ListOffsetsRequestTopic:
    """A topic of ListOffsetsRequest."""

    name: str = wire(STRING)
    partitions: Sequence[ListOffsetsRequestPartition] = wire(Array(ListOffsetsRequestPartition))


@message(api=ApiKey.LIST_OFFSETS, versions="0-6", flexible="6+")
class ListOffsetsRequest:
    """Ask for the offset at a timestamp in ms since the epoch; -1 is the log end, -2 its start."""

    replica_id: int = wire(INT32)  # -1: a consumer
    isolation_level: int = wire(INT8, since=2, default=0)  # 0: read uncommitted, 1: committed
    topics: Sequence[ListOffsetsRequestTopic] = wire(Array(ListOffsetsRequestTopic))


@nested
class ListOffsetsResponsePartition:
    """A partition of ListOffsetsResponse."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    old_style_offsets: Sequence[int] = wire(Array(INT64), until=0, default=())
    timestamp: int = wire(INT64, since=1, default=-1)
    offset: int = wire(INT64, since=1, default=-1)
    leader_epoch: int = wire(INT32, since=4, default=-1)


@nested
class ListOffsetsResponseTopic:
    """A topic of ListOffsetsResponse."""

    name: str = wire(STRING)
    partitions: Sequence[ListOffsetsResponsePartition] = wire(Array(ListOffsetsResponsePartition))


@message(api=ApiKey.LIST_OFFSETS, versions="0-6", flexible="6+")
class ListOffsetsResponse:
    """The first offset whose record is not older than the timestamp, or -1."""

    throttle_time_ms: int = wire(INT32, since=2, default=0)
    topics: Sequence[ListOffsetsResponseTopic] = wire(Array(ListOffsetsResponseTopic))


def error_response(request: ListOffsetsRequest, code: ErrorCode) -> ListOffsetsResponse:
    """Return the same error for every partition of `request`."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponseTopic(
                name=topic.name,
                partitions=[
                    ListOffsetsResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
