"""AlterConfigs replaces all settings that a topic or a broker has of its own (KIP-133).

A setting that the request leaves out goes back to its default. v1 adds no field (KIP-219), v2
is v1 in the flexible encoding.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import BOOL, INT8, INT16, INT32, STRING, Array, message, nested, wire


@nested
class AlterConfigsRequestConfig:
    """A setting of AlterConfigsRequest."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable=0)


@nested
class AlterConfigsRequestResource:
    """A resource of AlterConfigsRequest."""

    resource_type: int = wire(INT8)  # 2: topic, 4: broker
    resource_name: str = wire(STRING)
    configs: Sequence[AlterConfigsRequestConfig] = wire(Array(AlterConfigsRequestConfig))


@message(api=ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+")
class AlterConfigsRequest:
    """Replace the settings that each resource has of its own by these."""

    resources: Sequence[AlterConfigsRequestResource] = wire(Array(AlterConfigsRequestResource))
    validate_only: bool = wire(BOOL)


@nested
class AlterConfigsResponseResponse:
    """A resource of AlterConfigsResponse."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)


@message(api=ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    """The result for each resource."""

    throttle_time_ms: int = wire(INT32, default=0)
    responses: Sequence[AlterConfigsResponseResponse] = wire(Array(AlterConfigsResponseResponse))


def error_response(request: AlterConfigsRequest, code: ErrorCode) -> AlterConfigsResponse:
    """Return the same error for every resource of `request`."""
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResponseResponse(
                error_code=code,
                error_message=code.meaning,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )
