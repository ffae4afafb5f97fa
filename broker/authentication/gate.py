"""Decide on each frame of a connection whether it is a step of a login or a request.

    AwaitingHandshake ── SaslHandshake ──► AwaitingToken ── last token ──► Open
                                                ▲                           │
                                                └── SaslHandshake again ────┘

Before the login only ApiVersions is served. An open session that has an end goes on if the client
logs in again on the same connection, as the same user by the same mechanism (KIP-368); after its
end the next request closes the connection.

A refusal is the same, and comes as late, for an unknown user as for a wrong password.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.header import (
    RequestHeader,
    encode_response,
    read_correlation_id,
    read_request,
    read_request_header,
)
from protocol.messages.api_versions import ApiVersionsRequest, is_legal_software
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from protocol.primitives import WireError
from protocol.registry import API
from protocol.sasl.exchange import Challenge, LoggedIn, LoginRefused, ServerExchange
from protocol.wire import Message

REAUTHENTICATION_PAUSE_MS = 1000
"""Least time between two beginnings of a login on an open session."""
MAX_ELEMENTS = 1000
"""Most elements and tagged fields of a request that is read before or during a login: to be served,
or to be refused in its own words."""
MAX_QUESTIONS = 5
"""Most requests for the versions on a connection before its login. A client asks again in another
version, or under another name, when it is refused."""
MAX_LIFETIME_MS = 100 * 365 * 86_400_000
"""Longest session of a login that ends, about a hundred years: clients count it in ns of 64 bits,
and a token may say any number."""
MAX_SHOWN = 50
"""Characters of a client's own word that its refusal has in the log."""


@frozen
class Gate:
    """The logins that a listener takes.

    `begin` has the server's side of each enabled mechanism; `max_reauth_ms` the longest session of
    those that limit it (connections.max.reauth.ms).
    """

    begin: Mapping[str, Callable[[], ServerExchange]]
    max_reauth_ms: Mapping[str, int] = attrs.field(factory=dict)


# ---- states


@frozen
class AwaitingHandshake:
    """A new connection. ApiVersions is served once; a question that was refused is not counted so.

    `questions` counts both.
    """

    may_ask_versions: bool = True
    questions: int = 0


@frozen
class Open:
    """A session: the user has logged in. Times are of the monotonic clock.

    `ends_ms`: the client has to log in again by then. `reauthenticated_ms`: it has begun to.
    """

    mechanism: str
    user: str
    ends_ms: int | None = None
    reauthenticated_ms: int | None = None


@frozen
class AwaitingToken:
    """A login that has begun.

    `version` is that of the handshake: tokens after v0 have no header. `previous` is the session
    that a login again is to prolong.
    """

    mechanism: str
    exchange: ServerExchange
    version: int
    begun_ms: int
    previous: Open | None = None


State = AwaitingHandshake | AwaitingToken | Open


# ---- decisions


@frozen
class Respond:
    """Send these bytes, which are a whole frame."""

    state: State
    frame: bytes


@frozen
class Serve:
    """The frame is a request, which is dispatched."""

    state: State


@frozen
class Refuse:
    """Close the connection.

    `reason` is for the log. `response` is sent before that, and all of it comes late if
    `is_delayed`. `is_expiry`: the session has ended.
    """

    reason: str
    response: bytes = b""
    is_delayed: bool = False
    is_expiry: bool = False


Decision = Respond | Serve | Refuse


def decide(gate: Gate, state: State, frame: memoryview, now_ms: int, monotonic_ms: int) -> Decision:
    """Say what a frame means in this state. `now_ms` is for the expiry of credentials."""
    if isinstance(state, Open):
        return _decide_open(gate, state, frame, monotonic_ms)
    if isinstance(state, AwaitingToken):
        return _decide_token(gate, state, frame, now_ms, monotonic_ms)
    return _decide_new(gate, state, frame, monotonic_ms)


# ---- before the login


