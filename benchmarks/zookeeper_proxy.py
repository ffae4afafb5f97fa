"""A proxy between ZooKeeper and its clients forwards all bytes and counts requests.

It knows this of ZooKeeper's protocol: each side sends frames behind a size of four bytes. A
client's first frame is the handshake; all others begin with a number and the type of the request.
Pings are not counted; a multi is one request.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

import attrs

from broker.kbroker.local_cluster import HOST

CREATE, PING = 1, 11
_CHUNK_BYTES = 64 * 1024


@attrs.define(eq=False)
class CountingProxy:
    """The proxy. It counts `requests` by type, from the creation of the node `starts_with` on."""

    server: str
    starts_with: str
    requests: Counter[int] = attrs.field(factory=Counter)
    last_at: float = 0.0
    """The time of the last request, on the loop's clock."""
    _begun: bool = False

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """Listen; yield the proxy's host:port with the chroot of `server`."""
        listening = await asyncio.start_server(self._serve_client, HOST, 0)
        port = listening.sockets[0].getsockname()[1]
        _, slash, chroot = self.server.partition("/")
        async with listening:
            yield f"{HOST}:{port}{slash}{chroot}"

    async def _serve_client(
        self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        host, _, port = self.server.partition("/")[0].rpartition(":")
        server, to_server = await asyncio.open_connection(host, int(port))
        answering = asyncio.ensure_future(_forward(server, to_client))
        try:
            await self._forward_requests(client, to_server)
        except (asyncio.IncompleteReadError, OSError):
            pass  # the client or the server has closed its connection
        finally:
            # Then the server closes too, which ends the other direction.
            to_server.close()
            await asyncio.wait([answering])

    async def _forward_requests(
        self, client: asyncio.StreamReader, to_server: asyncio.StreamWriter
    ) -> None:
        # The handshake has no type: nothing in it may be counted.
        is_handshake = True
        while True:
            size = await client.readexactly(4)
            frame = await client.readexactly(int.from_bytes(size, "big"))
            if not is_handshake:
                self._count(frame)
            is_handshake = False
            to_server.write(size + frame)
            await to_server.drain()

    def _count(self, frame: bytes) -> None:
        # The type is behind the request's number (xid), which has four bytes.
        kind = int.from_bytes(frame[4:8], "big", signed=True)
        if kind == PING:
            return
        self.last_at = asyncio.get_running_loop().time()

        # The creation itself is the first request that counts.
        if kind == CREATE and self.starts_with.encode() in frame:
            self._begun = True
        self.requests[kind] += self._begun


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    writer.close()
