"""PLAIN: the client sends its name and its password as they are (RFC 4616)."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

import attrs

from protocol.frozen import frozen
from protocol.sasl.exchange import LoggedIn, LoginRefused, ServerRefused

_PARTS = 3

# The texts are Kafka's. Unknown users and wrong passwords have the same.
INVALID = "Authentication failed: Invalid username or password"
OTHER_AUTHORIZATION_ID = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


@frozen
class PlainServer:
    """The server's side; `passwords` has those of all users by their names."""

    passwords: Mapping[str, str] = attrs.field(repr=False)

    def receive(self, token: bytes) -> LoggedIn:
        """Check `[authorization id] NUL name NUL password`. Raises LoginRefused."""
        authorization_id, user, password = _split(token)
        if not user:
            raise LoginRefused("Authentication failed: username not specified")
        if not password:
            raise LoginRefused("Authentication failed: password not specified")

        # Compare for unknown users too, so that they take as long.
        expected = self.passwords.get(user)
        is_equal = hmac.compare_digest(password.encode(), (expected or "").encode())
        if expected is None or not is_equal:
            raise LoginRefused(INVALID)

        # Only after the password: the text would tell users apart.
        if authorization_id and authorization_id != user:
            raise LoginRefused(OTHER_AUTHORIZATION_ID)
        return LoggedIn(user)


def _split(token: bytes) -> list[str]:
    # One part more than legal is enough to see that there are too many.
    parts = token.split(b"\0", _PARTS)
    if len(parts) != _PARTS:
        raise LoginRefused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
    try:
        return [part.decode() for part in parts]
    except UnicodeDecodeError:
        raise LoginRefused(None, "a token of PLAIN is not UTF-8") from None


@frozen
class PlainClient:
    """The client's side."""

    user: str
    password: str = attrs.field(repr=False)

    def begin(self) -> bytes:
        """Return name and password. No authorization id: the server takes the name."""
        return b"\0".join((b"", self.user.encode(), self.password.encode()))

    def receive(self, token: bytes) -> None:
        """End the login: the server has nothing to say. Raises ServerRefused if it has."""
        if token:
            raise ServerRefused(f"a token of {len(token)} bytes after PLAIN's only one")
