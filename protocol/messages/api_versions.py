"""ApiVersions lists the APIs that a broker serves, with their versions (KIP-35).

v1 adds the throttle time, v3 the client's software name and version and the features (KIP-511).
v2 adds no field (KIP-219). The response header is version 0 in all versions, so that every client
can read it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import BOOL, INT16, INT32, INT64, STRING, Array, message, nested, wire

# The pattern of software names and versions in KIP-511.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@message(api=ApiKey.API_VERSIONS, versions="0-3", flexible="3+")
class ApiVersionsRequest:
    """Ask for the versions; from v3 on the client names its software."""

    client_software_name: str = wire(STRING, since=3, default="")
    client_software_version: str = wire(STRING, since=3, default="")


@nested
class ApiVersionsResponseKey:
    """A key of ApiVersionsResponse."""

    api_key: int = wire(INT16)
    min_version: int = wire(INT16)
    max_version: int = wire(INT16)


@nested
class ApiVersionsResponseSupportedFeature:
    """A supported feature of ApiVersionsResponse."""

    name: str = wire(STRING)
    min_version: int = wire(INT16)
    max_version: int = wire(INT16)


@nested
class ApiVersionsResponseFinalizedFeature:
    """A finalized feature of ApiVersionsResponse."""

    name: str = wire(STRING)
    max_version_level: int = wire(INT16)
    min_version_level: int = wire(INT16)


@message(api=ApiKey.API_VERSIONS, versions="0-3", flexible="3+")
class ApiVersionsResponse:
    """The versions of every API that the broker serves."""

    error_code: int = wire(INT16)
    api_keys: Sequence[ApiVersionsResponseKey] = wire(Array(ApiVersionsResponseKey))
    throttle_time_ms: int = wire(INT32, since=1, default=0)
    supported_features: Sequence[ApiVersionsResponseSupportedFeature] = wire(
        Array(ApiVersionsResponseSupportedFeature), since=3, default=(), tag=0
    )
    finalized_features_epoch: int = wire(INT64, since=3, default=-1, tag=1)
    finalized_features: Sequence[ApiVersionsResponseFinalizedFeature] = wire(
        Array(ApiVersionsResponseFinalizedFeature), since=3, default=(), tag=2
    )
    zk_migration_ready: bool = wire(BOOL, since=3, default=False, tag=3)


def is_legal_software(request: ApiVersionsRequest) -> bool:
    """Return whether a request of v3 or later names a legal software and version (KIP-511)."""
    names = (request.client_software_name, request.client_software_version)
    return all(_SOFTWARE.fullmatch(name) for name in names)


def error_response(request: ApiVersionsRequest, code: ErrorCode) -> ApiVersionsResponse:
    """Refuse the whole request."""
    return ApiVersionsResponse(error_code=code, api_keys=[])
