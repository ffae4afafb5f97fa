"""Encrypt a connection: a protocol to the socket's transport, a transport to the application's.

asyncio has a layer of its own, which closes the socket when a handshake fails and drops the alert
that says why (cpython issue 98078). Java's clients take a close for an end of the network, and try
again for ever; an alert makes them fail. So this layer writes what OpenSSL wants to say before it
closes, and on a server goes on reading for a moment: closing a socket with unread bytes makes the
system send a reset, which overtakes the alert.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import ssl
from collections.abc import Callable
from typing import Any, cast

from protocol.closed_transport import abort, break_cycle
from protocol.tls.failures import TlsFailed, explain, explain_first_byte
from protocol.tls.handshakes import Handshakes

HANDSHAKE_TIMEOUT_S = 30.0
"""Longest time for a handshake on a server."""
LINGER_S = 2.0
"""Time for which a server reads on after it has refused a handshake."""

RECORD_BYTES = 16 * 1024
"""Most bytes of a record of TLS, which one call decrypts."""
PIECE_BYTES = 128 * 1024
"""Bytes that are encrypted at once: larger pieces only make OpenSSL's buffer grow."""


class _State(enum.Enum):
    HANDSHAKE = enum.auto()
    OPEN = enum.auto()
    CLOSING = enum.auto()
    """Nothing is sent or delivered any more."""


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """A connection with TLS under `application`.

    The application has its `connection_made` at once, so that a connection counts from the moment
    it is accepted, and gets data and may write after `on_secured(ssl_object)`, which may raise
    TlsFailed. Its `connection_lost` gets TlsFailed, or an OSError, where the handshake did not end
    well. `handshakes` bounds the work of a server, and `handshake_timeout_s` its wait; a client has
    neither, because it has a timeout for connecting.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        application: asyncio.Protocol,
        on_secured: Callable[[ssl.SSLObject], None],
        *,
        server_hostname: str | None = None,
        handshakes: Handshakes | None = None,
        handshake_timeout_s: float = HANDSHAKE_TIMEOUT_S,
    ) -> None:
        super().__init__()
        self._application = application
        self._on_secured = on_secured
        self._handshakes = handshakes
        self._timeout_s = handshake_timeout_s
        self._on_server = handshakes is not None

        # Raises ValueError for a name that cannot be one.
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ssl = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=self._on_server,
            server_hostname=server_hostname,
        )

        self._socket: asyncio.Transport | None = None
        self._state = _State.HANDSHAKE
        self._failure: Exception | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._has_first_byte = False
        self._has_delivered = False
        self._is_paused = False

    # ---- asyncio.Protocol, for the socket's transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake. The event loop calls this."""
        self._socket = cast(asyncio.Transport, transport)
        self._application.connection_made(self)
        # The application may have refused the connection.
        if self._socket.is_closing():
            self._state = _State.CLOSING
            return

        if self._handshakes is None:
            self.step()
            return
        reason = f"the handshake took longer than {self._timeout_s:g} s"
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._timeout_s, self.give_up, reason)
        self._handshakes.begin(self)

    def data_received(self, data: bytes) -> None:
        """Take encrypted bytes. The event loop calls this."""
        if self._state is _State.OPEN:
            self._incoming.write(data)
            self._read()
        elif self._state is _State.HANDSHAKE:
            self._continue_handshake(data)

    def eof_received(self) -> bool | None:
        """Take the end of the peer's bytes, with or without its close_notify."""
        if self._state is _State.OPEN:
            # True: the application has something to send first.
            return self._application.eof_received()
        if self._state is _State.HANDSHAKE and self._has_first_byte:
            self._failure = ConnectionResetError("closed during the TLS handshake")
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection. The event loop calls this once."""
        if self._state is _State.HANDSHAKE and self._failure is None and exc is None:
            hint = "" if self._on_server else ": does the port speak TLS (security.protocol)?"
            self._failure = ConnectionResetError(f"closed instead of a TLS handshake{hint}")
        self._state = _State.CLOSING
        self._end_handshake()
        # As the broker's connections without TLS do (fault strangers-103).
        break_cycle(self._socket)
        self._application.connection_lost(self._failure or exc)

    def pause_writing(self) -> None:
        """Pass it on: the peer reads more slowly than we write."""
        if self._state is _State.OPEN:
            self._application.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on: what was written has left."""
        if self._state is _State.OPEN:
            self._application.resume_writing()

    # ---- the handshake

    def _continue_handshake(self, data: bytes) -> None:
        # OpenSSL's own error for a peer that speaks something else is hard to understand.
        if not self._has_first_byte:
            self._has_first_byte = True
            reason = explain_first_byte(data[0], on_server=self._on_server)
            if reason is not None:
                self._fail(TlsFailed(reason))
                return

        self._incoming.write(data)
        if self._handshakes is None:
            self.step()
        else:
            # No more bytes until these are worked on: a peer could fill the memory with them.
            self._require_socket().pause_reading()
            self._handshakes.line_up(self)

    def step(self) -> None:
        """Go on with the handshake as far as the bytes that have arrived allow."""
        if self._state is not _State.HANDSHAKE:
            return
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            self._require_socket().resume_reading()
        except ssl.SSLError as error:
            self._fail(TlsFailed(explain(error, on_server=self._on_server)))
        else:
            self._finish_handshake()

    def _finish_handshake(self) -> None:
        self._flush()
        self._end_handshake()
        try:
            self._on_secured(self._ssl)
        except TlsFailed as failure:
            self._fail(failure)
            return
        except BaseException:
            self.abort()
            raise

        self._state = _State.OPEN
        if not self._is_paused:
            self._require_socket().resume_reading()
        # A client's first request may have come with its last message.
        self._read()

    def _end_handshake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._handshakes is not None:
            self._handshakes.end(self)

    def give_up(self, reason: str) -> None:
        """End a connection whose handshake is not finished."""
        if self._state is _State.HANDSHAKE:
            self._failure = TlsFailed(reason)
            self.abort()

    def _fail(self, failure: TlsFailed) -> None:
        """Tell the peer by OpenSSL's alert, if it has one, and close."""
        self._failure = failure
        self._state = _State.CLOSING
        self._end_handshake()
        self._flush()

        socket = self._require_socket()
        if not self._on_server:
            socket.close()
            return

        # The end of our bytes goes out behind the alert; theirs are read until they end too.
        with contextlib.suppress(OSError):
            socket.write_eof()
        socket.resume_reading()
        self._timer = asyncio.get_running_loop().call_later(LINGER_S, socket.abort)

    # ---- bytes

    def _read(self) -> None:
        """Decrypt what has arrived, and deliver it in one piece."""
        pieces: list[bytes] = []
        failure: TlsFailed | None = None
        has_ended = False
        try:
            while True:
                piece = self._ssl.read(RECORD_BYTES)
                if not piece:
                    has_ended = True
                    break
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            has_ended = True
        except ssl.SSLError as error:
            failure = TlsFailed(explain(error, on_server=self._on_server))

        # OpenSSL answers some messages by itself.
        self._flush()
        if pieces:
            self._has_delivered = True
            self._application.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))

        # The application may have closed the connection.
        if self._state is not _State.OPEN:
            return
        if failure is not None:
            self._fail_reading(failure)
        elif has_ended and not self._application.eof_received():
            self.close()

    def _fail_reading(self, failure: TlsFailed) -> None:
        # With TLS 1.3 a server refuses a client's certificate after the client's handshake is over.
        if not self._has_delivered:
            self._fail(failure)
            return
        self._failure = ConnectionResetError(f"TLS: {failure.reason}")
        self.abort()

    def _flush(self) -> None:
        """Write what OpenSSL has encrypted."""
        if self._outgoing.pending:
            self._require_socket().write(self._outgoing.read())

    def _require_socket(self) -> asyncio.Transport:
        assert self._socket is not None, "no connection is made yet"
        return self._socket

    # ---- asyncio.Transport, for the application

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Encrypt bytes and send them."""
        # As any transport does, drop what is written after the end.
        if self._state is _State.CLOSING:
            return
        assert self._state is _State.OPEN, "the application writes after on_secured"

        if len(data) <= PIECE_BYTES:
            self._encrypt(data)
            return
        view = memoryview(data)
        for start in range(0, len(view), PIECE_BYTES):
            self._encrypt(view[start : start + PIECE_BYTES])

    def _encrypt(self, data: bytes | bytearray | memoryview[Any]) -> None:
        # OpenSSL takes no empty bytes, and none after a record that it could not read. The caller
        # may be somebody else, whose request has ended the wait of one on this connection.
        if not data or self._state is not _State.OPEN:
            return
        try:
            self._ssl.write(data)
        except ssl.SSLError as error:
            reason = explain(error, on_server=self._on_server)
            self._failure = ConnectionResetError(f"TLS: {reason}")
            self.abort()
            return
        self._flush()

    def close(self) -> None:
        """Send what was written, say goodbye, and close."""
        if self._state is _State.OPEN:
            # It wants to read the peer's goodbye, which nobody waits for.
            with contextlib.suppress(ssl.SSLError):
                self._ssl.unwrap()
            self._flush()
        self._state = _State.CLOSING
        self._end_handshake()
        self._require_socket().close()

    def abort(self) -> None:
        """Close at once, and drop bytes that are not sent yet."""
        self._state = _State.CLOSING
        self._end_handshake()
        abort(self._require_socket())

    def is_closing(self) -> bool:
        """Return whether the connection is closed, or about to be."""
        return self._state is _State.CLOSING or self._require_socket().is_closing()

    def can_write_eof(self) -> bool:
        """Return False: TLS has no end of one direction."""
        return False

    def pause_reading(self) -> None:
        """Deliver no data until `resume_reading`."""
        self._is_paused = True
        # A handshake needs its bytes.
        if self._state is _State.OPEN:
            self._require_socket().pause_reading()

    def resume_reading(self) -> None:
        """Deliver data again."""
        self._is_paused = False
        if self._state is _State.OPEN:
            self._require_socket().resume_reading()

    @property
    def max_size(self) -> int:
        """Most bytes that are read at once, as asyncio's own transports have it."""
        size: int = self._require_socket().max_size  # type: ignore[attr-defined]
        return size

    @max_size.setter
    def max_size(self, size: int) -> None:
        self._require_socket().max_size = size  # type: ignore[attr-defined]

    def is_reading(self) -> bool:
        """Return whether data is delivered."""
        return not self._is_paused and not self.is_closing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits of encrypted bytes that wait to be sent."""
        self._require_socket().set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Return how many encrypted bytes wait to be sent."""
        return self._require_socket().get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the socket's transport knows, or the ssl_object."""
        if name == "ssl_object":
            return self._ssl
        return self._require_socket().get_extra_info(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the application's protocol."""
        return self._application
