"""A probe measures how long a broker's event loop lets clients wait.

A client in a process of its own sends ApiVersions requests, which cost next to nothing, one after
the other, and times each response. A response waits while the event loop does anything else:
computing, a disk, another thread.

Time that other processes take is not counted: each wait is reduced by the time in which the
broker's first thread, which runs the loop, and the probe itself were ready but did not run.
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
"""A response that takes longer is a stop."""
_REQUEST = encode_request(ApiKey.API_VERSIONS, 0, 0, "probe", ApiVersionsRequest())


@attrs.define(eq=False)
class Waits:
    """The longest wait for a response, and the sum of all stops, in ms."""

    longest_ms: float = 0.0
    stops_ms: float = 0.0

    def note(self, took_ms: float) -> None:
        """Count a response."""
        self.longest_ms = max(self.longest_ms, took_ms)
        if took_ms > STOP_MS:
            self.stops_ms += took_ms


@contextlib.contextmanager
def probe_broker(broker: Broker) -> Iterator[Waits]:
    """Probe a broker for the block; the Waits are filled in at its end."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    stop = context.Event()
    waits = Waits()
    probe = context.Process(
        target=_probe, args=(broker.address, broker.process.child.pid, theirs, stop), daemon=True
    )
    probe.start()

    # With our copy open, the end of the probe would not end the pipe.
    theirs.close()

    try:
        ours.recv()  # the probe has begun
        yield waits
    finally:
        stop.set()
        with contextlib.suppress(EOFError):
            waits.longest_ms, waits.stops_ms = ours.recv()
        probe.join()

    if probe.exitcode:
        raise LoadError("the broker no longer responds to its probe")


def _probe(address: Address, pid: int, results: Connection, stop: Event) -> None:
    waits = Waits()
    schedstats = (Path(f"/proc/{pid}/schedstat"), Path("/proc/self/schedstat"))
    with connect(address) as connection:
        ask(connection, _REQUEST)

        # A collection here would look like a stop of the broker.
        gc.disable()
        results.send(None)

        while not stop.is_set():
            # Time in which a process had no processor is not the event loop's.
            queued_before_s = sum(map(_read_queued_s, schedstats))
            began = time.perf_counter()
            ask(connection, _REQUEST)
            took_s = time.perf_counter() - began
            queued_s = sum(map(_read_queued_s, schedstats)) - queued_before_s
            waits.note(max(0.0, took_s - queued_s) * 1000)

            # The probe must not become a load.
            time.sleep(PAUSE_S)
    results.send((waits.longest_ms, waits.stops_ms))


def _read_queued_s(schedstat: Path) -> float:
    """Read how long a process's first thread has waited for a processor."""
    _, queued_ns, _ = schedstat.read_text().split()
    return int(queued_ns) / 1e9
