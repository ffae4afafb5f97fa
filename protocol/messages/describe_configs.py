"""DescribeConfigs reads the settings of topics and brokers (KIP-133).

v1 adds the synonyms and the source of each value (KIP-226). v2 adds no field (KIP-219).
v3 adds types and documentation (KIP-569), v4 is v3 in the flexible encoding.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import BOOL, INT8, INT16, INT32, STRING, Array, message, nested, wire


@nested
class DescribeConfigsRequestResource:
    """A resource of DescribeConfigsRequest."""

    resource_type: int = wire(INT8)  # 2: topic, 4: broker
    resource_name: str = wire(STRING)
    configuration_keys: Sequence[str] | None = wire(Array(STRING), nullable=0)


@message(api=ApiKey.DESCRIBE_CONFIGS, versions="0-4", flexible="4+")
class DescribeConfigsRequest:
    """Ask for settings; null keys mean all settings."""

    resources: Sequence[DescribeConfigsRequestResource] = wire(
        Array(DescribeConfigsRequestResource)
    )
    include_synonyms: bool = wire(BOOL, since=1, default=False)
    include_documentation: bool = wire(BOOL, since=3, default=False)


@nested
class DescribeConfigsResponseSynonym:
    """A synonym of DescribeConfigsResponse."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable=0)
    source: int = wire(INT8)


@nested
class DescribeConfigsResponseConfig:
    """A config of DescribeConfigsResponse."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable=0)
    read_only: bool = wire(BOOL)
    is_default: bool = wire(BOOL, until=0, default=False)
    # 1 topic, 2 one broker, 3 all brokers, 4 server.properties, 5 default.
    config_source: int = wire(INT8, since=1, default=-1)
    is_sensitive: bool = wire(BOOL)
    synonyms: Sequence[DescribeConfigsResponseSynonym] = wire(
        Array(DescribeConfigsResponseSynonym), since=1, default=()
    )
    # 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password.
    config_type: int = wire(INT8, since=3, default=0)
    documentation: str | None = wire(STRING, since=3, default=None, nullable=3)


@nested
class DescribeConfigsResponseResult:
    """A result of DescribeConfigsResponse."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: Sequence[DescribeConfigsResponseConfig] = wire(Array(DescribeConfigsResponseConfig))


@message(api=ApiKey.DESCRIBE_CONFIGS, versions="0-4", flexible="4+")
class DescribeConfigsResponse:
    """The settings of each resource, with the source of each value."""

    throttle_time_ms: int = wire(INT32, default=0)
    results: Sequence[DescribeConfigsResponseResult] = wire(Array(DescribeConfigsResponseResult))


def error_response(request: DescribeConfigsRequest, code: ErrorCode) -> DescribeConfigsResponse:
    """Return the same error for every resource of `request`."""
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResponseResult(
                error_code=code,
                error_message=code.meaning,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[],
            )
            for resource in request.resources
        ]
    )
