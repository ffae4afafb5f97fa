"""Accept the connections of one listener, as soon as the limits allow (`connection_quotas`).

What is not accepted waits in the system's backlog, where it costs the broker nothing: its client
takes it for connected. Beyond the backlog the system drops what it is sent, and clients try again.

The event loop could accept by itself (`create_server`), but it would not wait for a place.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

import attrs

from broker.network.addresses import plain_address
from broker.network.connection_quotas import ConnectionQuotas

logger = logging.getLogger(__name__)

ACCEPTED_PER_TURN = 32
"""Most connections that are accepted in one turn of the loop."""
REST_S = 1.0
"""Time without accepting after an error of the whole process: mostly, too many files are open."""

# Errors of a connection that ended while it waited (accept(2)). Another one may be behind it.
_OF_CONNECTIONS = frozenset(
    {
        errno.ECONNABORTED,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENOPROTOOPT,
        errno.EOPNOTSUPP,
        errno.EPERM,
        errno.EPROTO,
    }
)


@attrs.define(eq=False)
class Acceptor:
    """Accepts from `listening`, and hands sockets and addresses of clients to `take`."""

    listener: str
    listening: socket.socket
    quotas: ConnectionQuotas
    take: Callable[[socket.socket, str], None]
    _is_counted: bool = False
    """True if the rates have the next connection already."""
    _waits_for_place: bool = False
    _timer: asyncio.TimerHandle | None = None
    _blocked_since: float | None = None
    _blocked_s: float = 0.0

    def start(self) -> None:
        """Accept from now on."""
        asyncio.get_running_loop().add_reader(self.listening, self._accept)

    def close(self) -> None:
        """Accept no more; the socket is the caller's to close."""
        self._pause()
        self._waits_for_place = False
        if self._timer is not None:
            self._timer.cancel()

    def look_for_place(self) -> None:
        """Accept if a place has been waited for. Call this when there may be one."""
        if self._waits_for_place:
            self._waits_for_place = False
            self._resume()

    @property
    def blocked_s(self) -> float:
        """Seconds for which a client had to wait because of the limits."""
        if self._blocked_since is None:
            return self._blocked_s
        return self._blocked_s + asyncio.get_running_loop().time() - self._blocked_since

    # ---- one turn

    def _accept(self) -> None:
        """Accept connections. The event loop calls this while one waits."""
        if self._must_wait():
            return

        # A rate counts what is there: of the others behind the first nobody knows.
        most = 1 if self.quotas.limits_rate(self.listener) else ACCEPTED_PER_TURN
        for _ in range(most):
            is_empty = not self._accept_next()
            if is_empty or not self.quotas.has_place(self.listener):
                break

    def _must_wait(self) -> bool:
        """Return whether the limits forbid to accept now; then, go on as soon as they allow it."""
        if not self._is_counted:
            self._is_counted = True
            wait_ms = self.quotas.count_new(self.listener, self._now_ms())
            if wait_ms:
                self._block()
                self._pause(wait_ms / 1000)
                return True

        if not self.quotas.has_place(self.listener):
            self._waits_for_place = True
            self._block()
            self._pause()
            return True
        return False

    def _accept_next(self) -> bool:
        """Accept a connection; return False if there is none, or none can be accepted."""
        try:
            accepted, address = self.listening.accept()
        except OSError as error:
            # The client is gone that was counted.
            if self._is_counted:
                self.quotas.take_back(self.listener, self._now_ms())
                self._is_counted = False
            return self._bear(error)

        self._is_counted = False
        self.take(accepted, plain_address(address[0]))
        return True

    def _bear(self, error: OSError) -> bool:
        """Return whether to accept the next connection after an error."""
        if isinstance(error, BlockingIOError | InterruptedError):
            return False
        if error.errno in _OF_CONNECTIONS:
            return True

        # The socket stays readable: without a rest the loop would try, and fail, without end.
        logger.error("%s: no connection can be accepted for %s s: %s", self.listener, REST_S, error)
        self._pause(REST_S)
        return False

    # ---- pauses

    def _block(self) -> None:
        """Note that a client waits because of the limits."""
        if self._blocked_since is None:
            self._blocked_since = asyncio.get_running_loop().time()

    def _pause(self, seconds: float | None = None) -> None:
        """Accept nothing for so long, or until `_resume`."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self.listening)
        if seconds is not None:
            self._timer = loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._timer = None
        self._blocked_s = self.blocked_s
        self._blocked_since = None
        self.start()

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)
