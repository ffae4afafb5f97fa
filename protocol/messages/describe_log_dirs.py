"""DescribeLogDirs lists the logs in the log directories of a broker (KIP-113).

v1 adds no field (KIP-219), v2 is v1 in the flexible encoding.

A tagged field is ours, for a directory whose disk is full: Kafka takes such a directory off-line,
and we do not. Other clients skip it, as they do with tags that they do not know (KIP-482).
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import BOOL, INT16, INT32, INT64, STRING, Array, message, nested, wire

TAG_OF_FULL = 0x4B67
"""Far above the tags that Kafka gives its fields, which count from 0."""


@nested
class DescribeLogDirsRequestTopic:
    """A topic of DescribeLogDirsRequest."""

    topic: str = wire(STRING)
    partitions: Sequence[int] = wire(Array(INT32))


@message(api=ApiKey.DESCRIBE_LOG_DIRS, versions="0-2", flexible="2+")
class DescribeLogDirsRequest:
    """Ask for these partitions; null means all partitions of the broker."""

    topics: Sequence[DescribeLogDirsRequestTopic] | None = wire(
        Array(DescribeLogDirsRequestTopic), nullable=0
    )


@nested
class DescribeLogDirsResponsePartition:
    """A log: its size in bytes, and its lag behind the high watermark (-1: unknown)."""

    partition_index: int = wire(INT32)
    partition_size: int = wire(INT64)
    offset_lag: int = wire(INT64)
    is_future_key: bool = wire(BOOL)


@nested
class DescribeLogDirsResponseTopic:
    """A topic of DescribeLogDirsResponse."""

    name: str = wire(STRING)
    partitions: Sequence[DescribeLogDirsResponsePartition] = wire(
        Array(DescribeLogDirsResponsePartition)
    )


@nested
class DescribeLogDirsResponseResult:
    """A log directory of DescribeLogDirsResponse."""

    error_code: int = wire(INT16)
    log_dir: str = wire(STRING)
    topics: Sequence[DescribeLogDirsResponseTopic] = wire(Array(DescribeLogDirsResponseTopic))
    is_full: bool = wire(BOOL, since=2, default=False, tag=TAG_OF_FULL)


@message(api=ApiKey.DESCRIBE_LOG_DIRS, versions="0-2", flexible="2+")
class DescribeLogDirsResponse:
    """The logs in each log directory that the request asked for."""

    throttle_time_ms: int = wire(INT32, default=0)
    results: Sequence[DescribeLogDirsResponseResult] = wire(Array(DescribeLogDirsResponseResult))


def error_response(request: DescribeLogDirsRequest, code: ErrorCode) -> DescribeLogDirsResponse:
    """Return no directory: these versions have no error of the whole request."""
    return DescribeLogDirsResponse(results=[])
