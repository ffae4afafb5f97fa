"""IncrementalAlterConfigs changes single settings of topics and brokers (KIP-339).

v1 is v0 in the flexible encoding.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import BOOL, INT8, INT16, INT32, STRING, Array, message, nested, wire


@nested
class IncrementalAlterConfigsRequestConfig:
    """A setting; operations are 0 SET, 1 DELETE, 2 APPEND, 3 SUBTRACT."""

    name: str = wire(STRING)
    config_operation: int = wire(INT8)
    value: str | None = wire(STRING, nullable=0)


@nested
class IncrementalAlterConfigsRequestResource:
    """A resource of IncrementalAlterConfigsRequest."""

    resource_type: int = wire(INT8)  # 2: topic, 4: broker
    resource_name: str = wire(STRING)
    configs: Sequence[IncrementalAlterConfigsRequestConfig] = wire(
        Array(IncrementalAlterConfigsRequestConfig)
    )


@message(api=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    """Change these settings and leave all others as they are."""

    resources: Sequence[IncrementalAlterConfigsRequestResource] = wire(
        Array(IncrementalAlterConfigsRequestResource)
    )
    validate_only: bool = wire(BOOL)


@nested
class IncrementalAlterConfigsResponseResponse:
    """A resource of IncrementalAlterConfigsResponse."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)


@message(api=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    """The result for each resource."""

    throttle_time_ms: int = wire(INT32, default=0)
    responses: Sequence[IncrementalAlterConfigsResponseResponse] = wire(
        Array(IncrementalAlterConfigsResponseResponse)
    )


def error_response(
    request: IncrementalAlterConfigsRequest, code: ErrorCode
) -> IncrementalAlterConfigsResponse:
    """Return the same error for every resource of `request`."""
    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsResponseResponse(
                error_code=code,
                error_message=code.meaning,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )
