"""Accepts connections on one listener and keeps their number and idleness within bounds."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import attrs

from broker.config import BrokerConfig
from broker.connection import ClientConnection
from broker.dispatch import Dispatcher
from broker.purgatory import Purgatory

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class Listener:
    """A bound port. Nothing is served before `serve()`: a broker registers first."""

    config: BrokerConfig
    dispatcher: Dispatcher
    purgatory: Purgatory
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    connections: set[ClientConnection] = attrs.field(factory=set)
    _per_host: Counter[str] = attrs.field(factory=Counter)
    _sockets: list[socket.socket] = attrs.field(factory=list)
    _servers: list[asyncio.Server] = attrs.field(factory=list)

    def bind(self) -> int:
        """Bind the port and return it; raises OSError when it is taken."""
        endpoint = self.config.endpoint
        self._sockets = [_bound_socket(endpoint.host, endpoint.port)]
        for bound in self._sockets:
            _size_buffers(bound, self.config)
        port: int = self._sockets[0].getsockname()[1]
        return port

    async def serve(self) -> None:
        """Begin to accept."""
        loop = asyncio.get_running_loop()
        for bound in self._sockets:
            self._servers.append(await loop.create_server(self._protocol, sock=bound, backlog=512))

    async def close(self) -> None:
        """Stop accepting and close every connection."""
        for server in self._servers:
            server.close()
        for bound in self._sockets:
            bound.close()
        for connection in list(self.connections):
            connection.close()

    def close_idle(self, now: float) -> None:
        """Close the connections on which nothing has moved for connections.max.idle.ms.

        `now` is the event loop's time in seconds. A connection whose request waits is not idle.
        """
        allowed = self.config.connections_max_idle_ms / 1000
        if allowed < 0:
            return
        for connection in list(self.connections):
            if connection.idle and now - connection.last_active > allowed:
                logger.info("closing the idle connection of %s", connection.name)
                connection.close()

    def _protocol(self) -> ClientConnection:
        return ClientConnection(
            dispatcher=self.dispatcher,
            purgatory=self.purgatory,
            max_frame_bytes=self.config.socket_request_max_bytes,
            listener=self.config.endpoint.listener,
            spawn=self.spawn,
            on_open=self._opened,
            on_close=self._closed,
        )

    def _opened(self, connection: ClientConnection) -> bool:
        self.connections.add(connection)
        self._per_host[connection.peer_host] += 1
        of_host = self._per_host[connection.peer_host]
        if of_host > self._allowed(connection.peer_host):
            logger.warning("refusing %s: %s connections of its host", connection.name, of_host)
            return False
        if len(self.connections) > self.config.max_connections:
            logger.warning("refusing %s: max.connections is reached", connection.name)
            return False
        return True

    def _closed(self, connection: ClientConnection) -> None:
        self.connections.discard(connection)
        self._per_host[connection.peer_host] -= 1
        if not self._per_host[connection.peer_host]:
            del self._per_host[connection.peer_host]

    def _allowed(self, host: str) -> int:
        for pair in self.config.max_connections_per_ip_overrides:
            name, _, number = pair.rpartition(":")
            if name == host:
                return int(number)
        return self.config.max_connections_per_ip


def _bound_socket(host: str, port: int) -> socket.socket:
    if host:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    else:
        family, kind, proto, address = socket.AF_INET, socket.SOCK_STREAM, 0, ("0.0.0.0", port)
    bound = socket.socket(family, kind, proto)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    bound.setblocking(False)
    return bound


def _size_buffers(bound: socket.socket, config: BrokerConfig) -> None:
    wanted = (
        (socket.SO_SNDBUF, config.socket_send_buffer_bytes),
        (socket.SO_RCVBUF, config.socket_receive_buffer_bytes),
    )
    for option, size in wanted:
        if size > 0:
            with contextlib.suppress(OSError):
                bound.setsockopt(socket.SOL_SOCKET, option, size)
