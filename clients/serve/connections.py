"""Bound the connections of the page: how many there are, and how long a client may take.

uvicorn waits for the end of a request for as long as its sender likes, and for a client to take the
response. A thousand that do so would take all files of the process, and nobody else were served.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from protocol.closed_transport import abort

MAX_CONNECTIONS = 100
"""Most connections at once. A further one takes the place of the one that is silent longest."""
ACCEPTED_AT_ONCE = 32
"""Most connections that are accepted in a turn of the loop."""
REQUEST_S = 10.0
"""Time for a request to come as a whole, from the connection's begin or the last response on."""
RESPONSE_S = 60.0
"""Time for which a client may take nothing of a response that is more than the system buffers."""


class BoundedConnection(H11Protocol):
    """A connection that ends when its client takes too long, or makes room for another one."""

    _timer: asyncio.TimerHandle | None = None
    _waits_since_s = 0.0

    @property
    def is_waiting(self) -> bool:
        """Return whether it is the client's turn."""
        return self._timer is not None

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request. The event loop calls this."""
        others = self.connections - {self}
        super().connection_made(cast(asyncio.Transport, transport))
        self._wait(REQUEST_S)

        # What is silent takes no place from others (fault security-9).
        self._make_room(others)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request. The event loop calls this."""
        super().data_received(data)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection. The event loop calls this once."""
        self._end_wait()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for the client to take what was written. The event loop calls this."""
        super().pause_writing()
        self._wait(RESPONSE_S)

    def resume_writing(self) -> None:
        """Go on: what was written has left. The event loop calls this."""
        super().resume_writing()
        self._end_wait()
        self._look()

    def on_response_complete(self) -> None:
        """Wait for the next request. The last response calls this."""
        super().on_response_complete()
        self._look()

    # ---- whose turn it is

    def _look(self) -> None:
        if self.transport.is_closing() or self.flow.write_paused:
            return
        cycle = self.cycle
        if cycle is not None and not cycle.more_body and not cycle.response_complete:
            self._end_wait()
        elif self._timer is None:
            # Its bytes may come one by one, for as long as somebody likes (fault security-9).
            self._wait(REQUEST_S)

    def _wait(self, seconds: float) -> None:
        self._end_wait()
        self._waits_since_s = self.loop.time()
        self._timer = self.loop.call_later(seconds, self.transport.abort)

    def _end_wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _make_room(self, others: set[Any]) -> None:
        if len(others) < MAX_CONNECTIONS:
            return
        waiting = [other for other in others if other.is_waiting]
        victim = min(waiting, key=lambda other: other._waits_since_s, default=self)
        # It counts until the loop has told it of its end, which others must not wait for.
        self.connections.discard(victim)
        abort(victim.transport)
