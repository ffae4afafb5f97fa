"""The layer over real sockets, against Python's own blocking `ssl`, and against hostile peers."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import attrs
import pytest
import trustme

from protocol.tls.failures import TlsFailed
from protocol.tls.handshakes import Handshakes
from protocol.tls.transport import TlsTransport
from tests.protocol.tls.test_context import KEY, client, server
from tests.stage.certificates import Authority
from tests.stage.waiting import until

T = TypeVar("T")

BOTH_VERSIONS = pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
SHOWS_ONE = {name.replace(".", "_"): value for name, value in KEY.items()}


@attrs.define(eq=False)
class Application(asyncio.Protocol):
    """Keeps what it receives, and sends it back if it is told to."""

    echoes: bool = False
    received: bytearray = attrs.field(factory=bytearray)
    transport: Any = None
    is_secured: bool = False
    has_eof: bool = False
    lost: list[Exception | None] = attrs.field(factory=list)
    paused: list[bool] = attrs.field(factory=list)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert self.is_secured
        self.received += data
        if self.echoes:
            self.transport.write(data)

    def eof_received(self) -> None:
        self.has_eof = True

    def pause_writing(self) -> None:
        self.paused.append(True)

    def resume_writing(self) -> None:
        self.paused.append(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)

    def secured(self, _: ssl.SSLObject) -> None:
        self.is_secured = True


@attrs.define(eq=False)
class Server:
    """A server on the loopback, with an application for each connection."""

    port: int
    applications: list[Application]

    async def last(self) -> Application:
        await until(lambda: self.applications, "a connection is accepted")
        return self.applications[-1]

    async def end(self) -> Exception | None:
        """Wait for the end of the last connection, and return its reason."""
        application = await self.last()
        await until(lambda: application.lost, "the connection is lost")
        (reason,) = application.lost
        return reason


@contextlib.asynccontextmanager
async def serving(
    context: ssl.SSLContext,
    on_secured: Callable[[Application, ssl.SSLObject], None] = Application.secured,
    *,
    echoes: bool = True,
    timeout_s: float = 30.0,
    max_at_once: int = 10,
) -> AsyncIterator[Server]:
    loop = asyncio.get_running_loop()
    handshakes = Handshakes(loop.call_soon, loop.time, max_at_once)
    applications: list[Application] = []

    def accept() -> TlsTransport:
        application = Application(echoes)
        applications.append(application)
        return TlsTransport(
            context,
            application,
            partial(on_secured, application),
            handshakes=handshakes,
            handshake_timeout_s=timeout_s,
        )

    listening = await loop.create_server(accept, "127.0.0.1", 0)
    try:
        yield Server(listening.sockets[0].getsockname()[1], applications)
    finally:
        listening.close()
        for application in applications:
            application.transport.abort()
        await asyncio.sleep(0)


async def blocking(work: Callable[[], T]) -> T:
    """Run a peer that blocks in a thread of its own."""
    return await asyncio.to_thread(work)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def connect_tls(port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    return context.wrap_socket(connect(port), server_hostname="localhost")


def receive_exactly(peer: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        some = peer.recv(size - len(received))
        assert some, f"closed after {len(received)} of {size} bytes"
        received += some
    return bytes(received)


# ---- bytes


@BOTH_VERSIONS
@pytest.mark.parametrize("size", [1, 16 * 1024, 16 * 1024 + 1, 1_000_003, 4_000_000])
async def test_bytes_come_back_as_they_were_sent(version: str, size: int) -> None:
    content = bytes(i * 7 % 251 for i in range(min(size, 100_003))) * (size // 100_003 + 1)
    content = content[:size]

    async with serving(server(ssl_enabled_protocols=version)) as at:

        def exchange() -> bytes:
            with connect_tls(at.port, client()) as peer:
                # Both ways at once: neither side has room for all of it.
                peer.settimeout(20)
                sent = received = 0
                back = bytearray()
                while received < size:
                    if sent < size:
                        sent += peer.send(content[sent : sent + 50_000])
                    if sent - received > 100_000 or sent == size:
                        some = peer.recv(100_000)
                        assert some
                        back += some
                        received += len(some)
                return bytes(back)

        assert await blocking(exchange) == content


async def test_a_request_that_comes_with_the_end_of_the_handshake_is_delivered() -> None:
    """No further event of the network would bring it."""
    context = client(ssl_enabled_protocols="TLSv1.3")
    async with serving(server()) as at:

        def send_together() -> bytes:
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            peer = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
            with connect(at.port) as sock:
                for _ in range(2):
                    with contextlib.suppress(ssl.SSLWantReadError):
                        peer.do_handshake()
                        break
                    sock.sendall(outgoing.read())
                    incoming.write(sock.recv(100_000))
                peer.do_handshake()
                peer.write(b"first")
                sock.sendall(outgoing.read())
                while True:
                    incoming.write(sock.recv(100_000))
                    with contextlib.suppress(ssl.SSLWantReadError):
                        return peer.read(100)

        assert await blocking(send_together) == b"first"


@BOTH_VERSIONS
async def test_an_application_that_answers_before_a_bad_record_ends_is_not_hurt(
    version: str,
) -> None:
    """Both records come in one read, so that the answer is written when nothing can be any more."""
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))

    async with serving(server(ssl_enabled_protocols=version)) as at:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        peer = client().wrap_bio(incoming, outgoing, server_hostname="localhost")

        def send_together() -> None:
            with connect(at.port) as sock:
                while True:
                    try:
                        peer.do_handshake()
                        break
                    except ssl.SSLWantReadError:
                        sock.sendall(outgoing.read())
                        incoming.write(sock.recv(100_000))
                sock.sendall(outgoing.read())
                peer.write(b"good")
                good = outgoing.read()
                peer.write(b"bad")
                bad = bytearray(outgoing.read())
                bad[-1] ^= 1
                sock.sendall(good + bad)
                with contextlib.suppress(ConnectionResetError):
                    while sock.recv(100_000):
                        pass

        await blocking(send_together)
        reason = await at.end()
        assert (await at.last()).received == b"good"
    assert isinstance(reason, ConnectionResetError)
    assert failures == []


async def test_a_paused_application_gets_no_data_and_all_of_it_later() -> None:
    async with serving(server(), echoes=False) as at:
        peer = await blocking(lambda: connect_tls(at.port, client()))
        application = await at.last()
        await until(lambda: application.is_secured, "the handshake is over")
        application.transport.pause_reading()
        assert not application.transport.is_reading()

        content = b"x" * 100_000
        await blocking(lambda: peer.sendall(content))
        before = len(application.received)
        application.transport.resume_reading()
        await until(lambda: len(application.received) == len(content), "all has arrived")
        assert before == 0
        peer.close()


async def test_a_slow_reader_makes_the_application_pause() -> None:
    async with serving(server(), echoes=False) as at:
        peer = await blocking(lambda: connect_tls(at.port, client()))
        application = await at.last()
        await until(lambda: application.is_secured, "the handshake is over")
        application.transport.set_write_buffer_limits(high=0)

        content = b"y" * 8_000_000
        application.transport.write(content)
        assert application.paused == [True]
        assert application.transport.get_write_buffer_size() > 0
        received = await blocking(lambda: receive_exactly(peer, len(content)))
        assert received == content
        await until(lambda: application.paused == [True, False], "the application may write again")
        peer.close()


@BOTH_VERSIONS
async def test_what_was_sent_before_a_close_is_received(version: str) -> None:
    async with serving(server(ssl_enabled_protocols=version), echoes=False) as at:
        peer = await blocking(lambda: connect_tls(at.port, client()))
        application = await at.last()
        await until(lambda: application.is_secured, "the handshake is over")
        application.transport.write(b"z" * 3_000_000)
        application.transport.close()
        assert application.transport.is_closing()

        # The end comes with a goodbye of TLS: without one this peer would raise.
        received = await blocking(lambda: receive_exactly(peer, 3_000_000) + peer.recv(1))
        assert received == b"z" * 3_000_000
        assert await at.end() is None


@pytest.mark.parametrize("says_goodbye", [True, False])
async def test_an_end_with_or_without_goodbye_is_an_end(says_goodbye: bool) -> None:
    async with serving(server()) as at:

        def leave() -> None:
            peer = connect_tls(at.port, client())
            peer.sendall(b"a")
            receive_exactly(peer, 1)
            if says_goodbye:
                with contextlib.suppress(OSError):
                    peer.unwrap()
            peer.close()

        await blocking(leave)
        assert await at.end() is None
        assert (await at.last()).has_eof


# ---- refused peers


@BOTH_VERSIONS
@pytest.mark.parametrize("shows", ["nothing", "a stranger's"])
async def test_a_refused_client_receives_the_alert(
    version: str, shows: str, tmp_path: Path
) -> None:
    """A Java client that sees only an end tries again for ever."""
    given = {"ssl_enabled_protocols": version}
    if shows != "nothing":
        given["ssl_keystore_location"] = Authority(tmp_path).issue("s.pem", common_name="stranger")

    async with serving(server(ssl_client_auth="required")) as at:

        def ask() -> str:
            try:
                with connect_tls(at.port, client(**given)) as peer:
                    # With TLS 1.3 the client believes that all is well, and sends its request.
                    peer.sendall(b"request")
                    peer.sendall(b"another")
                    peer.recv(1)
            except ssl.SSLError as error:
                return str(error.reason)
            return "no alert"

        alerts = {
            ("nothing", "TLSv1.2"): "SSLV3_ALERT_HANDSHAKE_FAILURE",
            ("nothing", "TLSv1.3"): "TLSV13_ALERT_CERTIFICATE_REQUIRED",
        }
        assert await blocking(ask) == alerts.get((shows, version), "TLSV1_ALERT_UNKNOWN_CA")
        failure = await at.end()

    assert isinstance(failure, TlsFailed)
    assert "certificate" in failure.reason
    assert not (await at.last()).received


async def test_an_application_that_refuses_the_certificate_ends_the_connection() -> None:
    def refuse(application: Application, secured: ssl.SSLObject) -> None:
        raise TlsFailed("no rule matches")

    async with serving(server(), refuse) as at:
        with contextlib.suppress(OSError):
            await blocking(lambda: connect_tls(at.port, client()).recv(1))
        failure = await at.end()
    assert str(failure) == "no rule matches"


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (struct.pack(">ihhi", 100, 18, 0, 1), "a plaintext request came on a listener with TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "an HTTP request came on a listener with TLS"),
        (b"\xff" * 100, "does not speak TLS"),
        (b"\x16\x03\x01\x00\x05hello", None),
        (b"\x16\x03\x01\xff\xff" + b"\x00" * 70_000, None),
        (b"\x15\x03\x03\x00\x02\x02\x28", "does not speak TLS"),
    ],
    ids=["kafka", "http", "noise", "false hello", "record too long", "alert"],
)
async def test_garbage_ends_the_connection_with_a_clear_reason(
    sent: bytes, reason: str | None
) -> None:
    async with serving(server()) as at:

        def send() -> None:
            with connect(at.port) as peer, contextlib.suppress(OSError):
                peer.sendall(sent)
                while peer.recv(1000):
                    pass

        await blocking(send)
        failure = await at.end()
    assert isinstance(failure, TlsFailed)
    if reason is not None:
        assert reason in failure.reason


async def test_a_plaintext_peer_gets_not_one_byte() -> None:
    """An old Java client would take an alert for the size of a response, of 352 MB."""
    async with serving(server()) as at:

        def ask() -> bytes:
            with connect(at.port) as peer:
                peer.sendall(struct.pack(">ihhi", 100, 18, 0, 1))
                return peer.recv(1000)

        assert await blocking(ask) == b""


@BOTH_VERSIONS
async def test_an_end_at_any_point_of_the_handshake_is_no_refusal(version: str) -> None:
    hello = await client_hello(version)
    for size in (0, 1, 5, 60, len(hello) - 1, len(hello)):
        async with serving(server()) as at:
            with connect(at.port) as peer:
                await blocking(lambda peer=peer, size=size: peer.sendall(hello[:size]))
                peer.shutdown(socket.SHUT_WR)
                failure = await at.end()
        assert isinstance(failure, ConnectionResetError), size


async def client_hello(version: str) -> bytes:
    outgoing = ssl.MemoryBIO()
    context = client(ssl_enabled_protocols=version)
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


async def test_half_a_handshake_ends_after_its_time() -> None:
    hello = await client_hello("TLSv1.3")
    async with serving(server(), timeout_s=0.05) as at:
        with connect(at.port) as peer:
            peer.sendall(hello[:50])
            failure = await at.end()
    assert isinstance(failure, TlsFailed)
    assert "took longer" in str(failure)


async def test_stalled_handshakes_make_room_for_new_ones() -> None:
    async with serving(server(), max_at_once=3) as at:
        stalled = [await blocking(lambda: connect(at.port)) for _ in range(3)]
        await until(lambda: len(at.applications) == 3, "all are accepted")

        def exchange() -> bytes:
            with connect_tls(at.port, client()) as peer:
                peer.sendall(b"hi")
                return receive_exactly(peer, 2)

        assert await blocking(exchange) == b"hi"
        assert "too many handshakes" in str(at.applications[0].lost[0])
        assert at.applications[1].lost == []
        for peer in stalled:
            peer.close()


async def test_a_renegotiation_is_refused() -> None:
    """Each would cost us a handshake; a client of TLS 1.2 asks for it within the connection."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("missing tool: openssl")
    async with serving(server(ssl_enabled_protocols="TLSv1.2")) as at:
        process = await asyncio.create_subprocess_exec(
            openssl,
            *("s_client", "-connect", f"127.0.0.1:{at.port}", "-tls1_2"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert process.stdin is not None
        # A line of R makes it ask.
        process.stdin.write(b"R\n")
        shown, _ = await asyncio.wait_for(process.communicate(), 20)
    assert b"no renegotiation" in shown


# ---- as a client


@contextlib.asynccontextmanager
async def blocking_server(serve: Callable[[socket.socket], None]) -> AsyncIterator[int]:
    """Accept one connection, and serve it in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            sock, _ = listening.accept()
            with sock:
                sock.settimeout(20)
                serve(sock)

        task = asyncio.create_task(blocking(accept))
        yield listening.getsockname()[1]
        await task


async def connected(port: int, context: ssl.SSLContext, name: str = "localhost") -> Application:
    application = Application()
    await asyncio.get_running_loop().create_connection(
        lambda: TlsTransport(context, application, application.secured, server_hostname=name),
        "127.0.0.1",
        port,
    )
    return application


@BOTH_VERSIONS
async def test_a_client_talks_to_a_server_of_python(version: str) -> None:
    def serve(sock: socket.socket) -> None:
        with server(ssl_enabled_protocols=version).wrap_socket(sock, server_side=True) as secured:
            secured.sendall(receive_exactly(secured, 300_000))

    async with blocking_server(serve) as port:
        application = await connected(port, client())
        await until(lambda: application.is_secured, "the handshake is over")
        application.transport.write(b"c" * 300_000)
        await until(lambda: len(application.received) == 300_000, "all came back")
        application.transport.close()


@pytest.mark.parametrize(
    ("given", "name", "reason"),
    [
        ({"ssl_truststore_certificates": "other"}, "localhost", "certificate is not trusted"),
        ({"ssl_endpoint_identification_algorithm": "https"}, "elsewhere", "is for other names"),
        ({"ssl_endpoint_identification_algorithm": "https"}, "127.0.0.1", "is for other names"),
    ],
)
async def test_a_client_refuses_a_server_that_it_cannot_trust(
    given: dict[str, str], name: str, reason: str
) -> None:
    if given.get("ssl_truststore_certificates"):
        given = {"ssl_truststore_certificates": trustme.CA().cert_pem.bytes().decode()}
    alerts: list[str | None] = []

    def serve(sock: socket.socket) -> None:
        try:
            server().wrap_socket(sock, server_side=True).recv(1)
        except ssl.SSLError as error:
            alerts.append(error.reason)

    async with blocking_server(serve) as port:
        application = await connected(port, client(**given), name)
        await until(lambda: application.lost, "the client gives up")
    (failure,) = application.lost
    assert isinstance(failure, TlsFailed)
    assert reason in failure.reason
    assert alerts
    assert "ALERT" in str(alerts[0])


@BOTH_VERSIONS
async def test_a_client_without_the_required_certificate_is_refused_and_knows_it(
    version: str,
) -> None:
    context = server(ssl_enabled_protocols=version, ssl_client_auth="required")
    async with serving(context) as at:
        application = await connected(at.port, client())
        await until(lambda: application.lost, "the server refuses it")
        (failure,) = application.lost
    assert isinstance(failure, TlsFailed)
    assert "client certificate" in failure.reason


async def test_a_client_that_meets_plaintext_says_so() -> None:
    def serve(sock: socket.socket) -> None:
        sock.recv(1)
        sock.sendall(b"\0\0\0\x0a")
        sock.recv(1000)

    async with blocking_server(serve) as port:
        application = await connected(port, client())
        await until(lambda: application.lost, "the client gives up")
    assert "does not speak TLS: is security.protocol right" in str(application.lost[0])


async def test_a_server_that_closes_in_the_handshake_may_be_tried_again() -> None:
    def serve(sock: socket.socket) -> None:
        sock.recv(10_000)

    async with blocking_server(serve) as port:
        application = await connected(port, client())
        await until(lambda: application.lost, "the client gives up")
    assert isinstance(application.lost[0], ConnectionResetError)
