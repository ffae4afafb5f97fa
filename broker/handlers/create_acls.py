"""CreateAcls: write ACLs; this broker decides by them at once, others follow."""

from __future__ import annotations

from typing import Any

from broker.authorization.acl_authorizer import AclAuthorizer
from broker.handlers.acl_words import NO_AUTHORIZER, UNKNOWN_WORD, read_binding
from broker.network.deferred import Deferred
from broker.network.dispatch import Outcome
from broker.network.fair_line import owner_of
from broker.network.long_answers import LongAnswer
from broker.network.request_context import RequestContext
from broker.process.loop_turns import LoopTurns
from protocol.errors import ApiError, ErrorCode
from protocol.messages.create_acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    CreateAclsResponseResult,
    error_response,
)

ACLS_A_TURN = 1000
"""ACLs that are read, or answered for, in one turn of the loop."""


def handle(
    acls: AclAuthorizer | None,
    deferred: Deferred,
    timeout_ms: int,
    request: CreateAclsRequest,
    context: RequestContext,
) -> Outcome:
    """Add the ACLs; each has a result of its own."""
    known: dict[int, ApiError | None] = {}
    # To read 49,000 and to respond would take turns of 0.3 s.
    turns = LoopTurns(ACLS_A_TURN)

    async def create() -> Outcome:
        bindings = []
        for creation in request.creations:
            await turns.take()  # (fault strangers-11)
            binding = read_binding(creation)
            if binding is None:
                return UNKNOWN_WORD
            bindings.append(binding)
        if acls is None:
            return error_response(request, ErrorCode.SECURITY_DISABLED, f"{NO_AUTHORIZER}.")

        results = LongAnswer(CreateAclsResponse, context.api_version)
        for error in await acls.add(bindings, known):
            await turns.take()  # (fault strangers-11)
            results.add([_result(error)])
        encoded: Any = results.array()
        return CreateAclsResponse(results=encoded)

    def late() -> CreateAclsResponse:
        results: dict[int, ApiError | None] = dict.fromkeys(range(len(request.creations)), LATE)
        # Those that are written are no failure because others are late (fault scale-S4).
        results |= known
        return CreateAclsResponse(results=list(map(_result, results.values())))

    # Or all clients would have their turns at the same time.
    if len(request.creations) > ACLS_A_TURN:
        in_line = deferred.in_line(create, owner_of(context))
        return deferred.respond(in_line, timeout_ms, late)
    return deferred.respond(create(), timeout_ms, late)


LATE = ApiError(ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT.meaning)


def _result(error: ApiError | None) -> CreateAclsResponseResult:
    if error is None:
        return CreateAclsResponseResult(error_code=ErrorCode.NONE)
    return CreateAclsResponseResult(error_code=error.code, error_message=error.detail)
