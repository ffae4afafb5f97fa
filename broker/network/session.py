"""The session of a connection: it authenticates the client.

Every frame passes the connection's session first. Until the client is authenticated the session
takes the frames itself: they may be SASL tokens, which have no request header. PLAINTEXT needs no
authentication, so its session lets all frames through.
"""

from __future__ import annotations

from typing import Protocol

import attrs


@attrs.frozen(cache_hash=True)
class Principal:
    """A user as ACLs and quotas name it, such as `User:ANONYMOUS`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")


class SessionRefused(Exception):
    """The client did not authenticate, so its connection must be closed."""


class Session(Protocol):
    """The state of one connection's authentication."""

    @property
    def is_authenticated(self) -> bool:
        """True if frames are requests of `principal`, which are dispatched."""

    @property
    def principal(self) -> Principal:
        """The user who sends the requests."""

    def receive(self, frame: memoryview) -> bytes:
        """Take a frame before authentication; return the bytes to send back.

        Raises SessionRefused.
        """


@attrs.frozen
class PlaintextSession:
    """The session of a listener without logins: every client is ANONYMOUS.

    On a listener of SSL, a certificate may name it otherwise.
    """

    is_authenticated: bool = True
    principal: Principal = ANONYMOUS

    def receive(self, frame: memoryview) -> bytes:
        """Refuse the frame: there is nothing to authenticate."""
        raise SessionRefused("a PLAINTEXT listener authenticates nobody")


PLAINTEXT_SESSION = PlaintextSession()
