"""One connection to a broker: requests go out, responses come back in the same order.

An `asyncio.Protocol` with its own frame cutter: no streams, no task per request. Requests sent in
one turn of the event loop leave in one write; all frames of one read are handled in one call. A
broker responds to a connection's requests in order, so a response belongs to the oldest waiting
request, and its correlation id must say so.

A request that gets no response in time closes the connection: later responses would also be late,
and a half-dead connection is worse than none (KIP-19).
"""

import asyncio
import random
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, cast

import attrs

from clients.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    RequestTimedOut,
    UnsupportedApi,
)
from clients.own_loop import OwnLoop
from clients.transport.addresses import Addresses, failure_of
from clients.transport.broker_versions import versions_of
from clients.transport.login import Login, log_in
from protocol.api import find_api, key_of
from protocol.api_key import ApiKey
from protocol.bounds import MAX_FRAME_BYTES
from protocol.closed_transport import abort
from protocol.encoding import Buffer
from protocol.errors import ErrorCode
from protocol.frames import FrameCutter, FrameError
from protocol.header import encode_request, read_response
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.primitives import WireError
from protocol.stalls import PUT_OFF_S, STALL_S
from protocol.timer import Timer
from protocol.tls.failures import TlsFailed
from protocol.version import __version__
from protocol.wire import declaration_of

__all__ = ["Connection", "ConnectionFailed", "RequestTimedOut", "UnsupportedApi"]

CLOSE_TIMEOUT_S = 2.0
"""Longest time for a closing connection to write its remaining bytes to a slow peer."""

SOFTWARE_NAME = "kgroup"

RENEWAL = (0.85, 0.95)
"""The part of a session's lifetime after which the client logs in again, as in Java clients: at
random, so that not all do at once."""

KEEP_ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPALIVE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""After so many seconds without a word the system asks the peer's system whether it still has the
connection, and again, and gives it up. Of its own accord it asks after two hours. Each system has
some of these options."""

LOGIN_APIS = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)

_ADDRESSES = Addresses()
"""Of all brokers, for all connections of the process."""

_NEWEST_API_VERSIONS = find_api(ApiKey.API_VERSIONS).versions.last


@attrs.define(eq=False)
class _Waiting:
    """A request in flight."""

    correlation_id: int
    api_key: ApiKey
    version: int
    future: asyncio.Future[Any]
    deadline: float


class Connection(asyncio.Protocol):
    """An open connection. `Connection.open` makes it; `close`, a timeout or the peer closes it."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str = "kgroup",
        request_timeout_ms: int = 30_000,
        max_frame_bytes: int = MAX_FRAME_BYTES,
    ) -> None:
        self.host = host
        self.port = port
        self.client_id = client_id
        self.request_timeout_ms = request_timeout_ms
        self.versions: dict[int, tuple[int, int]] = {}
        """Range of the broker's versions by API key; empty if the broker was not asked."""

        self._loop = asyncio.get_running_loop()
        self._own_loop = OwnLoop()
        self._own_loop.check()
        self._cutter = FrameCutter(max_frame_bytes)
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[_Waiting] = deque()
        self._unanswered: list[asyncio.Future[Any]] = []
        self._outgoing: list[bytes] = []
        self._paused = False
        self._correlation_id = 0
        self._timer: Timer | None = None
        self.throttled_until_s = 0.0
        """Until then, on the loop's clock, the broker reads nothing, as a quota wants (KIP-219)."""
        self._is_put_off = False
        self._failure: ConnectionFailed | None = None
        self._lost = self._loop.create_future()

        # The login: when it is to be repeated, and the requests that wait until it is.
        self._login: Login | None = None
        self._renew_at: float | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._held: list[tuple[bytes, asyncio.Future[Any], _Waiting | None]] = []
        self._raw_reply: asyncio.Future[bytes] | None = None
        self._first_request_id = 1

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str = "kgroup",
        request_timeout_ms: int = 30_000,
        connect_timeout_ms: int = 10_000,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
        negotiate: bool = True,
        broker_version: str = "",
        tls: ssl.SSLContext | None = None,
        login: Login | None = None,
    ) -> "Connection":
        """Connect, agree on versions, and log in if there is a `login`.

        ApiVersions is tried in our newest version. A broker that does not know that version
        responds with error 35 and its own range. An older one closes the connection, and version 0
        is tried on a new one. If the broker closes that too, it is taken for one of
        `broker_version`; without that setting it is an error, since a broker that is about to stop
        closes connections as well. Without `negotiate` nothing is asked. Connecting, asking and
        each step of a login may take `connect_timeout_ms`, because the system of a stopped process
        still accepts connections; several addresses of a name share it. With `tls` the connection
        is encrypted, and the broker's certificate compared with `host`. Raises ConnectionFailed,
        AuthenticationFailed, UnsupportedApi.
        """

        async def open_at(address: str, timeout_ms: int) -> Connection:
            async def connect() -> Connection:
                connection = cls(
                    host,
                    port,
                    client_id=client_id,
                    request_timeout_ms=request_timeout_ms,
                    max_frame_bytes=max_frame_bytes,
                )
                await connection._connect(
                    address, timeout_ms, send_buffer_bytes, receive_buffer_bytes, tls
                )
                return connection

            asking_ms = min(request_timeout_ms, timeout_ms)
            connection = await _agree(connect, asking_ms, negotiate, broker_version)
            await connection._begin_session(login, asking_ms)
            return connection

        return await _ADDRESSES.try_each(host, port, connect_timeout_ms, open_at)

    @property
    def closed(self) -> bool:
        """True if the connection can no longer send."""
        return self._failure is not None

    @property
    def in_flight(self) -> int:
        """Number of requests without a response yet."""
        return len(self._waiting)

    def version_of(self, api_key: ApiKey) -> int:
        """Return the highest version of an API that both sides speak. Raises UnsupportedApi."""
        ours = find_api(api_key).sent
        if not self.versions:
            return ours.last

        least, most = self.versions.get(api_key, (0, -1))
        version = min(ours.last, most)
        if version < max(ours.first, least):
            theirs = f"{least}-{most}" if most >= 0 else "no version"
            raise UnsupportedApi(
                f"{self.host}:{self.port} speaks {theirs} of {api_key.name},"
                f" we speak {ours.first}-{ours.last}"
            )

        return version

    async def call(
        self, request: Any, *, version: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        """Send a request and return its response. Raises as `send`, and ConnectionFailed."""
        return await self.send(request, version=version, timeout_ms=timeout_ms)

    def send(
        self, request: Any, *, version: int | None = None, timeout_ms: int | None = None
    ) -> asyncio.Future[Any]:
        """Send a request. The future gives its response, or raises ConnectionFailed.

        `version` defaults to the highest that both sides speak. A Produce with acks=0 has no
        response: its future gives None when the network has room for more, which is the only bound
        on such requests. Raises UnsupportedApi, and ConnectionFailed if the connection is closed;
        OtherLoop and OtherProcess elsewhere than where it was opened.
        """
        # Not all clients ask for the connection anew: a SimpleConsumer has its own
        # (fault users-14).
        self.check_loop()
        if self._failure is not None:
            raise ConnectionFailed(self.host, self.port, self._failure.reason)

        if self._renew_at is not None and self._loop.time() >= self._renew_at:
            self._renew_session()

        api_key = key_of(request)
        if version is None:
            version = self.version_of(api_key)
        elif not (codec := declaration_of(type(request)).versions).first <= version <= codec.last:
            raise ValueError(
                f"{api_key.name} has the versions {codec.first} to {codec.last}, not {version!r}"
            )

        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF

        # An invalid request raises here, before anything is queued.
        frame = encode_request(api_key, version, self._correlation_id, self.client_id, request)

        future: asyncio.Future[Any] = self._loop.create_future()

        # The broker does not respond with acks=0; the write completes the future.
        waiting = None
        if not (api_key is ApiKey.PRODUCE and request.acks == 0):
            timeout_ms = self.request_timeout_ms if timeout_ms is None else timeout_ms
            deadline = max(self._loop.time(), self.throttled_until_s) + timeout_ms / 1000
            waiting = _Waiting(self._correlation_id, api_key, version, future, deadline)

        # During a login the broker takes nothing else.
        if self._renewal is not None and api_key not in LOGIN_APIS:
            self._held.append((frame, future, waiting))
        else:
            self._queue(frame, future, waiting)
        return future

    def _queue(self, frame: bytes, future: asyncio.Future[Any], waiting: _Waiting | None) -> None:
        # Frames of one turn of the loop leave in one write.
        if not self._outgoing:
            self._loop.call_soon(self._write)
        self._outgoing.append(frame)
        if waiting is None:
            self._unanswered.append(future)
        else:
            self._waiting.append(waiting)
            self._watch(waiting.deadline)

    def check_loop(self) -> None:
        """Raise OtherLoop and OtherProcess elsewhere than where it was opened."""
        self._own_loop.check()

    async def close(self) -> None:
        """Write what was sent, then close. Requests in flight fail with ConnectionFailed."""
        if self._transport is None:
            return

        self._write()
        self._fail(ConnectionFailed(self.host, self.port, "closed by us"), abort=False)
        await asyncio.wait([self._lost], timeout=CLOSE_TIMEOUT_S)
        abort(self._transport)

    def abort(self, reason: str) -> None:
        """Close at once, and drop bytes that are not written yet."""
        self._fail(ConnectionFailed(self.host, self.port, reason))

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport. The event loop calls this."""
        # The transports of uvloop are of no class of asyncio
        # (fault users-2, was: transport if isinstance(transport, asyncio.Transport) else None).
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Handle bytes that were read. The event loop calls this."""
        self._cutter.feed(data)
        try:
            while (frame := self._cutter.cut()) is not None:
                self._answer(frame)
        except (FrameError, WireError) as error:
            # Behind a frame that cannot be read, nothing can be.
            self.abort(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection. The event loop calls this once, for every kind of end."""
        reason = str(exc) if exc else "closed by the broker"
        # The first request ended the connection: a broker that expects a login does that.
        is_first = self._waiting and self._waiting[0].correlation_id == self._first_request_id
        if is_first and self._login is None and self.versions:
            reason += ": does it expect a login or TLS (security.protocol)?"
        failure = AuthenticationFailed if isinstance(exc, TlsFailed) else ConnectionFailed
        self._fail(failure(self.host, self.port, reason))

        if not self._lost.done():
            self._lost.set_result(None)

    def pause_writing(self) -> None:
        """Stop completing acks=0 requests: the peer reads more slowly than we write."""
        self._paused = True

    def resume_writing(self) -> None:
        """Complete acks=0 requests: most written bytes have left."""
        self._paused = False
        unanswered = self._unanswered
        self._unanswered = []
        for future in unanswered:
            if not future.done():
                future.set_result(None)

    # -- inside

    async def _connect(
        self,
        address: str,
        timeout_ms: int,
        send_buffer: int,
        receive_buffer: int,
        tls: ssl.SSLContext | None,
    ) -> None:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                transport: asyncio.BaseTransport
                if tls is None:
                    transport, _ = await self._loop.create_connection(
                        lambda: self, address, self.port
                    )
                else:
                    transport = await self._connect_tls(address, tls)
        except TimeoutError:
            raise ConnectionFailed(
                self.host, self.port, f"not connected within {timeout_ms} ms"
            ) from None
        except (OSError, ValueError, OverflowError) as error:
            raise failure_of(self.host, self.port, error) from error

        # Requests are written whole, so Nagle's algorithm would only delay them.
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A peer that vanished without a word must not look alive for ever.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # Nor for two hours: a JoinGroup is parked for minutes, and a broker whose power failed is
        # back, and knows nothing of it (fault groups-3).
        for name, value in KEEP_ALIVE.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        if send_buffer >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        if receive_buffer >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)

    async def _connect_tls(self, address: str, context: ssl.SSLContext) -> asyncio.BaseTransport:
        """Return the socket's transport when the handshake is over.

        Raises OSError, ValueError, ConnectionFailed and AuthenticationFailed.
        """
        secured = self._loop.create_future()

        def finish(_: ssl.SSLObject) -> None:
            if not secured.done():
                secured.set_result(None)

        # A resolver takes a dot at the end of a name, which no certificate has.
        name = self.host.removesuffix(".")
        # Only who speaks TLS needs it.
        from protocol.tls.transport import TlsTransport

        layer = TlsTransport(context, self, finish, server_hostname=name)
        transport, _ = await self._loop.create_connection(lambda: layer, address, self.port)

        try:
            await asyncio.wait([secured, self._lost], return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            self.abort("connecting was cancelled or took too long")
            raise
        if self._failure is not None:
            raise self._failure
        return transport

    async def _negotiate(self, version: int, timeout_ms: int) -> None:
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=__version__
        )
        response: ApiVersionsResponse = await self.call(
            request, version=version, timeout_ms=timeout_ms
        )

        offered = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}

        # The broker does not know this version and offers others.
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and version > 0:
            # Error 35 names the served versions (KIP-511). Each step goes down, so this ends.
            _, most = offered.get(ApiKey.API_VERSIONS, (0, 0))
            await self._negotiate(min(most, version - 1), timeout_ms)
            return

        if response.error_code:
            self.abort(f"ApiVersions refused: {ErrorCode.of(response.error_code).name}")
            raise ConnectionFailed(self.host, self.port, "ApiVersions refused")

        self.versions = offered

    # -- the session

    async def _begin_session(self, login: Login | None, timeout_ms: int) -> None:
        """Log in, if that is needed. Raises as `log_in`; the connection is closed then."""
        self._login = login
        if login is not None:
            try:
                self._note_lifetime(await log_in(self, login, timeout_ms))
            except BaseException:
                self.abort("the login was cancelled or failed")
                raise
        self._first_request_id = self._correlation_id + 1

    def _note_lifetime(self, lifetime_ms: int) -> None:
        self._renew_at = None
        if lifetime_ms > 0:
            lifetime_s = lifetime_ms / 1000 * random.uniform(*RENEWAL)
            self._renew_at = self._loop.time() + lifetime_s

    def _renew_session(self) -> None:
        """Log in again (KIP-368). Requests wait until that is done; earlier ones are answered."""
        self._renew_at = None
        self._renewal = self._loop.create_task(self._log_in_again())

    async def _log_in_again(self) -> None:
        assert self._login is not None, "a session that ends has begun with a login"
        # Requests in flight come first, and some of them may take long.
        latest = max((waiting.deadline for waiting in self._waiting), default=self._loop.time())
        in_flight_ms = max(0, int(1000 * (latest - self._loop.time())))
        try:
            lifetime_ms = await log_in(self, self._login, in_flight_ms + self.request_timeout_ms)
        except ConnectionFailed as failure:
            self._fail(failure)
        except Exception as error:
            # The requests that wait must end, also by a bug of ours.
            reason = f"the login again failed: {error!r}"
            self._fail(ConnectionFailed(self.host, self.port, reason))
        else:
            self._note_lifetime(lifetime_ms)
            held, self._held, self._renewal = self._held, [], None
            for frame, future, waiting in held:
                self._queue(frame, future, waiting)

    async def exchange_raw(self, token: bytes, timeout_ms: int) -> bytes:
        """Send a token of a login without a header, and return the reply. `log_in` calls this.

        Raises ConnectionFailed.
        """
        if self._failure is not None or self._transport is None:
            raise ConnectionFailed(self.host, self.port, "closed by the broker")
        self._raw_reply = self._loop.create_future()
        self._transport.write(len(token).to_bytes(4, "big") + token)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._raw_reply
        except TimeoutError:
            raise RequestTimedOut(self.host, self.port, "no response to a login in time") from None
        finally:
            self._raw_reply = None

    def _write(self) -> None:
        if self._transport is None or self._failure is not None or not self._outgoing:
            return

        frames = self._outgoing
        self._outgoing = []
        self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

        # With room in the transport, the write is all that acks=0 waits for.
        if not self._paused:
            self.resume_writing()

    def _answer(self, frame: Buffer) -> None:
        if not self._waiting:
            # The reply to a token without a header.
            if self._raw_reply is not None and not self._raw_reply.done():
                self._raw_reply.set_result(bytes(frame))
                return
            raise WireError("a response came without a request")

        waiting = self._waiting[0]

        # Error 35 comes in the format of version 0 for every version of the request.
        version = waiting.version
        if waiting.api_key is ApiKey.API_VERSIONS and _is_refused_version(frame):
            version = 0

        correlation_id, response = read_response(waiting.api_key, version, frame)
        if correlation_id != waiting.correlation_id:
            raise WireError(f"response {correlation_id}, expected {waiting.correlation_id}")

        # Only a readable response ends its request; abort fails the others.
        self._waiting.popleft()
        self._is_put_off = False
        if not waiting.future.done():
            waiting.future.set_result(response)
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self._bear_throttling(throttle_ms)

    def _bear_throttling(self, throttle_ms: int) -> None:
        """Wait longer for responses, because the broker reads nothing for a while (KIP-219)."""
        self.throttled_until_s = self._loop.time() + throttle_ms / 1000
        for waiting in self._waiting:
            waiting.deadline += throttle_ms / 1000

    def _watch(self, deadline: float) -> None:
        # One timer for all requests. Responses leave it alone; it is set again when it fires.
        if self._timer is None or deadline < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = Timer(self._loop, deadline, self._check_deadlines)

    def _check_deadlines(self) -> None:
        assert self._timer is not None, "the timer has rung"
        late_s = self._loop.time() - self._timer.when()
        self._timer = None
        if not self._waiting:
            return

        now = self._loop.time()

        # Timeouts differ, so the oldest request need not be the first to be late.
        earliest = min(self._waiting, key=lambda waiting: waiting.deadline)
        if earliest.deadline > now:
            self._watch(earliest.deadline)
            return

        # The response may lie in the socket of a process that stood still (fault groups-5).
        if late_s > STALL_S and not self._is_put_off:
            self._is_put_off = True
            self._watch(now + PUT_OFF_S)
            return

        # Responses come in order, so those to later requests would be late too.
        reason = f"{earliest.api_key.name} was not answered in time"
        # The first request of all: perhaps nobody there speaks Kafka's protocol.
        if earliest.api_key is ApiKey.API_VERSIONS:
            reason += ": the broker hangs, or the port is not Kafka's"
        self._fail(RequestTimedOut(self.host, self.port, reason))

    def _fail(self, failure: ConnectionFailed, abort: bool = True) -> None:
        """End the connection, once. Requests in flight get `failure`."""
        if self._failure is not None:
            return
        self._failure = failure

        if self._timer is not None:
            self._timer.cancel()
        # A renewal that has failed ends by itself.
        if self._renewal is not None and self._renewal is not asyncio.current_task(self._loop):
            self._renewal.cancel()
        if self._transport is not None:
            # Closing writes the bytes that are buffered, aborting drops them.
            if abort:
                self._transport.abort()
            else:
                self._transport.close()

        # Each caller gets an exception of its own, with its own traceback.
        futures = [waiting.future for waiting in self._waiting] + self._unanswered
        futures += [future for _, future, _ in self._held]
        if self._raw_reply is not None:
            futures.append(self._raw_reply)
        self._waiting.clear()
        self._held.clear()
        self._unanswered.clear()
        for future in futures:
            if not future.done():
                future.set_exception(type(failure)(self.host, self.port, failure.reason))
                future.exception()  # mark as seen: its caller may have stopped waiting


def _is_refused_version(frame: Buffer) -> bool:
    """Return whether an ApiVersions response is error 35, which has the format of version 0."""
    # The correlation id takes four bytes; the error code follows.
    return bytes(frame[4:6]) == b"\x00\x23"


async def _agree(
    connect: Callable[[], Awaitable[Connection]],
    asking_ms: int,
    negotiate: bool,
    broker_version: str,
) -> Connection:
    """Return a connection whose broker has named its versions, or is taken for an old one.

    `connect` makes a new connection. Raises ConnectionFailed.
    """
    # A failed attempt with version 0 is followed by a connection without ApiVersions.
    for first_try in (_NEWEST_API_VERSIONS, 0) if negotiate else ():
        connection = await connect()
        try:
            await connection._negotiate(first_try, asking_ms)
        except ConnectionFailed as failure:
            # Silence is not an old broker's reply; version 0 would only wait as long again. Nor
            # is an alert of TLS, by which a broker refuses our certificate.
            if isinstance(failure, RequestTimedOut | AuthenticationFailed):
                raise
            if first_try == 0 and not broker_version:
                hint = (
                    "no response to ApiVersions: is it ZooKeeper's port (--zookeeper), or one "
                    "with TLS? Before 0.10, set broker.version.fallback"
                )
                reason = f"{failure.reason}: {hint}"
                raise ConnectionFailed(failure.host, failure.port, reason) from failure
        except BaseException:
            connection.abort("connecting was cancelled or failed")
            raise
        else:
            return connection

    connection = await connect()
    # The broker has named no versions: assume those of `broker_version`.
    if broker_version:
        connection.versions = dict(versions_of(broker_version))
    return connection
