"""kazoo's client on the event loop: requests go out, replies and watch events come in, in order.

kazoo keeps one thread for the connection, and two more for callbacks, where a reply and a watch
event may overtake each other. Here both go straight from the connection's thread to the loop, in
the order of the wire. We also add or change what kazoo does not do:

- kazoo forgets all watches when the connection breaks. `set_watches` sends them to the server
  again, with the last transaction seen, and the server fires what changed since (SetWatches, as
  ZooKeeper's Java client does).
- kazoo does not keep the session timeout that the server granted.
- kazoo counts requests as pings, so a client that keeps sending would never notice that no reply
  comes. We drop a connection that is silent for two thirds of the timeout (Java's readTimeout).
- kazoo waits for a connection, and then for its first reply, as long as the session lasts. A
  machine without power never replies, and a server that is just starting may accept and stay
  silent; the session would expire during the wait. An attempt gets the session timeout divided by
  the number of hosts, as in Java's client, and at most MAX_ATTEMPT of it. The next attempt goes to
  the next host, in an order drawn once, so that a silent machine is not tried twice in a row.
- kazoo reports an expired and a closed session alike.
- A server that has lost its data closes each connection of a session that has seen more, and says
  so in its own log alone. kazoo tries for ever; so do we, and say what it may be.
- kazoo's thread ends at a reply that it cannot read, and the session with it. Here that is a broken
  connection like any other, and so is a reply to another request than the oldest.
- kazoo does not find out what the server can do. A server before 3.6 replies to a MultiRead at
  once, before the requests in flight, and breaks the connection. So each connection begins with an
  empty MultiRead, alone, before it counts as connected. We connect to an old server again, and send
  it no MultiRead.

`_Connection` overrides internals of kazoo 2.11.
"""

import asyncio
import contextlib
import logging
import random
import socket
import ssl
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

from protocol.frozen import frozen
from protocol.shielded import wait_shielded
from protocol.stalls import PUT_OFF_S, STALL_S
from protocol.suspension import machine_s
from protocol.timer import Timer
from zk.login import NOBODY, ZkLogin

SILENCE_BOUND = 2 / 3  # of the session timeout
MAX_ATTEMPT = 1 / 3  # of the session timeout
MAX_SET_WATCHES_BYTES = 128 * 1024  # of paths in one request, as in Java's client
MAX_REPLY_BYTES = 1 << 30  # a thousand nodes of MAX_REQUEST_BYTES; no ZooKeeper sends more
MIN_PAUSE_S = 0.1  # between two rounds of all hosts
MAX_PAUSE_S = 1.0
PAUSE_JITTER = 0.4  # of a pause
REFUSED_S = 5.0  # for which connections of a session are closed before the log says why
_REQUEST_HEADER_BYTES = 8  # its number and type

logger = logging.getLogger(__name__)
# kazoo warns at every attempt to reconnect; the session logs it once.
logger.setLevel(logging.ERROR)

OnEvent = Callable[[int, str], None]
Post = Callable[..., None]


@frozen
class LinkState:
    """A change of the connection's state."""

    state: str  # kazoo's KeeperState
    session_id: int  # 0 unless connected
    last_answered_sent_at_s: float  # machine_s(); see `KazooLink.silent_s`
    last_zxid: int  # the last transaction seen before


