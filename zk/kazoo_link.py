"""kazoo's client on the event loop's terms: requests out, replies and watch events in, in order.

kazoo keeps one thread for the connection, and by itself two more, on which it runs callbacks: a
reply and a watch event may overtake each other there. Here all of it goes straight from the
connection's thread to the loop, in the order of the wire. What kazoo does not do is added:

- It forgets all watches when the connection breaks. `set_watches` gives them to the server again
  with the last transaction seen, and the server answers with what changed since (SetWatches, what
  ZooKeeper's Java client does).
- It doesn't keep the session timeout the server granted.
- Requests count as pings to it, so a client that keeps asking would never notice that nobody
  answers. A connection silent for two thirds of the timeout is dropped (Java's readTimeout).
- It waits for a connection, and then for the answer to it, as long as the session lasts. A machine
  without power answers nothing at all, and a server that is just starting may accept and say
  nothing; the session would end with the waiting. An attempt gets the session timeout divided by
  the number of hosts, as in Java's client, and at most MAX_ATTEMPT of it. The next attempt goes to
  the next host, in an order drawn once, so that the silent machine is not met twice in a row.
- It reports an expired and a closed session alike.
- Its thread ends at a reply it can't read, and the session with it. Here that is a broken
  connection like any other, and so is a reply to another request than the oldest.
- It doesn't ask what the server can do. A server before 3.6 answers a MultiRead at once, past
  the requests before it, and breaks the connection. So each connection begins with an empty one,
  alone, before it counts as one; who can't answer is connected to again, and not asked any more.

`_Connection` overrides kazoo's internals, those of kazoo 2.11.
"""

