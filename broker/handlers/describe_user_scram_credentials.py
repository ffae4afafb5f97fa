"""DescribeUserScramCredentials: the users that can log in by SCRAM (KIP-554)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from broker.authentication.scram_users import Credentials, list_users, parse_credentials, read_users
from broker.network.deferred import Deferred, add_in_turns
from broker.network.long_answers import LongAnswer
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from broker.process.zk_retry import IS_SILENT, answers_soon
from broker.settings.entity_configs import Settings
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
    late = partial(error_response, request, ErrorCode.REQUEST_TIMED_OUT, IS_SILENT)
    return deferred.respond(_describe(zk, request, context.api_version, late), timeout_ms, late)


async def _describe(
    zk: ZkSession,
    request: DescribeUserScramCredentialsRequest,
    version: int,
    late: Callable[[], DescribeUserScramCredentialsResponse],
) -> DescribeUserScramCredentialsResponse:
    # Without names: all users that have a credential.
    names = [user.name for user in request.users or ()]
    try:
        if not await answers_soon(zk):
            return late()
        stored = await _read(zk, names or await list_users(zk))
    except ZkError as error:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper: {error!r}") from error

    results = LongAnswer(DescribeUserScramCredentialsResponse, version)
    # Those of 20,000 users took a turn of 0.3 s (fault strangers-14).
    await add_in_turns(results, _results(names, stored))
    encoded: Any = results.array()
    return DescribeUserScramCredentialsResponse(
        error_code=ErrorCode.NONE, error_message=None, results=encoded
    )


async def _read(zk: ZkSession, names: Sequence[str]) -> dict[str, Settings]:
    users = [name for name in dict.fromkeys(names) if name]
    stored = await read_users(zk, users)
    return {user: node.settings or {} for user, node in zip(users, stored, strict=True)}


def _results(
    names: Sequence[str], stored: Mapping[str, Settings]
) -> Iterator[DescribeUserScramCredentialsResponseResult]:
    counts = Counter(names)
    for user in dict.fromkeys(names or stored):
        credentials = parse_credentials(user, stored.get(user, {}))
        if names or credentials:
            yield _result(user, credentials, counts[user])


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
