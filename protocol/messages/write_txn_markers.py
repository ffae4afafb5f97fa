"""WriteTxnMarkers has the leaders of partitions write the ends of transactions (KIP-98).

Coordinators send it, and tools that abort a transaction which no coordinator knows (KIP-664). v1 is
v0 in the flexible encoding.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import BOOL, INT16, INT32, INT64, STRING, Array, message, nested, wire


@nested
class WritableTxnMarkerTopic:
    """A topic of a marker."""

    name: str = wire(STRING)
    partition_indexes: Sequence[int] = wire(Array(INT32))


@nested
class WritableTxnMarker:
    """The end of one producer's transaction: a commit if `transaction_result`, else an abort."""

    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    transaction_result: bool = wire(BOOL)
    topics: Sequence[WritableTxnMarkerTopic] = wire(Array(WritableTxnMarkerTopic))
    coordinator_epoch: int = wire(INT32)


@message(api=ApiKey.WRITE_TXN_MARKERS, versions="0-1", flexible="1+")
class WriteTxnMarkersRequest:
    """Write these markers."""

    markers: Sequence[WritableTxnMarker] = wire(Array(WritableTxnMarker))


@nested
class WritableTxnMarkerPartitionResult:
    """A partition of a marker's result."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@nested
class WritableTxnMarkerTopicResult:
    """A topic of a marker's result."""

    name: str = wire(STRING)
    partitions: Sequence[WritableTxnMarkerPartitionResult] = wire(
        Array(WritableTxnMarkerPartitionResult)
    )


@nested
class WritableTxnMarkerResult:
    """The result of one marker."""

    producer_id: int = wire(INT64)
    topics: Sequence[WritableTxnMarkerTopicResult] = wire(Array(WritableTxnMarkerTopicResult))


@message(api=ApiKey.WRITE_TXN_MARKERS, versions="0-1", flexible="1+")
class WriteTxnMarkersResponse:
    """The result for each partition of each marker. There is no throttle time."""

    markers: Sequence[WritableTxnMarkerResult] = wire(Array(WritableTxnMarkerResult))


def error_response(request: WriteTxnMarkersRequest, code: ErrorCode) -> WriteTxnMarkersResponse:
    """Return the same error for every partition of every marker."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )
