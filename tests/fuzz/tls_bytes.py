"""The client's side of TLS as bytes, so that they can be bent before they are sent."""

from __future__ import annotations

import asyncio
import ssl

import attrs

READ_BYTES = 64 * 1024


@attrs.define(eq=False)
class TlsBytes:
    """One connection to `localhost`, without a socket of its own."""

    context: ssl.SSLContext
    _incoming: ssl.MemoryBIO = attrs.field(factory=ssl.MemoryBIO)
    _outgoing: ssl.MemoryBIO = attrs.field(factory=ssl.MemoryBIO)
    _ssl: ssl.SSLObject = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._ssl = self.context.wrap_bio(
            self._incoming, self._outgoing, server_hostname="localhost"
        )

    def hello(self) -> bytes:
        """Return the first message of the handshake."""
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            return self._outgoing.read()
        raise AssertionError("a handshake needs the server")

    async def shake_hands(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Perform the handshake. Raises ssl.SSLError, ConnectionError."""
        while True:
            try:
                self._ssl.do_handshake()
            except ssl.SSLWantReadError:
                writer.write(self._outgoing.read())
                received = await reader.read(READ_BYTES)
                if not received:
                    raise ConnectionResetError("closed within a handshake") from None
                self._incoming.write(received)
            else:
                writer.write(self._outgoing.read())
                return

    def encrypt(self, data: bytes) -> bytes:
        """Return the records of these bytes."""
        if data:
            self._ssl.write(data)
        return self._outgoing.read()