def _decide_new(
    gate: Gate, state: AwaitingHandshake, frame: memoryview, monotonic_ms: int
) -> Decision:
    try:
        key, version, _ = read_correlation_id(frame)
    except WireError:
        return Refuse("the client's first frame is no request")

    if key == ApiKey.API_VERSIONS:
        if not state.may_ask_versions:
            return Refuse("ApiVersions came twice before the login")
        # A client whose question was refused asks again, but not without end (fault security-3).
        if state.questions == MAX_QUESTIONS:
            return Refuse(f"ApiVersions came {MAX_QUESTIONS + 1} times before the login")
        try:
            has_versions = _has_versions(frame, version)
        except WireError as error:
            return Refuse(f"ApiVersions version {version}: {error}")
        return Serve(AwaitingHandshake(not has_versions, state.questions + 1))

    if key == ApiKey.SASL_HANDSHAKE:
        return _shake_hands(gate, frame, version, monotonic_ms, None)
    return Refuse(f"{_name(key)} came before SaslHandshake")


def _has_versions(frame: memoryview, version: int) -> bool:
    """Return whether the request for the versions is one that gets them. Raises WireError."""
    if not API[ApiKey.API_VERSIONS].served.first <= version <= API[ApiKey.API_VERSIONS].served.last:
        return False
    header, pos = read_request_header(frame)
    request: ApiVersionsRequest = read_request(header, frame, pos, MAX_ELEMENTS)
    return version < 3 or is_legal_software(request)


def _shake_hands(
    gate: Gate, frame: memoryview, version: int, monotonic_ms: int, previous: Open | None
) -> Decision:
    """Begin a login; `previous` is the session that it is to prolong."""
    served = API[ApiKey.SASL_HANDSHAKE].served
    if not served.first <= version <= served.last:
        return Refuse(f"SaslHandshake version {version} is not served")
    try:
        header, pos = read_request_header(frame)
        request: SaslHandshakeRequest = read_request(header, frame, pos, MAX_ELEMENTS)
    except WireError as error:
        return Refuse(f"SaslHandshake: {error}")

    mechanism = request.mechanism
    enabled = list(gate.begin)
    if mechanism not in gate.begin:
        code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        refusal = SaslHandshakeResponse(error_code=code, mechanisms=enabled)
        shown = mechanism[:MAX_SHOWN]
        return Refuse(
            f"SASL mechanism {shown!r} is not enabled, only {', '.join(enabled)}",
            _encode(header, refusal),
            is_delayed=True,
        )

    exchange = gate.begin[mechanism]()
    if previous is not None and previous.mechanism != mechanism:
        exchange = _OtherMechanism(mechanism, previous.mechanism)
    return Respond(
        AwaitingToken(mechanism, exchange, version, monotonic_ms, previous),
        _encode(header, SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=enabled)),
    )


@frozen
class _OtherMechanism:
    """A login again by another mechanism than that of the session. As in Kafka, its first token is
    refused, and not the handshake."""

    requested: str
    expected: str

    def receive(self, token: bytes) -> LoggedIn:
        raise LoginRefused(
            f"SASL mechanism '{self.requested}' requested by client is not supported for "
            f"re-authentication of mechanism '{self.expected}'"
        )


# ---- a login


def _decide_token(
    gate: Gate, state: AwaitingToken, frame: memoryview, now_ms: int, monotonic_ms: int
) -> Decision:
    # After version 0 of the handshake the whole frame is the token.
    header = None
    token = bytes(frame)
    if state.version > 0:
        request = _read_authenticate(frame)
        if isinstance(request, Refuse):
            return request
        header, token = request

    try:
        step = state.exchange.receive(token)
        if state.previous is not None and isinstance(step, LoggedIn):
            _refuse_other_user(state.previous, step)
    except LoginRefused as refusal:
        return _refuse_login(state, header, refusal)

    if isinstance(step, Challenge):
        return Respond(attrs.evolve(state, exchange=step.then), _encode_token(header, step.token))

    lifetime_ms = _lifetime_ms(gate, state.mechanism, step, now_ms)
    session = Open(
        state.mechanism,
        step.user,
        ends_ms=None if lifetime_ms is None else monotonic_ms + lifetime_ms,
        reauthenticated_ms=None if state.previous is None else state.begun_ms,
    )
    return Respond(session, _encode_token(header, step.token, lifetime_ms or 0))


