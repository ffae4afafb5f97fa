"""Log in at a broker by SASL: the mechanism, and how each login begins.

Mechanisms are imported where one is chosen: most commands start without.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

import attrs

from clients.errors import AuthenticationFailed, ConnectionFailed
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.sasl_handshake import SaslHandshakeRequest
from protocol.sasl.exchange import OAUTHBEARER, PLAIN, ClientExchange, ServerRefused
from protocol.settings import SettingError

P = ParamSpec("P")
T = TypeVar("T")

_LIFETIME_S = 3600
"""How long an unsecured token of ours lasts, as in Kafka."""


@frozen
class Login:
    """The way in which a client logs in at every broker of a cluster.

    `begin()` returns the client's side of one login. It may read a file.
    """

    mechanism: str
    begin: Callable[[], ClientExchange] = attrs.field(repr=False)


class LoginConnection(Protocol):
    """The part of a connection that a login uses."""

    host: str
    port: int
    versions: dict[int, tuple[int, int]]

    async def call(
        self, request: Any, *, version: int | None = None, timeout_ms: int | None = None
    ) -> Any: ...
    async def exchange_raw(self, token: bytes, timeout_ms: int) -> bytes: ...
    def version_of(self, api_key: ApiKey) -> int: ...


def login_by_password(mechanism: str, user: str, password: str) -> Login:
    """Return the login of a user by PLAIN or SCRAM."""
    if mechanism == PLAIN:
        from protocol.sasl.plain import PlainClient

        return Login(mechanism, partial(PlainClient, user, password))

    from protocol.sasl.scram import NONCE_BITS, SCRAM_MECHANISMS, ScramClient, nonce_of

    scram = SCRAM_MECHANISMS[mechanism]

    def begin() -> ClientExchange:
        return ScramClient(scram, user, password, nonce_of(secrets.randbits(NONCE_BITS)))

    return Login(mechanism, begin)


def login_by_token_file(path: str, extensions: Mapping[str, str]) -> Login:
    """Return the login by a token that somebody keeps fresh in a file."""
    from protocol.sasl.oauthbearer import OAuthBearerClient

    def begin() -> ClientExchange:
        return OAuthBearerClient(Path(path).read_text("ascii").strip(), extensions)

    return Login(OAUTHBEARER, begin)


def login_by_unsecured_token(options: Mapping[str, str]) -> Login:
    """Return the login by a token that nobody signs, with the claims that `options` name.

    The options are those of Kafka's unsecured login (KIP-255); for development. Raises
    SettingError.
    """
    from protocol.sasl.oauthbearer import OAuthBearerClient, unsecured_token

    claims = _read_claims(options)
    user_claim = options.get("unsecuredLoginPrincipalClaimName", "sub")
    if not isinstance(claims.get(user_claim), str):
        raise SettingError("sasl.jaas.config", f"needs unsecuredLoginStringClaim_{user_claim}")
    lifetime_s = _read_number("unsecuredLoginLifetimeSeconds", options, _LIFETIME_S)
    extensions = _with_prefix("unsecuredLoginExtension_", options)

    def begin() -> ClientExchange:
        now_s = time.time()
        times = {"iat": now_s, "exp": now_s + lifetime_s}
        return OAuthBearerClient(unsecured_token({**times, **claims}), extensions)

    return Login(OAUTHBEARER, begin)


def _read_claims(options: Mapping[str, str]) -> dict[str, Any]:
    claims: dict[str, Any] = dict(_with_prefix("unsecuredLoginStringClaim_", options))
    for name in _with_prefix("unsecuredLoginNumberClaim_", options):
        claims[name] = _read_number(f"unsecuredLoginNumberClaim_{name}", options, 0)
    # The first character of a list is the one between its words.
    for name, text in _with_prefix("unsecuredLoginListClaim_", options).items():
        claims[name] = text[1:].split(text[0]) if text else []
    return claims


def _with_prefix(prefix: str, options: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(prefix): text for name, text in options.items() if name.startswith(prefix)
    }


def _read_number(name: str, options: Mapping[str, str], default: float) -> float:
    try:
        number = float(options.get(name, default))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise SettingError("sasl.jaas.config", f"{name} is no number")
    return number


# ---- the steps of a login


async def log_in(connection: LoginConnection, login: Login, timeout_ms: int) -> int:
    """Log in on a connection; return the session's lifetime in ms, 0 if it has no end.

    Each step may take `timeout_ms`. Raises AuthenticationFailed, and as `Connection.call`; so
    UnsupportedApi for brokers before 0.10, which have other logins.
    """

    def fail(reason: str) -> AuthenticationFailed:
        return AuthenticationFailed(
            connection.host, connection.port, f"login by {login.mechanism} failed: {reason}"
        )

    try:
        exchange, token = await _in_thread(_begin, login)
    except (OSError, UnicodeDecodeError) as error:
        raise fail(f"the token cannot be read: {error}") from None

    # Brokers before 1.0 take tokens without headers, and close the connection to refuse one.
    has_headers = ApiKey.SASL_AUTHENTICATE in connection.versions or not connection.versions
    version = min(connection.version_of(ApiKey.SASL_HANDSHAKE), int(has_headers))
    await _shake_hands(connection, login, version, timeout_ms, fail)
    lifetime_ms = 0
    while True:
        if has_headers:
            response = await connection.call(
                SaslAuthenticateRequest(auth_bytes=token), timeout_ms=timeout_ms
            )
            if response.error_code:
                code = ErrorCode.of(response.error_code)
                raise fail(response.error_message or code.name)
            reply = bytes(response.auth_bytes)
            lifetime_ms = response.session_lifetime_ms
        else:
            try:
                reply = await connection.exchange_raw(token, timeout_ms)
            except ConnectionFailed as error:
                raise fail(f"{error.reason}: are the credentials right?") from error

        # SCRAM computes for milliseconds, or for as long as the broker demands.
        try:
            answer = await _in_thread(exchange.receive, reply)
        except ServerRefused as error:
            raise fail(str(error)) from None
        if answer is None:
            return lifetime_ms
        token = answer


def _begin(login: Login) -> tuple[ClientExchange, bytes]:
    exchange = login.begin()
    return exchange, exchange.begin()


async def _in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, partial(work, *args, **kwargs))


async def _shake_hands(
    connection: LoginConnection,
    login: Login,
    version: int,
    timeout_ms: int,
    fail: Callable[[str], AuthenticationFailed],
) -> None:
    response = await connection.call(
        SaslHandshakeRequest(mechanism=login.mechanism), version=version, timeout_ms=timeout_ms
    )
    code = ErrorCode.of(response.error_code)
    if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise fail(f"the broker enables only {', '.join(response.mechanisms)} (sasl.mechanism)")
    if code is ErrorCode.ILLEGAL_SASL_STATE:
        raise fail("the broker's listener takes no logins (security.protocol)")
    if code is not ErrorCode.NONE:
        raise fail(code.name)
