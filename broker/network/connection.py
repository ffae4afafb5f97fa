"""Serve one client's connection: one request at a time, responses in the order of requests.

A request with an immediate response is served inside the read callback, as far as the connection's
share of time goes (`turns`). The responses of one share are sent in one write.

A parked request (`purgatory`) blocks the requests behind it, and a connection with blocked requests
is not read, like a muted channel of Kafka. So responses keep the order of requests, and a client
cannot make us keep an unbounded number of them. A client that does not read its responses is
treated alike: nothing more is served until they are sent. The bytes that we keep all the same are
counted (`queued_bytes`).

One direction always goes on. A full receive buffer may make the kernel drop what else arrives, the
acknowledgements of our own bytes among it, and then neither side moves again. So while responses
are not sent, requests are taken up to AHEAD_BYTES, and beyond that a read now and then (`unclog`).

Large file ranges are sent by `sendfile`, or read piece by piece where the transport encrypts them.
Small ones are read, and joined with the bytes around them. A large response of many chunks is sent
some of them a turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from functools import partial
from itertools import count
from typing import Any, cast

import attrs

from broker.network.deadlines import frame_lateness, login_lateness
from broker.network.dispatch import (
    NO_RESPONSE,
    Close,
    Dispatch,
    Dispatched,
    FetchedParts,
    Refused,
)
from broker.network.down_conversion import ConvertedRange
from broker.network.fair_line import owner_of
from broker.network.purgatory import Parked, Purgatory, Wait
from broker.network.queued_bytes import READ_BYTES, QueuedBytes
from broker.network.request_context import Origin
from broker.network.response_parts import (
    SENDFILE_MAX_BYTES,
    SENDFILE_MIN_BYTES,
    Part,
    SendRange,
    bytes_in_memory,
    end_sendfile,
    is_small,
    read_part,
    send_by_sendfile,
    split_at_holes,
    split_range,
)
from broker.network.session import ANONYMOUS, PLAINTEXT_SESSION, Session, SessionRefused
from broker.network.socket_queues import unacknowledged_bytes, unread_bytes
from broker.network.turns import Share, Turns
from core_log.storage import FileRange
from protocol.closed_transport import abort, break_cycle
from protocol.frames import FrameCutter, FrameError
from protocol.header import encode_response
from protocol.tls.failures import TlsFailed

logger = logging.getLogger(__name__)

_NUMBERS = count(1)

JOINED_BYTES = 64 * 1024
"""Responses are joined into one write up to this size. After a write the transport reports whether
the client takes the bytes."""

REFUSAL_READ_S = 0.1
"""Time that a client has to read why its login is refused. Some read a response and the end of the
connection together, take note of the end alone, and try again with the same password."""
RUN_REQUESTS = 16
"""Most requests that are served at once."""
LAST_WAIT_S = 60.0
"""Longest wait that goes on when the client has sent the end of its bytes: it may have closed one
side alone, and read the response. With a longer one it is taken to be gone."""
AHEAD_BYTES = 512 * 1024
"""Bytes of requests up to which a client is read while its responses are not sent."""
BORDER_READ_BYTES = 64 * 1024
"""Most bytes that are read at once between two frames."""
STRANGER_READ_BYTES = 16 * 1024
"""The same, of a client that has to log in yet."""


@attrs.define(eq=False, repr=False)  # no repr: asyncio prints it into the log
class ClientConnection(asyncio.Protocol):
    """The server's side of a connection.

    `executor` reads bytes that are not in the page cache. `is_control_plane`: its listener is for
    the controller alone. `is_brokers`: a broker has sent requests on it. `was_read`: bytes have
    arrived since this was last cleared. `is_stranger`: the client has to log in, and has not yet.
    """

    dispatcher: Dispatch
    purgatory: Purgatory
    turns: Turns
    queued: QueuedBytes
    max_frame_bytes: int
    listener: str
    executor: Executor | None
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    on_close: Callable[[ClientConnection], None]
    session: Session = PLAINTEXT_SESSION
    is_control_plane: bool = False
    send_range: SendRange = send_by_sendfile
    piece_bytes: int = SENDFILE_MAX_BYTES
    number: int = attrs.field(factory=partial(next, _NUMBERS))
    name: str = "?"
    last_active: float = 0.0
    share: Share = attrs.field(factory=Share)
    is_brokers: bool = False
    was_read: bool = False
    is_stranger: bool = False
    client: str = "?"
    _origin: Origin = attrs.field(init=False)
    _is_unwanted: bool = False
    _transport: asyncio.Transport | None = None
    _cutter: FrameCutter = attrs.field(init=False)

    # What was read while nothing could be served, behind the bytes in `_cutter`.
    _ahead: bytearray = attrs.field(factory=bytearray)
    _has_ended: bool = False
    """True once the client has sent the end of its bytes, and some are not served yet."""

    # When bytes have arrived, the frame that is not complete has begun (0: none), and the client
    # has come or made a step of its login.
    _read_at: float = 0.0
    _frame_begun_at: float = 0.0
    _step_at: float = 0.0

    # Responses joined for the next write, and what `queued` has counted: bytes held, those of
    # responses among them, and whether the connection was within a frame.
    _out: list[bytes | bytearray] = attrs.field(factory=list)
    _out_bytes: int = 0
    _part_bytes: int = 0
    _request_bytes: int = 0
    _counted: tuple[int, int, bool] = (0, 0, False)

    # Set while requests that came together may be served at once.
    _tries_runs: bool = False

    # The request in service: parked, or its response is being sent in parts.
    _parked: Parked | None = None
    _sending: asyncio.Task[None] | None = None
    _busy: bool = False

    # Set while the client does not take what was written.
    _blocked: bool = False
    _unblocked: asyncio.Future[None] | None = None

    # Set while its client has to take responses before any of its connections is served.
    _is_held_back: bool = False

    # Reasons why nothing is read.
    _is_short_of_memory: bool = False
    _is_throttled: bool = False
    _throttle_timer: asyncio.TimerHandle | None = None
    _reading_paused: bool = False

    # What the client had not taken at the last look, how often that was so, and whether it is read
    # once all the same.
    _unsent_bytes: int = 0
    _stuck_looks: int = 0
    _is_unclogging: bool = False

    def __attrs_post_init__(self) -> None:
        self._cutter = FrameCutter(self.max_frame_bytes)
        self._note_session()
        self._touch()
        self._read_at = self._step_at = self.last_active

    def _note_session(self) -> None:
        self._origin = Origin(self.listener, self.name, self.number, self.session.principal)
        self.client = owner_of(self._origin).client
        self._cutter.max_bytes = self.session.max_frame_bytes or self.max_frame_bytes
        # A session limits frames until the client has logged in.
        is_stranger = self.session.max_frame_bytes is not None
        self.is_stranger = is_stranger and self.session.principal == ANONYMOUS

    def open_session(self, session: Session) -> None:
        """Serve the client by this session from now on."""
        self.session = session
        self._note_user()

    def _note_user(self) -> None:
        """Note who the client is now: what it holds is of that user's share."""
        self._note_session()
        if self._transport is not None:
            self._counted = (*self._counted[:2], self.is_in_frame)
            self.queued.update(self, *self._counted[:2])

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # With this limit `resume_writing` means that everything is sent.
        self._transport.set_write_buffer_limits(high=0)

        host, port, *_ = self._transport.get_extra_info("peername") or ("?", 0)
        self.name = f"{host}:{port}"
        self._note_session()

        self.queued.add(self)
        self._size_reads()
        self._touch()
        if self._is_unwanted:
            abort(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, TlsFailed):
            logger.warning("%s: connection closed: TLS failed: %s", self.name, exc)
        if self._transport is not None:
            end_sendfile(self._transport)
        # Thousands that are gone would stay in memory (fault strangers-103).
        break_cycle(self._transport)
        self._transport = None
        # A task that waits to send must find out that the client is gone.
        self._unblock()
        self._discard_input()
        if self._parked is not None:
            self._count_on(self._parked.wait)
            self.purgatory.cancel(self._parked)
            self._parked = None
        # A mute may last for long, and would keep the connection until then.
        if self._throttle_timer is not None:
            self._throttle_timer.cancel()
        self.queued.remove(self)
        self.on_close(self)

    def data_received(self, data: bytes) -> None:
        self._read_at = asyncio.get_running_loop().time()
        # Who takes no responses is idle, whatever it sends.
        if not self._blocked and self._sending is None:
            self.last_active = self._read_at
        self.was_read = True
        self._is_unclogging = False
        self._tries_runs = True
        # Each time that bytes are fed, those that are not cut are copied.
        if self._ahead or (self._is_stopped and self._cutter.has_more):
            self._ahead += data
        else:
            self._cutter.feed(data)
        self.turns.serve_or_line_up(self)
        # Or all that are ready would be read before any of it is counted.
        if self.share.in_line:
            self._count()

    def eof_received(self) -> bool:
        # Requests that were read before their turn, and the response that is being sent, come
        # first; the transport would close the socket under it. So does a refusal, which is late.
        if self._has_more_input or self._sending is not None or self._is_throttled:
            self._has_ended = True
            return True
        if self._parked is not None and not self._waits_long:
            # It may read the response all the same, as from Kafka, which does not read meanwhile.
            self._has_ended = True
            return True
        if self._cutter.has_input:
            logger.info("%s: the client closed the connection within a request", self.name)
        return False

    def pause_writing(self) -> None:
        self._blocked = True

    def resume_writing(self) -> None:
        self._touch()
        self._unblock()
        self.turns.serve_or_line_up(self)

    def _unblock(self) -> None:
        self._blocked = False
        if self._unblocked is not None and not self._unblocked.done():
            self._unblocked.set_result(None)

    # ---- requests, when `turns` says so

    @property
    def is_waiting(self) -> bool:
        """True while a request is parked; such a connection is not idle."""
        return self._parked is not None

    @property
    def _waits_long(self) -> bool:
        """True while a request is parked whose wait will not end by itself soon."""
        if self._parked is None or self._parked.timer is None:
            return False
        return self._parked.timer.when() - asyncio.get_running_loop().time() > LAST_WAIT_S

    @property
    def is_closing(self) -> bool:
        """True if `close` was called, or the connection closes by itself."""
        is_ending = self._transport is not None and self._transport.is_closing()
        return self._is_unwanted or is_ending

    def close(self) -> None:
        """Close from the server's side, without a response. It may have no transport yet."""
        self._is_unwanted = True
        # Cancel first: the loop would go on waiting for the closed socket, and the next socket that
        # is opened gets its number.
        if self._sending is not None:
            self._sending.cancel()
        if self._transport is not None:
            abort(self._transport)

    @property
    def _is_stopped(self) -> bool:
        """True while nothing may be served."""
        return self._busy or self._blocked or self._is_throttled or self._is_held_back

    @property
    def _has_more_input(self) -> bool:
        """True if there may be another request."""
        return self._cutter.has_more or bool(self._ahead)

    @property
    def has_more(self) -> bool:
        """True if there may be another request that can be served now."""
        return (self._cutter.has_more or bool(self._ahead)) and not self._is_stopped

    def serve_next(self) -> int:
        """Serve the next request, or several alike; return how many could be served now."""
        # Not by a property: each request comes here twice.
        if self._busy or self._blocked or self._is_throttled:
            return 0
        if self.queued.holds_back and not self._has_room():
            return 0

        try:
            frame = self._cutter.cut()
            if frame is None and self._ahead:
                ahead, self._ahead = bytes(self._ahead), bytearray()
                self._cutter.feed(ahead)
                frame = self._cutter.cut()
        except FrameError as error:
            self._close(str(error))
            return 0
        if frame is None:
            return 0

        self._request_bytes = len(frame)
        self._frame_begun_at = 0.0
        try:
            # A step of a login is no request.
            if self.session.takes_frames:
                step = self.session.receive(frame)
                if step is not None:
                    self._write(step)
                    self._note_login_step()
                    return 1
            elif self._tries_runs and self._cutter.has_more and (served := self._serve_run(frame)):
                return served
            dispatched = self.dispatcher.dispatch(frame, self._origin)
        except SessionRefused as error:
            self._end_session(error)
            return 0
        except Refused as error:
            self._close(str(error))
            return 0

        if dispatched.is_from_broker:
            self.is_brokers = True
        self._handle_outcome(dispatched)
        return 1

    def _has_room(self) -> bool:
        """Return whether there is room for another response to the client."""
        # It was closed while it was in line (fault strangers-7).
        if self._transport is None:
            return False
        # Until a request has shown it, nobody knows that a broker has come (fault strangers-6).
        has_room = self.queued.may_serve(self) or self.dispatcher.is_from_broker(
            self._cutter.begin, self._origin
        )
        self._is_held_back = not has_room
        return has_room

    def serve_again(self) -> None:
        """Serve the requests that wait, when the client has taken responses."""
        self._is_held_back = False
        self.turns.line_up(self)

    def _note_login_step(self) -> None:
        was_stranger = self.is_stranger
        self._step_at = asyncio.get_running_loop().time()
        self._note_user()
        # The first request behind the login shows whether it is a broker's.
        if was_stranger and not self.is_stranger:
            self.was_read = False

    def _serve_run(self, frame: memoryview) -> int:
        """Serve a request and those behind it at once, if they are alike. Raises Refused."""
        behind = self._cutter.peek(RUN_REQUESTS - 1)
        responses = self.dispatcher.dispatch_run([frame, *behind], self._origin) if behind else ()
        # What does not begin alike goes on so: it is not looked at again before the next read.
        self._tries_runs = bool(responses)
        if responses:
            self._cutter.skip(behind[: len(responses) - 1])
            self._write(b"".join(responses))
        return len(responses)

    def end_share(self) -> None:
        """Send the responses, and read on only if no request is left to be served."""
        self._flush()
        if not self._cutter.has_input:
            self._frame_begun_at = 0.0
        elif not self._frame_begun_at:
            self._frame_begun_at = self._read_at
        self._count()
        self._pause_or_resume_reading()

        # The end that came early is due now.
        is_over = not self._is_stopped or self._waits_long
        if self._has_ended and not self._has_more_input and is_over:
            self._has_ended = False
            if not self.eof_received() and self._transport is not None:
                self._transport.close()

    def _handle_outcome(self, dispatched: Dispatched) -> None:
        # The response is sent at once, and the connection is muted after it (KIP-219).
        if dispatched.throttle_ms:
            self._throttle(dispatched.throttle_ms)
        if isinstance(dispatched.outcome, Wait):
            self._park(dispatched.outcome)
        else:
            self._respond(dispatched)

    def _park(self, wait: Wait) -> None:
        """Serve nothing more until the request has its response."""
        assert not self._busy, "a connection serves one request at a time"
        self._busy = True

        def end_wait(dispatched: Dispatched) -> None:
            self._count_on(wait)
            self._parked = None
            self._busy = False
            self._touch()
            if self._transport is not None:
                self._handle_outcome(dispatched)
                self._flush()
                self._count()
                # Requests have arrived meanwhile, or reading or its end has waited for this one.
                if self._has_more_input or self._reading_paused or self._has_ended:
                    self.turns.line_up(self)

        # None: the wait has ended already, and the request may be parked for something else.
        parked = self.purgatory.park(wait, end_wait)
        if parked is not None:
            self._parked = parked

    def _respond(self, dispatched: Dispatched) -> None:
        header = dispatched.header
        outcome = dispatched.outcome
        if isinstance(outcome, Close):
            self._close(outcome.reason)
            return

        # The short way has made the whole frame.
        if isinstance(outcome, bytes):
            self._write(outcome)
            return

        if outcome is not NO_RESPONSE:
            try:
                if isinstance(outcome, FetchedParts):
                    self._send_with_files([*outcome.parts])
                    return
                encoded, holes = encode_response(
                    header.api_key, header.api_version, header.correlation_id, outcome
                )
                if holes:
                    self._send_with_files(split_at_holes(encoded, holes))
                else:
                    self._write(encoded)
            except Exception as error:
                # Not raised: the caller may be another connection's request, which ended a wait.
                self._close(f"a response cannot be sent: {error!r}")
                return

        if dispatched.close:
            self._close("a request failed unexpectedly; the error is logged above")

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

    def _send_with_files(self, parts: list[Part]) -> None:
        """Join a response that is small and cached; send any other part by part."""
        if is_small(parts):
            self._write(b"".join([read_part(part) for part in parts]))
            return

        self._flush()
        # The parts use the transport alone: nothing else is served until all are sent.
        self._busy = True
        # Until they are sent they are memory too (fault security-5).
        self._part_bytes = bytes_in_memory(parts)
        self._sending = self.spawn(self._send_parts(parts))

    async def _send_parts(self, parts: list[Part]) -> None:
        try:
            # What is sent is not held any more: the next may take long.
            while parts:
                part = parts.pop(0)
                if isinstance(part, bytes | bytearray):
                    self._part_bytes -= len(part)
                await self._send_part(part)
            await self._send_joined()
        except (ConnectionError, RuntimeError, OSError) as error:
            # RuntimeError: the transport was closing when the loop's sendfile began.
            self._close(f"sending failed: {error!r}")
            return
        finally:
            self._sending = None
            self._part_bytes = 0

        self._busy = False
        self.turns.serve_or_line_up(self)

    async def _send_part(self, part: Part) -> None:
        # A small range of a file: joined with its neighbours.
        if isinstance(part, FileRange) and part.size < SENDFILE_MIN_BYTES:
            await self._read_in(part)
            self._join(read_part(part))

        # A large one: sent from the file, after the bytes before it.
        elif isinstance(part, FileRange):
            await self._send_joined()
            for piece in split_range(part, self.piece_bytes):
                await self._read_in(piece)
                await self._send_file(piece)
        elif isinstance(part, ConvertedRange):
            await self._send_joined()
            await self._send_converted(part)

        # Bytes in memory.
        else:
            self._join(part)

        if self._out_bytes >= JOINED_BYTES:
            await self._send_joined()
            # However fast the client reads, others have their turn.
            await asyncio.sleep(0)

    def _join(self, part: bytes | bytearray) -> None:
        self._out.append(part)
        self._out_bytes += len(part)

    async def _send_joined(self) -> None:
        """Write the joined parts, and wait until they are sent."""
        self._require_transport()
        self._flush()
        self._count()
        if self._blocked:
            self._unblocked = asyncio.get_running_loop().create_future()
            await self._unblocked

    async def _read_in(self, part: FileRange) -> None:
        """Read bytes into the page cache in a thread: the loop must not wait for the disk."""
        if not part.is_cached:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self.executor, part.read)

    async def _send_file(self, part: FileRange) -> None:
        # The loop's sendfile stops reading until the client has taken the file
        # (fault outside-O18).
        asyncio.get_running_loop().call_soon(self._pause_or_resume_reading)
        sent = await self.send_range(self._require_transport(), part)
        # The transport needs the bytes in memory.
        if sent is None:
            self._join(read_part(part))
            sent = part.size
            await self._send_joined()
            # To encrypt is to compute: others have their turn, however fast the client reads.
            await asyncio.sleep(0)

        # The response has announced more: nothing sent after it would be understood.
        if sent != part.size:
            raise OSError(f"only {sent} of {part.size} bytes were in the file")
        self._touch()

    async def _send_converted(self, part: ConvertedRange) -> None:
        """Convert a piece in a thread, and the next one when the client has taken this one."""
        loop = asyncio.get_running_loop()
        converted = part.pieces()
        while (
            piece := await loop.run_in_executor(part.executor, next, converted, None)
        ) is not None:
            self._join(piece)
            await self._send_joined()
            self._touch()

    def _require_transport(self) -> asyncio.Transport:
        if self._transport is None:
            raise ConnectionResetError("the client is gone")
        return self._transport

    # ---- reading, and the memory it takes

    @property
    def is_in_frame(self) -> bool:
        """True while the beginning of a frame is kept until its rest arrives."""
        return self._cutter.is_in_frame and not self._ahead

    @property
    def has_unread(self) -> bool:
        """True if the client has sent bytes that are not read yet."""
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        return sock is not None and unread_bytes(sock) > 0

    def pause_reading(self) -> None:
        """Stop reading until `resume_reading`, because memory is short."""
        self._is_short_of_memory = True
        self._pause_or_resume_reading()

    def resume_reading(self) -> None:
        """Read on, unless something else keeps the connection from being read."""
        self._is_short_of_memory = False
        self._pause_or_resume_reading()

    def _throttle(self, throttle_ms: int) -> None:
        """Serve and read nothing for a while, because the client exceeds its quota."""
        self._is_throttled = True
        loop = asyncio.get_running_loop()
        self._throttle_timer = loop.call_later(throttle_ms / 1000, self._end_throttle)

    def _end_throttle(self) -> None:
        self._throttle_timer = None
        self._is_throttled = False
        self.turns.serve_or_line_up(self)

    @property
    def _is_sending(self) -> bool:
        """True while the client has not taken what was written."""
        return self._blocked or self._sending is not None

    @property
    def _ahead_bytes(self) -> int:
        """Return the bytes of requests that are not served yet."""
        return self._cutter.held_bytes + len(self._ahead)

    @property
    def _may_read(self) -> bool:
        """True unless requests have to be served, memory be free or a time be over first."""
        # Once, because the acknowledgements of our own bytes come behind what is not read.
        if self._is_unclogging:
            return True
        if self._is_short_of_memory or self._is_throttled:
            return False
        has_input = self._cutter.has_more or bool(self._ahead)
        # With a full receive buffer nothing might ever be sent (fault outside-O18).
        if has_input and self._is_sending and self._ahead_bytes < AHEAD_BYTES:
            return True
        return not has_input

    def _pause_or_resume_reading(self) -> None:
        if self._transport is None:
            return
        if not self._may_read:
            # Repeated even if reading is paused, because sendfile resumes it.
            self._reading_paused = True
            self._transport.pause_reading()
        # Repeated while a file is sent, because sendfile has paused it.
        elif self._reading_paused or self._sending is not None:
            self._reading_paused = False
            self._transport.resume_reading()
        self._size_reads()

    def _size_reads(self) -> None:
        """Set how much one read brings: much in a large frame, or where all has to be taken."""
        if self._transport is None:
            return
        size = STRANGER_READ_BYTES if self.is_stranger else BORDER_READ_BYTES
        is_in_large_frame = self._cutter.is_in_frame and not self.is_stranger
        is_sending = self._blocked or self._sending is not None
        if is_sending or self._is_unclogging or is_in_large_frame:
            size = READ_BYTES
        # An attribute of asyncio's transports.
        self._transport.max_size = size  # type: ignore[attr-defined]

    def unclog(self) -> None:
        """Take one read of a client that is not read, if it takes nothing of what it was sent.

        Call it from time to time. It takes reads ever more seldom, after 1, 2, 4, … calls, because
        such a client may just not read: until it is idle they are few.
        """
        unsent_bytes = self._unsent() if self._reading_paused else 0
        is_stuck = unsent_bytes > 0 and unsent_bytes == self._unsent_bytes
        self._unsent_bytes = unsent_bytes
        self._stuck_looks = self._stuck_looks + 1 if is_stuck else 0

        if is_stuck and self._stuck_looks & (self._stuck_looks - 1) == 0:
            # Short memory, a mute or a parked request may last long (fault outside-O18).
            self._is_unclogging = True
            self._pause_or_resume_reading()

    def _unsent(self) -> int:
        """Return how many bytes the client has not taken, of those that left the connection."""
        if self._transport is None:
            return 0
        sock = self._transport.get_extra_info("socket")
        in_kernel = 0 if sock is None else unacknowledged_bytes(sock)
        return in_kernel + self._transport.get_write_buffer_size()

    def lateness(self, now: float) -> str | None:
        """Return why the client is too late with a frame or its login; None if it is not.

        `now` is the event loop's time in seconds.
        """
        reason = None
        # Not if it is whole, and waits for us.
        if self._frame_begun_at and not self._has_more_input:
            reason = frame_lateness(
                self._frame_begun_at, self._read_at, self._cutter.held_bytes, now
            )
        if self.session.max_frame_bytes is not None and not self._is_stopped:
            reason = reason or login_lateness(self._step_at, now)

        # What it has sent waits for us, but for a stranger's that is above its share.
        is_ours = not (self.is_stranger and self._is_short_of_memory)
        if reason is not None and is_ours and self.has_unread:
            self._read_at = self._step_at = now
            self._frame_begun_at = self._frame_begun_at and now
            return None
        return reason

    def _count(self) -> None:
        """Report how many bytes of requests and responses are kept."""
        # Incomplete and waiting frames, and responses that are not written.
        unsent_bytes = self._out_bytes + self._part_bytes
        if self._blocked and self._transport is not None:
            unsent_bytes += self._transport.get_write_buffer_size()
        held_bytes = self._cutter.held_bytes + len(self._ahead) + unsent_bytes
        if self._busy:
            held_bytes += self._request_bytes

        # Most connections hold nothing between two requests.
        if not held_bytes and not self._counted[0]:
            return
        counted = (held_bytes, unsent_bytes, self.is_in_frame)
        if counted != self._counted and self._transport is not None:
            self._counted = counted
            self.queued.update(self, held_bytes, unsent_bytes)

    def _count_on(self, wait: Wait) -> None:
        """Count a request that is nobody's any more for as long as work holds it."""
        if wait.work is not None and not wait.work.is_done:
            # Else what closed connections leave behind has no bound (fault security-3).
            wait.work.call_when_done(self.queued.keep(self, self._request_bytes))

    # ---- small parts

    def _end_session(self, refused: SessionRefused) -> None:
        """Send the refusal and close, late where that is asked for. Nothing is read until then."""
        loop = asyncio.get_running_loop()

        def refuse() -> None:
            if not refused.response:
                self._close(str(refused))
                return
            self._write(refused.response)
            self._flush()
            loop.call_later(REFUSAL_READ_S, self._close, str(refused))

        self._discard_input()
        self._is_throttled = True
        if refused.delay_ms:
            loop.call_later(refused.delay_ms / 1000, refuse)
        else:
            refuse()

    def _discard_input(self) -> None:
        large = self._cutter.take_large()
        self._ahead.clear()
        # Many clients may go, or be late, at once, each within 100 MB (fault security-5).
        if large is not None and self.executor is not None:
            # The broker may be stopping: then it is freed here.
            with contextlib.suppress(RuntimeError):
                self.executor.submit(large.close)

    def _touch(self) -> None:
        self.last_active = asyncio.get_running_loop().time()

    def _close(self, reason: str) -> None:
        """Close after the earlier responses are written."""
        self._discard_input()
        self._flush()
        if self._transport is not None:
            logger.warning("%s: connection closed: %s", self.name, reason)
            self._transport.close()
