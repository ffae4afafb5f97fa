"""The session of a connection: it authenticates the client.

Every frame passes the connection's session first. Until the client is authenticated the session
takes the frames itself: they may be SASL tokens, which have no request header. A session that ends
at some time looks at each frame for as long as it lasts. PLAINTEXT needs no authentication, so its
session lets all frames through.
"""

from __future__ import annotations

from typing import Protocol

import attrs

from protocol.frozen import frozen


@attrs.frozen(cache_hash=True)
class Principal:
    """A user as ACLs and quotas name it, such as `User:ANONYMOUS`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")


class SessionRefused(Exception):
    """The connection must be closed: the client did not authenticate, or its session has ended.

    `response` is sent before that, `delay_ms` later: whoever guesses passwords has to wait.
    """

    def __init__(self, reason: str, response: bytes = b"", delay_ms: int = 0) -> None:
        super().__init__(reason)
        self.response = response
        self.delay_ms = delay_ms


class Session(Protocol):
    """The state of one connection's authentication."""

    @property
    def takes_frames(self) -> bool:
        """True if each frame has to go through `receive`; else it is a request."""

    @property
    def principal(self) -> Principal:
        """The user who sends the requests."""

    @property
    def max_frame_bytes(self) -> int | None:
        """The largest frame for now; None: as large as requests may be."""

    def receive(self, frame: memoryview) -> bytes | None:
        """Take a frame; return the bytes to send back, or None if it is a request of `principal`.

        Raises SessionRefused.
        """


@frozen
class PlaintextSession:
    """The session of a listener without logins: every client is ANONYMOUS.

    On a listener of SSL, a certificate may name it otherwise.
    """

    takes_frames: bool = False
    principal: Principal = ANONYMOUS
    max_frame_bytes: int | None = None

    def receive(self, frame: memoryview) -> bytes | None:
        """Let the frame through: there is nothing to authenticate."""
        return None


PLAINTEXT_SESSION = PlaintextSession()
