"""The network of the stories: what TCP promises, and what faults do to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from clients.errors import ConnectionFailed
from clients.transport.connection import KEEP_ALIVE, Connection
from kgroup.testing.simulation.network import Network
from kgroup.testing.simulation.transport import (
    GIVE_UP_S,
    KEEP_ALIVE_PROBES,
    KEEP_IDLE,
    Transport,
)
from kgroup.testing.simulation.world import World
from protocol.messages.api_versions import ApiVersionsRequest

ADDRESS = ("server", 9092)


class Received(asyncio.Protocol):
    """Keeps what comes."""

    def __init__(self) -> None:
        self.data = b""
        self.lost: list[Exception | None] = []

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)


class Pair:
    """A client connected to a server; `live` is called with both ends' transport and protocol."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.world.network = self.network = Network(self.world)
        self.server, self.client = self.world.process("server"), self.world.process("client")
        self.at_server, self.at_client = Received(), Received()

    def run(self, live: Callable[[Transport], Awaitable[None]]) -> None:
        self.world.run(self._connected(live))

    async def _connected(self, live: Callable[[Transport], Awaitable[None]]) -> None:
        socket = self.network.bind_of(self.server)(*ADDRESS)
        socket.listen(1)
        socket.watch(lambda: socket.accept()[0].transport.opened(self.at_server))
        transport, _ = await self.network.connect(self.client, lambda: self.at_client, *ADDRESS)
        await live(transport)


def test_bytes_arrive_in_order_however_they_are_cut() -> None:
    pair = Pair(1)
    sent = [bytes([number]) * (number * 997) for number in range(1, 120)]

    async def live(transport: Transport) -> None:
        for data in sent:
            transport.write(data)
        await asyncio.sleep(5)

    pair.run(live)
    assert pair.at_server.data == b"".join(sent)


def test_what_is_sent_over_a_cut_path_arrives_when_it_is_mended() -> None:
    pair = Pair(2)

    async def live(transport: Transport) -> None:
        pair.network.cut("client", "server")
        transport.write(b"kept")
        transport.peer.write(b"the other way")
        await asyncio.sleep(GIVE_UP_S[0] / 2)
        assert (pair.at_server.data, pair.at_client.data) == (b"", b"the other way")
        pair.network.mend("client", "server")
        await asyncio.sleep(3)

    pair.run(live)
    assert pair.at_server.data == b"kept"


def test_a_connection_nobody_acknowledges_breaks_at_its_sender_alone() -> None:
    pair = Pair(3)

    async def live(transport: Transport) -> None:
        pair.network.cut("client", "server")
        transport.write(b"lost")
        await asyncio.sleep(GIVE_UP_S[1] + 1)
        pair.network.mend("client", "server")
        await asyncio.sleep(3)

    pair.run(live)
    assert [type(error) for error in pair.at_client.lost] == [TimeoutError]
    assert (pair.at_server.data, pair.at_server.lost) == (b"", [])


@pytest.mark.parametrize(("is_silent", "ended"), [(False, [ConnectionResetError]), (True, [])])
def test_a_killed_process_resets_its_connections_a_machine_without_power_says_nothing(
    is_silent: bool, ended: list[type[Exception]]
) -> None:
    pair = Pair(4)

    async def live(transport: Transport) -> None:
        pair.network.stop(pair.server, silent=is_silent)
        pair.server.kill()
        await asyncio.sleep(1)

    pair.run(live)
    assert [type(error) for error in pair.at_client.lost] == ended


ASKS_AFTER_S = 10


@pytest.mark.parametrize("is_kept_alive", [False, True])
def test_a_machine_that_is_back_does_not_know_the_connections_it_had(is_kept_alive: bool) -> None:
    pair = Pair(5)

    async def live(transport: Transport) -> None:
        if is_kept_alive:
            transport.get_extra_info("socket").setsockopt(*KEEP_IDLE, ASKS_AFTER_S)
        await asyncio.sleep(5 * ASKS_AFTER_S)
        assert not pair.at_client.lost
        pair.network.off.add("server")
        pair.network.stop(pair.server, silent=True)
        pair.server.kill()
        await asyncio.sleep(ASKS_AFTER_S)
        pair.network.power_on("server")
        await asyncio.sleep(ASKS_AFTER_S + 1)

    pair.run(live)
    expected = [ConnectionResetError] if is_kept_alive else []
    assert [type(error) for error in pair.at_client.lost] == expected


@pytest.mark.parametrize("cut_s", [1.5 * ASKS_AFTER_S, (KEEP_ALIVE_PROBES + 0.5) * ASKS_AFTER_S])
def test_a_connection_kept_alive_lasts_over_a_path_that_is_cut_for_a_while(cut_s: float) -> None:
    pair = Pair(6)

    async def live(transport: Transport) -> None:
        transport.get_extra_info("socket").setsockopt(*KEEP_IDLE, ASKS_AFTER_S)
        pair.network.cut("client", "server")
        await asyncio.sleep(cut_s)
        pair.network.mend("client", "server")
        await asyncio.sleep(2 * ASKS_AFTER_S)

    pair.run(live)
    expected = [TimeoutError] if cut_s > KEEP_ALIVE_PROBES * ASKS_AFTER_S else []
    assert [type(error) for error in pair.at_client.lost] == expected


@pytest.mark.fault("groups-3")
def test_a_request_ends_soon_whose_broker_lost_its_power_and_is_back() -> None:
    pair = Pair(7)
    took_s: list[float] = []

    async def ask() -> None:
        connection = await Connection.open(*ADDRESS, negotiate=False)
        began_s = pair.world.now
        with pytest.raises(ConnectionFailed):
            await connection.call(ApiVersionsRequest(), timeout_ms=600_000)
        took_s.append(pair.world.now - began_s)

    async def live(transport: Transport) -> None:
        asking = pair.client.spawn(ask())
        await asyncio.sleep(2)
        pair.network.off.add("server")
        pair.network.stop(pair.server, silent=True)
        pair.server.kill()
        await asyncio.sleep(3)
        pair.network.power_on("server")
        await asyncio.sleep(60)
        assert asking.done()

    pair.run(live)
    assert len(took_s) == 1
    assert took_s[0] < 2 * KEEP_ALIVE["TCP_KEEPIDLE"]