def _read_authenticate(frame: memoryview) -> tuple[RequestHeader, bytes] | Refuse:
    """Return the header and the token; a Refuse for anything but a SaslAuthenticate request."""
    try:
        header, pos = read_request_header(frame)
        api = API.get(header.api_key)
        if api is None or not api.served.first <= header.api_version <= api.served.last:
            return Refuse(f"{_name(header.api_key)} version {header.api_version} is not served")
        request = read_request(header, frame, pos, MAX_ELEMENTS)
    except WireError as error:
        return Refuse(f"a request during the login: {error}")

    if isinstance(request, SaslAuthenticateRequest):
        return header, bytes(request.auth_bytes)

    # The client is told in the words of its own request.
    reason = f"{_name(header.api_key)} came during the login"
    if header.api_key == ApiKey.API_VERSIONS:
        return Refuse(reason)
    response = api.error_response(request, ErrorCode.ILLEGAL_SASL_STATE)
    return Refuse(reason, b"" if response is None else _encode(header, response), is_delayed=True)


def _refuse_other_user(previous: Open, step: LoggedIn) -> None:
    if step.user != previous.user:
        raise LoginRefused(
            "Cannot change principals during re-authentication from "
            f"User.{previous.user}: User.{step.user}",
            "a login again as another user",
        )


def _lifetime_ms(gate: Gate, mechanism: str, step: LoggedIn, now_ms: int) -> int | None:
    """Return how long the session lasts; None: it has no end."""
    ends = []
    if mechanism in gate.max_reauth_ms:
        ends.append(gate.max_reauth_ms[mechanism])
    if step.expires_at_ms is not None:
        ends.append(step.expires_at_ms - now_ms)
    if not ends:
        return None
    # No response has room for the end that some tokens have (fault security-8, was: min(ends)).
    lifetime_ms = min(*ends, MAX_LIFETIME_MS)
    return max(0, lifetime_ms)


def _refuse_login(
    state: AwaitingToken, header: RequestHeader | None, refusal: LoginRefused
) -> Refuse:
    again = "authentication" if state.previous is None else "re-authentication"
    reason = f"failed {again} by {state.mechanism}: {refusal.detail}"
    # Without a header there is no response either.
    if header is None:
        return Refuse(reason, is_delayed=True)

    message = refusal.message or (
        f"Authentication failed during {again} due to invalid credentials with SASL mechanism "
        f"{state.mechanism}"
    )
    code = ErrorCode.SASL_AUTHENTICATION_FAILED
    response = SaslAuthenticateResponse(error_code=code, error_message=message, auth_bytes=b"")
    return Refuse(reason, _encode(header, response), is_delayed=True)


# ---- a session


def _decide_open(gate: Gate, state: Open, frame: memoryview, monotonic_ms: int) -> Decision:
    if state.ends_ms is None:
        return Serve(state)
    try:
        key, version, _ = read_correlation_id(frame)
    except WireError:
        return Serve(state)  # the dispatcher refuses it

    # Too early for another login: then it is a request, and gets an error.
    last_ms = state.reauthenticated_ms
    is_early = last_ms is not None and monotonic_ms < last_ms + REAUTHENTICATION_PAUSE_MS
    if key == ApiKey.SASL_HANDSHAKE and not is_early:
        return _shake_hands(gate, frame, version, monotonic_ms, state)

    if monotonic_ms >= state.ends_ms:
        return Refuse(
            "the session has ended, and the client has not logged in again", is_expiry=True
        )
    return Serve(state)


# ---- frames


def _name(key: int) -> str:
    return ApiKey(key).name if key in API else f"API key {key}"


def _encode(header: RequestHeader, response: Message) -> bytes:
    frame, _ = encode_response(header.api_key, header.api_version, header.correlation_id, response)
    return bytes(frame)


def _encode_token(header: RequestHeader | None, token: bytes, lifetime_ms: int = 0) -> bytes:
    if header is None:
        return len(token).to_bytes(4, "big") + token
    return _encode(
        header,
        SaslAuthenticateResponse(
            error_code=ErrorCode.NONE,
            error_message=None,
            auth_bytes=token,
            session_lifetime_ms=lifetime_ms,
        ),
    )
