"""A way to a broker on which requests of transactions come twice, as both its ends see it."""

from __future__ import annotations

import asyncio
from random import Random

import attrs

from protocol.api_key import ApiKey
from protocol.header import encode_request
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.metadata import MetadataRequest
from tests.chaos.network import HOST
from tests.chaos.transactions.repeater import Repeater
from tests.transactions.repeats import LATE, TWICE

SOON_S = 60.0
END_TXN = encode_request(
    ApiKey.END_TXN,
    1,
    1,
    "c",
    EndTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0, committed=True),
)
INIT = encode_request(
    ApiKey.INIT_PRODUCER_ID,
    1,
    2,
    "c",
    InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1),
)
METADATA = encode_request(ApiKey.METADATA, 1, 3, "c", MetadataRequest(topics=[]))


@attrs.define(eq=False)
class Echo:
    """A server that sends back what it is sent."""

    frames: list[bytes] = attrs.field(factory=list)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while size := await reader.read(4):
            frame = size + await reader.readexactly(int.from_bytes(size, "big"))
            self.frames.append(frame)
            writer.write(frame)
        writer.close()

    async def has(self, *frames: bytes) -> None:
        async with asyncio.timeout(SOON_S):
            while self.frames != list(frames):
                await asyncio.sleep(0.01)


class SomeChance(Random):
    """Whatever may come late does so, at once."""

    def random(self) -> float:
        return 0.0


async def ask(frame: bytes, share: float, late: frozenset[ApiKey] = LATE) -> tuple[Echo, bytes]:
    """Send a request through a repeater; return the server, and what the client has read."""
    echo = Echo()
    server = await asyncio.start_server(echo.accept, HOST, 0)
    async with asyncio.timeout(SOON_S), Repeater(SomeChance(), share, late) as repeater:
        port = await repeater.open(server.sockets[0].getsockname()[1])
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(frame)
        try:
            answer = await reader.readexactly(len(frame))
        except (asyncio.IncompleteReadError, ConnectionResetError):
            answer = b""
        if repeater.repeated and answer:
            await echo.has(frame, frame)
        writer.close()
    server.close()
    return echo, answer


async def test_while_nothing_is_to_come_twice_all_comes_once() -> None:
    for frame in (END_TXN, INIT, METADATA):
        echo, answer = await ask(frame, 0.0)
        assert (echo.frames, answer) == ([frame], frame)


async def test_a_request_that_does_not_concern_transactions_comes_once() -> None:
    echo, answer = await ask(METADATA, 1.0)
    assert (echo.frames, answer) == ([METADATA], METADATA)


async def test_a_commit_is_served_and_its_response_lost() -> None:
    echo, answer = await ask(END_TXN, 1.0)
    assert (echo.frames, answer) == ([END_TXN], b"")


async def test_what_may_be_late_comes_once_more() -> None:
    echo, answer = await ask(INIT, 1.0)
    assert (echo.frames, answer) == ([INIT, INIT], INIT)


async def test_a_commit_comes_late_where_that_is_wanted() -> None:
    echo, answer = await ask(END_TXN, 1.0, TWICE)
    assert (echo.frames, answer) == ([END_TXN, END_TXN], END_TXN)
