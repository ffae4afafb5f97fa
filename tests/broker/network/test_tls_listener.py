"""A listener with TLS, over sockets: who clients are, what goes wrong, and how bytes go out."""

from __future__ import annotations

import asyncio
import gc
import resource
import ssl
import struct
import weakref
from pathlib import Path

import pytest

from broker.network.listener_tls import ListenerTls
from broker.network.request_context import RequestContext
from core_log.directory import LogDirectory
from core_log.storage import FileRange
from protocol.api_key import ApiKey
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.tls.principal_rules import parse_rules
from tests.broker.network.file_responses import fetch, fetched, files
from tests.broker.served import ask, echoed, serving
from tests.protocol.tls.test_context import KEY, client, server
from tests.stage.certificates import Authority, shared_leaf
from tests.stage.waiting import until

ANONYMOUS = "User:ANONYMOUS"


def who(request: FindCoordinatorRequest, context: RequestContext) -> object:
    return echoed(str(context.principal))


WHO = {ApiKey.FIND_COORDINATOR: who}


def tls(client_auth: str = "none", rules: str = "DEFAULT") -> dict[str, ListenerTls]:
    context = server(ssl_client_auth=client_auth)
    return {"PLAINTEXT": ListenerTls(context, parse_rules(rules), names_users=True)}


def with_certificate(path: Path) -> ssl.SSLContext:
    file = path / "client.pem"
    shared_leaf("client.example", common_name="alice").private_key_and_cert_chain_pem.write_to_path(
        file
    )
    return client(ssl_keystore_location=str(file))


async def name_of(port: int, context: ssl.SSLContext) -> str:
    """Connect, and ask who we are."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname="localhost"
    )
    try:
        writer.write(ask(1))
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        response = await reader.readexactly(size)
        (length,) = struct.unpack(">h", response[10:12])
        return response[12 : 12 + length].decode()
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("client_auth", "shows_one", "name"),
    [
        ("none", True, ANONYMOUS),
        ("requested", False, ANONYMOUS),
        ("requested", True, r"User:CN=alice,OU=Tests,O=Acme\, Inc"),
        ("required", True, r"User:CN=alice,OU=Tests,O=Acme\, Inc"),
    ],
)
async def test_a_client_is_whom_its_certificate_names(
    client_auth: str, shows_one: bool, name: str, tmp_path: Path
) -> None:
    context = with_certificate(tmp_path) if shows_one else client()
    async with serving(WHO, tls=tls(client_auth)) as at:
        assert await name_of(at.port, context) == name


async def test_rules_make_the_name(tmp_path: Path) -> None:
    rules = "RULE:^CN=(.*?),OU=Tests.*$/$1/U,DEFAULT"
    async with serving(WHO, tls=tls("required", rules)) as at:
        assert await name_of(at.port, with_certificate(tmp_path)) == "User:ALICE"


async def test_a_client_without_a_rule_is_closed_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(WHO, tls=tls("required", "RULE:^CN=x$/x/")) as at:
        with pytest.raises((asyncio.IncompleteReadError, OSError)):
            await name_of(at.port, with_certificate(tmp_path))
        await until(lambda: not at.listener.connections, "the connection is closed")
    assert "TLS failed: no rule of ssl.principal.mapping.rules matches" in caplog.text
    assert "CN=alice" in caplog.text


async def test_plaintext_on_a_port_with_tls_is_named_and_gets_no_byte(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(WHO, tls=tls()) as at:
        peer = await at.client()
        await peer.send(ask(1))
        assert await peer.is_closed()
        reason = f"{peer.name}: connection closed: TLS failed: the peer does not speak TLS"
        await until(lambda: reason in caplog.text, "the log names it")


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"\x16\x03\x01\x02\x00\x01", "it is a TLS handshake, and this port does not speak TLS"),
        (b"GET / HTTP/1.1\r\n", "it is HTTP"),
    ],
)
async def test_tls_on_a_plaintext_port_is_named(
    sent: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(WHO) as at:
        peer = await at.client()
        await peer.send(sent)
        assert await peer.is_closed()
    assert why in caplog.text


async def test_a_connection_counts_before_its_handshake() -> None:
    async with serving(WHO, tls=tls(), max_connections_per_ip="1") as at:
        first = await at.client()
        await until(lambda: at.listener.connections, "the first is accepted")
        second = await at.client()
        assert await second.is_closed()
        assert len(at.listener.connections) == 1
        first.close()


@pytest.mark.fault(
    "security-7", needs_no_remedy="OpenSSL makes room for the message; docs/security.md says it"
)
async def test_a_handshake_holds_no_more_than_is_documented() -> None:
    """Nine bytes announce a first message of 131,000, the most that OpenSSL takes."""
    number, largest = 200, b"\x16\x03\x01\x3e\x84\x01" + (131_000).to_bytes(3, "big")
    async with serving(WHO, tls=tls()) as at:
        before = resident_bytes()
        peers = [await at.client() for _ in range(number)]
        for peer in peers:
            await peer.send(largest)
        # Who comes now is served when all of these have been looked at.
        assert await name_of(at.port, client()) == ANONYMOUS
        assert len(at.listener.connections) >= number
        assert resident_bytes() - before < number * 250_000


def resident_bytes() -> int:
    """Return the memory of this process (its second word in /proc/self/statm, in pages)."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


