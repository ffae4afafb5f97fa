"""A link that loses answers to Produce: the broker has appended, and the client never hears of it.

The connection is cut in the place of the answer, so the client connects again and sends again.
"""

import asyncio
import contextlib

import attrs

from protocol.api_key import ApiKey
from tests.stage.network import HOST, Link


@attrs.define(eq=False)
class LossyLink(Link):
    """Loses one of `loses_every` answers to Produce, over all connections."""

    loses_every: int = 3
    answers: int = 0
    lost: int = 0

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, self.target_port)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, far_writer}
        self._writers |= ends
        produced: set[bytes] = set()
        try:
            await asyncio.gather(
                self._requests(reader, far_writer, produced),
                self._answers(far_reader, writer, produced),
            )
        finally:
            self._writers -= ends

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, produced: set[bytes]
    ) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await _frame(reader)
                if int.from_bytes(frame[:2], "big") == ApiKey.PRODUCE:
                    produced.add(frame[4:8])
                await _send(writer, frame)
        writer.close()

    async def _answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, produced: set[bytes]
    ) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await _frame(reader)
                if frame[:4] in produced and self._is_lost():
                    break
                await _send(writer, frame)
        writer.close()

    def _is_lost(self) -> bool:
        self.answers += 1
        if self.answers % self.loses_every:
            return False
        self.lost += 1
        return True


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(4), "big")
    return await reader.readexactly(size)


async def _send(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(len(frame).to_bytes(4, "big") + frame)
    await writer.drain()
