"""Many clients pipeline as much as one read brings, and the controller is served all the same."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from broker.handlers import api_versions
from broker.network.connection import ClientConnection
from broker.network.dispatch import Dispatcher, Handler
from broker.network.purgatory import Purgatory
from broker.network.queued_bytes import QueuedBytes
from broker.network.request_context import RequestContext
from broker.network.turns import Turns
from broker.replication.control_gate import ControlGate
from broker.server import Broker as RunningBroker
from protocol.api_key import ApiKey
from protocol.header import encode_request
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from tests.broker.led_partition import led
from tests.broker.spawning import Spawned
from tests.stage.broker import Site, connected

FLOODERS = 200
PIPELINED = 18_000
"""Requests that fit into one read of 256 KB."""
TURNS_TO_OBEY = 5

FLOOD = encode_request(ApiKey.API_VERSIONS, 0, 1, None, ApiVersionsRequest()) * PIPELINED


@attrs.define(eq=False)
class Client(asyncio.Transport):
    """The client's end of a connection: it reads every response, and sends what a test says."""

    connection: ClientConnection
    answered_bytes: int = 0
    max_size: int = 0

    def __attrs_post_init__(self) -> None:
        self.connection.connection_made(self)

    def sends(self, data: bytes) -> None:
        self.connection.data_received(data)

    def write(self, data: Any) -> None:
        self.answered_bytes += len(data)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("host", 1) if name == "peername" else self

    def fileno(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def abort(self) -> None: ...


@attrs.define(eq=False)
class Broker:
    """A broker that notes the requests of its connections, and obeys control requests."""

    gate: ControlGate = attrs.field(factory=ControlGate)
    asked: list[int] = attrs.field(factory=list)
    obeyed: int = 0
    clients: list[Client] = attrs.field(factory=list)
    _turns: Turns = attrs.field(init=False)
    _handlers: dict[ApiKey, Handler] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._turns = Turns(loop.call_soon, loop.time, self.gate.is_controller)
        served = api_versions.ServedVersions.of([ApiKey.API_VERSIONS, ApiKey.LEADER_AND_ISR])
        answer = partial(api_versions.handle, served)

        def counted(request: ApiVersionsRequest, context: RequestContext) -> Any:
            self.asked.append(context.connection)
            return answer(request, context)

        self._handlers = {ApiKey.API_VERSIONS: counted, ApiKey.LEADER_AND_ISR: self._obey}

    def _obey(self, request: LeaderAndIsrRequest, context: RequestContext) -> LeaderAndIsrResponse:
        assert self.gate.refusal(request, context) is None
        self.obeyed += 1
        return LeaderAndIsrResponse(error_code=0, partition_errors=[])

    def client(self) -> Client:
        connection = ClientConnection(
            dispatcher=Dispatcher(self._handlers, lambda: 0, lambda: 0),
            purgatory=Purgatory(),
            turns=self._turns,
            queued=QueuedBytes(2**40),
            max_frame_bytes=2**20,
            listener="PLAINTEXT",
            executor=None,
            spawn=Spawned(),
            on_close=lambda connection: None,
        )
        self.clients.append(Client(connection))
        return self.clients[-1]

    async def obeys(self, client: Client, epoch: int) -> int:
        """Send LeaderAndIsr; return the turns of the loop until it is obeyed."""
        turns = 0
        before = self.obeyed
        client.sends(leader_and_isr(epoch))
        while self.obeyed == before:
            await asyncio.sleep(0)
            turns += 1
        return turns


def leader_and_isr(epoch: int) -> bytes:
    request = LeaderAndIsrRequest(
        controller_id=1, controller_epoch=epoch, broker_epoch=-1, topic_states=[], live_leaders=[]
    )
    return encode_request(ApiKey.LEADER_AND_ISR, 2, 1, f"controller {epoch}", request)


async def test_a_control_request_is_obeyed_within_five_turns_of_a_flood() -> None:
    broker = Broker()
    controller = broker.client()
    assert await broker.obeys(controller, 1) == 0
    for _ in range(FLOODERS):
        broker.client().sends(FLOOD)
    for _ in range(20):
        assert await broker.obeys(controller, 1) <= TURNS_TO_OBEY
    assert len(broker.asked) < FLOODERS * PIPELINED, "the flood goes on meanwhile"


async def test_a_controller_elected_in_a_flood_is_heard_as_soon() -> None:
    """Its first request does not show that it is the controller's."""
    broker = Broker()
    for _ in range(FLOODERS):
        broker.client().sends(FLOOD)
    for epoch in range(1, 10):
        await asyncio.sleep(0)
        assert await broker.obeys(broker.client(), epoch) <= TURNS_TO_OBEY


async def test_flooders_are_all_answered_in_the_end() -> None:
    broker = Broker()
    pipelined, flooders = 500, 20
    clients = [broker.client() for _ in range(flooders)]
    for client in clients:
        client.sends(FLOOD[: pipelined * len(FLOOD) // PIPELINED])
    while len(broker.asked) < flooders * pipelined:
        await asyncio.sleep(0)
    assert len({client.answered_bytes for client in clients}) == 1


async def test_a_controller_under_a_flood_still_elects(tmp_path: Path) -> None:
    """The flooders, the broker and its controller run in one process."""
    site, flooders = Site(tmp_path), 10
    async with site.running() as broker, connected(broker) as client:
        flooding = [asyncio.ensure_future(_flood(broker)) for _ in range(flooders)]
        for n in range(3):
            await led(client, f"topic-{n}")
        assert not any(flood.done() for flood in flooding)
        for flood in flooding:
            flood.cancel()
        await asyncio.wait(flooding)


async def _flood(broker: RunningBroker) -> None:
    """Send without end, and read every response."""
    host, _, port = broker.bootstrap.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))

    async def ask() -> None:
        while True:
            writer.write(FLOOD)
            await writer.drain()

    asking = asyncio.ensure_future(ask())
    try:
        while await reader.read(1 << 20):
            pass
    finally:
        asking.cancel()
        writer.close()
