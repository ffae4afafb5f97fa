"""The network between the parts of a cluster: every connection goes through here, and can suffer.

A *link* is one direction between two parts: (from, to). Each bends what passes it: it holds it
back, delays it, or refuses it. A broker has one address for all its peers, so who dials a broker is
told by the first request: its header has the client id, which is "broker-1-fetcher" for the
followers of broker 1, and "1" for broker 1 as controller. All others dial by a port of their own.

A link that is held is TCP without a network: nothing passes, not even the end of a connection, and
nobody is told. Once it is released what was sent arrives late. If who sent it has given up the
connection meanwhile, it is lost, as with a reset, or arrives all the same, as with a close.
"""

import asyncio
import contextlib
import re
import socket
import struct
from collections import defaultdict, deque
from collections.abc import Iterable

import attrs

HOST = "127.0.0.1"
CLIENTS, ZOOKEEPER = "clients", "zookeeper"
HIGH_WATER_BYTES = 1024 * 1024
RESET_WHEN_CLOSED = struct.pack("ii", 1, 0)
_CLIENT_ID_AT = 12  # behind the frame's size, API key, version, correlation id

Pair = tuple[str, str]


def broker(broker_id: int) -> str:
    """A broker's name in this network."""
    return f"broker-{broker_id}"


@attrs.define(eq=False)
class Link:
    """One direction. `ends` are the ends of connections at which its bytes come in."""

    is_held: bool = False
    is_late: bool = False
    is_refused: bool = False
    delay_s: float = 0.0
    ends: dict["_End", None] = attrs.field(factory=dict)


