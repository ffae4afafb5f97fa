"""A network in memory: who listens where, and what can happen to the paths between hosts.

Each chunk takes a latency drawn from the seed; connections (`transport`) know nothing of each
other's order. A path between two hosts can be cut, one way or both, and a host can be without
power.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kgroup.testing.simulation.transport import SimSocket, Transport

if TYPE_CHECKING:
    from kgroup.testing.simulation.world import Process, World

LATENCY_S = (0.0001, 0.002)
SLOWNESS = (1, 1, 5, 20)  # times the latency, in the whole story
RETRANSMIT_S = (0.01, 1.5)  # after a path is mended
NAME_PREFIX = "name-"  # of names in `Network.names`


class Network:
    """The listeners, the connections, and the paths that are cut."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._slowness = world.rng.choice(SLOWNESS)
        self.off: set[str] = set()  # hosts without power
        self.connections: dict[Transport, None] = {}  # ends that are open
        self._listening: dict[tuple[str, int], SimSocket] = {}
        self._cut: set[tuple[str, str]] = set()
        self.names: dict[str, str] = {}
        """Names for hosts beside their own; one that is removed is known no more."""
        self._last_port = 30_000
        self.on_write: Callable[[Transport, bytes], None] = lambda transport, data: None
        """Called with what an end is about to send."""

    def latency_s(self) -> float:
        """Return how long a chunk is in flight."""
        return self.world.rng.uniform(*LATENCY_S) * self._slowness

    # ---- for the product

    def bind_of(self, process: Process) -> Callable[[str, int], Any]:
        """The broker's `Bind`."""

        def bind(host: str, port: int) -> SimSocket:
            if (process.host, port) in self._listening:
                raise OSError(errno.EADDRINUSE, "Address already in use")
            return SimSocket(self, process, (process.host, port))

        return bind

    def listen(self, socket: SimSocket) -> None:
        """Let clients connect."""
        self._listening[socket.address] = socket

    def forget(self, socket: SimSocket) -> None:
        """Let clients be refused."""
        if self._listening.get(socket.address) is socket:
            del self._listening[socket.address]

    async def connect(
        self, process: Process, factory: Callable[[], Any], host: str, port: int
    ) -> tuple[Transport, Any]:
        """Connect; waits for ever where nobody answers. Raises OSError when refused."""
        loop, world = process.loop, self.world
        host = self._resolve(host)
        # The SYN is sent again and again, as TCP does: no event tells it that the path is mended.
        while self.is_cut(process.host, host) or self.is_cut(host, process.host):  # noqa: ASYNC110
            await asyncio.sleep(world.rng.uniform(0.2, 1.0))
        await asyncio.sleep(2 * self.latency_s())
        listening = self._listening.get((host, port))
        if listening is None or self.is_cut(host, process.host):
            if host in self.off:
                await loop.create_future()
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        self._last_port += 1
        here, there = (process.host, self._last_port), (host, port)
        client = Transport(self, process, here, there)
        server = Transport(self, listening.process, there, here)
        client.peer, server.peer = server, client
        self.connections[client] = self.connections[server] = None
        listening.process.loop.call_soon(listening.arrive, server)
        protocol = factory()
        client.opened(protocol)
        return client, protocol

    def _resolve(self, name: str) -> str:
        """Return the host of a name. Raises OSError for a name that was removed."""
        if name.startswith(NAME_PREFIX) and name not in self.names:
            raise OSError(f"{name}: Name or service not known")
        return self.names.get(name, name)

    def closed(self, transport: Transport) -> None:
        """An end is no more."""
        self.connections.pop(transport, None)

    def let_go(self) -> None:
        """The story is over."""
        self.connections.clear()
        self._listening.clear()

    # ---- for faults

    def is_cut(self, source: str, target: str) -> bool:
        """Return whether nothing gets from one host to another."""
        return (source, target) in self._cut or target in self.off or source in self.off

    def cut(self, source: str, target: str) -> None:
        """Let nothing get from one host to another."""
        self._cut.add((source, target))

    def mend(self, source: str, target: str) -> None:
        """Let it pass again."""
        self._cut.discard((source, target))
        self._retransmit_soon(lambda one, other: (one, other) == (source, target))

    def power_on(self, host: str) -> None:
        """Let a machine that had no power be heard again."""
        self.off.discard(host)
        self._retransmit_soon(lambda one, other: host in (one, other))

    def _retransmit_soon(self, on_path: Callable[[str, str], bool]) -> None:
        world = self.world
        for transport in list(self.connections):
            if on_path(transport.process.host, transport.peer.process.host):
                delay = world.rng.uniform(*RETRANSMIT_S)
                world.nature.loop.call_later(delay, self._retransmit, transport)

    def _retransmit(self, transport: Transport) -> None:
        if not self.is_cut(transport.process.host, transport.peer.process.host):
            transport.mended()

    def between(self, one: str, other: str) -> list[Transport]:
        """The ends, at `one`, of the connections between two hosts."""
        return [
            t
            for t in self.connections
            if t.process.host == one and t.peer.process.host == other and not t.peer.ended
        ]

    def stop(self, process: Process, *, silent: bool) -> None:
        """A process has been killed, or with `silent` its machine's power cut."""
        for socket in [s for s in self._listening.values() if s.process is process]:
            self.forget(socket)
        for transport in [t for t in self.connections if t.process is process]:
            transport.dead(silent=silent)
