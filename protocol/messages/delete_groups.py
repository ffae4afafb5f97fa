"""DeleteGroups deletes groups and their committed offsets (KIP-229).

v1 adds no field (KIP-219), v2 is v1 in the flexible encoding.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT16, INT32, STRING, Array, message, nested, wire


@message(api=ApiKey.DELETE_GROUPS, versions="0-2", flexible="2+")
class DeleteGroupsRequest:
    """Delete groups, all of which have the same coordinator."""

    groups_names: Sequence[str] = wire(Array(STRING))


@nested
class DeleteGroupsResponseResult:
    """A result of DeleteGroupsResponse."""

    group_id: str = wire(STRING)
    error_code: int = wire(INT16)


@message(api=ApiKey.DELETE_GROUPS, versions="0-2", flexible="2+")
class DeleteGroupsResponse:
    """The result for each group."""

    throttle_time_ms: int = wire(INT32, default=0)
    results: Sequence[DeleteGroupsResponseResult] = wire(Array(DeleteGroupsResponseResult))


def error_response(request: DeleteGroupsRequest, code: ErrorCode) -> DeleteGroupsResponse:
    """Return the same error for every group of `request`."""
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponseResult(group_id=group_id, error_code=code)
            for group_id in request.groups_names
        ]
    )
