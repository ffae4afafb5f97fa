"""AddPartitionsToTxn adds partitions to a transaction, and begins it if need be (KIP-98).

v1 adds no field (KIP-219), v2 only PRODUCER_FENCED (KIP-588), v3 is v2 in the flexible encoding.
Version 4, in which brokers ask for many transactions at once, is not known here (KIP-890).
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT16, INT32, INT64, STRING, Array, message, nested, wire


@nested
class AddPartitionsToTxnTopic:
    """A topic of AddPartitionsToTxnRequest."""

    name: str = wire(STRING)
    partitions: Sequence[int] = wire(Array(INT32))


@message(api=ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-3", flexible="3+")
class AddPartitionsToTxnRequest:
    """Add these partitions, before anything is written to them."""

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    topics: Sequence[AddPartitionsToTxnTopic] = wire(Array(AddPartitionsToTxnTopic))


@nested
class AddPartitionsToTxnPartitionResult:
    """A partition of AddPartitionsToTxnResponse."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@nested
class AddPartitionsToTxnTopicResult:
    """A topic of AddPartitionsToTxnResponse."""

    name: str = wire(STRING)
    results: Sequence[AddPartitionsToTxnPartitionResult] = wire(
        Array(AddPartitionsToTxnPartitionResult)
    )


@message(api=ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-3", flexible="3+")
class AddPartitionsToTxnResponse:
    """The result for each partition: all are added, or none."""

    throttle_time_ms: int = wire(INT32, default=0)
    results: Sequence[AddPartitionsToTxnTopicResult] = wire(Array(AddPartitionsToTxnTopicResult))


def error_response(
    request: AddPartitionsToTxnRequest, code: ErrorCode
) -> AddPartitionsToTxnResponse:
    """Return the same error for every partition of `request`."""
    return AddPartitionsToTxnResponse(
        results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results=[
                    AddPartitionsToTxnPartitionResult(partition_index=partition, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
