"""DeleteAcls: delete the ACLs that filters choose; this broker decides without them at once."""

from __future__ import annotations

from typing import Any

from broker.authorization.acl_authorizer import AclAuthorizer, Deleted
from broker.handlers.acl_words import NO_AUTHORIZER, UNKNOWN_WORD, read_filter
from broker.network.deferred import Deferred
from broker.network.dispatch import Outcome
from broker.network.fair_line import owner_of
from broker.network.long_answers import LongAnswer
from broker.network.request_context import RequestContext
from broker.process.loop_turns import LoopTurns
from protocol.acls import AclBinding
from protocol.errors import ApiError, ErrorCode
from protocol.messages.delete_acls import (
    DeleteAclsRequest,
    DeleteAclsResponse,
    DeleteAclsResponseFilterResult,
    DeleteAclsResponseMatchingAcl,
    error_response,
)

ACLS_A_TURN = 1000
"""Filters that are read, and ACLs that are answered for, in one turn of the loop."""


def handle(
    acls: AclAuthorizer | None,
    deferred: Deferred,
    timeout_ms: int,
    request: DeleteAclsRequest,
    context: RequestContext,
) -> Outcome:
    """Delete. The response has the ACLs of each filter; one of two filters is with the first."""
    known: dict[int, Deleted] = {}
    # To read 49,000 and to respond would take turns of 0.3 s.
    turns = LoopTurns(ACLS_A_TURN)

    async def delete() -> Outcome:
        filters = []
        for asked in request.filters:
            await turns.take()  # (fault strangers-11)
            chosen = read_filter(asked)
            if chosen is None:
                return UNKNOWN_WORD
            filters.append(chosen)
        if acls is None:
            return error_response(request, ErrorCode.SECURITY_DISABLED, f"{NO_AUTHORIZER}.")

        results = LongAnswer(DeleteAclsResponse, context.api_version)
        for deleted in await acls.remove(filters, known):
            matching = LongAnswer(DeleteAclsResponse, context.api_version)
            await turns.take()  # (fault strangers-11)
            for binding, error in deleted.items():
                await turns.take()  # (fault strangers-11)
                matching.add([_deleted(binding, error)])
            results.add([_result(matching.array())])
        encoded: Any = results.array()
        return DeleteAclsResponse(filter_results=encoded)

    def late() -> DeleteAclsResponse:
        unknown = error_response(request, ErrorCode.REQUEST_TIMED_OUT).filter_results
        # Those that are deleted are no failure because others are late (fault scale-S4).
        results = dict(enumerate(unknown)) | {
            at: _result([_deleted(binding, error) for binding, error in deleted.items()])
            for at, deleted in known.items()
        }
        return DeleteAclsResponse(filter_results=list(results.values()))

    # Or all clients would have their turns at the same time.
    if len(request.filters) > ACLS_A_TURN:
        in_line = deferred.in_line(delete, owner_of(context))
        return deferred.respond(in_line, timeout_ms, late)
    return deferred.respond(delete(), timeout_ms, late)


def _result(matching: Any) -> DeleteAclsResponseFilterResult:
    return DeleteAclsResponseFilterResult(error_code=ErrorCode.NONE, matching_acls=matching)


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
