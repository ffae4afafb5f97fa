"""OAUTHBEARER: the client shows a token that somebody both sides trust has given it (RFC 7628).

A token is a JSON Web Token. `check_claims` says what its claims must be; who has signed it is
checked by `signed_tokens`, or by nobody (`parse_unsecured`), which is for development.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from protocol.frozen import frozen
from protocol.sasl.exchange import Challenge, LoggedIn, LoginRefused, ServerRefused

_FIRST = re.compile(
    rb"n,(?:a=(?P<authorization_id>(?:[^=,\x00\x01]|=2C|=3D)+))?,\x01(?P<pairs>(?:[^\x01]*\x01)+)",
    re.DOTALL,
)
_PAIR = re.compile(rb"(?P<key>[A-Za-z]+)=(?P<value>[\x21-\x7e \t\r\n]*)")
_BEARER = re.compile(r"bearer +(?P<token>[-_.a-zA-Z0-9]+) *", re.IGNORECASE)

ACKNOWLEDGED: Final = b"\x01"
"""The client's reply to an error, after which the server refuses it."""


class InvalidToken(Exception):
    """The token is not accepted. `status` is that of RFC 7628; `detail` is for the server's log."""

    def __init__(
        self, detail: str, status: str = "invalid_token", scope: str | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.scope = scope

    def as_json(self) -> str:
        """Return the error as the server sends it, with Kafka's spaces."""
        if self.scope is None:
            return f'{{"status":"{self.status}"}}'
        return f'{{"status":"{self.status}", "scope":{json.dumps(self.scope)}}}'


@frozen
class AcceptedToken:
    """A token that is valid: the user it names, and when it expires (wall clock)."""

    user: str
    expires_at_ms: int


# ---- claims


@frozen
class TokenRules:
    """The claims that a token must have. `scopes` must all be among its own."""

    user_claim: str = "sub"
    scope_claim: str = "scope"
    scopes: tuple[str, ...] = ()
    issuer: str | None = None
    audiences: tuple[str, ...] = ()
    clock_skew_ms: int = 0


def check_claims(claims: Mapping[str, Any], rules: TokenRules, now_ms: int) -> AcceptedToken:
    """Return the user of a token with these claims. Raises InvalidToken."""
    user = claims.get(rules.user_claim)
    if not isinstance(user, str) or not user.strip():
        raise InvalidToken(f"the claim {rules.user_claim} is no text")

    # Times are in seconds.
    expires_at_ms = _milliseconds(claims, "exp")
    if expires_at_ms is None:
        raise InvalidToken("the claim exp is missing")
    if now_ms - rules.clock_skew_ms >= expires_at_ms:
        raise InvalidToken("the token has expired")
    for name in ("iat", "nbf"):
        begins_at_ms = _milliseconds(claims, name)
        if begins_at_ms is None:
            continue
        if begins_at_ms > now_ms + rules.clock_skew_ms:
            raise InvalidToken(f"the claim {name} is in the future")
        if begins_at_ms >= expires_at_ms:
            raise InvalidToken(f"the claim {name} is not before exp")

    # Who it is from and for.
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise InvalidToken("the token has another issuer")
    if rules.audiences and not set(_words(claims, "aud")) & set(rules.audiences):
        raise InvalidToken("the token is for another audience")

    # A scope that is text is one word, as Kafka takes it, or words with spaces between.
    given = _words(claims, rules.scope_claim)
    given_scopes = {*given, *(word for text in given for word in text.split())}
    if not given_scopes.issuperset(rules.scopes):
        raise InvalidToken(
            "a required scope is missing",
            "insufficient_scope",
            f"[{', '.join(rules.scopes)}]",
        )
    return AcceptedToken(user, expires_at_ms)


def _milliseconds(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidToken(f"the claim {name} is no number")
    try:
        return int(value * 1000)
    except (OverflowError, ValueError):
        raise InvalidToken(f"the claim {name} is no time") from None


def _words(claims: Mapping[str, Any], name: str) -> list[str]:
    value = claims.get(name, [])
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(word, str) for word in values):
        raise InvalidToken(f"the claim {name} is neither text nor a list of texts")
    return values


def parse_unsecured(token: str) -> Mapping[str, Any]:
    """Return the claims of a token that nobody has signed: its alg is none. Raises InvalidToken."""
    parts = token.split(".")
    if len(parts) != 3 or not parts[0] or not parts[1]:
        raise InvalidToken("the token has not the three parts of a JWS")
    header, claims = _parse_part(parts[0]), _parse_part(parts[1])
    if header.get("alg") != "none" or parts[2]:
        raise InvalidToken("the token is signed, and only unsecured ones are accepted")
    return claims


def _parse_part(text: str) -> Mapping[str, Any]:
    # Java writes the usual alphabet of base64, others that of URLs.
    padded = text.replace("+", "-").replace("/", "_") + "=" * (-len(text) % 4)
    try:
        value = json.loads(base64.urlsafe_b64decode(padded))
    except (ValueError, RecursionError):
        raise InvalidToken("a part of the token is no JSON in base64") from None
    if not isinstance(value, dict):
        raise InvalidToken("a part of the token is no JSON object")
    return value


def unsecured_token(claims: Mapping[str, Any]) -> str:
    """Return a token with these claims that nobody has signed."""

    def part(value: Mapping[str, Any]) -> str:
        text = json.dumps(value, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(text).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part(claims)}."


# ---- the server


Validate = Callable[[str], AcceptedToken]
"""Checks a token now. Raises InvalidToken."""


@frozen
class OAuthBearerServer:
    """The server's side."""

    validate: Validate

    def receive(self, token: bytes) -> Challenge | LoggedIn:
        """Check the client's token. Raises LoginRefused.

        An invalid token is answered with a challenge that says so; the login fails with the
        client's reply to that.
        """
        first = _FIRST.fullmatch(token)
        if first is None:
            raise LoginRefused(None, "the client's first message is not OAUTHBEARER's")
        bearer = _BEARER.fullmatch(_find_auth(first["pairs"]))
        if bearer is None:
            raise LoginRefused(None, "the client's first message has no bearer token")

        try:
            accepted = self.validate(bearer["token"])
        except InvalidToken as error:
            message = error.as_json()
            return Challenge(message.encode(), _RefusedToken(message, str(error)))

        authorization_id = first["authorization_id"]
        if authorization_id is not None and _unescape(authorization_id) != accepted.user:
            raise LoginRefused(
                "Authentication failed: Client requested an authorization id that is different "
                "from the token's principal name"
            )
        return LoggedIn(accepted.user, expires_at_ms=accepted.expires_at_ms)


def _find_auth(pairs: bytes) -> str:
    """Return the value of the key auth, which comes once. Other keys are extensions."""
    values = []
    for pair in pairs.split(b"\x01"):
        # The last pair is followed by an empty one.
        if not pair:
            continue
        match = _PAIR.fullmatch(pair)
        if match is None:
            raise LoginRefused(None, "an extension of OAUTHBEARER cannot be read")
        if match["key"] == b"auth":
            values.append(match["value"].decode())
    if len(values) != 1:
        raise LoginRefused(None, f"the client's first message has {len(values)} tokens")
    return values[0]


def _unescape(name: bytes) -> str:
    return name.decode(errors="replace").replace("=2C", ",").replace("=3D", "=")


@frozen
class _RefusedToken:
    """The server's side after it has told the client what is wrong with its token."""

    message: str
    detail: str

    def receive(self, token: bytes) -> LoggedIn:
        """Refuse the client, whatever it says. Raises LoginRefused."""
        raise LoginRefused(self.message, self.detail)


# ---- the client


@attrs.define(eq=False)
class OAuthBearerClient:
    """The client's side. `extensions` are sent beside the token (KIP-342)."""

    token: str = attrs.field(repr=False)
    extensions: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    _has_acknowledged: bool = attrs.field(default=False, init=False)

    def begin(self) -> bytes:
        """Return the token and the extensions."""
        pairs = {"auth": f"Bearer {self.token}", **self.extensions}
        joined = "".join(f"{key}={value}\x01" for key, value in pairs.items())
        return f"n,,\x01{joined}\x01".encode()

    def receive(self, token: bytes) -> bytes | None:
        """End the login, or acknowledge the server's error, which the refusal then repeats."""
        if not token:
            return None
        # After one error the server has to refuse.
        if not token.startswith(b"{") or self._has_acknowledged:
            raise ServerRefused("the server's token is no error of OAUTHBEARER")
        self._has_acknowledged = True
        return ACKNOWLEDGED
