"""DeleteAcls: delete the ACLs that filters choose; this broker decides without them at once."""

from __future__ import annotations

from broker.authorization.acl_authorizer import AclAuthorizer, Deleted
from broker.handlers.acl_words import NO_AUTHORIZER, UNKNOWN_WORD, read_filter
from broker.network.deferred import Deferred
from broker.network.dispatch import Outcome
from broker.network.request_context import RequestContext
from protocol.acls import AclBinding
from protocol.errors import ApiError, ErrorCode
from protocol.messages.delete_acls import (
    DeleteAclsRequest,
    DeleteAclsResponse,
    DeleteAclsResponseFilterResult,
    DeleteAclsResponseMatchingAcl,
    error_response,
)


def handle(
    acls: AclAuthorizer | None,
    deferred: Deferred,
    timeout_ms: int,
    request: DeleteAclsRequest,
    context: RequestContext,
) -> Outcome:
    """Delete. The response has the ACLs of each filter; one of two filters is with the first."""
    filters = []
    for asked in request.filters:
        chosen = read_filter(asked)
        if chosen is None:
            return UNKNOWN_WORD
        filters.append(chosen)
    if acls is None:
        return error_response(request, ErrorCode.SECURITY_DISABLED, f"{NO_AUTHORIZER}.")

    known: dict[int, Deleted] = {}

    async def delete() -> DeleteAclsResponse:
        deleted = await acls.remove(filters, known)
        return DeleteAclsResponse(filter_results=list(map(_result, deleted)))

    def late() -> DeleteAclsResponse:
        unknown = error_response(request, ErrorCode.REQUEST_TIMED_OUT).filter_results
        # Those that are deleted are no failure because others are late (fault scale-S4).
        results = dict(enumerate(unknown)) | {at: _result(done) for at, done in known.items()}
        return DeleteAclsResponse(filter_results=list(results.values()))

    return deferred.respond(delete(), timeout_ms, late)


def _result(deleted: Deleted) -> DeleteAclsResponseFilterResult:
    return DeleteAclsResponseFilterResult(
        error_code=ErrorCode.NONE,
        matching_acls=[_deleted(binding, error) for binding, error in deleted.items()],
    )


def _deleted(binding: AclBinding, error: ApiError | None) -> DeleteAclsResponseMatchingAcl:
    resource, entry = binding.resource, binding.entry
    return DeleteAclsResponseMatchingAcl(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.detail,
        resource_type=resource.kind,
        resource_name=resource.name,
        pattern_type=resource.pattern,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
