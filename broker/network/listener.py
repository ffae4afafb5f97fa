"""Accept connections on the broker's listeners, and bound their number and their idle time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import Any, Protocol

import attrs

from broker.network.connection import ClientConnection
from broker.network.dispatch import Dispatch
from broker.network.listener_tls import ListenerTls
from broker.network.purgatory import Purgatory
from broker.network.queued_bytes import QueuedBytes, default_queued_bytes
from broker.network.response_parts import (
    ENCRYPTED_PIECE_BYTES,
    SENDFILE_MAX_BYTES,
    send_by_reading,
    send_by_sendfile,
)
from broker.network.session import PLAINTEXT_SESSION, PlaintextSession, Session
from broker.network.turns import Turns
from broker.process.process_limits import memory_bytes, open_files_limit
from protocol.tls.handshakes import Handshakes
from protocol.tls.transport import TlsTransport
from zk.znodes import Endpoint

logger = logging.getLogger(__name__)

BACKLOG = 512
"""Connections that may wait to be accepted."""
ACCEPTED_PER_TURN = 32
"""Most connections that are accepted in one turn of the loop."""
DESCRIPTOR_RESERVE = 256
"""File descriptors that are kept for logs and ZooKeeper, but at most a quarter of all that the
process may have open. A log that cannot open a file fails; a client that is refused tries again."""


Bind = Callable[[str, int], socket.socket]
"""Takes (host, port), with "" for all addresses and 0 for any port. Raises OSError."""


def bind_socket(host: str, port: int) -> socket.socket:
    """Bind a socket of the system's network. This is the `Bind` of a real broker."""
    # A host may be a name or an address, of IPv4 or IPv6.
    if host:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    else:
        family, kind, proto, address = socket.AF_INET, socket.SOCK_STREAM, 0, ("0.0.0.0", port)

    bound = socket.socket(family, kind, proto)
    try:
        # A broker that restarts gets its port though old connections linger.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # for accepted sockets too
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    bound.setblocking(False)
    return bound


class ListenerConfig(Protocol):
    """The settings of a broker's connections (`BrokerConfig`)."""

    @property
    def endpoints(self) -> tuple[Endpoint, ...]: ...
    @property
    def control_plane_listener(self) -> str | None: ...
    @property
    def connections_max_idle_ms(self) -> int: ...
    @property
    def max_connections(self) -> int: ...
    @property
    def max_connections_per_ip(self) -> int: ...
    @property
    def max_connections_per_ip_overrides(self) -> tuple[str, ...]: ...
    @property
    def queued_max_request_bytes(self) -> int: ...
    @property
    def socket_receive_buffer_bytes(self) -> int: ...
    @property
    def socket_request_max_bytes(self) -> int: ...
    @property
    def socket_send_buffer_bytes(self) -> int: ...


