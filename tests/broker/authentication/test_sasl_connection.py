"""Logins over a socket: limits, delays, and what strangers send (Kafka's SaslAuthenticatorTest)."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import random
import sys
import termios
from collections.abc import AsyncIterator
from functools import partial

import attrs
import pytest

from broker.authentication.gate import Gate
from broker.authentication.sasl_session import LoginCounts, SaslLimits, SaslSession
from broker.handlers import api_versions
from broker.network.connection import ClientConnection
from broker.network.dispatch import Handler
from broker.network.request_context import RequestContext
from protocol.api_key import ApiKey
from protocol.header import encode_request, read_response
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.sasl_handshake import SaslHandshakeRequest
from protocol.metrics import Metrics
from protocol.sasl.exchange import PLAIN, LoggedIn
from protocol.sasl.plain import PlainServer
from tests.broker.served import Client, Server, ask, echoed, serving
from tests.stage.waiting import until

LIMIT = 1000
ALICE = b"\0alice\0secret"
WRONG = b"\0alice\0wrong"


@attrs.define(eq=False)
class Stage:
    """A SASL listener, and what was counted of its logins."""

    server: Server
    counts: LoginCounts
    principals: list[str]
    now: list[int]

    async def client(self) -> Client:
        return await self.server.client()


@contextlib.asynccontextmanager
async def sasl_listener(delay_ms: int = 1, max_reauth_ms: int = 0) -> AsyncIterator[Stage]:
    principals: list[str] = []

    def echo(request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
        principals.append(str(context.principal))
        return echoed(request.key)

    handlers: dict[ApiKey, Handler] = {
        ApiKey.FIND_COORDINATOR: echo,
        ApiKey.API_VERSIONS: partial(
            api_versions.handle, api_versions.ServedVersions.of([ApiKey.API_VERSIONS])
        ),
    }
    counts = LoginCounts.of(Metrics(), "PLAINTEXT")
    now = [0]
    gate = Gate(
        {PLAIN: lambda: PlainServer({"alice": "secret"})},
        {PLAIN: max_reauth_ms} if max_reauth_ms else {},
    )
    async with serving(handlers) as server:
        server.listener.open_session = lambda listener: SaslSession(
            gate, SaslLimits(LIMIT, delay_ms), counts, lambda: now[0], lambda: now[0]
        )
        yield Stage(server, counts, principals, now)


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def handshake(version: int = 1) -> bytes:
    request = SaslHandshakeRequest(mechanism=PLAIN)
    return encode_request(ApiKey.SASL_HANDSHAKE, version, 1, "c", request)


def authenticate(token: bytes) -> bytes:
    request = SaslAuthenticateRequest(auth_bytes=token)
    return encode_request(ApiKey.SASL_AUTHENTICATE, 1, 2, "c", request)


def unread_bytes(connection: ClientConnection) -> int:
    """How many bytes the system keeps that the broker has not read."""
    assert connection._transport is not None
    sock = connection._transport.get_extra_info("socket")
    return int.from_bytes(fcntl.ioctl(sock.fileno(), termios.FIONREAD, bytes(4)), sys.byteorder)


async def log_in(client: Client, token: bytes = ALICE) -> int:
    """The error code of a login."""
    await client.send(handshake())
    await client.receive()
    await client.send(authenticate(token))
    return int(read_response(ApiKey.SASL_AUTHENTICATE, 1, await client.receive())[1].error_code)


# ---- logins


@pytest.mark.parametrize("version", [0, 1])
async def test_versions_then_a_login_then_requests(version: int) -> None:
    async with sasl_listener() as stage:
        client = await stage.client()
        await client.send(encode_request(ApiKey.API_VERSIONS, 0, 9, "c", ApiVersionsRequest()))
        versions: ApiVersionsResponse = read_response(
            ApiKey.API_VERSIONS, 0, await client.receive()
        )[1]
        assert versions.error_code == 0

        # All at once: what comes behind a token waits for its turn.
        token = framed(ALICE) if version == 0 else authenticate(ALICE)
        await client.send(handshake(version), token, ask(3, "k"))
        await client.receive()
        assert len(await client.receive()) == (0 if version == 0 else 20)
        assert await client.answer() == (3, "k")
        assert stage.principals == ["User:alice"]
        assert (stage.counts.succeeded.count, stage.counts.failed.count) == (1, 0)


async def test_a_refused_client_gets_its_response_and_is_closed() -> None:
    async with sasl_listener() as stage:
        client, other = await stage.client(), await stage.client()
        assert await log_in(client, WRONG) == 58
        assert await client.is_closed()
        assert await log_in(other) == 0
        assert (stage.counts.succeeded.count, stage.counts.failed.count) == (1, 1)


async def test_a_refusal_comes_late_and_nothing_is_read_until_then() -> None:
    async with sasl_listener(delay_ms=3_600_000) as stage:
        refused, other = await stage.client(), await stage.client()
        await refused.send(handshake())
        await refused.receive()
        await refused.send(authenticate(WRONG), ask(3, "k"), bytes(100_000))
        assert await log_in(other) == 0
        assert await other.echo(4, "k") == (4, "k")

        # The refusal is decided, and still to come.
        assert stage.counts.failed.count == 1
        assert stage.principals == ["User:alice"]
        (connection,) = [c for c in stage.server.listener.connections if c.name == refused.name]
        assert not connection.has_more
        refused.sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            refused.sock.recv(1)


async def test_a_refusal_can_be_read_before_the_connection_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker.network.connection.REFUSAL_READ_S", 3600)
    async with sasl_listener() as stage:
        refused, other = await stage.client(), await stage.client()
        assert await log_in(refused, WRONG) == 58

        # It can do nothing else with the connection.
        await refused.send(authenticate(ALICE))
        assert await log_in(other) == 0
        assert await other.echo(4, "k") == (4, "k")
        assert (stage.counts.succeeded.count, stage.counts.failed.count) == (1, 1)
        refused.sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            refused.sock.recv(1)


async def test_a_right_password_behind_a_wrong_one_is_not_read() -> None:
    async with sasl_listener(delay_ms=3_600_000) as stage:
        refused, other = await stage.client(), await stage.client()
        await refused.send(handshake())
        await refused.receive()
        await refused.send(authenticate(WRONG))
        assert await log_in(other) == 0
        assert stage.counts.failed.count == 1

        # It stays in the buffer of the system.
        await refused.send(authenticate(ALICE))
        (connection,) = [c for c in stage.server.listener.connections if c.name == refused.name]
        await until(lambda: unread_bytes(connection) == len(authenticate(ALICE)), "it has arrived")
        assert await other.echo(3, "k") == (3, "k")
        assert unread_bytes(connection) == len(authenticate(ALICE))
        assert (stage.counts.succeeded.count, stage.counts.failed.count) == (1, 1)


async def test_a_client_that_goes_away_before_its_refusal_leaves_nothing_behind() -> None:
    async with sasl_listener(delay_ms=20) as stage:
        client, other = await stage.client(), await stage.client()
        await client.send(handshake())
        await client.receive()
        await client.send(authenticate(WRONG))
        client.reset()
        refused = await stage.client()
        assert await log_in(refused, WRONG) == 58  # later than the one before
        assert await log_in(other) == 0


# ---- limits, and nonsense


@pytest.mark.parametrize("size", [LIMIT + 1, 2**31 - 1, 0x80000000, 0xFFFFFFFF, 0x16030102])
async def test_a_frame_above_the_limit_before_the_login_closes_the_connection(size: int) -> None:
    """0x16030102 is the beginning of a TLS handshake."""
    async with sasl_listener() as stage:
        for before in ((), (handshake(),)):
            client = await stage.client()
            for frame in before:
                await client.send(frame)
                await client.receive()
            await client.send(size.to_bytes(4, "big") + bytes(8))
            assert await client.is_closed()
        assert await log_in(await stage.client()) == 0


async def test_after_the_login_requests_may_be_large() -> None:
    async with sasl_listener() as stage:
        client = await stage.client()
        assert await log_in(client) == 0
        key = "k" * (3 * LIMIT)
        assert await client.echo(3, key) == (3, key)


async def test_the_limit_holds_again_during_a_login_again() -> None:
    async with sasl_listener(max_reauth_ms=5000) as stage:
        client = await stage.client()
        assert await log_in(client) == 0
        assert await client.echo(3, "k" * (3 * LIMIT)) == (3, "k" * (3 * LIMIT))
        await client.send(handshake())
        await client.receive()
        await client.send(authenticate(b"\0alice\0" + bytes(2 * LIMIT)))
        assert await client.is_closed()


async def test_random_bytes_before_and_during_the_login_close_the_connection() -> None:
    rng = random.Random(18)
    async with sasl_listener() as stage:
        for before in ((), (handshake(),)):
            for _ in range(20):
                client = await stage.client()
                for frame in before:
                    await client.send(frame)
                    await client.receive()
                await client.send(framed(b"\x7f\x7f" + rng.randbytes(rng.randrange(LIMIT - 2))))
                assert await client.is_closed()
        assert await log_in(await stage.client()) == 0


async def test_a_failure_of_ours_lets_nobody_in(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def receive(self, token: bytes) -> LoggedIn:
            raise RuntimeError("a bug")

    async with sasl_listener() as stage:
        gate = Gate({PLAIN: Broken})
        stage.server.listener.open_session = lambda listener: SaslSession(
            gate, SaslLimits(LIMIT, 1), stage.counts, lambda: 0, lambda: 0
        )
        client = await stage.client()
        await client.send(handshake())
        await client.receive()
        await client.send(authenticate(ALICE))
        assert await client.is_closed()
        assert "a login failed unexpectedly" in caplog.text
        assert stage.counts.failed.count == 1


# ---- sessions that end


async def test_a_session_ends_with_the_first_request_after_its_time() -> None:
    async with sasl_listener(max_reauth_ms=5000) as stage:
        client, prolonged = await stage.client(), await stage.client()
        for one in (client, prolonged):
            assert await log_in(one) == 0
            assert await one.echo(3, "k") == (3, "k")
        stage.now[0] = 4500
        assert await log_in(prolonged) == 0
        stage.now[0] = 5000
        await client.send(ask(4, "k"))
        assert await client.is_closed()
        assert await prolonged.echo(4, "k") == (4, "k")
        counts = stage.counts
        assert (counts.expired.count, counts.failed.count, counts.succeeded.count) == (1, 0, 2)
        assert (counts.succeeded_again.count, counts.failed_again.count) == (1, 0)


async def test_no_line_of_the_log_shows_a_password(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with sasl_listener() as stage:
        for token in (WRONG, ALICE, b"\0secret", b"secret\0wrong\0secret"):
            await log_in(await stage.client(), token)
        assert stage.counts.failed.count == 3
    assert "secret" not in caplog.text
    assert "wrong" not in caplog.text
    await asyncio.sleep(0)
