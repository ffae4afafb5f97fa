"""Open and close the connections of the broker's listeners, within limits (`connection_quotas`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, Protocol

import attrs

from broker.network.acceptor import Acceptor
from broker.network.addresses import look_up, resolve
from broker.network.connection import ClientConnection
from broker.network.connection_quotas import ConnectionLimits, ConnectionQuotas, ConnectionRefusal
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
from broker.process.process_limits import descriptor_reserve, memory_bytes, open_files_limit
from protocol.port_holder import explain_refusal
from protocol.tls.handshakes import Handshakes
from protocol.tls.transport import TlsTransport
from zk.znodes import Endpoint

logger = logging.getLogger(__name__)

REFUSALS_AGAIN_S = 10.0
"""Time between two lines on connections that are refused for a lack of files."""
LAST_RESPONSES_S = 1.0
"""Time in which the clients of a listener that was shut get their last responses."""
BACKLOG = 512
"""Connections that may wait to be accepted."""
CLOSED_A_TURN = 32
"""Connections that are idle or late and closed in one turn of the loop."""
MAX_DELAYED = 1000
"""Connections of addresses above their quota that are kept, unread, until their time is over."""


Bind = Callable[[str, int], socket.socket]
"""Takes (host, port), with "" for all addresses and 0 for any port. Raises OSError."""


def bind_socket(host: str, port: int) -> socket.socket:
    """Bind a socket of the system's network. This is the `Bind` of a real broker."""
    where = f"{host}:{port}"
    # A host may be a name or an address, of IPv4 or IPv6.
    if host:
        try:
            family, kind, proto, _, address = look_up(host, port, socket.AI_PASSIVE)[0]
        except OSError as error:
            raise OSError(error.errno, error.strerror, where) from None
    else:
        family, kind, proto, address = socket.AF_INET, socket.SOCK_STREAM, 0, ("0.0.0.0", port)

    bound = socket.socket(family, kind, proto)
    try:
        # A broker that restarts gets its port though old connections linger.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # for accepted sockets too
        bound.bind(address)
    except OSError as error:
        bound.close()
        # The system's words have neither the address nor who has it (fault users-18).
        raise OSError(error.errno, explain_refusal(error, port), where) from None
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
    def connection_limits(self) -> ConnectionLimits: ...
    @property
    def quota_window_num(self) -> int: ...
    @property
    def quota_window_size_seconds(self) -> int: ...
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
    that are sent and not in the page cache, and asks for the addresses of hosts.
    `descriptor_limit` is the number of files that the process may have open.
    `open_session(listener)` returns the session of a new connection. `tls` has the listeners that
    speak TLS. `connections` are those that were accepted and are not closed; `delayed` are
    refused ones, and when they are closed, oldest first. `lost(number)` is told each connection
    that is lost.
    """

    config: ListenerConfig
    purgatory: Purgatory
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    open_socket: Bind = bind_socket
    executor: Executor | None = None
    descriptor_limit: int = attrs.field(factory=open_files_limit)
    open_session: Callable[[str], Session] = lambda listener: PLAINTEXT_SESSION
    tls: Mapping[str, ListenerTls] = attrs.field(factory=dict)
    max_delayed: int = MAX_DELAYED
    lost: Callable[[int], None] = lambda number: None
    queued: QueuedBytes = attrs.field(init=False)
    quotas: ConnectionQuotas = attrs.field(init=False)
    connections: set[ClientConnection] = attrs.field(factory=set)
    delayed: dict[socket.socket, asyncio.TimerHandle] = attrs.field(factory=dict)
    _sockets: dict[str, socket.socket] = attrs.field(factory=dict)
    _acceptors: deque[Acceptor] = attrs.field(factory=deque)
    _accept: Callable[[str, socket.socket], None] | None = None
    """Begins to accept at the socket of a listener; None before `serve`."""
    _will_close_excess: bool = False
    _untold_refusals: int = 0
    """Connections refused for a lack of files since the log had its last line of that."""
    tells_again_s: float = 0.0
    """When the log may have the next one, on the loop's clock."""

    def __attrs_post_init__(self) -> None:
        # Kafka's default, -1, is no limit; here it is a share of the memory.
        limit = self.config.queued_max_request_bytes
        self.queued = QueuedBytes(limit if limit > 0 else default_queued_bytes(memory_bytes()))
        self.quotas = ConnectionQuotas(
            self.config.connection_limits,
            self.config.quota_window_num,
            1000 * self.config.quota_window_size_seconds,
        )

    def bind(self, endpoints: Sequence[Endpoint] | None = None) -> dict[str, int]:
        """Bind the ports and return them by listener name. Raises OSError if a port is taken.

        Without `endpoints` they are those of the config. Clients that connect from now on are
        served after `serve()`.
        """
        self.quotas.of_addresses = _limits_of_addresses(self.config.connection_limits.overrides)
        for endpoint in self.config.endpoints if endpoints is None else endpoints:
            self.listen(endpoint.listener, self.open_socket(endpoint.host, endpoint.port))
        return self.ports

    @property
    def ports(self) -> dict[str, int]:
        """The bound ports by listener name."""
        return {name: bound.getsockname()[1] for name, bound in self._sockets.items()}

    def listen(self, name: str, bound: socket.socket) -> int:
        """Listen on a bound socket for a listener, and return its port. Raises OSError.

        Clients are served at once if those of the other listeners are.
        """
        try:
            # Before `listen`: accepted sockets take over the sizes.
            _size_buffers(bound, self.config)
            # Listen now, because a port that is only bound can be bound by other processes too.
            bound.listen(BACKLOG)
        except OSError:
            bound.close()
            raise

        self._sockets[name] = bound
        if self._accept is not None:
            self._accept(name, bound)
        return int(bound.getsockname()[1])

    def shut(self, name: str) -> None:
        """Close the port of a listener, and all its connections soon after."""
        self.release(name)
        connections = [one for one in self.connections if one.listener == name]

        def close_them() -> None:
            for connection in connections:
                connection.close()

        # Who has it shut may have asked by it (fault strangers-142, was: 0).
        delay_s = LAST_RESPONSES_S
        asyncio.get_running_loop().call_later(delay_s, close_them)

    def release(self, name: str) -> None:
        """Close the port of a listener, and none of its connections."""
        bound = self._sockets.pop(name)
        for acceptor in [one for one in self._acceptors if one.listener == name]:
            acceptor.close()
            self._acceptors.remove(acceptor)
        bound.close()

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

        def accept(name: str, bound: socket.socket) -> None:
            take = partial(self._take, name, dispatcher, turns, handshakes)
            acceptor = Acceptor(name, bound, self.quotas, take)
            self._acceptors.append(acceptor)
            acceptor.start()

        self._accept = accept
        for name, bound in self._sockets.items():
            accept(name, bound)

    async def close(self) -> None:
        """Stop accepting, and close every connection. Parked requests get no response."""
        for name in list(self._sockets):
            self.release(name)
        for delayed in list(self.delayed):
            self._close_delayed(delayed)

        await asyncio.sleep(0)  # those just accepted have their transports in the next turn
        for connection in list(self.connections):
            connection.close()
        await asyncio.sleep(0)  # the loop calls `connection_lost` in its next turn

    def update_limits(self, limits: ConnectionLimits) -> None:
        """Put changed limits of connections into effect."""
        before = self.quotas.limits
        self.quotas.set_limits(limits)
        if limits.overrides != before.overrides:
            self.spawn(self._update_overrides(limits.overrides))
        self._close_excess()
        self._look_for_places()

    def close_idle(self, now: float) -> None:
        """Close the connections on which no bytes have moved for connections.max.idle.ms.

        `now` is the event loop's time in seconds. A connection with a parked request is not idle. A
        connection whose client does not read its responses is idle.
        """
        max_idle_s = self.config.connections_max_idle_ms / 1000
        if max_idle_s < 0:
            return

        def end_idle(connection: ClientConnection) -> bool:
            if connection.is_waiting or now - connection.last_active <= max_idle_s:
                return False
            logger.info("%s: idle connection closed (connections.max.idle.ms)", connection.name)
            connection.close()
            return True

        self._close_in_turns(iter(list(self.connections)), end_idle)

    def close_late(self, now: float) -> None:
        """Close the connections of clients that are too late with a frame or with their login.

        `now` is the event loop's time in seconds. Call it from time to time.
        """

        def end_late(connection: ClientConnection) -> bool:
            reason = connection.lateness(now)
            if reason is None:
                return False
            # Without an end the memory of a frame would be taken for good (fault security-2).
            logger.info("%s: connection closed: %s", connection.name, reason)
            connection.close()
            return True

        self._close_in_turns(iter(list(self.connections)), end_late)

    def _close_in_turns(
        self, left: Iterator[ClientConnection], end: Callable[[ClientConnection], bool]
    ) -> None:
        """Call `end` for each that is left; it returns whether it has closed the connection."""
        closed = 0
        for connection in left:
            if connection in self.connections and end(connection):
                closed += 1
            # Many may have come together, and be late together.
            if closed == CLOSED_A_TURN:
                asyncio.get_running_loop().call_soon(self._close_in_turns, left, end)
                return

    def blocked_s(self) -> dict[str, float]:
        """Return for how many seconds clients had to wait because of limits, by listener."""
        return {acceptor.listener: acceptor.blocked_s for acceptor in self._acceptors}

    def rotate_readers(self) -> None:
        """Give the next connection its turn to be read while memory is short.

        Call it from time to time (`QueuedBytes.rotate`, `ClientConnection.unclog`).
        """
        self.queued.rotate()
        for connection in self.connections:
            connection.unclog()

    # ---- new connections

    def _take(
        self,
        listener: str,
        dispatcher: Dispatch,
        turns: Turns,
        handshakes: Handshakes,
        accepted: socket.socket,
        address: str,
    ) -> None:
        """Open a connection that was accepted, or refuse it."""
        # The lowest free number: at least so many files are open.
        descriptor = accepted.fileno()
        reserve = descriptor_reserve(self.descriptor_limit)
        if descriptor >= self.descriptor_limit - reserve:
            self._tell_of_files(listener, address, descriptor)
            accepted.close()
            return

        now_ms = int(asyncio.get_running_loop().time() * 1000)
        refusal = self.quotas.admit(listener, address, now_ms)
        if refusal is not None:
            self._refuse(accepted, refusal)
            return

        on_close = partial(self._remove, address)
        connection = self._new_connection(listener, dispatcher, turns, on_close)
        protocol: asyncio.Protocol = connection
        if listener in self.tls:
            protocol = _encrypt(connection, self.tls[listener], handshakes)
        self.connections.add(connection)
        self._make_transport(connection, protocol, accepted)

        # A broker has come although there was no place.
        if self.quotas.excess and not self._will_close_excess:
            self._will_close_excess = True
            asyncio.get_running_loop().call_soon(self._close_excess)

    def _new_connection(
        self,
        listener: str,
        dispatcher: Dispatch,
        turns: Turns,
        on_close: Callable[[ClientConnection], None],
    ) -> ClientConnection:
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
            on_close=on_close,
        )

    def _make_transport(
        self, connection: ClientConnection, protocol: asyncio.Protocol, accepted: socket.socket
    ) -> None:
        """Give a connection its transport, which calls `connection_made` in the loop's next turn.

        `connect_accepted_socket` would do so too, with a task for each connection, and a seventh
        more of the processor's time.
        """
        loop: Any = asyncio.get_running_loop()
        accepted.setblocking(False)
        try:
            loop._make_socket_transport(accepted, protocol)
        except OSError as error:
            # The client is gone, and there is nothing that would call `connection_lost`.
            logger.info("%s: connection closed: %s", connection.listener, error)
            accepted.close()
            connection.on_close(connection)

    def _remove(self, address: str, connection: ClientConnection) -> None:
        self.connections.discard(connection)
        self.quotas.remove(connection.listener, address)
        self.lost(connection.number)
        self._look_for_places()

    def _look_for_places(self) -> None:
        # The first one gets the place: each listener is the first in turn.
        self._acceptors.rotate()
        for acceptor in self._acceptors:
            acceptor.look_for_place()

    # ---- those that must go

    def _tell_of_files(self, listener: str, address: str, descriptor: int) -> None:
        """Log that a connection was refused for a lack of files, and how many others were."""
        now_s = asyncio.get_running_loop().time()
        # Clients try again at once, and each try would be a line.
        if now_s < self.tells_again_s:
            self._untold_refusals += 1
            return

        others = f", and {self._untold_refusals} others before" if self._untold_refusals else ""
        self._untold_refusals, self.tells_again_s = 0, now_s + REFUSALS_AGAIN_S
        logger.warning(
            "%s: connection of %s refused%s: %s of %s files are open; the rest is for logs: raise "
            "the limit (ulimit -n)",
            listener,
            address,
            others,
            descriptor,
            self.descriptor_limit,
        )

    def _refuse(self, accepted: socket.socket, refusal: ConnectionRefusal) -> None:
        """Close a connection that is not counted, now or later. It is never read."""
        if not refusal.delay_ms:
            logger.info("%s", refusal.reason)
            accepted.close()
            return

        logger.debug("%s", refusal.reason)
        loop = asyncio.get_running_loop()
        self.delayed[accepted] = loop.call_later(
            refusal.delay_ms / 1000, self._close_delayed, accepted
        )
        if len(self.delayed) > self.max_delayed:
            self._close_delayed(next(iter(self.delayed)))

    def _close_delayed(self, accepted: socket.socket) -> None:
        self.delayed.pop(accepted).cancel()
        accepted.close()

    def _close_excess(self) -> None:
        """Close connections beyond max.connections, those that were silent longest."""
        self._will_close_excess = False
        excess = self.quotas.excess
        if not excess:
            return

        def silence(connection: ClientConnection) -> tuple[bool, float]:
            # Those that are closing already come first: they make room.
            return not connection.is_closing, connection.last_active

        protected = self.quotas.limits.protected
        candidates = [one for one in self.connections if one.listener not in protected]
        for connection in sorted(candidates, key=silence)[:excess]:
            if not connection.is_closing:
                logger.info("%s: closed to make room (max.connections)", connection.name)
            connection.close()

    # ---- changed overrides

    async def _update_overrides(self, overrides: Sequence[str]) -> None:
        """Put changed limits of hosts into effect, when their addresses are known."""
        loop = asyncio.get_running_loop()
        find = partial(_limits_of_addresses, overrides)
        try:
            of_addresses = await loop.run_in_executor(self.executor, find)
        except OSError as error:
            logger.error("the limits stay as they were: %s", error)
            return
        # They may have changed again meanwhile.
        if self.quotas.limits.overrides == overrides:
            self.quotas.of_addresses = of_addresses


def _encrypt(
    connection: ClientConnection, tls: ListenerTls, handshakes: Handshakes
) -> TlsTransport:
    """Return the protocol of a connection with TLS under it."""

    def identify(secured: ssl.SSLObject) -> None:
        if tls.names_users:
            connection.open_session(PlaintextSession(principal=tls.principal_of(secured)))

    return TlsTransport(tls.context, connection, identify, handshakes=handshakes)


def _limits_of_addresses(overrides: Iterable[str]) -> dict[str, int]:
    """Map addresses to their limits, from items `host:number`. Raises OSError for unknown hosts."""
    limits: dict[str, int] = {}
    for pair in overrides:
        # From the right: an IPv6 address has colons too, and may be in brackets.
        host, _, number = pair.rpartition(":")
        try:
            addresses = resolve(host)
        except OSError as error:
            raise OSError(f"max.connections.per.ip.overrides: {host}: {error}") from error
        limits |= dict.fromkeys(addresses, int(number))
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
