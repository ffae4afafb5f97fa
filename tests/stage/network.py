"""Connections that a test breaks: a port that leads to a server until it is cut, and worse ones.

A `Relay` is on the test's own loop, a `Link` on a thread of its own, for tests whose clients are
other processes. The networks of the simulation and of `make chaos`, which know who talks to whom,
are theirs.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, Self

import attrs

from broker.kbroker.local_cluster import claim_ports
from protocol.api_key import ApiKey

HOST = "127.0.0.1"
READ_BYTES = 65_536
_MORE_THAN_THE_BACKLOG = 4


@attrs.define(eq=False)
class Relay:
    """A port that leads to a server; its connections can be broken, silenced, muted and held up."""

    server: asyncio.Server
    pipes: set[asyncio.StreamWriter]
    to_clients: set[asyncio.StreamWriter] = attrs.field(factory=set)
    is_open: bool = True
    is_silent: bool = False
    is_mute: bool = False
    swallowed_bytes: int = 0
    held_bytes: int = 0
    _moves: asyncio.Event = attrs.field(factory=asyncio.Event)
    """Set unless bytes of clients are held up."""

    @classmethod
    async def open(cls, target: str) -> Relay:
        """Listen at a port of the kernel's choice, for connections to `target`, host:port."""
        host, _, port = target.rpartition(":")
        tasks: set[asyncio.Task[None]] = set()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if not relay.is_open:
                writer.close()
                return

            out_reader, out_writer = await asyncio.open_connection(host, int(port))
            for source, sink in ((reader, out_writer), (out_reader, writer)):
                task = asyncio.ensure_future(relay.pump(source, sink, source is reader))
                tasks.add(task)
                task.add_done_callback(tasks.discard)

        relay = cls(await asyncio.start_server(accept, HOST, 0), set())
        relay._moves.set()
        return relay

    @property
    def address(self) -> str:
        """The host:port to connect to."""
        host, port = self.server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    async def pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, is_from_client: bool
    ) -> None:
        """Pass bytes on in one direction until the connection ends."""
        self.pipes.add(sink)
        if not is_from_client:
            self.to_clients.add(sink)

        with contextlib.suppress(OSError), contextlib.closing(sink):
            while data := await source.read(READ_BYTES):
                if self.is_silent or (self.is_mute and is_from_client):
                    self.swallowed_bytes += len(data)
                    continue
                if is_from_client and not self._moves.is_set():
                    self.held_bytes += len(data)
                    await self._moves.wait()
                sink.write(data)

        self.pipes.discard(sink)
        self.to_clients.discard(sink)

    def close(self) -> None:
        """Break all connections, and every new one."""
        self.is_open = False
        for pipe in self.pipes:
            pipe.transport.abort()

    def silence(self) -> None:
        """Stay connected, and let nothing through."""
        self.is_silent = True

    def mute(self) -> None:
        """Stay connected, and let nothing through to the server."""
        self.is_mute = True

    def hold_up(self) -> None:
        """Keep what clients send, until `let_go`."""
        self._moves.clear()

    def lose_clients(self) -> None:
        """Break the connections of clients; the server knows nothing of it while they are held."""
        for pipe in self.to_clients:
            pipe.transport.abort()

    def let_go(self) -> None:
        """Send what was kept, also that of clients which have gone."""
        self._moves.set()

    def open_again(self) -> None:
        """Let everything through again."""
        self.is_open, self.is_silent, self.is_mute = True, False, False

    async def end(self) -> None:
        """Break all connections and stop to listen."""
        self.close()
        self.server.close()


@attrs.define(eq=False)
class Link:
    """A port that leads to another one, on a thread of its own. Use it as a context manager."""

    target_port: int
    port: int = attrs.field(factory=lambda: claim_ports(0, 1)[0])
    """The port stays claimed while the link is cut."""
    _loop: asyncio.AbstractEventLoop = attrs.field(factory=asyncio.new_event_loop)
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = attrs.field(factory=set)
    _thread: threading.Thread = attrs.field(init=False)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._loop.run_forever, name="link")
        self._thread.start()
        self._do(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @contextlib.contextmanager
    def cut(self) -> Iterator[None]:
        """Break all connections and refuse new ones until the end of the block."""
        self._do(self._close())
        try:
            yield
        finally:
            self._do(self._open())

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._connected, HOST, self.port)

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        while self._writers:
            await asyncio.sleep(0)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, self.target_port)
        except OSError:
            writer.transport.abort()
            return

        ends = {writer, far_writer}
        self._writers |= ends
        try:
            await self._pass_on(reader, writer, far_reader, far_writer)
        finally:
            self._writers -= ends

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> None:
        """Pass bytes both ways until one end closes."""
        await asyncio.gather(_pass_bytes(reader, far_writer), _pass_bytes(far_reader, writer))


async def _pass_bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes on until one end closes; then close the other."""
    with contextlib.suppress(OSError):
        while data := await reader.read(READ_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()


@attrs.define(eq=False)
class LossyLink(Link):
    """A link to a broker that loses one of `loses_every` responses to Produce.

    The broker has appended, and the client never hears of it: the connection is cut in the place of
    the response, so the client connects again and sends again. Responses are counted over all
    connections.
    """

    loses_every: int = 3
    answers: int = 0
    lost: int = 0

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> None:
        produced: set[bytes] = set()
        await asyncio.gather(
            self._pass_requests(reader, far_writer, produced),
            self._pass_responses(far_reader, writer, produced),
        )

    async def _pass_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, produced: set[bytes]
    ) -> None:
        """Pass requests on, and keep the correlation ids of those that produce."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await _read_frame(reader)
                if int.from_bytes(frame[:2], "big") == ApiKey.PRODUCE:
                    produced.add(frame[4:8])
                await _send_frame(writer, frame)
        writer.close()

    async def _pass_responses(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, produced: set[bytes]
    ) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await _read_frame(reader)
                if frame[:4] in produced and self._is_lost():
                    break
                await _send_frame(writer, frame)
        writer.close()

    def _is_lost(self) -> bool:
        self.answers += 1
        if self.answers % self.loses_every:
            return False

        self.lost += 1
        return True


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(4), "big")
    return await reader.readexactly(size)


async def _send_frame(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(len(frame).to_bytes(4, "big") + frame)
    await writer.drain()


@contextlib.contextmanager
def silent_host() -> Iterator[str]:
    """Yield a host:port that neither accepts nor refuses a connection, as a dead machine's.

    Its backlog is full, so the kernel drops what comes.
    """
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind((HOST, 0))
        listening.listen(0)

        for _ in range(_MORE_THAN_THE_BACKLOG):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(listening.getsockname())

        host, port = listening.getsockname()
        yield f"{host}:{port}"
