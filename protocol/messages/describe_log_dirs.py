"""DescribeLogDirs: what is in a broker's log directories (KIP-113)."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import BOOL, INT16, INT32, INT64, STRING, Array, message, nested, wire


@nested
class DescribeLogDirsRequestTopic:
    """A topic of DescribeLogDirsRequest."""

    topic: str = wire(STRING)
    partitions: Sequence[int] = wire(Array(INT32))


@message(api=ApiKey.DESCRIBE_LOG_DIRS, versions="0-1", flexible="2+")
class DescribeLogDirsRequest:
    """Ask for these partitions, or with null for all that the broker has."""

    topics: Sequence[DescribeLogDirsRequestTopic] | None = wire(
        Array(DescribeLogDirsRequestTopic), nullable=0
    )


@nested
class DescribeLogDirsResponsePartition:
    """A log: its bytes, and by how much it ends below the high watermark (-1: not known)."""

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


@message(api=ApiKey.DESCRIBE_LOG_DIRS, versions="0-1", flexible="2+")
class DescribeLogDirsResponse:
    """Per log directory the logs in it that were asked for."""

    throttle_time_ms: int = wire(INT32, default=0)
    results: Sequence[DescribeLogDirsResponseResult] = wire(Array(DescribeLogDirsResponseResult))


def error_response(request: DescribeLogDirsRequest, code: ErrorCode) -> DescribeLogDirsResponse:
    """The answer without any directory: these versions have no error of the whole."""
    return DescribeLogDirsResponse(results=[])