class _End(asyncio.Protocol):
    """One end of a connection; what is read here is written at the `far` end."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[float, bytes]] = deque()  # with the time they may pass
        self._waiting_bytes = 0
        self.link: Link | None = None
        self.far: _End | None = None
        self.transport: asyncio.Transport | None = None
        self.has_ended = False

    def join(self, link: Link, far: "_End") -> None:
        """From now on bytes pass."""
        self.link, self.far = link, far
        link.ends[self] = None
        self.flush()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        delay_s = self.link.delay_s if self.link else 0.0
        self._waiting.append((self._loop.time() + delay_s, data))
        self._waiting_bytes += len(data)
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self.has_ended = True
        if self.link is not None and self.link.is_held and not self.link.is_late:
            self._waiting.clear()
        self.flush()

    def pause_writing(self) -> None:
        """Called by the event loop: whoever reads here is slow."""
        if self.far is not None and self.far.transport is not None:
            self.far.transport.pause_reading()

    def resume_writing(self) -> None:
        """Called by the event loop."""
        if self.far is not None and self.far.transport is not None:
            self.far.transport.resume_reading()

    def flush(self) -> None:
        """Let pass what may pass now."""
        link, far = self.link, self.far
        if link is not None and far is not None and not link.is_held:
            assert far.transport is not None
            while self._waiting and self._waiting[0][0] <= self._loop.time():
                _, data = self._waiting.popleft()
                self._waiting_bytes -= len(data)
                far.transport.write(data)
            if self._waiting:
                self._loop.call_at(self._waiting[0][0], self.flush)
            elif self.has_ended:
                link.ends.pop(self, None)
                far.transport.close()
        self._mind_the_room()

    def abort(self) -> None:
        """Reset the connection, at both ends."""
        self._waiting.clear()
        for end in (self, self.far):
            if end is not None and end.transport is not None and not end.has_ended:
                sock: socket.socket = end.transport.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_WHEN_CLOSED)
                end.transport.abort()

    def _mind_the_room(self) -> None:
        if self.transport is None or self.has_ended:
            return
        if self._waiting_bytes > HIGH_WATER_BYTES:
            self.transport.pause_reading()
        elif self.far is not None and not self._waiting:
            self.transport.resume_reading()


class _DialledEnd(_End):
    """The end of who dials; `target` and `source` ("" until the first request has told)."""

    def __init__(self, network: "Network", target: str, target_port: int, source: str) -> None:
        super().__init__()
        self._network = network
        self._target, self._target_port, self._source = target, target_port, source
        self._head = b""
        self._is_known = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._source:
            self._known(self._source)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._is_known:
            self._head += data
            source = source_of(self._head)
            if source is not None:
                self._known(source)

    def _known(self, source: str) -> None:
        self._is_known = True
        self._network.dial(self, source, self._target, self._target_port)


def source_of(head: bytes) -> str | None:
    """Who sends this first request: a broker, or else clients; None: it is not all there yet."""
    if len(head) < _CLIENT_ID_AT + 2:
        return None
    size = int.from_bytes(head[_CLIENT_ID_AT : _CLIENT_ID_AT + 2], "big", signed=True)
    client_id = head[_CLIENT_ID_AT + 2 :][: max(size, 0)]
    if len(client_id) < size:
        return None
    found = re.fullmatch(rb"broker-(\d+)-fetcher|(\d+)", client_id)
    return broker(int(found[1] or found[2])) if found else CLIENTS


@attrs.define(eq=False)
class Network:
    """All links. Use it as an async context manager; `open` makes ports."""

    links: dict[Pair, Link] = attrs.field(factory=lambda: defaultdict(Link))
    _servers: list[asyncio.Server] = attrs.field(factory=list)
    _dialling: set[asyncio.Task[None]] = attrs.field(factory=set)

    async def __aenter__(self) -> "Network":
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        for task in self._dialling:
            task.cancel()
        self.reset(self.links)

    async def open(self, target: str, target_port: int, source: str = "") -> int:
        """A new port that leads to the target's. Without `source` the first request tells who
        dials."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: _DialledEnd(self, target, target_port, source), HOST, 0
        )
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    def dial(self, near: _End, source: str, target: str, target_port: int) -> None:
        """Go on to the target, for a connection from `source`."""
        task = asyncio.get_running_loop().create_task(
            self._dial(near, (source, target), target_port)
        )
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)

    async def _dial(self, near: _End, pair: Pair, target_port: int) -> None:
        there, back = self.links[pair], self.links[pair[::-1]]
        far = _End()
        if not there.is_refused:
            with contextlib.suppress(OSError):
                await asyncio.get_running_loop().create_connection(lambda: far, HOST, target_port)
        if far.transport is None or near.has_ended or there.is_refused:
            near.abort()
            far.abort()
            return
        far.join(back, near)
        near.join(there, far)

    # ---- what can happen to links

    def hold(self, pairs: Iterable[Pair], *, late: bool = False) -> None:
        """Let nothing pass, and tell nobody. `late`: what was given up arrives in the end too."""
        for pair in pairs:
            self.links[pair].is_held, self.links[pair].is_late = True, late

    def refuse(self, pairs: Iterable[Pair]) -> None:
        """Reset the connections there are, and each new one."""
        pairs = list(pairs)
        for pair in pairs:
            self.links[pair].is_refused = True
        self.reset(pairs)

    def delay(self, pairs: Iterable[Pair], seconds: float) -> None:
        """Let everything pass so much later."""
        for pair in pairs:
            self.links[pair].delay_s = seconds

    def reset(self, pairs: Iterable[Pair]) -> None:
        """Reset the connections there are."""
        for pair in pairs:
            for end in list(self.links[pair].ends):
                end.abort()

    def heal(self, pairs: Iterable[Pair]) -> None:
        """As it was before anything happened. What was held arrives now."""
        for pair in pairs:
            link = self.links[pair]
            link.is_held = link.is_late = link.is_refused = False
            link.delay_s = 0.0
            for end in list(link.ends):
                end.flush()


def both_ways(one: str, other: str) -> list[Pair]:
    """Both directions between two parts."""
    return [(one, other), (other, one)]
