"""A port that leads to another one until it is cut: the other end lives on, and is out of reach."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, Self

import attrs

from broker.kbroker.local_cluster import claim_ports

HOST = "127.0.0.1"


@attrs.define(eq=False)
class Link:
    """Passes bytes both ways, on a thread of its own. Use it as a context manager."""

    target_port: int
    port: int = attrs.field(factory=lambda: claim_ports(0, 1)[0])
    """Nobody else is given it while the link is cut."""
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
        """Until the end of the block, what was connected is not, and no one can connect."""
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
            far = await asyncio.open_connection(HOST, self.target_port)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, far[1]}
        self._writers |= ends
        try:
            await asyncio.gather(_pass(reader, far[1]), _pass(far[0], writer))
        finally:
            self._writers -= ends


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes on until one end closes; then close the other."""
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()
