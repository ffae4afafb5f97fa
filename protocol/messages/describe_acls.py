"""DescribeAcls lists the ACLs that a filter chooses (KIP-140).

v1 adds pattern types (KIP-290), v2 is v1 in the flexible encoding. The numbers are those of
`protocol.acls`.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.acls import PatternType
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT8, INT16, INT32, STRING, Array, message, nested, wire


@message(api=ApiKey.DESCRIBE_ACLS, versions="0-2", flexible="2+")
class DescribeAclsRequest:
    """Ask for ACLs; a null text chooses all."""

    resource_type_filter: int = wire(INT8)
    resource_name_filter: str | None = wire(STRING, nullable=0)
    pattern_type_filter: int = wire(INT8, since=1, default=PatternType.LITERAL)
    principal_filter: str | None = wire(STRING, nullable=0)
    host_filter: str | None = wire(STRING, nullable=0)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@nested
class DescribeAclsResponseAcl:
    """An entry of a resource."""

    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@nested
class DescribeAclsResponseResource:
    """A resource pattern with the entries that the filter chooses."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    pattern_type: int = wire(INT8, since=1, default=PatternType.LITERAL)
    acls: Sequence[DescribeAclsResponseAcl] = wire(Array(DescribeAclsResponseAcl))


@message(api=ApiKey.DESCRIBE_ACLS, versions="0-2", flexible="2+")
class DescribeAclsResponse:
    """The ACLs by resource pattern."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    resources: Sequence[DescribeAclsResponseResource] = wire(Array(DescribeAclsResponseResource))


def error_response(
    request: DescribeAclsRequest, code: ErrorCode, message: str | None = None
) -> DescribeAclsResponse:
    """Return no ACLs, and the error."""
    return DescribeAclsResponse(
        error_code=code, error_message=message or code.meaning, resources=[]
    )
