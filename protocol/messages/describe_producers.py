"""DescribeProducers describes what the leader of a partition knows of its producers (KIP-664).

There is one version, v0.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT16, INT32, INT64, STRING, Array, message, nested, wire


@nested
class DescribeProducersRequestTopic:
    """A topic of DescribeProducersRequest."""

    name: str = wire(STRING)
    partition_indexes: Sequence[int] = wire(Array(INT32))


@message(api=ApiKey.DESCRIBE_PRODUCERS, versions="0", flexible="0+")
class DescribeProducersRequest:
    """Ask for the producers of these partitions."""

    topics: Sequence[DescribeProducersRequestTopic] = wire(Array(DescribeProducersRequestTopic))


@nested
class DescribeProducersResponseProducer:
    """A producer of DescribeProducersResponse; -1 stands for what it does not have."""

    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT32)
    last_sequence: int = wire(INT32, default=-1)
    last_timestamp: int = wire(INT64, default=-1)
    coordinator_epoch: int = wire(INT32)
    current_txn_start_offset: int = wire(INT64, default=-1)


@nested
class DescribeProducersResponsePartition:
    """A partition of DescribeProducersResponse."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, default=None, nullable=0)
    active_producers: Sequence[DescribeProducersResponseProducer] = wire(
        Array(DescribeProducersResponseProducer), default=()
    )


@nested
class DescribeProducersResponseTopic:
    """A topic of DescribeProducersResponse."""

    name: str = wire(STRING)
    partitions: Sequence[DescribeProducersResponsePartition] = wire(
        Array(DescribeProducersResponsePartition)
    )


@message(api=ApiKey.DESCRIBE_PRODUCERS, versions="0", flexible="0+")
class DescribeProducersResponse:
    """The producers of each partition."""

    throttle_time_ms: int = wire(INT32, default=0)
    topics: Sequence[DescribeProducersResponseTopic] = wire(Array(DescribeProducersResponseTopic))


def error_response(request: DescribeProducersRequest, code: ErrorCode) -> DescribeProducersResponse:
    """Return the same error for every partition of `request`."""
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponseTopic(
                name=topic.name,
                partitions=[
                    DescribeProducersResponsePartition(partition_index=index, error_code=code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )
