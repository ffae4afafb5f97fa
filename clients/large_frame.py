"""A frame that is too large to come with one read, taken as it arrives. Used by both ends."""

import asyncio
from collections.abc import Callable

from protocol.frames import FrameCutter


class LargeFrame(asyncio.BufferedProtocol):
    """Takes a connection's place while the rest of a large frame arrives.

    The event loop then reads the socket straight into the buffer that keeps the frame, where it
    would otherwise make a new object of each piece, to be copied. When the frame is complete
    `owner` is the transport's protocol again, and `deliver` gets the frame; `moved` hears of each
    piece.
    """

    def __init__(
        self,
        owner: asyncio.Protocol,
        cutter: FrameCutter,
        transport: asyncio.Transport,
        deliver: Callable[[memoryview], None],
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        self._owner = owner
        self._cutter = cutter
        self._transport = transport
        self._deliver = deliver
        self._moved = moved
        transport.set_protocol(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        room = self._cutter.room
        assert room is not None
        return room

    def buffer_updated(self, nbytes: int) -> None:
        self._moved()
        frame = self._cutter.fill(nbytes)
        if frame is not None:
            self._transport.set_protocol(self._owner)
            self._deliver(frame)

    def eof_received(self) -> bool | None:
        return self._owner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._owner.pause_writing()

    def resume_writing(self) -> None:
        self._owner.resume_writing()
