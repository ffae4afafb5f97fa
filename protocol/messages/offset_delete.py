"""OffsetDelete deletes the committed offsets of a group for some partitions (KIP-496).

There is one version, v0.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT16, INT32, STRING, Array, message, nested, wire


@nested
class OffsetDeleteRequestPartition:
    """A partition of OffsetDeleteRequest."""

    partition_index: int = wire(INT32)


@nested
class OffsetDeleteRequestTopic:
    """A topic of OffsetDeleteRequest."""

    name: str = wire(STRING)
    partitions: Sequence[OffsetDeleteRequestPartition] = wire(Array(OffsetDeleteRequestPartition))


@message(api=ApiKey.OFFSET_DELETE, versions="0")
class OffsetDeleteRequest:
    """Delete the offsets of these partitions, which the group must not be consuming."""

    group_id: str = wire(STRING)
    topics: Sequence[OffsetDeleteRequestTopic] = wire(Array(OffsetDeleteRequestTopic))


@nested
class OffsetDeleteResponsePartition:
    """A partition of OffsetDeleteResponse."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@nested
class OffsetDeleteResponseTopic:
    """A topic of OffsetDeleteResponse."""

    name: str = wire(STRING)
    partitions: Sequence[OffsetDeleteResponsePartition] = wire(Array(OffsetDeleteResponsePartition))


@message(api=ApiKey.OFFSET_DELETE, versions="0")
class OffsetDeleteResponse:
    """The result for each partition; no partitions if the request as a whole has an error.

    Unlike in all other responses, the error comes before the throttle time.
    """

    error_code: int = wire(INT16, default=0)
    throttle_time_ms: int = wire(INT32, default=0)
    topics: Sequence[OffsetDeleteResponseTopic] = wire(Array(OffsetDeleteResponseTopic))


def error_response(request: OffsetDeleteRequest, code: ErrorCode) -> OffsetDeleteResponse:
    """Refuse the whole request."""
    return OffsetDeleteResponse(error_code=code, topics=[])
