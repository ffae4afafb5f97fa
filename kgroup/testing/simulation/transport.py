"""The ends of a connection in memory, as asyncio's transports.

What one end writes arrives at the other in order, each chunk after a latency. Where the path is cut
it is kept, as TCP keeps it, and leaves when the path is mended; or the connection breaks at its
sender when nothing was acknowledged for too long, and its receiver hears nothing of that. An end
that is told to keep alive asks now and then whether the other one is there. An end can be stalled
for a while. A killed process's ends end as its system ends them; a machine without
power says nothing at all.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kgroup.testing.simulation.network import Network
    from kgroup.testing.simulation.world import Process

GIVE_UP_S = (6.0, 18.0)  # an unacknowledged connection
BUFFER_BYTES = 128 * 1024  # under way in one direction before its writer is told to pause
CHUNK_BYTES = 64 * 1024
SPLIT = 0.02  # chance that what was written arrives in two pieces

KEEP_ALIVE_PROBES = 3
"""So many in a row without an answer, and a connection is given up."""

FIN, RST = "fin", "rst"


KEEP_IDLE = socket.IPPROTO_TCP, socket.TCP_KEEPIDLE


class SimSocket:
    """The part of a socket that the product uses: a name and options; to listen and accept.

    One of a connection has its `transport`.
    """

    def __init__(
        self,
        network: Network,
        process: Process,
        address: tuple[str, int],
        transport: Transport | None = None,
    ) -> None:
        self._network, self.process, self.address = network, process, address
        self.transport = transport
        self._waiting: deque[Transport] = deque()
        self._on_waiting: Callable[[], Any] | None = None
        self._is_called = False

    def setsockopt(self, level: int, option: int, value: int) -> None:
        if self.transport is not None and (level, option) == KEEP_IDLE:
            self.transport.keep_alive(value)

    def setblocking(self, flag: bool) -> None: ...

    def getsockname(self) -> tuple[str, int]:
        return self.address

    def fileno(self) -> int:
        return -1  # the system has no such socket

    def listen(self, backlog: int) -> None:
        self._network.listen(self)

    def arrive(self, transport: Transport) -> None:
        """Let a connection wait to be accepted."""
        self._waiting.append(transport)
        self._call_soon()

    def accept(self) -> tuple[SimSocket, tuple[str, int]]:
        """Return the connection that waits longest. Raises BlockingIOError if none does."""
        while self._waiting:
            transport = self._waiting.popleft()
            if not transport.ended:
                accepted = SimSocket(self._network, self.process, self.address, transport)
                return accepted, transport.get_extra_info("peername")
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    def watch(self, callback: Callable[[], Any]) -> None:
        """Call `callback` in each turn of the loop in which a connection waits."""
        self._on_waiting = callback
        self._call_soon()

    def unwatch(self) -> bool:
        """Call it no more; return whether it was called."""
        was_watched = self._on_waiting is not None
        self._on_waiting = None
        return was_watched

    def _call_soon(self) -> None:
        if self._waiting and self._on_waiting is not None and not self._is_called:
            self._is_called = True
            self.process.loop.call_soon(self._call)

    def _call(self) -> None:
        self._is_called = False
        if self._waiting and self._on_waiting is not None:
            self._on_waiting()
        self._call_soon()

    def close(self) -> None:
        """Take no more connections, or end this one."""
        if self.transport is not None:
            self.transport.close()
        self._network.forget(self)


class Transport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self, network: Network, process: Process, here: tuple[str, int], there: tuple[str, int]
    ) -> None:
        super().__init__()
        self._network = network
        self.process = process
        self.peer: Transport
        self.ended = False  # for the process: no call of its protocol comes any more
        self.has_said_so = False  # to the peer, which hears it sooner or later
        self.stalled_until = 0.0
        self._here, self._there = here, there
        self._protocol: Any = None
        self._closing = False
        self._received: deque[bytes | str] = deque()
        self._reading = True
        self._under_way = 0
        self._blocked = False
        self._arrives_at = 0.0
        self._held: list[bytes | str] = []
        self._gives_up: asyncio.TimerHandle | None = None

    # ---- asyncio.Transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        known = {
            "peername": self._there,
            "sockname": self._here,
            "socket": SimSocket(self._network, self.process, self._here, self),
        }
        return known.get(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        found: asyncio.BaseProtocol = self._protocol
        return found

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        if self._received:
            self.process.loop.call_soon(self._deliver)

    def write(self, data: Any) -> None:
        if self._closing or not data:
            return
        data = bytes(data)
        self._network.on_write(self, data)
        self._send(data)
        if self._under_way > BUFFER_BYTES and not self._blocked:
            self._blocked = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: bytes in flight count here, where a system's own buffer would take them."""

    def get_write_buffer_size(self) -> int:
        return self._under_way

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        self._end(FIN, None)

    def abort(self) -> None:
        self._end(FIN, None)

    # ---- sending

    def _send(self, part: bytes | str) -> None:
        if isinstance(part, bytes):
            self._under_way += len(part)
        if self._network.is_cut(self.process.host, self.peer.process.host):
            self._hold(part)
        else:
            self._fly(part)

    def _hold(self, part: bytes | str) -> None:
        self._held.append(part)
        if self._gives_up is None:
            nature, rng = self._network.world.nature, self._network.world.rng
            self._gives_up = nature.loop.call_later(rng.uniform(*GIVE_UP_S), self.broken)

    def _fly(self, part: bytes | str) -> None:
        world = self._network.world
        arrives = max(world.now, self.stalled_until) + self._network.latency_s()
        self._arrives_at = max(self._arrives_at, arrives)
        if not self.peer.process.alive:  # whoever has its host's address now knows nothing of us
            self.process.loop.call_at(self._arrives_at, self.arrive, RST)
            return
        pieces = self._pieces(part) if isinstance(part, bytes) else [part]
        for piece in pieces:
            self.peer.process.loop.call_at(self._arrives_at, self.peer.arrive, piece)

    def _pieces(self, part: bytes) -> Iterator[bytes]:
        first = CHUNK_BYTES
        rng = self._network.world.rng
        if len(part) > 1 and rng.random() < SPLIT:
            first = rng.randrange(1, len(part))
        yield part[:first]
        for start in range(first, len(part), CHUNK_BYTES):
            yield part[start : start + CHUNK_BYTES]

    def mended(self) -> None:
        """The path to the peer is there again: what was kept leaves."""
        if self._gives_up is not None:
            self._gives_up.cancel()
            self._gives_up = None
        held, self._held = self._held, []
        for part in held:
            self._fly(part)

    def broken(self) -> None:
        """Nothing was acknowledged for too long: this end is lost, the other one knows nothing."""
        self._gives_up = None
        self._held.clear()
        self._lost_soon(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))

    def keep_alive(self, every_s: float, unanswered: int = 0) -> None:
        """Ask the peer's system, so often, whether it still knows the connection."""
        loop = self._network.world.nature.loop
        loop.call_later(every_s, self._probe, every_s, unanswered)

    def _probe(self, every_s: float, unanswered: int) -> None:
        if self.ended:
            return
        if self._network.is_cut(self.process.host, self.peer.process.host):
            unanswered += 1
        elif self.peer.ended and not self.peer.has_said_so:
            self.process.loop.call_soon(self.arrive, RST)
            return
        else:
            unanswered = 0

        if unanswered == KEEP_ALIVE_PROBES:
            self.broken()
        else:
            self.keep_alive(every_s, unanswered)

    # ---- receiving, on the process's loop

    def opened(self, protocol: Any) -> None:
        """Be an end with this protocol."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._deliver()

    def arrive(self, part: bytes | str) -> None:
        """A chunk, or the end, has come."""
        if self.ended:
            if isinstance(part, bytes) and not self.peer.ended:
                self._answer_rst()
            return
        self._received.append(part)
        if self._protocol is not None:
            self._deliver()

    def _deliver(self) -> None:
        while self._received and self._reading and not self.ended:
            part = self._received.popleft()
            if isinstance(part, bytes):
                self._receive(part)
                self.peer.taken(len(part))
            elif part == FIN:
                if not self._protocol.eof_received():
                    self._end(FIN, None)
            else:
                self._end(None, ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def _receive(self, data: bytes) -> None:
        view = memoryview(data)
        while view and not self.ended:
            if isinstance(self._protocol, asyncio.BufferedProtocol):
                room = memoryview(self._protocol.get_buffer(len(view)))
                size = min(len(room), len(view))
                room[:size] = view[:size]
                self._protocol.buffer_updated(size)
                view = view[size:]
            else:
                self._protocol.data_received(bytes(view))
                view = view[len(view) :]

    def taken(self, size: int) -> None:
        """The peer has read so much."""
        self._under_way -= size
        if self._blocked and self._under_way < BUFFER_BYTES // 4 and not self.ended:
            self._blocked = False
            self.process.loop.call_soon(self._resume_writing)

    def _resume_writing(self) -> None:
        if not self.ended and not self._closing:
            self._protocol.resume_writing()

    # ---- the end

    def _end(self, part: str | None, error: Exception | None) -> None:
        if self._closing:
            return
        self._closing = True
        if part is not None:
            self.has_said_so = True
            self._send(part)
        self._lost_soon(error)

    def _lost_soon(self, error: Exception | None) -> None:
        if self.ended:
            return
        self.ended = self._closing = True
        self._network.closed(self)
        if self._protocol is not None:
            self.process.loop.call_soon(self._protocol.connection_lost, error)

    def _answer_rst(self) -> None:
        world = self._network.world
        if not self._network.is_cut(self.process.host, self.peer.process.host):
            at = world.now + self._network.latency_s()
            self.peer.process.loop.call_at(at, self.peer.arrive, RST)

    def reset(self, *, loses: bool) -> None:
        """End this side as a network device does; what is under way to it may be lost."""
        if loses:
            self._received.clear()
        self._lost_soon(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def dead(self, *, silent: bool) -> None:
        """The process is gone; its system says so, unless the machine is gone too."""
        if not silent and not self._closing:
            self._closing = True
            self._send(RST)
        self.ended = self._closing = True
        self._network.closed(self)
