"""Count the Python calls of a produce, a fetch and a commit, and the ZooKeeper requests of a start.

Counts do not vary with the machine, as times do. One request is in flight at a time, so that each
pays for a whole turn of the event loop. The peer's place has an earlier state of this tree, if one
is named (`--before PATH`).
"""

import asyncio
import itertools
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from benchmarks.brokers import Broker, Side, install
from benchmarks.commits import encode_commit
from benchmarks.fetch import FETCH_BYTES, encode_fetch, fill
from benchmarks.load import LoadError, ask, connect
from benchmarks.produce import EQUAL, encode_produce, make_batch
from benchmarks.table import Beside, Row, at_most
from benchmarks.zookeeper_proxy import CountingProxy

REQUESTS = 1000
WARM_UP = 200
PATIENCE_S = 10
_COUNTED = Path(__file__).with_name("counted_broker.py")
_POLL_S = 0.01
_NO_MORE = at_most(1.05)
"""A change may cost a twentieth."""

_numbers = itertools.count()


def measure(sides: Sequence[Side], directory: Path) -> Iterator[Row]:
    """Yield a row for each kind of request, and one for the start."""
    before = " · before" if len(sides) > 1 else ""

    counted = [_count_side(side, directory) for side in sides]
    for question in counted[0]:
        calls = [(figures[question],) for figures in counted]
        title = f"Python calls of {question}{before}"
        yield Row(title, "calls", _NO_MORE, calls, beside=Beside.BEFORE)

    requests = [(asyncio.run(_count_start(side, directory)),) for side in sides]
    title = f"ZooKeeper requests of a broker's start{before}"
    yield Row(title, "requests", _NO_MORE, requests, beside=Beside.BEFORE)


# ---- calls


def _count_side(side: Side, directory: Path) -> dict[str, float]:
    """Return the calls of each kind of request, on a broker of its own."""
    name = f"calls-{next(_numbers)}"
    calls_file = directory / name / "calls"
    place = install(_let_count(side, calls_file), directory / name, f"{directory.name}-{name}")
    broker = place.start()
    try:
        with broker.create_topic() as topic:
            return {
                question: _count_calls(broker, calls_file, request)
                for question, request in _make_requests(broker, topic).items()
            }
    finally:
        broker.process.stop()
        shutil.rmtree(place.directory)


def _let_count(side: Side, calls_file: Path) -> Side:
    """Return the side with its command run by `counted_broker`."""
    module = side.command.index("-m")

    # `counted_broker` takes the place of `-m broker.kbroker.command`.
    counted = (str(_COUNTED), str(calls_file))
    command = (*side.command[:module], *counted, *side.command[module + 2 :])
    return attrs.evolve(side, command=command)


def _make_requests(broker: Broker, topic: str) -> dict[str, bytes]:
    batch, _ = make_batch(1024, EQUAL)
    fill(broker, topic, 4 * FETCH_BYTES)
    broker.read_offsets("calls")  # creates the offsets topic
    return {
        "a produce of 1 KB, acks=1": encode_produce(topic, batch, 1),
        "a produce of 1 KB, acks=-1": encode_produce(topic, batch, -1),
        "a fetch of 1 MB": encode_fetch(topic, 0),
        "a commit of one partition": encode_commit("calls", topic, 1),
    }


def _count_calls(broker: Broker, calls_file: Path, request: bytes) -> float:
    """Return the Python calls of the broker's main thread for one request."""
    with connect(broker.address) as connection:
        # The first requests import modules and fill caches.
        for _ in range(WARM_UP):
            ask(connection, request)

        broker.process.child.send_signal(signal.SIGUSR1)
        for _ in range(REQUESTS):
            ask(connection, request)
        broker.process.child.send_signal(signal.SIGUSR1)

    # A signal is handled some time after it is sent.
    ends = time.monotonic() + PATIENCE_S
    while not calls_file.exists():
        if time.monotonic() > ends:
            raise LoadError(f"{broker.name} does not count its calls")
        time.sleep(_POLL_S)
    calls = int(calls_file.read_text())
    calls_file.unlink()
    return calls / REQUESTS


# ---- requests


async def _count_start(side: Side, directory: Path) -> float:
    """Return the ZooKeeper requests of a broker's start on empty data."""
    name = f"start-{next(_numbers)}"

    # Counted from the first request, not from the creation of a node.
    proxy = CountingProxy(side.zookeeper, "", begun=True)
    async with proxy.serve() as zookeeper:
        place = install(attrs.evolve(side, zookeeper=zookeeper), directory / name, name)
        broker = await asyncio.to_thread(place.start)
        try:
            return float(proxy.requests.total())
        finally:
            await asyncio.to_thread(broker.process.stop)
            shutil.rmtree(place.directory)
