"""Accepts connections on the broker's listeners; keeps their number and idleness in bounds."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor
from functools import partial
from typing import Any

import attrs

from broker.lifecycle.process_limits import memory_bytes, open_files_limit
from broker.network.connection import ClientConnection
from broker.network.dispatch import Dispatcher
from broker.network.purgatory import Purgatory
from broker.network.queued_bytes import QueuedBytes, default_queued_bytes
from broker.network.session import PLAINTEXT_SESSION, Session
from broker.network.turns import Turns
from broker.settings.config import BrokerConfig

logger = logging.getLogger(__name__)

BACKLOG = 512
"""Connections that may wait to be accepted."""
ACCEPTED_AT_ONCE = 32
"""Most that are accepted in one turn of the loop."""
DESCRIPTOR_RESERVE = 256
"""Of the files that the process may have open, so many are kept for logs and ZooKeeper (at most a
quarter of all): a log that cannot open a file fails, a client that is refused tries again."""


Bind = Callable[[str, int], socket.socket]
"""Takes (host, port), with "" for every address and 0 for any port. Raises OSError."""


def bound_socket(host: str, port: int) -> socket.socket:
    """The Bind of the system's own network."""
    if host:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    else:
        family, kind, proto, address = socket.AF_INET, socket.SOCK_STREAM, 0, ("0.0.0.0", port)
    bound = socket.socket(family, kind, proto)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # as those accepted then are
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    bound.setblocking(False)
    return bound


@attrs.define(eq=False)
class Listener:
    """The bound ports. Nothing is served before `serve`: a broker registers first.

    `executor` reads what is sent and not in memory. `descriptor_limit` is how many
    files the process may have open. `open_session(listener)` begins the session of a connection.
    """

    config: BrokerConfig
    purgatory: Purgatory
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    take_port: Bind = bound_socket
    executor: Executor | None = None
    descriptor_limit: int = attrs.field(factory=open_files_limit)
    open_session: Callable[[str], Session] = lambda listener: PLAINTEXT_SESSION
    queued: QueuedBytes = attrs.field(init=False)
    connections: set[ClientConnection] = attrs.field(factory=set)
    _per_host: Counter[str] = attrs.field(factory=Counter)
    _limits: dict[str, int] = attrs.field(factory=dict)
    _sockets: dict[str, socket.socket] = attrs.field(factory=dict)
    _servers: list[asyncio.Server] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        limit = self.config.queued_max_request_bytes
        self.queued = QueuedBytes(limit if limit > 0 else default_queued_bytes(memory_bytes()))

    def bind(self) -> dict[str, int]:
        """Take the ports and return them by listener: who connects now is served after `serve()`.

        Raises OSError when one is taken.
        """
        self._limits = _limits(self.config.max_connections_per_ip_overrides)
        for endpoint in self.config.endpoints:
            bound = self._sockets[endpoint.listener] = self.take_port(endpoint.host, endpoint.port)
            _size_buffers(bound, self.config)
            bound.listen(BACKLOG)  # a port that is only bound can be bound by others too
        return {name: bound.getsockname()[1] for name, bound in self._sockets.items()}

    async def serve(
        self,
        dispatcher: Dispatcher,
        is_controller: Callable[[int], bool] = lambda number: False,
    ) -> None:
        """Begin to accept.

        `is_controller(number)` knows the connection of the active controller, which is served
        before the others.
        """
        loop = asyncio.get_running_loop()
        turns = Turns(loop.call_soon, loop.time, is_controller)
        for name, bound in self._sockets.items():
            protocol = partial(self._protocol, name, dispatcher, turns)
            # asyncio's backlog is also how many it accepts, or fails to accept, in one turn
            server = await loop.create_server(protocol, sock=bound, backlog=ACCEPTED_AT_ONCE)
            self._servers.append(server)
            bound.listen(BACKLOG)

    async def close(self) -> None:
        """Stop accepting and close every connection; their requests are forgotten."""
        for server in self._servers:
            server.close()
        for bound in self._sockets.values():
            bound.close()
        for connection in list(self.connections):
            connection.close()
        await asyncio.sleep(0)  # the loop tells each of them in its next turn

    def close_idle(self, now: float) -> None:
        """Close the connections on which nothing has moved for connections.max.idle.ms.

        `now` is the event loop's time in seconds. A connection whose request waits is not idle;
        one whose client does not take its answers is.
        """
        allowed = self.config.connections_max_idle_ms / 1000
        if allowed < 0:
            return
        for connection in list(self.connections):
            if not connection.waits and now - connection.last_active > allowed:
                logger.info("closing the idle connection of %s", connection.name)
                connection.close()

    def share_memory(self) -> None:
        """Called now and then: who has been let on while memory is short, and sends nothing, gives
        way to the next one."""
        self.queued.pass_on()

    def _protocol(self, listener: str, dispatcher: Dispatcher, turns: Turns) -> ClientConnection:
        return ClientConnection(
            dispatcher=dispatcher,
            purgatory=self.purgatory,
            turns=turns,
            queued=self.queued,
            executor=self.executor,
            max_frame_bytes=self.config.socket_request_max_bytes,
            listener=listener,
            session=self.open_session(listener),
            spawn=self.spawn,
            on_open=self._opened,
            on_close=self._closed,
        )

    def _opened(self, connection: ClientConnection) -> bool:
        self.connections.add(connection)
        self._per_host[connection.peer_host] += 1
        of_host = self._per_host[connection.peer_host]
        limit = self._limits.get(connection.peer_host, self.config.max_connections_per_ip)
        if of_host > limit:
            logger.warning("refusing %s: %s connections of its host", connection.name, of_host)
            return False
        if len(self.connections) > self.config.max_connections:
            logger.warning("refusing %s: max.connections is reached", connection.name)
            return False
        reserve = min(DESCRIPTOR_RESERVE, self.descriptor_limit // 4)
        if connection.descriptor >= self.descriptor_limit - reserve:
            logger.warning(
                "refusing %s: %s of %s files are open",
                connection.name,
                connection.descriptor,
                self.descriptor_limit,
            )
            return False
        return True

    def _closed(self, connection: ClientConnection) -> None:
        self.connections.discard(connection)
        self._per_host[connection.peer_host] -= 1
        if not self._per_host[connection.peer_host]:
            del self._per_host[connection.peer_host]


def _limits(overrides: Iterable[str]) -> dict[str, int]:
    """Address → most connections, from `host:number` each. Raises OSError for an unknown host."""
    limits = {}
    for pair in overrides:
        host, _, number = pair.rpartition(":")
        for *_, address in socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM):
            limits[str(address[0])] = int(number)
    return limits


def _size_buffers(bound: socket.socket, config: BrokerConfig) -> None:
    wanted = (
        (socket.SO_SNDBUF, config.socket_send_buffer_bytes),
        (socket.SO_RCVBUF, config.socket_receive_buffer_bytes),
    )
    for option, size in wanted:
        if size > 0:
            with contextlib.suppress(OSError):
                bound.setsockopt(socket.SOL_SOCKET, option, size)
