"""The steps of a login, which are the same for all mechanisms.

A side of a login is a value that takes the token of the other side. The server's sides are frozen:
each step returns the next one. No error and no `repr` of a side has a password, a key or a token.
"""

from __future__ import annotations

from typing import Final, Protocol

from protocol.frozen import frozen

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"

MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)
"""The mechanisms that are served. Names are case-sensitive."""

NOT_SERVED: Final = {"GSSAPI": "Kerberos is not served"}
"""Mechanisms of Kafka that are refused by name, and why."""


def refuse_mechanism(name: str) -> str | None:
    """Return why a mechanism is not served; None if it is."""
    if name in MECHANISMS:
        return None
    reason = NOT_SERVED.get(name, "is no mechanism of Kafka")
    return f"{name}: {reason}; there are {', '.join(MECHANISMS)}"


class LoginRefused(Exception):
    """The server refuses the client.

    `message` is what the client may read. None: only that its credentials are invalid, which says
    nothing about which users there are. `detail` is for the server's log.
    """

    def __init__(self, message: str | None, detail: str = "") -> None:
        super().__init__(message or detail)
        self.message = message
        self.detail = detail or message or ""


class ServerRefused(Exception):
    """The client refuses the server: it broke the protocol, or could not prove who it is."""


@frozen
class Challenge:
    """A step of the server that waits for another token of the client."""

    token: bytes
    then: ServerExchange


@frozen
class LoggedIn:
    """The end of a login. `expires_at_ms` (wall clock) is when the credentials expire."""

    user: str
    token: bytes = b""
    expires_at_ms: int | None = None


class ServerExchange(Protocol):
    """The server's side of a login, before one of its steps."""

    def receive(self, token: bytes) -> Challenge | LoggedIn:
        """Take the client's token. Raises LoginRefused."""


class ClientExchange(Protocol):
    """The client's side of a login."""

    def begin(self) -> bytes:
        """Return the first token."""

    def receive(self, token: bytes) -> bytes | None:
        """Take the server's token; return the next one, None when the login is complete.

        Raises ServerRefused. With SCRAM this computes for milliseconds.
        """
