"""One client's connection: frames in, answers out, in order, one request at a time.

What can be answered at once is answered inside the read callback, as far as the connection's share
goes (`turns`), and the answers of one share go out in one write. A request that waits (see
`purgatory`) holds those behind it, and a connection with requests held is read no further, as
Kafka's muted channel is; that gives answers in request order for free, and bounds what a client can
make us keep. So does a client that does not read its answers: until they are sent, nothing more is
served. What is kept all the same is counted (`queued_bytes`). File ranges of some size go out by
`sendfile`, smaller ones are read and joined with what stands around them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from functools import partial
from itertools import count
from typing import Any, cast

import attrs

from broker.network.dispatch import Dispatcher, Outcome, Refused
from broker.network.down_conversion import ConvertedRange
from broker.network.purgatory import Parked, Purgatory, Wait
from broker.network.queued_bytes import QueuedBytes
from broker.network.turns import Share, Turns
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
LITTLE_BYTES = 64 * 1024
"""Most that is read of files into one answer at once. A larger one goes out in pieces, each when
the client has taken the one before, and takes no more memory than that."""


Part = bytes | bytearray | FileRange | ConvertedRange
"""Of an answer that is sent in several steps."""


class CloseConnection:
    """What a handler returns when silence must be followed by closing (acks=0 that failed)."""


CLOSE = CloseConnection()


@attrs.define(eq=False, repr=False)  # asyncio prints it into the log
class ClientConnection(asyncio.Protocol):
    """The server's side of a connection. `executor` reads what is not in memory."""

    dispatcher: Dispatcher
    purgatory: Purgatory
    turns: Turns
    queued: QueuedBytes
    max_frame_bytes: int
    listener: str
    executor: Executor | None
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    on_open: Callable[[ClientConnection], bool]
    on_close: Callable[[ClientConnection], None]
    number: int = attrs.field(factory=partial(next, _NUMBERS))
    name: str = "?"
    peer_host: str = ""
    descriptor: int = -1
    """The system gives the lowest number that is free: so many files are open, at least."""
    last_active: float = 0.0
    share: Share = attrs.field(factory=Share)
    is_brokers: bool = False
    was_read: bool = False
    _transport: asyncio.Transport | None = None
    _cutter: FrameCutter = attrs.field(init=False)
    _out: list[bytes | bytearray] = attrs.field(factory=list)
    _out_bytes: int = 0
    _request_bytes: int = 0
    _held_bytes: int = 0
    _waiting: Parked | None = None
    _sending: asyncio.Task[None] | None = None
    _busy: bool = False
    _blocked: bool = False
    _unblocked: asyncio.Future[None] | None = None
    _is_held_back: bool = False
    _reading_paused: bool = False

    def __attrs_post_init__(self) -> None:
        self._cutter = FrameCutter(self.max_frame_bytes)

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)  # to hear when all is sent
        host, port, *_ = self._transport.get_extra_info("peername") or ("?", 0)
        self.peer_host, self.name = host, f"{host}:{port}"
        self.descriptor = self._transport.get_extra_info("socket").fileno()
        self.queued.add(self)
        self._touch()
        if not self.on_open(self):
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._unblock()
        self._cutter.clear()
        if self._waiting is not None:
            self.purgatory.drop(self._waiting)
            self._waiting = None
        self.queued.remove(self)
        self.on_close(self)

    def data_received(self, data: bytes) -> None:
        self._touch()
        self.was_read = True
        self._cutter.feed(data)
        self.turns.arrived(self)

    def eof_received(self) -> None:
        if self._cutter.has_input:
            logger.info("%s closed its connection in the middle of a request", self.name)

    def pause_writing(self) -> None:
        self._blocked = True

    def resume_writing(self) -> None:
        self._touch()
        self._unblock()
        self.turns.arrived(self)

    def _unblock(self) -> None:
        self._blocked = False
        if self._unblocked is not None and not self._unblocked.done():
            self._unblocked.set_result(None)

    # ---- requests, when `turns` says so

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

    @property
    def has_more(self) -> bool:
        """Whether something has come, and none is under way that goes before it."""
        return self._cutter.has_more and not self._busy and not self._blocked

    def serve_next(self) -> bool:
        """Serve the next request, unless one is under way or answers are not sent; whether there
        was one."""
        if self._busy or self._blocked:
            return False
        try:
            frame = self._cutter.cut()
        except FrameError as error:
            self._close(str(error))
            return False
        if frame is None:
            return False
        self._request_bytes = len(frame)
        try:
            outcome = self.dispatcher.dispatch(frame, self.listener, self.name, self.number)
        except Refused as error:
            self._close(str(error))
            return False
        self.is_brokers = self.is_brokers or outcome.is_brokers
        self._take(outcome)
        return True

    def end_share(self) -> None:
        """Send what was answered, and read on only if nothing is left to be served."""
        self._flush()
        self._count()
        self._read_or_not()

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
                self._count()
                if self._cutter.has_more or self._reading_paused:
                    self.turns.line_up(self)

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
        """Join what is little and in memory with what stands around it; send all else in steps."""
        parts: list[Part] = []
        start = little_bytes = 0
        for position, body in holes:
            parts.append(out[start:position])
            parts.append(body)
            little_bytes += body.size
            start = position
        parts.append(out[start:])
        if little_bytes <= LITTLE_BYTES and all(_is_at_hand(part) for part in parts):
            self._write(b"".join([_content(part) for part in parts]))
            return
        self._flush()
        self._busy = True
        self._sending = self.spawn(self._send_parts(parts))

    async def _send_parts(self, parts: list[Part]) -> None:
        try:
            for part in parts:
                await self._send_part(part)
            await self._send_joined()
        except (ConnectionError, RuntimeError, OSError) as error:
            self._close(f"sending failed: {error!r}")
            return
        finally:
            self._sending = None
        self._busy = False
        self.turns.arrived(self)

    async def _send_part(self, part: Part) -> None:
        if isinstance(part, FileRange) and part.size < SENDFILE_MIN_BYTES:
            await self._read_in(part)
            self._join(_content(part))
        elif isinstance(part, FileRange):
            await self._send_joined()
            for piece in _pieces(part):
                await self._read_in(piece)
                await self._send_file(piece)
        elif isinstance(part, ConvertedRange):
            await self._send_joined()
            await self._send_converted(part)
        else:
            self._join(part)
        if self._out_bytes >= JOINED_BYTES:
            await self._send_joined()

    def _join(self, part: bytes | bytearray) -> None:
        self._out.append(part)
        self._out_bytes += len(part)

    async def _send_joined(self) -> None:
        """Write what was joined, and wait until the client has taken it."""
        self._connected()
        self._flush()
        self._count()
        await self._taken()

    async def _taken(self) -> None:
        if self._blocked:
            self._unblocked = asyncio.get_running_loop().create_future()
            await self._unblocked

    async def _read_in(self, part: FileRange) -> None:
        """Have the bytes in memory, so that who sends them waits for no disk on the loop."""
        if not part.is_cached:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self.executor, part.read)

    async def _send_file(self, part: FileRange) -> None:
        transport, loop = self._connected(), asyncio.get_running_loop()
        try:
            sent = await loop.sendfile(transport, part.raw, part.start, part.size, fallback=False)
        except asyncio.SendfileNotAvailableError:
            # Not by the loop's own fallback: it moves a file position that all readers share.
            self._join(_content(part))
            sent = part.size
            await self._send_joined()
        if sent != part.size:
            raise OSError(f"only {sent} of {part.size} bytes were in the file")
        self._touch()

    async def _send_converted(self, part: ConvertedRange) -> None:
        """Make a piece in a thread, and the next one when the client has taken it."""
        loop, pieces = asyncio.get_running_loop(), part.pieces()
        while (piece := await loop.run_in_executor(part.executor, next, pieces, None)) is not None:
            self._join(piece)
            await self._send_joined()
            self._touch()

    def _connected(self) -> asyncio.Transport:
        if self._transport is None:
            raise ConnectionResetError("the client is gone")
        return self._transport

    # ---- reading, and what is kept

    @property
    def in_frame(self) -> bool:
        """Whether a part of a frame has come, and not all of it."""
        return self._cutter.is_in_frame

    def hold_back(self) -> None:
        """Read no more until `let_on`: memory is short."""
        self._is_held_back = True
        self._read_or_not()

    def let_on(self) -> None:
        """Read on."""
        self._is_held_back = False
        self._read_or_not()

    def _read_or_not(self) -> None:
        """Read while nothing waits to be served. Paused is said again: sendfile resumes."""
        if self._transport is None:
            return
        if self._is_held_back or self._cutter.has_more:
            self._reading_paused = True
            self._transport.pause_reading()
        elif self._reading_paused:
            self._reading_paused = False
            self._transport.resume_reading()

    def _count(self) -> None:
        """Tell what is kept of requests and answers."""
        held_bytes = self._cutter.held_bytes + self._out_bytes
        if self._busy:
            held_bytes += self._request_bytes
        if self._blocked and self._transport is not None:
            held_bytes += self._transport.get_write_buffer_size()
        if held_bytes != self._held_bytes and self._transport is not None:
            self._held_bytes = held_bytes
            self.queued.update(self, held_bytes)

    # ---- small parts

    def _touch(self) -> None:
        self.last_active = asyncio.get_running_loop().time()

    def _close(self, why: str) -> None:
        """Close once what was answered before is written."""
        self._cutter.clear()
        self._flush()
        if self._transport is not None:
            logger.warning("closing the connection of %s: %s", self.name, why)
            self._transport.close()


def _is_at_hand(part: Part) -> bool:
    """Whether a part can be joined with others without waiting for a disk, or a thread."""
    if isinstance(part, FileRange):
        return part.size < SENDFILE_MIN_BYTES and part.is_cached
    return not isinstance(part, ConvertedRange)


def _content(part: Part) -> bytes | bytearray:
    """The bytes whose number the answer has announced. Raises OSError when some are missing."""
    if not isinstance(part, FileRange):
        assert not isinstance(part, ConvertedRange)
        return part
    read = part.read()
    if len(read) != part.size:
        raise OSError(f"only {len(read)} of {part.size} bytes were in the file")
    return read


def _pieces(whole: FileRange) -> Iterator[FileRange]:
    for done in range(0, whole.size, SENDFILE_MAX_BYTES):
        size = min(SENDFILE_MAX_BYTES, whole.size - done)
        yield FileRange(whole.file, whole.start + done, size)
