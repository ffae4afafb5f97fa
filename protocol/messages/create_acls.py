"""CreateAcls adds ACLs (KIP-140).

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
class CreateAclsRequestCreation:
    """An ACL to add; one that exists is left as it is."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    resource_pattern_type: int = wire(INT8, since=1, default=PatternType.LITERAL)
    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@message(api=ApiKey.CREATE_ACLS, versions="0-2", flexible="2+")
class CreateAclsRequest:
    """Add ACLs."""

    creations: Sequence[CreateAclsRequestCreation] = wire(Array(CreateAclsRequestCreation))


@nested
class CreateAclsResponseResult:
    """The result for one ACL."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0, default=None)


@message(api=ApiKey.CREATE_ACLS, versions="0-2", flexible="2+")
class CreateAclsResponse:
    """The results in the order of the request."""

    throttle_time_ms: int = wire(INT32, default=0)
    results: Sequence[CreateAclsResponseResult] = wire(Array(CreateAclsResponseResult))


def error_response(
    request: CreateAclsRequest, code: ErrorCode, message: str | None = None
) -> CreateAclsResponse:
    """Return the same error for every ACL of `request`."""
    result = CreateAclsResponseResult(error_code=code, error_message=message or code.meaning)
    return CreateAclsResponse(results=[result] * len(request.creations))