async def test_a_renewed_context_is_for_new_connections(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    listeners = tls()
    async with serving(WHO, tls=listeners) as at:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", at.port, ssl=client(), server_hostname="localhost"
        )
        listeners["PLAINTEXT"].context = server(
            ssl_keystore_location=authority.issue("new.pem", "localhost"),
            **{name.replace(".", "_"): "" for name in KEY},
        )

        renewed = client(ssl_truststore_certificates=authority.ca.cert_pem.bytes().decode())
        assert await name_of(at.port, renewed) == ANONYMOUS
        with pytest.raises(ssl.SSLCertVerificationError):
            await name_of(at.port, client())

        # The one that was open is served on.
        writer.write(ask(7))
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        assert (await reader.readexactly(size))[:4] == struct.pack(">i", 7)
        writer.close()


async def test_ranges_of_files_go_out_encrypted_piece_by_piece(tmp_path: Path) -> None:
    content = bytes(i * 31 % 256 for i in range(65_537)) * 48
    file = LogDirectory(tmp_path).open_segment("log")
    file.append([content])
    ranges = [FileRange(file, 0, len(content)), b"in between", FileRange(file, 1000, 50_000)]

    async with serving(files(*ranges), tls=tls()) as at:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", at.port, ssl=client(), server_hostname="localhost"
        )

        class Peer:
            async def receive(self) -> bytes:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                return await reader.readexactly(size)

        for number in range(2):
            writer.write(fetch(number))
            got = await fetched(Peer())  # type: ignore[arg-type]
            assert got == (number, [content, b"in between", content[1000:51_000]])

        # No more is kept than a piece and what is being sent.
        assert at.listener.queued.total < 1_000_000
        writer.close()


@pytest.mark.fault("strangers-103")
@pytest.mark.parametrize("secured", [False, True])
async def test_nothing_of_a_closed_connection_waits_for_the_collector_of_cycles(
    secured: bool,
) -> None:
    """A broker collects seldom, and thousands of connections may have come and gone."""
    gc.collect()
    gc.disable()
    try:
        async with serving(WHO, tls=tls() if secured else {}) as at:
            context = client() if secured else None
            reader, writer = await asyncio.open_connection(
                "127.0.0.1",
                at.port,
                ssl=context,
                server_hostname="localhost" if secured else None,
            )
            writer.write(ask(1))
            await reader.readexactly(4)
            (connection,) = at.listener.connections
            transport = connection._transport
            left = weakref.ref(getattr(transport, "_socket", transport))
            del connection, transport
            writer.close()

            async def is_gone() -> bool:
                return left() is None

            await until(is_gone, "the transport to be gone")
    finally:
        gc.enable()
