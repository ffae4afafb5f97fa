"""A client that does not take its responses waits for itself, and keeps nobody else waiting."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import attrs
import pytest

from broker.network.dispatch import NO_RESPONSE, Handler
from protocol.api_key import ApiKey
from protocol.header import encode_request
from protocol.messages.update_metadata import UpdateMetadataRequest
from tests.broker.served import Client, Server, ask, echoed, serving
from tests.stage.waiting import until

ANSWER = "x" * 30_000
ANSWERS = 12
BUFFER_BYTES = 20_000
LIMIT_BYTES = 100_000
SETTINGS = {
    "queued_max_request_bytes": str(LIMIT_BYTES),
    "socket_request_max_bytes": str(LIMIT_BYTES),
    "socket_send_buffer_bytes": str(BUFFER_BYTES),
}


@attrs.define(eq=False)
class Scene:
    """A server with a client that has asked for more than it takes."""

    server: Server
    greedy: Client
    updates: list[UpdateMetadataRequest]


@contextlib.asynccontextmanager
async def greedy_client() -> AsyncIterator[Scene]:
    updates: list[UpdateMetadataRequest] = []

    def update(request: UpdateMetadataRequest, context: object) -> object:
        updates.append(request)
        return NO_RESPONSE

    handlers: dict[ApiKey, Handler] = {
        ApiKey.FIND_COORDINATOR: lambda request, context: echoed(ANSWER),
        ApiKey.UPDATE_METADATA: update,  # type: ignore[dict-item]
    }
    async with serving(handlers, **SETTINGS) as server:
        greedy = await server.client(receive_buffer_bytes=BUFFER_BYTES)
        await greedy.send(*map(ask, range(ANSWERS)))
        await until(lambda: server.listener.queued.holds_back, "its responses are above its share")
        yield Scene(server, greedy, updates)


async def new_client(scene: Scene, address: str = "127.0.0.1") -> Client:
    """Connect one that has sent a request."""
    client = await scene.server.client(address=address)
    await client.send(ask(77))
    return client


async def waits(scene: Scene, client: Client) -> None:
    """Check that a client is not served: others are meanwhile."""
    other = await scene.server.client(address="127.0.0.2")
    for number in range(20):
        assert await other.echo(number) == (number, ANSWER)
    with pytest.raises(BlockingIOError):
        client.sock.recv(1)


async def take_all(scene: Scene) -> None:
    for number in range(ANSWERS):
        assert await scene.greedy.answer() == (number, ANSWER)


async def close(scene: Scene) -> None:
    scene.greedy.close()


async def reset(scene: Scene) -> None:
    scene.greedy.reset()


@pytest.mark.fault("strangers-5")
async def test_other_clients_are_read_and_served() -> None:
    async with greedy_client() as scene:
        other = await new_client(scene, "127.0.0.2")
        assert await other.answer() == (77, ANSWER)
        for number in range(50):
            assert await other.echo(number) == (number, ANSWER)


@pytest.mark.fault("strangers-6")
@pytest.mark.parametrize("end", [take_all, close, reset])
async def test_its_new_connections_are_served_when_it_has_taken_its_responses_or_is_gone(
    end: Callable[[Scene], Awaitable[None]],
) -> None:
    async with greedy_client() as scene:
        new = [await new_client(scene) for _ in range(20)]
        for client in new:
            await waits(scene, client)
        assert scene.server.listener.queued.total < 2 * LIMIT_BYTES
        await end(scene)
        for client in new:
            assert await client.answer() == (77, ANSWER)


@pytest.mark.fault("strangers-6")
async def test_those_that_wait_may_go_or_send_more() -> None:
    async with greedy_client() as scene:
        gone, half, more = [await new_client(scene) for _ in range(3)]
        ended = {gone.name, half.name}
        await waits(scene, gone)
        gone.reset()
        half.sock.shutdown(1)
        for number in range(1000):
            await more.send(ask(number))
        await waits(scene, more)
        await take_all(scene)
        assert await half.answer() == (77, ANSWER)
        for number in (77, *range(1000)):
            assert await more.answer() == (number, ANSWER)
        assert await half.is_closed()
        connections = scene.server.listener.connections
        await until(
            lambda: not ended & {connection.name for connection in connections}, "both are closed"
        )


@pytest.mark.fault("strangers-6")
async def test_a_broker_is_served_though_it_comes_from_the_same_address() -> None:
    request = UpdateMetadataRequest(
        controller_id=1, controller_epoch=1, ungrouped_partition_states=(), live_brokers=()
    )
    frame = encode_request(ApiKey.UPDATE_METADATA, 0, 1, "controller", request)
    async with greedy_client() as scene:
        before = await new_client(scene)
        broker = await scene.server.client()
        # As the bytes come.
        await broker.send(frame[:3])
        await asyncio.sleep(0)
        await broker.send(frame[3:40])
        await asyncio.sleep(0)
        await broker.send(frame[40:])
        await until(lambda: scene.updates, "the broker is served")
        await broker.send(frame, frame)
        await until(lambda: len(scene.updates) == 3, "it is served on")
        await waits(scene, before)


@pytest.mark.fault("strangers-7")
async def test_a_connection_in_line_that_is_closed_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is closed between its place in line and its turn, while its client is held back."""
    async with greedy_client() as scene:
        waiting = await new_client(scene)
        connections = scene.server.listener.connections
        (connection,) = await until(
            lambda: [each for each in connections if each.name == waiting.name], "it is there"
        )
        await waits(scene, waiting)
        connection.close()
        connection.serve_again()
        await until(lambda: connection not in connections, "it is closed")
        other = await new_client(scene, "127.0.0.2")
        assert await other.answer() == (77, ANSWER)
        assert not [record for record in caplog.records if record.exc_info]