@attrs.define(eq=False)
class Listener:
    """The bound ports and their connections.

    Nothing is served before `serve`, because a broker registers in between. `executor` reads bytes
    that are sent and not in the page cache. `descriptor_limit` is the number of files that the
    process may have open. `open_session(listener)` returns the session of a new connection. `tls`
    has the listeners that speak TLS.
    """

    config: ListenerConfig
    purgatory: Purgatory
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    open_socket: Bind = bind_socket
    executor: Executor | None = None
    descriptor_limit: int = attrs.field(factory=open_files_limit)
    open_session: Callable[[str], Session] = lambda listener: PLAINTEXT_SESSION
    tls: Mapping[str, ListenerTls] = attrs.field(factory=dict)
    queued: QueuedBytes = attrs.field(init=False)
    connections: set[ClientConnection] = attrs.field(factory=set)
    _per_host: Counter[str] = attrs.field(factory=Counter)
    _limits: dict[str, int] = attrs.field(factory=dict)
    _sockets: dict[str, socket.socket] = attrs.field(factory=dict)
    _servers: list[asyncio.Server] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        # Kafka's default, -1, is no limit; here it is a share of the memory.
        limit = self.config.queued_max_request_bytes
        self.queued = QueuedBytes(limit if limit > 0 else default_queued_bytes(memory_bytes()))

    def bind(self) -> dict[str, int]:
        """Bind the ports and return them by listener name. Raises OSError if a port is taken.

        Clients that connect from now on are served after `serve()`.
        """
        self._limits = _parse_limits(self.config.max_connections_per_ip_overrides)
        for endpoint in self.config.endpoints:
            bound = self.open_socket(endpoint.host, endpoint.port)
            self._sockets[endpoint.listener] = bound
            # Before `listen`: accepted sockets take over the sizes.
            _size_buffers(bound, self.config)
            # Listen now, because a port that is only bound can be bound by other processes too.
            bound.listen(BACKLOG)

        return {name: bound.getsockname()[1] for name, bound in self._sockets.items()}

    async def serve(
        self,
        dispatcher: Dispatch,
        is_controller: Callable[[int], bool] = lambda number: False,
    ) -> None:
        """Start to accept connections.

        `is_controller(number)` is true for the connection of the active controller, which is served
        before the others.
        """
        loop = asyncio.get_running_loop()
        turns = Turns(loop.call_soon, loop.time, is_controller)
        handshakes = Handshakes(loop.call_soon, loop.time)

        for name, bound in self._sockets.items():
            protocol: Callable[[], asyncio.Protocol]
            protocol = open_connection = partial(self._protocol, name, dispatcher, turns)
            if name in self.tls:
                protocol = partial(_encrypt, open_connection, self.tls[name], handshakes)
            # asyncio also tries to accept as many connections in one turn as its backlog says.
            server = await loop.create_server(protocol, sock=bound, backlog=ACCEPTED_PER_TURN)
            self._servers.append(server)
            # `create_server` has set the system's backlog to the smaller number.
            bound.listen(BACKLOG)

    async def close(self) -> None:
        """Stop accepting, and close every connection. Parked requests get no response."""
        for server in self._servers:
            server.close()
        for bound in self._sockets.values():
            bound.close()
        for connection in list(self.connections):
            connection.close()
        await asyncio.sleep(0)  # the loop calls `connection_lost` in its next turn

    def close_idle(self, now: float) -> None:
        """Close the connections on which no bytes have moved for connections.max.idle.ms.

        `now` is the event loop's time in seconds. A connection with a parked request is not idle. A
        connection whose client does not read its responses is idle.
        """
        max_idle_s = self.config.connections_max_idle_ms / 1000
        if max_idle_s < 0:
            return

        for connection in list(self.connections):
            if not connection.is_waiting and now - connection.last_active > max_idle_s:
                logger.info("%s: idle connection closed (connections.max.idle.ms)", connection.name)
                connection.close()

    def rotate_readers(self) -> None:
        """Give the next connection its turn to be read while memory is short.

        Call it from time to time (`QueuedBytes.rotate`).
        """
        self.queued.rotate()

    def _protocol(self, listener: str, dispatcher: Dispatch, turns: Turns) -> ClientConnection:
        is_tls = listener in self.tls
        is_control_plane = listener == self.config.control_plane_listener
        return ClientConnection(
            dispatcher=dispatcher,
            purgatory=self.purgatory,
            turns=turns,
            queued=self.queued,
            executor=self.executor,
            max_frame_bytes=self.config.socket_request_max_bytes,
            listener=listener,
            session=self.open_session(listener),
            is_control_plane=is_control_plane,
            is_brokers=is_control_plane,
            send_range=send_by_reading if is_tls else send_by_sendfile,
            piece_bytes=ENCRYPTED_PIECE_BYTES if is_tls else SENDFILE_MAX_BYTES,
            spawn=self.spawn,
            on_open=self._admit,
            on_close=self._remove,
        )

    def _admit(self, connection: ClientConnection) -> bool:
        """Add a connection; return False if a limit is exceeded, and it must be closed."""
        self.connections.add(connection)
        self._per_host[connection.peer_host] += 1

        # Connections of its host.
        count = self._per_host[connection.peer_host]
        limit = self._limits.get(connection.peer_host, self.config.max_connections_per_ip)
        if count > limit:
            logger.warning("%s: refused: %s connections of its host", connection.name, count)
            return False

        # Connections of all hosts.
        if len(self.connections) > self.config.max_connections:
            logger.warning("%s: refused: max.connections is reached", connection.name)
            return False

        # Files that the process has open.
        reserve = min(DESCRIPTOR_RESERVE, self.descriptor_limit // 4)
        if connection.descriptor >= self.descriptor_limit - reserve:
            logger.warning(
                "%s: refused: %s of %s files are open",
                connection.name,
                connection.descriptor,
                self.descriptor_limit,
            )
            return False

        return True

    def _remove(self, connection: ClientConnection) -> None:
        self.connections.discard(connection)
        self._per_host[connection.peer_host] -= 1
        if not self._per_host[connection.peer_host]:
            del self._per_host[connection.peer_host]


def _encrypt(
    open_connection: Callable[[], ClientConnection], tls: ListenerTls, handshakes: Handshakes
) -> TlsTransport:
    """Return a new connection with TLS under it."""
    connection = open_connection()

    def identify(secured: ssl.SSLObject) -> None:
        if tls.names_users:
            connection.open_session(PlaintextSession(principal=tls.principal_of(secured)))

    return TlsTransport(tls.context, connection, identify, handshakes=handshakes)


def _parse_limits(overrides: Iterable[str]) -> dict[str, int]:
    """Map addresses to their limits, from items `host:number`. Raises OSError for unknown hosts."""
    limits = {}
    for pair in overrides:
        # From the right: an IPv6 address has colons too, and may be in brackets.
        host, _, number = pair.rpartition(":")
        for *_, address in socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM):
            limits[str(address[0])] = int(number)
    return limits


def _size_buffers(bound: socket.socket, config: ListenerConfig) -> None:
    """Set the buffer sizes of a socket as far as the system allows; -1 keeps the system's."""
    sizes = (
        (socket.SO_SNDBUF, config.socket_send_buffer_bytes),
        (socket.SO_RCVBUF, config.socket_receive_buffer_bytes),
    )
    for option, size in sizes:
        if size > 0:
            with contextlib.suppress(OSError):
                bound.setsockopt(socket.SOL_SOCKET, option, size)
