"""DeleteRecords deletes the records of a partition below an offset (KIP-107).

v1 adds no field (KIP-219), v2 is v1 in the flexible encoding.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT16, INT32, INT64, STRING, Array, message, nested, wire


@nested
class DeleteRecordsRequestPartition:
    """A partition of DeleteRecordsRequest."""

    partition_index: int = wire(INT32)
    offset: int = wire(INT64)


@nested
class DeleteRecordsRequestTopic:
    """A topic of DeleteRecordsRequest."""

    name: str = wire(STRING)
    partitions: Sequence[DeleteRecordsRequestPartition] = wire(Array(DeleteRecordsRequestPartition))


@message(api=ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    """Delete the records of each partition below `offset`; -1 means its high watermark."""

    topics: Sequence[DeleteRecordsRequestTopic] = wire(Array(DeleteRecordsRequestTopic))
    timeout_ms: int = wire(INT32)


@nested
class DeleteRecordsResponsePartition:
    """A partition of DeleteRecordsResponse."""

    partition_index: int = wire(INT32)
    low_watermark: int = wire(INT64)
    error_code: int = wire(INT16)


@nested
class DeleteRecordsResponseTopic:
    """A topic of DeleteRecordsResponse."""

    name: str = wire(STRING)
    partitions: Sequence[DeleteRecordsResponsePartition] = wire(
        Array(DeleteRecordsResponsePartition)
    )


@message(api=ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    """The lowest offset of each partition that a live replica still has."""

    throttle_time_ms: int = wire(INT32, default=0)
    topics: Sequence[DeleteRecordsResponseTopic] = wire(Array(DeleteRecordsResponseTopic))


def error_response(request: DeleteRecordsRequest, code: ErrorCode) -> DeleteRecordsResponse:
    """Return the same error for every partition of `request`."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponseTopic(
                name=topic.name,
                partitions=[
                    DeleteRecordsResponsePartition(
                        partition_index=partition.partition_index,
                        low_watermark=-1,
                        error_code=code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
