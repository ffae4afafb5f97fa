"""kazoo's client on the event loop's terms: requests out, replies and watch events in, in order.

kazoo keeps one thread for the connection, and by itself two more, on which it runs callbacks: a
reply and a watch event may overtake each other there. Here all of it goes straight from the
connection's thread to the loop, in the order of the wire. Five things kazoo does not do are added:

- It forgets all watches when the connection breaks. `set_watches` gives them to the server again
  with the last transaction seen, and the server answers with what changed since (SetWatches, what
  ZooKeeper's Java client does).
- It doesn't keep the session timeout the server granted.
- Requests count as pings to it, so a client that keeps asking would never notice that nobody
  answers. A connection silent for two thirds of the timeout is dropped (Java's readTimeout).
- It waits for the answer to a connection as long as the session lasts. A server that is just
  starting may never give one (its worker fails, and leaves the socket open), and the session would
  end with the waiting: HANDSHAKE_BOUND leaves time for another try.
- It reports an expired and a closed session alike.

`_Connection` overrides kazoo's internals, those of kazoo 2.11.
"""

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import attrs
from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, NoNodeError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol import serialization as packet
from kazoo.protocol.connection import ConnectionHandler

SILENCE_BOUND = 2 / 3  # of the session timeout
HANDSHAKE_BOUND = 1 / 3  # of the session timeout
MAX_PATHS_PER_SET_WATCHES = 1000  # well under the server's jute.maxbuffer of 1 MiB
MAX_RECONNECT_DELAY_S = 1.0

_log = logging.getLogger(__name__)
_log.setLevel(logging.ERROR)  # kazoo warns at every attempt to reconnect; the session says it once

OnEvent = Callable[[int, str], None]
Post = Callable[..., None]


@attrs.frozen
class LinkState:
    """What became of the connection, and when: `last_zxid` is the last transaction seen before."""

    state: str  # kazoo's KeeperState
    session_id: int  # 0 unless connected
    heard_at: float  # time.monotonic(), when the server was last heard
    last_zxid: int


class KazooLink:
    """One kazoo client. Made and used on the event loop only.

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
            connection_retry={"max_tries": -1, "max_delay": MAX_RECONNECT_DELAY_S},
            logger=_log,
        )
        self._connection = client._connection = _Connection(
            client, client._conn_retry.copy(), logger=_log
        )
        self._connection.on_event = partial(self._post, on_event)
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
    def silent_s(self) -> float:
        """Since the server was last heard."""
        return time.monotonic() - self._connection.heard_at

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
        self, request: Any, then: Callable[[Any], None] | None = None
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
        longest = max(len(data), len(absent), len(children))
        for start in range(0, longest, MAX_PATHS_PER_SET_WATCHES):
            part = slice(start, start + MAX_PATHS_PER_SET_WATCHES)
            request = _SetWatches(zxid, data[part], absent[part], children[part])
            self.call(request).add_done_callback(_forget)

    def _post(self, callback: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody is left to tell
            self._loop.call_soon_threadsafe(callback, *args)

    def _report(self, _: str) -> None:
        """On kazoo's thread, whenever the connection's state has changed."""
        client = self._client
        heard_at = self._connection.heard_at
        now = LinkState(client.client_state, self.session_id, heard_at, client.last_zxid)
        self._post(self._on_state, now)

    def _watch_silence(self) -> None:
        timeout_s = (self.granted_timeout_ms or 1000) / 1000
        if self.session_id and self.silent_s > timeout_s * SILENCE_BOUND:
            self._connection.drop()
        self._watchdog = self._loop.call_later(timeout_s / 10, self._watch_silence)

    def _stop(self) -> None:
        with contextlib.suppress(Exception):  # a thread that won't end is a daemon's
            self._client.stop()
            self._client.close()


class _LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threading without its two threads for callbacks."""

    running = True

    def __init__(self, post: Post) -> None:
        super().__init__()
        self.completion_queue = _LoopQueue(post)

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def dispatch_callback(self, callback: Any) -> None:
        """Only asked to say that watches are lost, which they aren't."""


@attrs.frozen
class _LoopQueue:
    put: Post


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection, which remembers when it heard what, and hands watch events on."""

    granted_timeout_ms = 0
    heard_at = 0.0  # time.monotonic()
    on_event: OnEvent

    def drop(self) -> None:
        """From any thread: break the connection; kazoo will make a new one."""
        with contextlib.suppress(OSError, AttributeError):  # not connected, or no longer
            self._socket.shutdown(socket.SHUT_RDWR)

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        connects = isinstance(request, packet.Connect)
        if connects:
            timeout = min(timeout, request.time_out / 1000 * HANDSHAKE_BOUND)
        answer = super()._invoke(timeout, request, xid)
        if connects:
            self.heard_at = time.monotonic()
            self.granted_timeout_ms = answer[0].time_out or self.granted_timeout_ms
        return answer

    def _read_header(self, timeout: float) -> Any:
        header = super()._read_header(timeout)
        self.heard_at = time.monotonic()
        return header

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        event, _ = packet.Watch.deserialize(buffer, offset)
        self.client._data_watchers.pop(event.path, None)
        self.client._child_watchers.pop(event.path, None)
        self.on_event(event.type, event.path)


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


@attrs.frozen
class _SetWatches:
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

    An older server answers UnimplementedError, and breaks the connection.
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
