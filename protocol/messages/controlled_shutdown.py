"""ControlledShutdown asks the controller to move leaders off a broker that is about to stop.

v0 has a request header without client id, v1 a common one. v2 adds the broker epoch (KIP-380).
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT16, INT32, INT64, STRING, Array, message, nested, wire


@message(api=ApiKey.CONTROLLED_SHUTDOWN, versions="0-2", flexible="3+")
class ControlledShutdownRequest:
    """Ask the controller to move the leaders off this broker."""

    broker_id: int = wire(INT32)
    # czxid of the broker's znode, by which the controller knows a request of a former session.
    broker_epoch: int = wire(INT64, since=2, default=-1)


@nested
class ControlledShutdownResponseRemainingPartition:
    """A remaining partition of ControlledShutdownResponse."""

    topic_name: str = wire(STRING)
    partition_index: int = wire(INT32)


@message(api=ApiKey.CONTROLLED_SHUTDOWN, versions="0-2", flexible="3+")
class ControlledShutdownResponse:
    """The partitions that the broker still leads, because no other broker can."""

    error_code: int = wire(INT16)
    remaining_partitions: Sequence[ControlledShutdownResponseRemainingPartition] = wire(
        Array(ControlledShutdownResponseRemainingPartition), default=()
    )


def error_response(
    request: ControlledShutdownRequest, code: ErrorCode
) -> ControlledShutdownResponse:
    """Refuse the whole request."""
    return ControlledShutdownResponse(error_code=code)
