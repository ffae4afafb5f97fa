"""DeleteAcls deletes the ACLs that filters choose (KIP-140).

v1 adds pattern types (KIP-290), v2 is v1 in the flexible encoding. The numbers are those of
`protocol.acls`.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.acls import PatternType
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT8, INT16, INT32, STRING, Array, message, nested, wire


@nested
class DeleteAclsRequestFilter:
    """A filter; a null text chooses all."""

    resource_type_filter: int = wire(INT8)
    resource_name_filter: str | None = wire(STRING, nullable=0)
    pattern_type_filter: int = wire(INT8, since=1, default=PatternType.LITERAL)
    principal_filter: str | None = wire(STRING, nullable=0)
    host_filter: str | None = wire(STRING, nullable=0)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@message(api=ApiKey.DELETE_ACLS, versions="0-2", flexible="2+")
class DeleteAclsRequest:
    """Delete ACLs."""

    filters: Sequence[DeleteAclsRequestFilter] = wire(Array(DeleteAclsRequestFilter))


@nested
class DeleteAclsResponseMatchingAcl:
    """An ACL that a filter has chosen; an error says that it is not deleted."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    pattern_type: int = wire(INT8, since=1, default=PatternType.LITERAL)
    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@nested
class DeleteAclsResponseFilterResult:
    """The result for one filter: its error, or the ACLs. Of two filters the first has an ACL."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    matching_acls: Sequence[DeleteAclsResponseMatchingAcl] = wire(
        Array(DeleteAclsResponseMatchingAcl)
    )


@message(api=ApiKey.DELETE_ACLS, versions="0-2", flexible="2+")
class DeleteAclsResponse:
    """The results in the order of the request."""

    throttle_time_ms: int = wire(INT32, default=0)
    filter_results: Sequence[DeleteAclsResponseFilterResult] = wire(
        Array(DeleteAclsResponseFilterResult)
    )


def error_response(
    request: DeleteAclsRequest, code: ErrorCode, message: str | None = None
) -> DeleteAclsResponse:
    """Return the same error for every filter of `request`."""
    result = DeleteAclsResponseFilterResult(
        error_code=code, error_message=message or code.meaning, matching_acls=[]
    )
    return DeleteAclsResponse(filter_results=[result] * len(request.filters))
