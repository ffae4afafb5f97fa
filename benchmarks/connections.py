"""Measure the broker's resident memory for an idle connection.

Each connection sends one ApiVersions request and is then idle. All stay open to the end, so that no
round reuses the memory of the one before.
"""

import contextlib
import resource
import time
from collections.abc import Callable, Iterator, Sequence

from benchmarks.brokers import Broker
from benchmarks.load import ask, connect
from benchmarks.rounds import Rounds, alternate
from benchmarks.table import Row, at_most
from protocol.api_key import ApiKey
from protocol.header import encode_request
from protocol.messages.api_versions import ApiVersionsRequest

CONNECTIONS = 500
SETTLED_AFTER_S = 0.5


def raise_descriptor_limit() -> None:
    """Raise the limit of open files to the hard one, for us and for the brokers we start."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def measure(brokers: Sequence[Broker], rounds: Rounds) -> Iterator[Row]:
    """Yield a row of kilobytes for a connection; each round opens CONNECTIONS more."""
    with contextlib.ExitStack() as opened:
        (figures,) = alternate([_opener(broker, opened) for broker in brokers], rounds)
    yield Row("resident memory of an idle connection", "KB", at_most(30, "KB"), figures)


def _opener(broker: Broker, opened: contextlib.ExitStack) -> Callable[[float], tuple[float]]:
    request = encode_request(ApiKey.API_VERSIONS, 2, 0, "benchmarks", ApiVersionsRequest())

    def open_more(_: float) -> tuple[float]:
        # One request each, so that the broker has made all it keeps for a connection.
        before = broker.process.resident_bytes
        for _ in range(CONNECTIONS):
            connection = opened.enter_context(connect(broker.address))
            ask(connection, request)
        time.sleep(SETTLED_AFTER_S)
        return ((broker.process.resident_bytes - before) / CONNECTIONS / 1000,)

    return open_more
