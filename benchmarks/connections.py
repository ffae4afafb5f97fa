"""Measure how fast connections are accepted, and the broker's resident memory for an idle one.

Each connection sends one ApiVersions request. Idle ones stay open to the end, so that no round
reuses the memory of the one before.
"""

import contextlib
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from benchmarks.brokers import Broker
from benchmarks.load import ask, ask_all, connect
from benchmarks.rounds import Rounds, alternate
from benchmarks.table import Row, at_least, at_most
from protocol.api_key import ApiKey
from protocol.header import encode_request
from protocol.messages.api_versions import ApiVersionsRequest

CONNECTIONS = 500
AT_ONCE = 32
"""Connections that are opened together: fewer than a JVM lets wait to be accepted."""
SETTLED_AFTER_S = 0.5
_REQUEST = encode_request(ApiKey.API_VERSIONS, 2, 0, "benchmarks", ApiVersionsRequest())


def raise_descriptor_limit() -> None:
    """Raise the limit of open files to the hard one, for us and for the brokers we start."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def measure(brokers: Sequence[Broker], rounds: Rounds) -> Iterator[Row]:
    """Yield a row of kilobytes for a connection, and rows of connections accepted."""
    # Each round opens CONNECTIONS more.
    with contextlib.ExitStack() as opened:
        (figures,) = alternate([_opener(broker, opened) for broker in brokers], rounds)
    yield Row("resident memory of an idle connection", "KB", at_most(30, "KB"), figures)

    rate, cpu = alternate([partial(_accept, broker) for broker in brokers], rounds)
    yield Row("connections accepted, one request each", "1/s", at_least(0.5), rate)
    yield Row("broker CPU of an accepted connection", "ms", at_most(1.0), cpu)


def _accept(broker: Broker, seconds: float) -> tuple[float, float]:
    """Return connections a second, and milliseconds of the processor for one."""
    accepted = 0
    cpu_s, begins = broker.process.cpu_s, time.perf_counter()
    while (taken_s := time.perf_counter() - begins) < seconds:
        with contextlib.ExitStack() as opened:
            connections = [opened.enter_context(connect(broker.address)) for _ in range(AT_ONCE)]
            accepted += len(ask_all(connections, [_REQUEST] * AT_ONCE))
    return accepted / taken_s, (broker.process.cpu_s - cpu_s) / accepted * 1000


def _opener(broker: Broker, opened: contextlib.ExitStack) -> Callable[[float], tuple[float]]:
    def open_more(_: float) -> tuple[float]:
        # One request each, so that the broker has made all it keeps for a connection.
        before = broker.process.resident_bytes
        for _ in range(CONNECTIONS):
            connection = opened.enter_context(connect(broker.address))
            ask(connection, _REQUEST)
        time.sleep(SETTLED_AFTER_S)
        return ((broker.process.resident_bytes - before) / CONNECTIONS / 1000,)

    return open_more
