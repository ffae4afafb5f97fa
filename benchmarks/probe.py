"""A probe: how long a broker lets everybody wait, as one of them sees it.

A client in a process of its own asks for the API versions, which costs next to nothing, again and
again, and notes how long each answer took. While the broker's event loop does anything else the
answer waits, whatever the reason: computing, a disk, another thread.

What other processes of the machine take is no stop: from each wait is taken off how long the
broker's first thread, which runs the loop, and the probe itself were ready to run and did not.
"""

import contextlib
import gc
import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path

import attrs

from benchmarks.brokers import Broker
from benchmarks.load import Address, LoadError, ask, connect
from protocol.api_key import ApiKey
from protocol.header import encode_request
from protocol.messages.api_versions import ApiVersionsRequest

PAUSE_S = 0.002
STOP_MS = 20.0
"""An answer that takes longer is a stop."""
_REQUEST = encode_request(ApiKey.API_VERSIONS, 0, 0, "probe", ApiVersionsRequest())


@attrs.define(eq=False)
class Waits:
    """The longest wait for an answer, and the sum of all that were stops, in ms."""

    longest_ms: float = 0.0
    stops_ms: float = 0.0

    def note(self, took_ms: float) -> None:
        """Count an answer."""
        self.longest_ms = max(self.longest_ms, took_ms)
        if took_ms > STOP_MS:
            self.stops_ms += took_ms


@contextlib.contextmanager
def probe_broker(broker: Broker) -> Iterator[Waits]:
    """Ask for as long as the block lasts; afterwards its Waits say what came of it."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    stop, waits = context.Event(), Waits()
    probe = context.Process(
        target=_probe, args=(broker.address, broker.process.child.pid, theirs, stop), daemon=True
    )
    probe.start()
    theirs.close()
    try:
        ours.recv()  # it asks
        yield waits
    finally:
        stop.set()
        with contextlib.suppress(EOFError):
            waits.longest_ms, waits.stops_ms = ours.recv()
        probe.join()
    if probe.exitcode:
        raise LoadError("the broker no longer answers its probe")


def _probe(address: Address, pid: int, tell: Connection, stop: Event) -> None:
    waits = Waits()
    queued = (Path(f"/proc/{pid}/schedstat"), Path("/proc/self/schedstat"))
    with connect(address) as connection:
        ask(connection, _REQUEST)
        gc.disable()
        tell.send(None)
        while not stop.is_set():
            queued_before_s = sum(map(_queued_s, queued))
            began = time.perf_counter()
            ask(connection, _REQUEST)
            took_s = time.perf_counter() - began
            queued_s = sum(map(_queued_s, queued)) - queued_before_s
            waits.note(max(0.0, took_s - queued_s) * 1000)
            time.sleep(PAUSE_S)
    tell.send((waits.longest_ms, waits.stops_ms))


def _queued_s(schedstat: Path) -> float:
    """How long a process's first thread has waited for a processor."""
    _, queued_ns, _ = schedstat.read_text().split()
    return int(queued_ns) / 1e9
