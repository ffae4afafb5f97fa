"""Measure what other clients feel of a flood: 200 clients that pipeline 18,000 requests each.

The flooders, in a process of their own, send as much as the broker reads at once, take all
responses and send again. Meanwhile a new connection sends one request, and a topic is created,
which needs the controller and its requests to the broker. The same at rest has the peer's place.
"""

import contextlib
import multiprocessing
import selectors
import socket
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing.synchronize import Event

from benchmarks.brokers import Broker
from benchmarks.load import Address, ask, connect
from benchmarks.rounds import Rounds, alternate
from benchmarks.table import Beside, Row, at_most
from protocol.api_key import ApiKey
from protocol.header import encode_request
from protocol.messages.api_versions import ApiVersionsRequest

FLOODERS = 200
PIPELINED = 18_000
PARTITIONS = 10
REQUESTS = 10
_READ_BYTES = 1 << 20
_REQUEST = encode_request(ApiKey.API_VERSIONS, 0, 0, None, ApiVersionsRequest())


def measure(broker: Broker, rounds: Rounds) -> Iterator[Row]:
    """Yield a row for a request, and one for an election."""
    contestants = [partial(_measure_flooded, broker), partial(_measure_at_rest, broker)]
    request, election = alternate(contestants, rounds)
    title = f"while {FLOODERS} × {PIPELINED:,} requests wait · at rest"
    yield Row(
        f"one request of a new client {title}", "ms", at_most(100), request, beside=Beside.OURSELVES
    )
    yield Row(
        f"a topic of {PARTITIONS} partitions is led {title}",
        "ms",
        at_most(100),
        election,
        beside=Beside.OURSELVES,
    )


def _measure_flooded(broker: Broker, seconds: float) -> tuple[float, float]:
    with _flood(broker.address):
        return _measure_at_rest(broker, seconds)


def _measure_at_rest(broker: Broker, _: float) -> tuple[float, float]:
    # The slowest of several: a flood must not starve anybody.
    request = max(_time(partial(_ask_once, broker.address)) for _ in range(REQUESTS))
    return request, _time(partial(_create, broker))


def _time(work: partial[None]) -> float:
    """Return the milliseconds that `work` takes."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def _ask_once(address: Address) -> None:
    with connect(address) as connection:
        ask(connection, _REQUEST)


def _create(broker: Broker) -> None:
    with broker.create_topic(PARTITIONS):
        pass


@contextlib.contextmanager
def _flood(address: Address) -> Iterator[None]:
    # A thread would share our interpreter with the clocks.
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    began = context.Event()
    flooding = context.Process(target=_send_for_ever, args=(address, began, stop))
    flooding.start()

    # The figures count only while all connections are flooded.
    began.wait()
    try:
        yield
    finally:
        stop.set()
        flooding.join()


def _send_for_ever(address: Address, began: Event, stop: Event) -> None:
    """Flood on all connections; each sends again when it has all responses."""
    with contextlib.ExitStack() as opened:
        selector = opened.enter_context(selectors.DefaultSelector())
        response_bytes = 0

        # One response tells the size of all.
        for _ in range(FLOODERS):
            connection = opened.enter_context(connect(address))
            response_bytes = len(ask(connection, _REQUEST)) + 4
            connection.setblocking(False)
            selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE, [b"", 0])

        # Send and receive as fast as the broker allows.
        flood = _REQUEST * PIPELINED
        room = bytearray(_READ_BYTES)
        while not stop.is_set():
            for key, _ in selector.select(1.0):
                _send_and_take(key, flood, response_bytes, room)
            began.set()


def _send_and_take(
    key: selectors.SelectorKey, flood: bytes, response_bytes: int, room: bytearray
) -> None:
    connection = key.fileobj

    # The bytes still to be sent, and the number still to be received.
    state = key.data
    assert isinstance(connection, socket.socket)
    with contextlib.suppress(BlockingIOError):
        state[1] -= connection.recv_into(room)

    # All responses are here: send the whole flood again.
    if state[1] <= 0:
        state[0] = memoryview(flood)
        state[1] = PIPELINED * response_bytes

    # As much as the broker reads, without waiting.
    if state[0]:
        with contextlib.suppress(BlockingIOError):
            state[0] = state[0][connection.send(state[0]) :]
