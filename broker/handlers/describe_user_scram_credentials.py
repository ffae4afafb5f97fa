"""DescribeUserScramCredentials: the users that can log in by SCRAM (KIP-554)."""

from __future__ import annotations

from collections import Counter
from functools import partial

from broker.authentication.scram_users import Credentials, list_users, parse_credentials, read_users
from broker.network.deferred import Deferred
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from protocol.errors import ApiError, ErrorCode
from protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResponseCredential,
    DescribeUserScramCredentialsResponseResult,
    error_response,
)
from protocol.sasl.scram import SCRAM_MECHANISMS
from zk.api import ZkError, ZkSession


def handle(
    zk: ZkSession,
    deferred: Deferred,
    timeout_ms: int,
    request: DescribeUserScramCredentialsRequest,
    context: RequestContext,
) -> Wait:
    """Respond when the users are read from ZooKeeper."""
    late = partial(error_response, request, ErrorCode.REQUEST_TIMED_OUT)
    return deferred.respond(_describe(zk, request), timeout_ms, late)


async def _describe(
    zk: ZkSession, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    # Without names: all users that have a credential.
    names = [user.name for user in request.users or ()]
    try:
        found = await _read(zk, names or await list_users(zk))
    except ZkError as error:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper: {error!r}") from error

    counts = Counter(names)
    results = [
        _result(user, found.get(user, {}), counts[user])
        for user in (dict.fromkeys(names) if names else found)
        if names or found[user]
    ]
    return DescribeUserScramCredentialsResponse(
        error_code=ErrorCode.NONE, error_message=None, results=results
    )


async def _read(zk: ZkSession, names: list[str]) -> dict[str, Credentials]:
    users = [name for name in dict.fromkeys(names) if name]
    stored = await read_users(zk, users)
    return {
        user: parse_credentials(user, node.settings or {})
        for user, node in zip(users, stored, strict=True)
    }


def _result(
    user: str, credentials: Credentials, times_asked: int
) -> DescribeUserScramCredentialsResponseResult:
    code = ErrorCode.NONE
    message = None
    if times_asked > 1:
        code = ErrorCode.DUPLICATE_RESOURCE
        message = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        )
    elif not credentials:
        code = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {user}"

    infos = [
        DescribeUserScramCredentialsResponseCredential(
            mechanism=SCRAM_MECHANISMS[name].wire_number, iterations=credentials[name].iterations
        )
        for name in sorted(credentials)
    ]
    return DescribeUserScramCredentialsResponseResult(
        user=user,
        error_code=code,
        error_message=message,
        credential_infos=[] if code else infos,
    )