class KazooLink:
    """One kazoo client, created and used on the event loop only. Raises ValueError for bad `hosts`.

    `on_event(type, path)` gets ZooKeeper's event types: 1 created, 2 deleted, 3 changed, 4
    children.
    """

    def __init__(
        self,
        hosts: str,
        session_timeout_ms: int,
        on_state: Callable[[LinkState], None],
        on_event: OnEvent,
        login: ZkLogin = NOBODY,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_state = on_state
        self._watchdog: Timer | None = None
        self._is_put_off = False

        self._client = client = KazooClient(
            hosts,
            timeout=session_timeout_ms / 1000,
            handler=_LoopHandler(self._post, login.tls),
            logger=logger,
            **_login_options(login),
        )

        # Replace kazoo's connection by ours before it is used.
        self._connection = client._connection = _Connection(
            client, client._conn_retry.copy(), logger=logger
        )
        self._connection.sasl_options = _sasl_options(login)
        self._connection.on_event = partial(self._post, on_event)
        self._connection.on_login = partial(self._report, KeeperState.CONNECTED)
        self._connection.is_orphaned = self._loop.is_closed

    @property
    def session_id(self) -> int:
        """The session's id; 0 if not connected. It may be ahead of the last `on_state`."""
        client_id = self._client.client_id
        return client_id[0] if client_id else 0

    @property
    def granted_timeout_ms(self) -> int:
        """The session timeout granted at the last connection; 0 before the first."""
        return self._connection.granted_timeout_ms

    @property
    def can_multi_read(self) -> bool:
        """True if the server of the last connection has answered a MultiRead."""
        return self._connection.can_multi_read

    @property
    def silent_s(self) -> float:
        """The age of the last answered request, counted from when it was sent.

        The server may have received nothing since. The time of the reply would prove less: watch
        events come unasked, and a process that was stopped reads an old reply late.
        """
        return machine_s() - self._connection.last_answered_sent_at_s

    @property
    def obstacle(self) -> str:
        """Why the last attempt to connect has failed; "" if none has."""
        return self._connection.obstacle

    def start(self) -> None:
        """Start to connect, and to reconnect whenever the connection breaks."""
        assert self._watchdog is None, "a link starts once"
        self._client.add_listener(self._report)
        self._client.start_async()
        self._watch_silence()

    async def close(self, timeout_s: float) -> None:
        """End the session; give up on a server that does not reply in `timeout_s`."""
        if self._watchdog:
            self._watchdog.cancel()
        # Without a session there is nothing to end at the server: do not wait for the attempt.
        if not self.session_id:
            self._connection.drop()

        # kazoo waits for its thread to end. The shield lets that go on if we give up.
        stopping = self._loop.run_in_executor(None, self._stop)
        try:
            async with asyncio.timeout(timeout_s):
                await wait_shielded(stopping)
        except TimeoutError:
            pass
        finally:
            # Not done also if the caller was cancelled.
            if not stopping.done():
                self._connection.drop()

    def call(
        self, request: "Request", then: Callable[[Any], None] | None = None
    ) -> "asyncio.Future[Any]":
        """Send `request` after those sent before.

        `then(reply)` runs before the callbacks of all replies and events that come later. The
        future raises kazoo's exceptions.
        """
        reply = _Reply(self._post, self._loop.create_future(), then)
        self._client._call(request, reply)
        return reply.future

    def set_watches(
        self, zxid: int, data: Sequence[str], absent: Sequence[str], children: Sequence[str]
    ) -> None:
        """Set the watches at the server again; those of nodes changed since `zxid` fire at once."""
        for request in set_watches_requests(zxid, data, absent, children):
            self.call(Request.of(request)).add_done_callback(_ignore_failure)

    def _post(self, callback: Callable[..., None], *args: Any) -> None:
        # RuntimeError: the loop has been closed, so there is no receiver.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *args)

    def _report(self, _: str) -> None:
        """Post the new state of the connection. kazoo's thread calls this at every change."""
        client = self._client
        if self._connection.is_logging_in and client.client_state == KeeperState.CONNECTED:
            return
        sent_at_s = self._connection.last_answered_sent_at_s
        now = LinkState(client.client_state, self.session_id, sent_at_s, client.last_zxid)
        self._post(self._on_state, now)

    def _watch_silence(self) -> None:
        # Before the first connection, when no timeout is granted, look every 0.1 s.
        timeout_s = (self.granted_timeout_ms or 1000) / 1000
        late_s = self._loop.time() - self._watchdog.when() if self._watchdog else 0.0
        pause_s = timeout_s / 10
        unanswered_s = time.monotonic() - self._connection.last_reply_at_s
        is_silent = bool(self.session_id) and unanswered_s > timeout_s * SILENCE_BOUND

        # Replies may lie in the socket of a process that stood still: its threads read them now
        # (fault groups-5).
        if is_silent and late_s > STALL_S and not self._is_put_off:
            self._is_put_off = True
            self._look_in(min(pause_s, PUT_OFF_S))
            return

        self._is_put_off = False
        if is_silent:
            self._connection.drop()
        self._look_in(pause_s)

    def _look_in(self, pause_s: float) -> None:
        self._watchdog = Timer(self._loop, self._loop.time() + pause_s, self._watch_silence)

    def _stop(self) -> None:
        # A thread that does not end is a daemon, which the process does not wait for.
        with contextlib.suppress(Exception):
            self._client.stop()
            self._client.close()


class _LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler without its two threads for callbacks."""

    running = True
    failure: OSError | None = None  # what has kept the last connection from being made
    connect_timeout_s: float | None = None  # kazoo would wait as long as the session lasts

    def __init__(self, post: Post, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._tls = tls
        self.completion_queue = _LoopQueue(post)

    # kazoo calls these, but there are no threads to start or to stop.
    def start(self) -> None: ...

    def stop(self) -> None: ...

    def dispatch_callback(self, callback: Any) -> None:
        """Ignore `callback`: kazoo only reports lost watches here, and ours are not lost."""

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        # kazoo's own TLS takes only files of PEM, and trusts the system's certificates too.
        kwargs["use_ssl"] = False
        try:
            connected = super().create_connection(
                *args, **kwargs | {"timeout": self.connect_timeout_s}
            )
            if self._tls is None:
                return connected
            connected.settimeout(self.connect_timeout_s)
            return self._tls.wrap_socket(connected, server_hostname=kwargs["hostname"])
        except OSError as error:
            self.failure = error
            raise


@frozen
class _LoopQueue:
    put: Post


@attrs.define
class _Pause:
    """The pause before all hosts are tried again; kazoo resets it after a connection."""

    _s: float = MIN_PAUSE_S

    def reset(self) -> None:
        self._s = MIN_PAUSE_S

    def next_s(self) -> float:
        """Return the pause, with jitter, and double the next one up to MAX_PAUSE_S."""
        pause_s = self._s
        self._s = min(pause_s * 2, MAX_PAUSE_S)
        return pause_s * random.uniform(1 - PAUSE_JITTER, 1 + PAUSE_JITTER)


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection. It also keeps the times of replies, and passes watch events on."""

    granted_timeout_ms = 0
    last_reply_at_s = 0.0  # time.monotonic() when the last reply came
    last_answered_sent_at_s = 0.0  # machine_s() when the last answered request was sent
    can_multi_read = False
    obstacle = ""  # why the last attempt has failed
    on_event: OnEvent
    on_login: Callable[[], None]
    is_orphaned: Callable[[], bool]
    is_logging_in = False
    _serves_no_multi_read = False
    _refused_since_s: float | None = None
    _refused_at_s = 0.0
    _is_refusal_told = False
    _attempt_ends_at_s = 0.0
    _place = ("", 0)
    _pings_sent_at_s: deque[float]

    def drop(self) -> None:
        """Break the connection; kazoo then opens another. Any thread may call this."""
        # OSError, AttributeError: there is no connection.
        with contextlib.suppress(OSError, AttributeError):
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
            # kazoo's `stop` waits for this. CLOSED fails the requests that are still queued.
            self.connection_stopped.set()
            self.client._session_callback(KeeperState.CLOSED)

    def _addresses(self, pause: _Pause) -> Iterator[tuple[str, str, int]]:
        """Yield name, address and port of each host, in an order drawn once.

        Every round resolves the names again, and ends with a pause.
        """
        hosts = random.sample(self.client.hosts, len(self.client.hosts))
        stopped = self.client._stopped
        while not stopped.is_set():
            for host, port in hosts:
                addresses = _resolve(host, port)
                if not addresses:
                    self._note(host, port, "the name is not known")
                for address in addresses:
                    yield host, address, port
            stopped.wait(pause.next_s())

    def _attempt(self, address: tuple[str, str, int], pause: _Pause) -> bool:
        """Connect to a host and serve until the connection ends. Return whether to stop then."""
        # Leave time for other hosts before the session expires.
        timeout_s = (self.granted_timeout_ms or self.client._session_timeout) / 1000
        bound_s = min(timeout_s / len(self.client.hosts), timeout_s * MAX_ATTEMPT)
        self._attempt_ends_at_s = time.monotonic() + bound_s

        # Pings on the last connection get no replies on this one.
        self._pings_sent_at_s = deque()
        self.handler.connect_timeout_s = bound_s
        was_known_as_old = self._serves_no_multi_read

        try:
            is_last: bool = self._connect_attempt(*address, pause) is STOP_CONNECTING
        except Exception:
            # The host sent bytes that no ZooKeeper sends; kazoo has logged them.
            self.client._session_callback(KeeperState.CONNECTING)
            return False

        # The connection broke at our MultiRead; without it this host serves us.
        if self._serves_no_multi_read and not was_known_as_old:
            return self._attempt(address, pause)
        return is_last

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        if not isinstance(request, packet.Connect):
            return super()._invoke(timeout, request, xid)

        # The reply to Connect must come within this attempt; kazoo would wait longer.
        sent_at_s = machine_s()
        # A broker takes the request for one that wants no response.
        silent = "it accepts connections, and does not respond"
        self._note(*self._place, f"{silent}: is it a broker's port (--bootstrap-server)?")
        try:
            reply = super()._invoke(self._attempt_s(), request, xid)
        except ConnectionDropped:
            self._note(
                *self._place,
                "it is no ZooKeeper that takes this session: is it a broker's port "
                "(--bootstrap-server), or one with TLS?",
            )
            # Nobody would look into ZooKeeper's log, which alone has the reason (fault tool-L1).
            self._note_refusal(time.monotonic())
            raise
        self._refused_since_s = None
        self.obstacle = ""
        self.last_reply_at_s = time.monotonic()
        self.last_answered_sent_at_s = sent_at_s

        # A session that has expired is granted 0; kazoo raises SessionExpiredError then.
        granted = reply[0]
        if granted.time_out > 0:
            self.granted_timeout_ms = granted.time_out
            # kazoo sets these after `_invoke`. If the MultiRead breaks the connection, the next
            # one must continue this session.
            self.client._session_id, self.client._session_passwd = (
                granted.session_id,
                granted.passwd,
            )
            # A server that wants a login first would break the connection.
            if self.sasl_options is None:
                self._ask_for_multi_read()
        return reply

    def _note(self, host: str, port: int, why: str) -> None:
        """Keep why an attempt has failed, with its host if there are several."""
        self.obstacle = why if len(self.client.hosts) == 1 else f"{host}:{port}: {why}"

    def _note_refusal(self, now_s: float) -> None:
        """Note that a server has closed a connection in place of a response; say why, in time."""
        client = self.client
        # Before its first session a client has seen nothing that a server could lack.
        if client.last_zxid <= 0:
            return
        if self._refused_since_s is None or now_s - self._refused_at_s > REFUSED_S:
            self._refused_since_s = now_s
            self._is_refusal_told = False
        self._refused_at_s = now_s
        if now_s - self._refused_since_s >= REFUSED_S and not self._is_refusal_told:
            self._is_refusal_told = True
            logger.error(
                "ZooKeeper at %s accepts connections and refuses the session: it has no quorum, or "
                "did it lose its data? This process has seen zxid 0x%x; if the server's own (srvr) "
                "is below that, start this process again",
                ",".join(f"{host}:{port}" for host, port in client.hosts),
                client.last_zxid,
            )

    def _connect(self, host: str, hostip: str, port: int) -> Any:
        """Connect and log in. kazoo calls itself connected before the login, and we do after it."""
        self._place = host, port
        self.handler.failure = None
        try:
            return self._connect_and_log_in(host, hostip, port)
        finally:
            # kazoo raises another error in its place.
            failure = self.handler.failure
            if failure is not None:
                is_refused = isinstance(failure, ConnectionRefusedError)
                refused = "connection refused: nobody listens there"
                self._note(host, port, refused if is_refused else failure.strerror or str(failure))

    def _connect_and_log_in(self, host: str, hostip: str, port: int) -> Any:
        if self.sasl_options is None and not self.client.auth_data:
            return super()._connect(host, hostip, port)

        self.is_logging_in = True
        try:
            timeouts = super()._connect(host, hostip, port)
            if self.sasl_options is not None:
                self._ask_for_multi_read()
        finally:
            self.is_logging_in = False
        self.on_login()
        return timeouts

    def _ask_for_multi_read(self) -> None:
        """Find out whether the server knows MultiRead. Raises ConnectionDropped if it does not."""
        if self._serves_no_multi_read:
            return

        # It takes the first number of the connection. kazoo counts on from it.
        self._xid = 1
        try:
            super()._invoke(self._attempt_s(), MultiRead(()), xid=self._xid)
            self.can_multi_read = True
        except (UnimplementedError, ConnectionDropped):
            self._serves_no_multi_read = True
            self.can_multi_read = False
            reason = "the server is older than 3.6 and breaks the connection at a MultiRead"
            raise ConnectionDropped(reason) from None
        except SessionExpiredError:
            # A ZookeeperError like the next, but it says nothing about MultiRead.
            raise
        except ZookeeperError:
            # Another implementation of the protocol refuses, and keeps the connection.
            self.can_multi_read = False

    def _attempt_s(self) -> float:
        """Return the time left for this attempt."""
        return max(0.0, self._attempt_ends_at_s - time.monotonic())

    # --- writing and reading ------------------------------------------------------------------

    def _submit(self, request: Any, timeout: float, xid: int | None = None) -> None:
        # A reply proves only that the server heard us when its request was sent.
        if isinstance(request, Request):
            request.sent_at_s = machine_s()
        elif request is packet.PingInstance:
            self._pings_sent_at_s.append(machine_s())
        super()._submit(request, timeout, xid)

    def _read(self, length: int, timeout: float) -> bytes:
        # The first bytes of another protocol, such as HTTP, look like a huge length.
        if not 0 <= length <= MAX_REPLY_BYTES:
            raise ConnectionDropped(f"no ZooKeeper sends {length} bytes")

        content: bytes = super()._read(length, timeout)
        return content

    def _read_header(self, timeout: float) -> Any:
        header = super()._read_header(timeout)

        # kazoo would take it for the reply to the oldest request.
        if header[0].xid == AUTH_XID and not self.client.auth_data:
            raise ConnectionDropped("the server replied to an authentication that we did not send")

        # With its loop closed, no caller can close the session: let it expire.
        if self.is_orphaned():
            self.client._stopped.set()
            raise ConnectionDropped("the event loop has been closed")

        # A watch event comes unasked, even if the server receives nothing from us.
        if header[0].xid != WATCH_XID:
            self.last_reply_at_s = time.monotonic()

        # Pings are answered in the order they were sent.
        if header[0].xid == PING_XID and self._pings_sent_at_s:
            self.last_answered_sent_at_s = max(
                self.last_answered_sent_at_s, self._pings_sent_at_s.popleft()
            )
        return header

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        event, _ = packet.Watch.deserialize(buffer, offset)
        self.on_event(event.type, event.path)

    def _read_response(self, header: Any, buffer: bytes, offset: int) -> Any:
        """Complete the oldest request. Raises ConnectionDropped for a reply to another one.

        Replies come in the order of the requests. After one out of order the connection is useless,
        because it is unknown which replies are missing.
        """
        pending = self.client._pending
        if not pending or pending[0][2] != header.xid:
            due = pending[0][2] if pending else "none"
            raise ConnectionDropped(f"the reply to request {header.xid} came, due was {due}")

        request, reply, _ = pending.popleft()
        if isinstance(request, Request):
            self.last_answered_sent_at_s = max(self.last_answered_sent_at_s, request.sent_at_s)

        # The next connection, and SetWatches, say what this session has seen.
        if header.zxid > 0:
            self.client.last_zxid = header.zxid

        # kazoo gives only `Close` no reply.
        if reply is None:
            return CLOSE_RESPONSE

        # What cannot be read fails its own call alone.
        try:
            reply.set(_read_value(request, header.err, buffer, offset))
        except KazooException as error:
            reply.set_exception(error)
        except Exception as error:
            reply.set_exception(UnreadableReply(f"{type(error).__name__} {error}"))
        return None


def _login_options(login: ZkLogin) -> dict[str, Any]:
    """Return kazoo's options for a login by digest."""
    options: dict[str, Any] = {}
    if login.digest is not None:
        options["auth_data"] = [("digest", login.digest)]
    return options


def _sasl_options(login: ZkLogin) -> dict[str, str] | None:
    if login.sasl is None:
        return None
    return {
        "mechanism": "DIGEST-MD5",
        "username": login.sasl.username,
        "password": login.sasl.password,
    }


def _resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host; none if its name cannot be resolved now."""
    try:
        resolved = socket.getaddrinfo(host, port, 0, 0, socket.IPPROTO_TCP)
    except (OSError, UnicodeError):
        # UnicodeError: a part of the name is empty or too long.
        return []
    return [str(address[0]) for *_, address in resolved]


def _read_value(request: Any, error_code: int, buffer: bytes, offset: int) -> Any:
    """Read the result in a reply. Raises the server's error."""
    # For `exists` an absent node is a result, not an error.
    if error_code == NoNodeError.code and request.type == packet.Exists.type:
        return None
    if error_code:
        raise EXCEPTIONS[error_code]()
    return request.deserialize(buffer, offset)


class UnreadableReply(KazooException):  # type: ignore[misc]
    """A reply cannot be read; the connection and its other requests are not affected."""


@attrs.define(eq=False)
class Request:
    """A request as kazoo's connection sends it.

    The caller's thread serializes it, so that a message that cannot be serialized does not fail
    in the connection's thread, where it would end the requests of others.
    """

    message: Any
    content: bytes
    sent_at_s: float = 0.0  # machine_s()

    @classmethod
    def of(cls, message: Any) -> "Request":
        """Raises UnicodeEncodeError for a path or name that UTF-8 cannot encode."""
        return cls(message, bytes(message.serialize()))

    @property
    def type(self) -> int:
        code: int = self.message.type
        return code

    @property
    def size_bytes(self) -> int:
        """The size as the server counts it, with the request's number and type."""
        return len(self.content) + _REQUEST_HEADER_BYTES

    def serialize(self) -> bytes:
        return self.content

    def deserialize(self, buffer: bytes, offset: int) -> Any:
        return self.message.deserialize(buffer, offset)


@attrs.define(eq=False)
class _Reply:
    """A stand-in for kazoo's AsyncResult: passes the reply from kazoo's thread to the loop."""

    _post: Post
    future: "asyncio.Future[Any]"
    _then: Callable[[Any], None] | None

    def set(self, value: Any = None) -> None:
        self._post(self._settle, value, None)

    def set_exception(self, error: Exception) -> None:
        self._post(self._settle, None, error)

    def _settle(self, value: Any, error: Exception | None) -> None:
        # The caller has given up.
        if self.future.done():
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
    """Split the watched paths into requests of at most MAX_SET_WATCHES_BYTES of paths."""
    batch: tuple[list[str], list[str], list[str]] = ([], [], [])
    size_bytes = 0

    for kind, paths in enumerate((data, absent, children)):
        for path in paths:
            path_bytes = len(packet.write_string(path))
            # A path that exceeds the bound alone gets a request of its own.
            if size_bytes + path_bytes > MAX_SET_WATCHES_BYTES and size_bytes:
                yield SetWatches(zxid, *batch)
                batch = ([], [], [])
                size_bytes = 0
            batch[kind].append(path)
            size_bytes += path_bytes

    if size_bytes:
        yield SetWatches(zxid, *batch)


@frozen
class SetWatches:
    """ZooKeeper's request 101: set watches again, and fire those of nodes changed since `zxid`."""

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


@frozen
class MultiRead:
    """ZooKeeper's request 22, since 3.6: the data of many nodes, None for those that do not exist.

    An older server replies UnimplementedError before the requests in flight, and breaks the
    connection.
    """

    paths: Sequence[str]
    type = 22

    def serialize(self) -> bytes:
        # A multi of reads, each after its header; a last header ends it.
        header = packet.MultiHeader(packet.GetData.type, False, -1).serialize()
        reads = [header + packet.GetData(path, None).serialize() for path in self.paths]
        return b"".join([*reads, packet.multiheader_struct.pack(-1, True, -1)])

    def deserialize(
        self, buffer: bytes, offset: int
    ) -> list[tuple[bytes | None, packet.ZnodeStat] | None]:
        """Raises the error of a node that exists and cannot be read."""
        results: list[tuple[bytes | None, packet.ZnodeStat] | None] = []
        header, offset = packet.MultiHeader.deserialize(buffer, offset)

        while not header.done:
            if header.type == packet.GetData.type:
                # The data of a node, and its stat.
                data, offset = packet.read_buffer(buffer, offset)
                stat = packet.ZnodeStat._make(packet.stat_struct.unpack_from(buffer, offset))
                offset += packet.stat_struct.size
                results.append((data, stat))
            else:
                # An error in place of a node. NoNode alone is a result.
                (code,) = packet.int_struct.unpack_from(buffer, offset)
                offset += packet.int_struct.size
                if code != NoNodeError.code:
                    raise EXCEPTIONS[code]()
                results.append(None)

            header, offset = packet.MultiHeader.deserialize(buffer, offset)
        return results


def _ignore_failure(future: "asyncio.Future[Any]") -> None:
    """Ignore the failure of a SetWatches: the next connection sends it again."""
    if not future.cancelled():
        future.exception()
