"""Links that are cut, one way too, as those see it who are connected by them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import attrs
import pytest

from protocol.api_key import ApiKey
from protocol.header import encode_request
from protocol.messages.api_versions import ApiVersionsRequest
from tests.chaos.network import CLIENTS, HOST, Network, both_ways, source_of

SOON_S = 60.0
SILENCE_S = 0.1
THERE, BACK = both_ways("a", "b")


@attrs.define(eq=False)
class Connected:
    """A connection from a to b, over which something has passed already."""

    network: Network
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    far_reader: asyncio.StreamReader
    far_writer: asyncio.StreamWriter


@contextlib.asynccontextmanager
async def connected() -> AsyncIterator[Connected]:
    accepted: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    server = await asyncio.start_server(lambda *ends: accepted.put_nowait(ends), HOST, 0)
    target_port = server.sockets[0].getsockname()[1]
    async with asyncio.timeout(SOON_S), Network() as network:
        port = await network.open("b", target_port, "a")
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"1")
        far_reader, far_writer = await accepted.get()
        assert await far_reader.readexactly(1) == b"1"
        yield Connected(network, reader, writer, far_reader, far_writer)
    server.close()


def scenario(told: Callable[[Connected], Awaitable[None]]) -> None:
    async def run() -> None:
        async with connected() as ends:
            await told(ends)

    asyncio.run(run())


async def is_silent(reader: asyncio.StreamReader) -> bool:
    """Whether nothing comes, and no end either."""
    try:
        async with asyncio.timeout(SILENCE_S):
            await reader.read(1)
    except TimeoutError:
        return True
    return False


async def given_up(ends: Connected) -> None:
    """Have a give up its connection; return when its end has come to the network."""
    ends.writer.close()
    while not all(end.has_ended for end in ends.network.links[THERE].ends):
        await asyncio.sleep(0)


def test_bytes_pass_both_ways() -> None:
    async def told(ends: Connected) -> None:
        ends.writer.write(b"there")
        assert await ends.far_reader.readexactly(5) == b"there"
        ends.far_writer.write(b"back")
        assert await ends.reader.readexactly(4) == b"back"

    scenario(told)


def test_a_link_that_is_held_one_way_lets_the_other_way_pass_and_then_all_arrives() -> None:
    async def told(ends: Connected) -> None:
        ends.network.hold([THERE])
        ends.writer.write(b"there")
        ends.far_writer.write(b"back")
        assert await ends.reader.readexactly(4) == b"back"
        assert await is_silent(ends.far_reader)
        ends.network.heal([THERE])
        assert await ends.far_reader.readexactly(5) == b"there"

    scenario(told)


def test_who_gives_up_a_connection_in_the_silence_is_heard_of_late_and_its_bytes_never() -> None:
    async def told(ends: Connected) -> None:
        ends.network.hold([THERE, BACK])
        ends.writer.write(b"there")
        await given_up(ends)
        assert await is_silent(ends.far_reader)
        ends.network.heal([THERE, BACK])
        assert await ends.far_reader.read() == b""

    scenario(told)


def test_what_was_given_up_may_arrive_late_too() -> None:
    async def told(ends: Connected) -> None:
        ends.network.hold([THERE, BACK], late=True)
        ends.writer.write(b"there")
        await given_up(ends)
        assert await is_silent(ends.far_reader)
        ends.network.heal([THERE, BACK])
        assert await ends.far_reader.read() == b"there"

    scenario(told)


def test_a_reset_ends_the_connection_at_both_ends() -> None:
    async def told(ends: Connected) -> None:
        ends.network.reset([THERE])
        for reader in (ends.reader, ends.far_reader):
            with pytest.raises(ConnectionResetError):
                await reader.read()

    scenario(told)


def test_a_link_that_is_refused_is_so_for_new_connections_too() -> None:
    async def told(ends: Connected) -> None:
        ends.network.refuse([THERE])
        host, port = ends.writer.get_extra_info("peername")
        reader, _ = await asyncio.open_connection(host, port)
        with pytest.raises(ConnectionResetError):
            await reader.read()

    scenario(told)


@pytest.mark.parametrize(
    ("client_id", "source"),
    [
        ("broker-2-fetcher", "broker-2"),
        ("1", "broker-1"),
        ("kgroup", CLIENTS),
        ("broker-2", CLIENTS),
        ("", CLIENTS),
    ],
)
def test_the_first_request_tells_who_dials(client_id: str, source: str) -> None:
    frame = encode_request(ApiKey.API_VERSIONS, 3, 7, client_id, ApiVersionsRequest())
    assert source_of(frame) == source
    assert source_of(frame[:13]) is None
