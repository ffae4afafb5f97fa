"""CreateAcls: write ACLs; this broker decides by them at once, others follow."""

from __future__ import annotations

from collections.abc import Sequence

from broker.authorization.acl_authorizer import AclAuthorizer
from broker.handlers.acl_words import NO_AUTHORIZER, UNKNOWN_WORD, read_binding
from broker.network.deferred import Deferred
from broker.network.dispatch import Outcome
from broker.network.request_context import RequestContext
from protocol.errors import ApiError, ErrorCode
from protocol.messages.create_acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    CreateAclsResponseResult,
    error_response,
)


def handle(
    acls: AclAuthorizer | None,
    deferred: Deferred,
    timeout_ms: int,
    request: CreateAclsRequest,
    context: RequestContext,
) -> Outcome:
    """Add the ACLs; each has a result of its own."""
    bindings = []
    for creation in request.creations:
        binding = read_binding(creation)
        if binding is None:
            return UNKNOWN_WORD
        bindings.append(binding)
    if acls is None:
        return error_response(request, ErrorCode.SECURITY_DISABLED, f"{NO_AUTHORIZER}.")

    known: dict[int, ApiError | None] = {}

    async def create() -> CreateAclsResponse:
        return _response(await acls.add(bindings, known))

    def late() -> CreateAclsResponse:
        results: dict[int, ApiError | None] = dict.fromkeys(range(len(bindings)), LATE)
        # Those that are written are no failure because others are late (fault scale-S4).
        results |= known
        return _response(list(results.values()))

    return deferred.respond(create(), timeout_ms, late)


LATE = ApiError(ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT.meaning)


def _response(results: Sequence[ApiError | None]) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[
            CreateAclsResponseResult(error_code=ErrorCode.NONE)
            if error is None
            else CreateAclsResponseResult(error_code=error.code, error_message=error.detail)
            for error in results
        ]
    )