import asyncio
import contextlib
import logging
import random
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import attrs
from kazoo.client import KazooClient
from kazoo.exceptions import (
    EXCEPTIONS,
    ConnectionDropped,
    KazooException,
    NoNodeError,
    SessionExpiredError,
    UnimplementedError,
    ZookeeperError,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol import serialization as packet
from kazoo.protocol.connection import (
    AUTH_XID,
    CLOSE_RESPONSE,
    PING_XID,
    STOP_CONNECTING,
    WATCH_XID,
    ConnectionHandler,
)
from kazoo.protocol.states import KeeperState

SILENCE_BOUND = 2 / 3  # of the session timeout
MAX_ATTEMPT = 1 / 3  # of the session timeout
MAX_SET_WATCHES_BYTES = 128 * 1024  # of paths in one request, as in Java's client
MAX_REPLY_BYTES = 1 << 30  # a thousand nodes of MAX_REQUEST_BYTES each; more is no ZooKeeper's
MIN_PAUSE_S = 0.1  # between two rounds of all hosts
MAX_PAUSE_S = 1.0
PAUSE_JITTER = 0.4  # of a pause
_REQUEST_HEADER_BYTES = 8  # its number and type

_log = logging.getLogger(__name__)
_log.setLevel(logging.ERROR)  # kazoo warns at every attempt to reconnect; the session says it once

OnEvent = Callable[[int, str], None]
Post = Callable[..., None]


@attrs.frozen
class LinkState:
    """What became of the connection, and when: `last_zxid` is the last transaction seen before."""

    state: str  # kazoo's KeeperState
    session_id: int  # 0 unless connected
    answered_at: float  # time.monotonic(); see `KazooLink.silent_s`
    last_zxid: int


class KazooLink:
    """One kazoo client. Made and used on the event loop only. Raises ValueError for bad `hosts`.

    `on_event(type, path)`: ZooKeeper's types are 1 created, 2 deleted, 3 changed, 4 children.
    """

    def __init__(
        self,
        hosts: str,
        session_timeout_ms: int,
        on_state: Callable[[LinkState], None],
        on_event: OnEvent,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_state = on_state
        self._client = client = KazooClient(
            hosts,
            timeout=session_timeout_ms / 1000,
            handler=_LoopHandler(self._post),
            logger=_log,
        )
        self._connection = client._connection = _Connection(
            client, client._conn_retry.copy(), logger=_log
        )
        self._connection.on_event = partial(self._post, on_event)
        self._connection.is_orphaned = self._loop.is_closed
        self._watchdog: asyncio.TimerHandle | None = None

    @property
    def session_id(self) -> int:
        """As kazoo's thread knows it, which may be ahead of `on_state`; 0 when not connected."""
        client_id = self._client.client_id
        return client_id[0] if client_id else 0

    @property
    def granted_timeout_ms(self) -> int:
        """What the server granted when it was last connected to."""
        return self._connection.granted_timeout_ms

    @property
    def can_multi_read(self) -> bool:
        """True when the server that was last connected to has answered a MultiRead."""
        return self._connection.can_multi_read

    @property
    def silent_s(self) -> float:
        """How long ago that was sent which the server answered last: since then it may have heard
        nothing, whatever has come from it, and a stopped process reads late what came early."""
        return time.monotonic() - self._connection.answered_at

    def start(self) -> None:
        """Begin to connect, and to connect again whenever the connection breaks."""
        self._client.add_listener(self._report)
        self._client.start_async()
        self._watch_silence()

    async def close(self, timeout_s: float) -> None:
        """End the session; give up on a server that doesn't answer after `timeout_s`."""
        if self._watchdog:
            self._watchdog.cancel()
        if not self.session_id:
            self._connection.drop()
        stopping = self._loop.run_in_executor(None, self._stop)
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(stopping)
        except TimeoutError:
            pass
        finally:
            if not stopping.done():  # also when the caller has no time to wait
                self._connection.drop()

    def call(
        self, request: "Request", then: Callable[[Any], None] | None = None
    ) -> "asyncio.Future[Any]":
        """Send `request` behind those sent before; `then(reply)` runs before all that came later.

        The future raises kazoo's exceptions.
        """
        reply = _Reply(self._post, self._loop.create_future(), then)
        self._client._call(request, reply)
        return reply.future

    def set_watches(
        self, zxid: int, data: Sequence[str], absent: Sequence[str], children: Sequence[str]
    ) -> None:
        """Have the server watch these again; what has changed since `zxid` fires at once."""
        for request in set_watches_requests(zxid, data, absent, children):
            self.call(Request.of(request)).add_done_callback(_forget)

    def _post(self, callback: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody is left to tell
            self._loop.call_soon_threadsafe(callback, *args)

    def _report(self, _: str) -> None:
        """On kazoo's thread, whenever the connection's state has changed."""
        client = self._client
        answered_at = self._connection.answered_at
        now = LinkState(client.client_state, self.session_id, answered_at, client.last_zxid)
        self._post(self._on_state, now)

    def _watch_silence(self) -> None:
        timeout_s = (self.granted_timeout_ms or 1000) / 1000
        unanswered_s = time.monotonic() - self._connection.heard_at
        if self.session_id and unanswered_s > timeout_s * SILENCE_BOUND:
            self._connection.drop()
        self._watchdog = self._loop.call_later(timeout_s / 10, self._watch_silence)

    def _stop(self) -> None:
        with contextlib.suppress(Exception):  # a thread that won't end is a daemon's
            self._client.stop()
            self._client.close()


class _LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threading without its two threads for callbacks."""

    running = True
    connect_timeout_s: float | None = None  # kazoo would wait as long as the session lasts

    def __init__(self, post: Post) -> None:
        super().__init__()
        self.completion_queue = _LoopQueue(post)

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def dispatch_callback(self, callback: Any) -> None:
        """Only asked to say that watches are lost, which they aren't."""

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        return super().create_connection(*args, **kwargs | {"timeout": self.connect_timeout_s})


@attrs.frozen
class _LoopQueue:
    put: Post


@attrs.define
class _Pause:
    """How long to wait before all hosts are tried again; kazoo resets it when one has answered."""

    _s: float = MIN_PAUSE_S

    def reset(self) -> None:
        self._s = MIN_PAUSE_S

    def next_s(self) -> float:
        pause_s, self._s = self._s, min(self._s * 2, MAX_PAUSE_S)
        return pause_s * random.uniform(1 - PAUSE_JITTER, 1 + PAUSE_JITTER)


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection, which remembers when it heard what, and hands watch events on."""

    granted_timeout_ms = 0
    heard_at = 0.0  # time.monotonic() of the last answer, and when that was sent which it answers
    answered_at = 0.0
    can_multi_read = False
    on_event: OnEvent
    is_orphaned: Callable[[], bool]
    _serves_no_multi_read = False
    _attempt_ends = 0.0
    _pinged_at: deque[float]

    def drop(self) -> None:
        """From any thread: break the connection; kazoo will make a new one."""
        with contextlib.suppress(OSError, AttributeError):  # not connected, or no longer
            self._socket.shutdown(socket.SHUT_RDWR)

    # --- connecting ---------------------------------------------------------------------------

    def zk_loop(self) -> None:
        """Connect to one host after the other until the client is stopped."""
        self.connection_stopped.clear()
        pause = _Pause()
        try:
            for address in self._addresses(pause):
                if self.client._stopped.is_set() or self._attempt(address, pause):
                    break
        finally:
            self.connection_stopped.set()
            self.client._session_callback(KeeperState.CLOSED)

    def _addresses(self, pause: _Pause) -> Iterator[tuple[str, str, int]]:
        """Name, address and port of each host, in an order drawn once, with a pause after each
        round; resolved anew each time."""
        hosts = random.sample(self.client.hosts, len(self.client.hosts))
        stopped = self.client._stopped
        while not stopped.is_set():
            for host, port in hosts:
                for address in _resolved(host, port):
                    yield host, address, port
            stopped.wait(pause.next_s())

    def _attempt(self, address: tuple[str, str, int], pause: _Pause) -> bool:
        """A connection from the attempt to its end. Returns whether it was the last one."""
        timeout_s = (self.granted_timeout_ms or self.client._session_timeout) / 1000
        bound_s = min(timeout_s / len(self.client.hosts), timeout_s * MAX_ATTEMPT)
        self._attempt_ends = time.monotonic() + bound_s
        self._pinged_at = deque()
        self.handler.connect_timeout_s = bound_s
        knew_what_it_serves = self._serves_no_multi_read
        try:
            is_last: bool = self._connect_attempt(*address, pause) is STOP_CONNECTING
        except Exception:  # kazoo has logged it: something that no ZooKeeper sends
            self.client._session_callback(KeeperState.CONNECTING)
            return False
        if self._serves_no_multi_read and not knew_what_it_serves:
            return self._attempt(address, pause)  # nothing is wrong with this host
        return is_last

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        if not isinstance(request, packet.Connect):
            return super()._invoke(timeout, request, xid)
        asked_at = time.monotonic()
        answer = super()._invoke(self._attempt_s(), request, xid)
        self.heard_at, self.answered_at = time.monotonic(), asked_at
        granted = answer[0]
        if granted.time_out > 0:
            self.granted_timeout_ms = granted.time_out
            # What kazoo would note when it is too late: the next connection shall go on with it.
            self.client._session_id, self.client._session_passwd = (
                granted.session_id,
                granted.passwd,
            )
            self._ask_for_multi_read()
        return answer

    def _ask_for_multi_read(self) -> None:
        """Find out whether the server knows MultiRead. Raises ConnectionDropped if it does not."""
        if self._serves_no_multi_read:
            return
        self._xid = 1
        try:
            super()._invoke(self._attempt_s(), MultiRead(()), xid=self._xid)
            self.can_multi_read = True
        except (UnimplementedError, ConnectionDropped):
            self._serves_no_multi_read, self.can_multi_read = True, False
            raise ConnectionDropped("a server older than 3.6, which breaks off") from None
        except SessionExpiredError:
            raise
        except ZookeeperError:  # of whatever has learned this protocol
            self.can_multi_read = False

    def _attempt_s(self) -> float:
        """What is left of the attempt."""
        return max(0.0, self._attempt_ends - time.monotonic())

    # --- writing and reading ------------------------------------------------------------------

    def _submit(self, request: Any, timeout: float, xid: int | None = None) -> None:
        if isinstance(request, Request):
            request.sent_at = time.monotonic()
        elif request is packet.PingInstance:
            self._pinged_at.append(time.monotonic())
        super()._submit(request, timeout, xid)

    def _read(self, length: int, timeout: float) -> bytes:
        if not 0 <= length <= MAX_REPLY_BYTES:
            raise ConnectionDropped(f"no ZooKeeper sends {length} bytes")
        content: bytes = super()._read(length, timeout)
        return content

    def _read_header(self, timeout: float) -> Any:
        header = super()._read_header(timeout)
        if header[0].xid == AUTH_XID:  # kazoo would take it for the answer to the oldest request
            raise ConnectionDropped("the reply to an authentication, and there was none")
        if self.is_orphaned():  # nobody can close the session any more: let it expire
            self.client._stopped.set()
            raise ConnectionDropped("the event loop has been closed")
        if header[0].xid != WATCH_XID:  # which comes unasked, though the server hears nothing of us
            self.heard_at = time.monotonic()
        if header[0].xid == PING_XID and self._pinged_at:
            self.answered_at = max(self.answered_at, self._pinged_at.popleft())
        return header

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        event, _ = packet.Watch.deserialize(buffer, offset)
        self.on_event(event.type, event.path)

    def _read_response(self, header: Any, buffer: bytes, offset: int) -> Any:
        """Answer the oldest request. Replies come in the order of the requests, or the connection
        is of no use any more: nobody could say which replies are missing."""
        pending = self.client._pending
        if not pending or pending[0][2] != header.xid:
            due = pending[0][2] if pending else "none"
            raise ConnectionDropped(f"the reply to {header.xid} came where {due} was due")
        request, reply, _ = pending.popleft()
        if isinstance(request, Request):
            self.answered_at = max(self.answered_at, request.sent_at)
        if header.zxid > 0:
            self.client.last_zxid = header.zxid
        if reply is None:  # of `Close`
            return CLOSE_RESPONSE
        try:
            reply.set(_value(request, header.err, buffer, offset))
        except KazooException as error:
            reply.set_exception(error)
        except Exception as error:
            reply.set_exception(UnreadableReply(f"{type(error).__name__} {error}"))
        return None


def _resolved(host: str, port: int) -> list[str]:
    """The addresses of a host; none if its name means nothing (now)."""
    try:
        found = socket.getaddrinfo(host, port, 0, 0, socket.IPPROTO_TCP)
    except (OSError, UnicodeError):
        return []
    return [str(address[0]) for *_, address in found]


def _value(request: Any, error_code: int, buffer: bytes, offset: int) -> Any:
    """What the server has answered. Raises what it has refused."""
    if error_code == NoNodeError.code and request.type == packet.Exists.type:
        return None
    if error_code:
        raise EXCEPTIONS[error_code]()
    return request.deserialize(buffer, offset)


class UnreadableReply(KazooException):  # type: ignore[misc]
    """The server answered in a way that only this request suffers from."""


@attrs.define(eq=False)
class Request:
    """A request in the form kazoo's connection sends. It is serialized by who asks: what can't be
    sent must not be met by the connection's thread, which serves others too."""

    asked: Any
    content: bytes
    sent_at: float = 0.0  # time.monotonic()

    @classmethod
    def of(cls, asked: Any) -> "Request":
        """Raises UnicodeEncodeError for a path or name that is no text."""
        return cls(asked, bytes(asked.serialize()))

    @property
    def type(self) -> int:
        code: int = self.asked.type
        return code

    @property
    def size_bytes(self) -> int:
        """As the server counts it, with the request's number and type."""
        return len(self.content) + _REQUEST_HEADER_BYTES

    def serialize(self) -> bytes:
        return self.content

    def deserialize(self, buffer: bytes, offset: int) -> Any:
        return self.asked.deserialize(buffer, offset)


@attrs.define(eq=False)
class _Reply:
    """Where kazoo's thread puts a reply; stands in for kazoo's AsyncResult."""

    _post: Post
    future: "asyncio.Future[Any]"
    _then: Callable[[Any], None] | None

    def set(self, value: Any = None) -> None:
        self._post(self._settle, value, None)

    def set_exception(self, error: Exception) -> None:
        self._post(self._settle, None, error)

    def _settle(self, value: Any, error: Exception | None) -> None:
        if self.future.done():  # the caller has given up
            return
        if error is not None:
            self.future.set_exception(error)
            return
        if self._then:
            self._then(value)
        self.future.set_result(value)


def set_watches_requests(
    zxid: int, data: Sequence[str], absent: Sequence[str], children: Sequence[str]
) -> Iterator["SetWatches"]:
    """As many requests as it takes to keep each within MAX_SET_WATCHES_BYTES of paths."""
    some: tuple[list[str], list[str], list[str]] = ([], [], [])
    size_bytes = 0
    for kind, paths in enumerate((data, absent, children)):
        for path in paths:
            path_bytes = len(packet.write_string(path))
            if size_bytes + path_bytes > MAX_SET_WATCHES_BYTES and size_bytes:
                yield SetWatches(zxid, *some)
                some, size_bytes = ([], [], []), 0
            some[kind].append(path)
            size_bytes += path_bytes
    if size_bytes:
        yield SetWatches(zxid, *some)


@attrs.frozen
class SetWatches:
    """ZooKeeper's request 101, in the form kazoo's connection sends and reads."""

    zxid: int
    data: Sequence[str]
    absent: Sequence[str]
    children: Sequence[str]
    type = 101

    def serialize(self) -> bytes:
        parts = [packet.long_struct.pack(self.zxid)]
        for paths in (self.data, self.absent, self.children):
            parts += [packet.int_struct.pack(len(paths)), *map(packet.write_string, paths)]
        return b"".join(parts)

    def deserialize(self, buffer: bytes, offset: int) -> None:
        """The reply is empty."""


@attrs.frozen
class MultiRead:
    """ZooKeeper's request 22, since 3.6: the data of many nodes, None for those that are not there.

    An older server answers UnimplementedError past the requests before it, and breaks the
    connection.
    """

    paths: Sequence[str]
    type = 22

    def serialize(self) -> bytes:
        header = packet.MultiHeader(packet.GetData.type, False, -1).serialize()
        asked = [header + packet.GetData(path, None).serialize() for path in self.paths]
        return b"".join([*asked, packet.multiheader_struct.pack(-1, True, -1)])

    def deserialize(
        self, buffer: bytes, offset: int
    ) -> list[tuple[bytes | None, packet.ZnodeStat] | None]:
        """Raises the error of a node that is there and may not be read."""
        results: list[tuple[bytes | None, packet.ZnodeStat] | None] = []
        header, offset = packet.MultiHeader.deserialize(buffer, offset)
        while not header.done:
            if header.type == packet.GetData.type:
                data, offset = packet.read_buffer(buffer, offset)
                stat = packet.ZnodeStat._make(packet.stat_struct.unpack_from(buffer, offset))
                offset += packet.stat_struct.size
                results.append((data, stat))
            else:
                (code,) = packet.int_struct.unpack_from(buffer, offset)
                offset += packet.int_struct.size
                if code != NoNodeError.code:
                    raise EXCEPTIONS[code]()
                results.append(None)
            header, offset = packet.MultiHeader.deserialize(buffer, offset)
        return results


def _forget(future: "asyncio.Future[Any]") -> None:
    """A lost SetWatches is sent again when the session is connected again."""
    if not future.cancelled():
        future.exception()
