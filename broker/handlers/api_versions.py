"""ApiVersions: the versions of each API that this broker serves."""

from __future__ import annotations

import re
from collections.abc import Iterable

from broker.network.request_context import RequestContext
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseKey,
)
from protocol.registry import API

# The pattern of software names and versions in KIP-511.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def served(keys: Iterable[ApiKey]) -> ApiVersionsResponse:
    """Build the response, once: the versions of each API that has a handler."""
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=[
            ApiVersionsResponseKey(
                api_key=key,
                min_version=API[key].served.first,
                max_version=API[key].served.last,
            )
            for key in sorted(keys)
        ],
    )


def handle(
    response: ApiVersionsResponse, request: ApiVersionsRequest, context: RequestContext
) -> ApiVersionsResponse:
    """Respond; from v3 on the client must give a legal name and version (KIP-511)."""
    if context.api_version >= 3:
        for text in (request.client_software_name, request.client_software_version):
            if not _SOFTWARE.fullmatch(text):
                raise ApiError(ErrorCode.INVALID_REQUEST, f"client software {text!r}")
    return response
