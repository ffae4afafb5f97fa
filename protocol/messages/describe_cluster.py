"""DescribeCluster describes the brokers and the controller, and no topics (KIP-700)."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import BOOL, INT16, INT32, STRING, Array, message, nested, wire

NOT_ASKED = -(2**31)
"""The authorized operations if the request does not ask for them."""


@message(api=ApiKey.DESCRIBE_CLUSTER, versions="0", flexible="0+")
class DescribeClusterRequest:
    """Ask for the cluster."""

    include_cluster_authorized_operations: bool = wire(BOOL, default=False)


@nested
class DescribeClusterResponseBroker:
    """A broker of DescribeClusterResponse."""

    broker_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, default=None, nullable=0)


@message(api=ApiKey.DESCRIBE_CLUSTER, versions="0", flexible="0+")
class DescribeClusterResponse:
    """The cluster as the responding broker knows it."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, default=None, nullable=0)
    cluster_id: str = wire(STRING, default="")
    controller_id: int = wire(INT32, default=-1)
    brokers: Sequence[DescribeClusterResponseBroker] = wire(
        Array(DescribeClusterResponseBroker), default=()
    )
    # A bit for the number of each operation that the client may do.
    cluster_authorized_operations: int = wire(INT32, default=NOT_ASKED)


def error_response(request: DescribeClusterRequest, code: ErrorCode) -> DescribeClusterResponse:
    """Refuse the whole request."""
    return DescribeClusterResponse(error_code=code, error_message=code.meaning)
