"""AlterConfigs: all settings that a topic or broker has of its own (KIP-133).

What a request does not name goes back to its default.
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

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: Sequence[AlterConfigsRequestConfig] = wire(Array(AlterConfigsRequestConfig))


@message(api=ApiKey.ALTER_CONFIGS, versions="0-1", flexible="2+")
class AlterConfigsRequest:
    """Give each resource these settings of its own, and no others."""

    resources: Sequence[AlterConfigsRequestResource] = wire(Array(AlterConfigsRequestResource))
    validate_only: bool = wire(BOOL)


@nested
class AlterConfigsResponseResponse:
    """A resource of AlterConfigsResponse."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)


@message(api=ApiKey.ALTER_CONFIGS, versions="0-1", flexible="2+")
class AlterConfigsResponse:
    """Per resource, whether it has its settings."""

    throttle_time_ms: int = wire(INT32, default=0)
    responses: Sequence[AlterConfigsResponseResponse] = wire(Array(AlterConfigsResponseResponse))


def error_response(request: AlterConfigsRequest, code: ErrorCode) -> AlterConfigsResponse:
    """The answer that gives every resource of `request` the same error."""
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResponseResponse(
                error_code=code,
                error_message=code.meaning,
                resource_type=r.resource_type,
                resource_name=r.resource_name,
            )
            for r in request.resources
        ]
    )
