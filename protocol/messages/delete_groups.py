"""DeleteGroups: forget groups, and what they have committed (KIP-229)."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT16, INT32, STRING, Array, message, nested, wire


@message(api=ApiKey.DELETE_GROUPS, versions="0-1", flexible="2+")
class DeleteGroupsRequest:
    """Delete groups, all of which have the same coordinator."""

    groups_names: Sequence[str] = wire(Array(STRING))


@nested
class DeleteGroupsResponseResult:
    """A result of DeleteGroupsResponse."""

    group_id: str = wire(STRING)
    error_code: int = wire(INT16)


@message(api=ApiKey.DELETE_GROUPS, versions="0-1", flexible="2+")
class DeleteGroupsResponse:
    """Per group, whether it is gone."""

    throttle_time_ms: int = wire(INT32, default=0)
    results: Sequence[DeleteGroupsResponseResult] = wire(Array(DeleteGroupsResponseResult))


def error_response(request: DeleteGroupsRequest, code: ErrorCode) -> DeleteGroupsResponse:
    """The answer that gives every group of `request` the same error."""
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponseResult(group_id=group, error_code=code)
            for group in request.groups_names
        ]
    )
