"""A server that speaks ZooKeeper's protocol and sends the replies that a test wants."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable

import attrs

PING, MULTI_READ, CLOSE = 11, 22, -11
UNIMPLEMENTED, NO_NODE = -6, -101
AUTH_XID = -4
SESSION_ID = 0x1234
TIMEOUT_MS = 6000

_HEADER = struct.Struct(">iqi")
_LENGTH = struct.Struct(">i")
_PING_XID = -2


def frame(content: bytes) -> bytes:
    """Frame `content` for the wire."""
    return _LENGTH.pack(len(content)) + content


_EVENT = frame(_HEADER.pack(-1, -1, 0) + struct.pack(">iii", 3, 3, 2) + b"/a")
_EVENT_EACH_S = 0.02
_MULTI_DONE = struct.pack(">iBi", -1, 1, -1)

Answer = Callable[[int, int], bytes]
"""The frames to send for a request by its xid and type; b"" for silence."""


def reply(xid: int, error: int = 0, content: bytes = b"") -> bytes:
    """Return the frame of a reply to the request `xid`."""
    return frame(_HEADER.pack(xid, 1, error) + content)


def no_node(xid: int, _: int) -> bytes:
    """Reply that there is no node."""
    return reply(xid, NO_NODE)


@attrs.define(eq=False)
class ScriptedZooKeeper:
    """Answers connections and pings itself, all else by `answer`, which a test may exchange."""

    answer: Answer = no_node
    is_old: bool = False
    """Before 3.6: breaks the connection at a MultiRead."""
    timeout_ms: int = TIMEOUT_MS
    is_deaf: bool = False
    """Hears nothing, and goes on telling of a watch that fired."""
    refuses: bool = False
    """Closes each connection in place of a session, as one that has lost its data."""
    connections: int = 0
    asked_for: list[int] = attrs.field(factory=list)
    """The session that each connection asked to continue; 0: a new one."""
    types: list[int] = attrs.field(factory=list)
    """Of the requests of all connections, in order; without pings."""
    writer: asyncio.StreamWriter | None = None
    """Of the last connection."""

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Serve all connections. Yields host:port."""
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        try:
            yield f"{host}:{port}"
        finally:
            server.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends."""
        self.connections += 1
        self.writer = writer
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            (asked_for,) = struct.unpack_from(">q", await _read_frame(reader), 16)
            self.asked_for.append(asked_for)
            if self.refuses:
                writer.close()
                return
            writer.write(
                frame(struct.pack(">iiqi", 0, self.timeout_ms, SESSION_ID, 16) + bytes(17))
            )
            while True:
                xid, kind = struct.unpack_from(">ii", await _read_frame(reader))
                if self.is_deaf:
                    await self._talk(writer)
                if kind == PING:
                    writer.write(reply(_PING_XID))
                    continue
                self.types.append(kind)
                if kind == CLOSE:
                    writer.write(reply(xid))
                elif kind == MULTI_READ and self.is_old:
                    writer.write(reply(xid, UNIMPLEMENTED))
                    break
                elif kind == MULTI_READ:
                    writer.write(reply(xid, 0, _MULTI_DONE))
                else:
                    writer.write(self.answer(xid, kind))
        writer.close()

    async def _talk(self, writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            writer.write(_EVENT)
            await asyncio.sleep(_EVENT_EACH_S)


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return await reader.readexactly(length)
