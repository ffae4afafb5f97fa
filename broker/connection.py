"""One client's connection: frames in, answers out, in order, one request at a time.

Whatever can be answered at once is answered inside the read callback, and the answers of one read
go out in one write. A request that waits (see `purgatory`) holds those behind it, and a connection
with requests held is read no further, as Kafka's muted channel is; that gives answers in request
order for free, and bounds what a client can make us keep. So does a client that does not read its
answers: while the transport is full, nothing more is served. File ranges of some size go out by
`sendfile`, smaller ones are read and joined with their header.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from itertools import count
from typing import Any, cast

import attrs

from broker.dispatch import Dispatcher, Outcome, Refused
from broker.down_conversion import ConvertedRange
from broker.purgatory import Parked, Purgatory, Wait
from clients.large_frame import LargeFrame
from core_log.storage import FileRange
from protocol.encoding import Hole
from protocol.frames import FrameCutter, FrameError
from protocol.header import encode_response

logger = logging.getLogger(__name__)

_NUMBERS = count(1)

SENDFILE_MIN_BYTES = 32 * 1024
SENDFILE_MAX_BYTES = 1024 * 1024
"""Largest piece of a file that is sent at once; after each the connection counts as active."""
JOINED_BYTES = 64 * 1024
"""Answers are joined into one write up to this size; the transport then says if it is full."""


Part = bytes | bytearray | FileRange | ConvertedRange
"""Of an answer that is sent in several steps."""


class CloseConnection:
    """What a handler returns when silence must be followed by closing (acks=0 that failed)."""


CLOSE = CloseConnection()


@attrs.define(eq=False, repr=False)  # asyncio prints it into the log
class ClientConnection(asyncio.Protocol):
    """The server's side of a connection."""

    dispatcher: Dispatcher
    purgatory: Purgatory
    max_frame_bytes: int
    listener: str
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    on_open: Callable[[ClientConnection], bool]
    on_close: Callable[[ClientConnection], None]
    number: int = attrs.field(factory=partial(next, _NUMBERS))
    name: str = "?"
    peer_host: str = ""
    last_active: float = 0.0
    _transport: asyncio.Transport | None = None
    _cutter: FrameCutter = attrs.field(init=False)
    _queue: deque[memoryview] = attrs.field(factory=deque)
    _out: list[bytes | bytearray] = attrs.field(factory=list)
    _out_bytes: int = 0
    _waiting: Parked | None = None
    _sending: asyncio.Task[None] | None = None
    _busy: bool = False
    _blocked: bool = False
    _unblocked: asyncio.Future[None] | None = None
    _reading_paused: bool = False

    def __attrs_post_init__(self) -> None:
        self._cutter = FrameCutter(self.max_frame_bytes)

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        host, port, *_ = self._transport.get_extra_info("peername") or ("?", 0)
        self.peer_host, self.name = host, f"{host}:{port}"
        self._touch()
        if not self.on_open(self):
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._unblock()
        self._queue.clear()
        if self._waiting is not None:
            self.purgatory.drop(self._waiting)
            self._waiting = None
        self.on_close(self)

    def data_received(self, data: bytes) -> None:
        self._touch()
        try:
            self._queue.extend(self._cutter.feed(data))
        except FrameError as error:
            self._close(str(error))
            return
        self._serve_received()
        if self._cutter.room is not None and self._transport is not None:
            LargeFrame(self, self._cutter, self._transport, self._receive_large, self._touch)

    def _receive_large(self, frame: memoryview) -> None:
        self._queue.append(frame)
        self._serve_received()

    def _serve_received(self) -> None:
        self._advance()
        if self._queue:
            self._pause_reading()

    def eof_received(self) -> None:
        if self._cutter.waiting:
            logger.info("%s closed its connection in the middle of a request", self.name)

    def pause_writing(self) -> None:
        self._blocked = True

    def resume_writing(self) -> None:
        self._touch()
        self._unblock()
        self._advance()

    def _unblock(self) -> None:
        self._blocked = False
        if self._unblocked is not None and not self._unblocked.done():
            self._unblocked.set_result(None)

    # ---- requests

    @property
    def waits(self) -> bool:
        """Whether a request of it is parked: its silence is ours, then."""
        return self._waiting is not None

    def close(self) -> None:
        """Close from the server's side, without a word."""
        if self._sending is not None:  # first: the loop would wait on for a socket that is closed,
            self._sending.cancel()  # and the next one gets its number
        if self._transport is not None:
            self._transport.abort()

    def _advance(self) -> None:
        while self._queue and not self._busy and not self._blocked:
            self._serve(self._queue.popleft())
        self._flush()
        if self._reading_paused and not self._queue:
            self._reading_paused = False
            if self._transport is not None:
                self._transport.resume_reading()

    def _serve(self, frame: memoryview) -> None:
        try:
            outcome = self.dispatcher.dispatch(frame, self.listener, self.name, self.number)
        except Refused as error:
            self._close(str(error))
            return
        self._take(outcome)

    def _take(self, outcome: Outcome) -> None:
        if isinstance(outcome.response, Wait):
            self._park(outcome.response)
        else:
            self._answer(outcome)

    def _park(self, wait: Wait) -> None:
        self._busy = True

        def done(outcome: Outcome) -> None:
            self._waiting = None
            self._busy = False
            self._touch()
            if self._transport is not None:
                self._take(outcome)
                self._flush()
                if self._queue:
                    asyncio.get_running_loop().call_soon(self._advance)

        parked = self.purgatory.park(wait, done)
        if parked is not None:  # else it is answered, or waits for something else by now
            self._waiting = parked

    def _answer(self, outcome: Outcome) -> None:
        header, response = outcome.header, outcome.response
        if response is CLOSE:
            self._close("an acks=0 request failed")
            return
        if response is not None:
            try:
                out, holes = encode_response(
                    header.api_key, header.api_version, header.correlation_id, response
                )
                if holes:
                    self._send_with_files(out, holes)
                else:
                    self._write(out)
            except Exception as error:  # must not reach whoever ended a wait of this connection
                self._close(f"an answer cannot be sent: {error!r}")
                return
        if outcome.close:
            self._close("a request failed in a way nobody expected")

    def _write(self, out: bytes | bytearray) -> None:
        self._out.append(out)
        self._out_bytes += len(out)
        if self._out_bytes >= JOINED_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._out:
            if self._transport is not None:
                out = self._out
                self._transport.write(out[0] if len(out) == 1 else b"".join(out))
            self._out.clear()
            self._out_bytes = 0

    # ---- file ranges

    def _send_with_files(self, out: bytearray, holes: list[Hole]) -> None:
        parts: list[Part] = []
        start = 0
        all_read = True
        for position, body in holes:
            parts.append(out[start:position])
            if body.size < SENDFILE_MIN_BYTES and isinstance(body, FileRange):
                parts.append(_read_whole(body))
            else:
                parts += _pieces(body)
                all_read = False
            start = position
        parts.append(out[start:])
        if all_read:
            self._write(b"".join(cast(list[bytes], parts)))
            return
        self._flush()
        self._busy = True
        self._sending = self.spawn(self._send_parts(parts))

    async def _send_parts(self, parts: list[Part]) -> None:
        try:
            for part in parts:
                await self._send_part(part)
        except (ConnectionError, RuntimeError, OSError) as error:
            self._close(f"sending failed: {error!r}")
            return
        finally:
            self._sending = None
        self._busy = False
        self._advance()

    async def _send_part(self, part: Part) -> None:
        if isinstance(part, FileRange):
            await self._send_file(part)
        elif isinstance(part, ConvertedRange):
            await self._send_converted(part)
        elif part:
            self._connected().write(part)

    async def _send_file(self, part: FileRange) -> None:
        transport, loop = self._connected(), asyncio.get_running_loop()
        try:
            sent = await loop.sendfile(transport, part.raw, part.start, part.size, fallback=False)
        except asyncio.SendfileNotAvailableError:
            # Not by the loop's own fallback: it moves a file position that all readers share.
            transport.write(_read_whole(part))
            sent = part.size
        if sent != part.size:
            raise OSError(f"only {sent} of {part.size} bytes were in the file")
        self._touch()

    async def _send_converted(self, part: ConvertedRange) -> None:
        """Make a piece in a thread, and the next one when the client has taken most of it."""
        loop, pieces = asyncio.get_running_loop(), part.pieces()
        while (piece := await loop.run_in_executor(part.executor, next, pieces, None)) is not None:
            self._connected().write(piece)
            self._touch()
            if self._blocked:
                self._unblocked = loop.create_future()
                await self._unblocked

    def _connected(self) -> asyncio.Transport:
        if self._transport is None:
            raise ConnectionResetError("the client is gone")
        return self._transport

    # ---- small parts

    def _touch(self) -> None:
        self.last_active = asyncio.get_running_loop().time()

    def _pause_reading(self) -> None:
        if self._transport is not None and not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()

    def _close(self, why: str) -> None:
        """Close once what was answered before is written."""
        self._queue.clear()
        self._flush()
        if self._transport is not None:
            logger.warning("closing the connection of %s: %s", self.name, why)
            self._transport.close()


def _pieces(whole: FileRange | ConvertedRange) -> Iterator[FileRange | ConvertedRange]:
    if isinstance(whole, ConvertedRange):
        yield whole
        return
    for done in range(0, whole.size, SENDFILE_MAX_BYTES):
        size = min(SENDFILE_MAX_BYTES, whole.size - done)
        yield FileRange(whole.file, whole.start + done, size)


def _read_whole(file_range: FileRange) -> bytes:
    """The bytes whose number the answer has announced. Raises OSError when some are missing."""
    read = file_range.read()
    if len(read) != file_range.size:
        raise OSError(f"only {len(read)} of {file_range.size} bytes were in the file")
    return read
