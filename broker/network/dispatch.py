"""From a frame to an answer: header, version, body, handler, and what an error becomes.

What the protocol has no answer for (an unknown API or version, a body that cannot be read) is a
`Refused`, and the connection is closed. Only ApiVersions is answered in a version we do not
speak, by error 35 in version 0, so that a newer client finds out what to ask instead (KIP-511).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import attrs

from broker.network.purgatory import NO_ANSWER, Wait
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.header import (
    RequestHeader,
    read_correlation_id,
    read_request,
    read_request_header,
)
from protocol.messages.api_versions import ApiVersionsResponse, ApiVersionsResponseKey
from protocol.primitives import WireError
from protocol.registry import API, Api

logger = logging.getLogger(__name__)

Handler = Callable[[Any, "RequestContext"], Any]

BROKERS_ALONE = frozenset(
    {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
    }
)
"""What no client asks."""


class RequestContext(NamedTuple):
    """What a handler may know of a request beside its body. `now_ms` is the wall clock, for
    records, `monotonic_ms` the one for intervals. `connection` numbers them as they were accepted.
    """

    api_version: int
    client_id: str
    listener: str
    connection_id: str
    now_ms: int
    connection: int = 0
    monotonic_ms: int = 0


class Refused(Exception):
    """The request cannot be answered in words: the connection must be closed."""


class Outcome(NamedTuple):
    """An answer, or the `Wait` for one, which ends with another Outcome.

    `close` ends the connection after the answer. `is_brokers`: no client sends such a request.
    """

    header: RequestHeader
    response: Any
    close: bool = False
    is_brokers: bool = False


@attrs.define(eq=False)
class Dispatcher:
    """The table of handlers: which API is served by what."""

    handlers: Mapping[ApiKey, Handler]
    now_ms: Callable[[], int]
    monotonic_ms: Callable[[], int]

    def dispatch(
        self, frame: memoryview, listener: str, connection_id: str, connection: int = 0
    ) -> Outcome:
        """Serve one request. Raises Refused."""
        try:
            key, version, correlation_id = read_correlation_id(frame)
        except WireError as error:
            raise Refused(str(error)) from error
        api, handler = API.get(key), self.handlers.get(key)  # type: ignore[call-overload]
        if api is None or handler is None:
            raise Refused(f"API key {key} is not served")
        if not api.served.first <= version <= api.served.last:
            if key == ApiKey.API_VERSIONS:
                return _other_api_versions(correlation_id)
            raise Refused(f"{ApiKey(key).name} version {version} is not served")
        try:
            header, pos = read_request_header(frame)
            request = read_request(header, frame, pos)
        except WireError as error:
            raise Refused(f"{ApiKey(key).name} version {version}: {error}") from error
        context = RequestContext(
            version,
            header.client_id or "",
            listener,
            connection_id,
            self.now_ms(),
            connection,
            self.monotonic_ms(),
        )
        outcome = _outcome(api, header, request, partial(handler, request, context))
        return outcome._replace(is_brokers=True) if _is_brokers(key, request) else outcome


def _is_brokers(key: int, request: Any) -> bool:
    """Whether a broker asks: as the controller, for the replicas it has, or to be let go."""
    return key in BROKERS_ALONE or getattr(request, "replica_id", -1) >= 0


def _outcome(api: Api, header: RequestHeader, request: Any, answer: Callable[[], Any]) -> Outcome:
    """What a handler returns, with the answer of a `Wait` treated like one given at once."""
    outcome = _guarded(api, header, request, answer)
    wait = outcome.response
    if not isinstance(wait, Wait):
        return outcome

    def try_complete(expired: bool) -> Outcome | None:
        tried = _outcome(api, header, request, partial(wait.try_complete, expired))
        if tried.response is NO_ANSWER:
            return Outcome(header, None)
        return None if tried.response is None else tried

    return Outcome(header, attrs.evolve(wait, try_complete=try_complete))


def _guarded(api: Api, header: RequestHeader, request: Any, answer: Callable[[], Any]) -> Outcome:
    """What a handler raises becomes an answer too."""
    try:
        return Outcome(header, answer())
    except ApiError as error:
        code, close = error.code, False
    except Exception:
        logger.exception("%s version %s failed", ApiKey(header.api_key).name, header.api_version)
        code, close = ErrorCode.UNKNOWN_SERVER_ERROR, True
    return Outcome(header, api.error_response(request, code), close)


def _other_api_versions(correlation_id: int) -> Outcome:
    api = API[ApiKey.API_VERSIONS]
    key = ApiVersionsResponseKey(
        api_key=ApiKey.API_VERSIONS,
        min_version=api.served.first,
        max_version=api.served.last,
    )
    response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[key])
    return Outcome(RequestHeader(ApiKey.API_VERSIONS, 0, correlation_id, None), response)
