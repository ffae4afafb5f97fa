"""A flood: what everybody else feels of 200 clients that pipeline 18,000 requests each.

The clients, in a process of their own, send as much as one read of the broker's brings, take all
answers and send again. Meanwhile a new connection asks for one thing, and a topic is created, which
takes the controller, its requests to the broker and their obedience: an election. The same at rest
stands in the peer's place.
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
from benchmarks.table import Row, at_most
from protocol.api_key import ApiKey
from protocol.header import encode_request
from protocol.messages.api_versions import ApiVersionsRequest

FLOODERS = 200
PIPELINED = 18_000
PARTITIONS = 10
ASKED = 10
_READ_BYTES = 1 << 20
_REQUEST = encode_request(ApiKey.API_VERSIONS, 0, 0, None, ApiVersionsRequest())


def measure(broker: Broker, rounds: Rounds) -> Iterator[Row]:
    """A row for a request, and one for an election."""
    contestants = [partial(_flooded, broker), partial(_at_rest, broker)]
    request, election = alternate(contestants, rounds)
    title = f"while {FLOODERS} × {PIPELINED:,} requests wait · at rest"
    yield Row(f"one request of a new client {title}", "ms", at_most(100), request)
    yield Row(f"a topic of {PARTITIONS} partitions is led {title}", "ms", at_most(100), election)


def _flooded(broker: Broker, seconds: float) -> tuple[float, float]:
    with _flood(broker.address):
        return _at_rest(broker, seconds)


def _at_rest(broker: Broker, _: float) -> tuple[float, float]:
    request = max(_time(partial(_ask_once, broker.address)) for _ in range(ASKED))
    return request, _time(partial(_create, broker))


def _time(work: partial[None]) -> float:
    """Milliseconds."""
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
    context = multiprocessing.get_context("spawn")
    stop, began = context.Event(), context.Event()
    flooding = context.Process(target=_send_for_ever, args=(address, began, stop))
    flooding.start()
    began.wait()
    try:
        yield
    finally:
        stop.set()
        flooding.join()


def _send_for_ever(address: Address, began: Event, stop: Event) -> None:
    """Each connection sends again when all it has asked was answered."""
    with contextlib.ExitStack() as opened:
        selector = opened.enter_context(selectors.DefaultSelector())
        response_bytes = 0
        for _ in range(FLOODERS):
            connection = opened.enter_context(connect(address))
            response_bytes = len(ask(connection, _REQUEST)) + 4
            connection.setblocking(False)
            selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE, [b"", 0])
        flood, room = _REQUEST * PIPELINED, bytearray(_READ_BYTES)
        while not stop.is_set():
            for key, _ in selector.select(1.0):
                _send_and_take(key, flood, response_bytes, room)
            began.set()


def _send_and_take(
    key: selectors.SelectorKey, flood: bytes, response_bytes: int, room: bytearray
) -> None:
    connection, state = key.fileobj, key.data
    assert isinstance(connection, socket.socket)
    with contextlib.suppress(BlockingIOError):
        state[1] -= connection.recv_into(room)
    if state[1] <= 0:
        state[0], state[1] = memoryview(flood), PIPELINED * response_bytes
    if state[0]:
        with contextlib.suppress(BlockingIOError):
            state[0] = state[0][connection.send(state[0]) :]
