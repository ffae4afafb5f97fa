"""DescribeAcls: the ACLs that a filter chooses, as this broker knows them."""

from __future__ import annotations

from itertools import groupby

from broker.authorization.acl_authorizer import AclAuthorizer
from broker.handlers.acl_words import NO_AUTHORIZER, UNKNOWN_WORD, read_filter
from broker.network.dispatch import Outcome
from broker.network.request_context import RequestContext
from protocol.acls import AclEntry
from protocol.errors import ErrorCode
from protocol.messages.describe_acls import (
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeAclsResponseAcl,
    DescribeAclsResponseResource,
    error_response,
)


def handle(
    acls: AclAuthorizer | None, request: DescribeAclsRequest, context: RequestContext
) -> Outcome:
    """Respond with the ACLs by resource."""
    wanted = read_filter(request)
    if wanted is None:
        return UNKNOWN_WORD
    if acls is None:
        return error_response(request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)

    by_resource = groupby(sorted(acls.find(wanted)), key=lambda binding: binding.resource)
    return DescribeAclsResponse(
        error_code=ErrorCode.NONE,
        resources=[
            DescribeAclsResponseResource(
                resource_type=resource.kind,
                resource_name=resource.name,
                pattern_type=resource.pattern,
                acls=[_entry(binding.entry) for binding in bindings],
            )
            for resource, bindings in by_resource
        ],
    )


def _entry(entry: AclEntry) -> DescribeAclsResponseAcl:
    return DescribeAclsResponseAcl(
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
