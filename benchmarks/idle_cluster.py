"""Measure what 1,000 partitions of three replicas cost an idle cluster."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.brokers import Side
from benchmarks.clusters import Cluster, measure_in_succession, spread_replicas
from benchmarks.rounds import Contestant, Rounds
from benchmarks.table import Row, at_most

PARTITIONS = 1000
IDLE_S = 30.0
SETTLED_AFTER_S = 5.0


def measure(sides: Sequence[Side], directory: Path, rounds: Rounds) -> Iterator[Row]:
    """Yield one row; each round takes IDLE_S."""
    (cores,) = measure_in_succession(sides, directory, rounds, _idling)
    title = f"3 idle brokers, {PARTITIONS:,} partitions × 3 replicas"
    yield Row(title, "cores", at_most(1), cores)


@contextlib.contextmanager
def _idling(cluster: Cluster) -> Iterator[Contestant]:
    def idle(_: float) -> tuple[float]:
        # The processor time of all three brokers.
        cpu_s = cluster.cpu_s
        began = time.perf_counter()
        time.sleep(IDLE_S)
        return ((cluster.cpu_s - cpu_s) / (time.perf_counter() - began),)

    with cluster.create_topic(spread_replicas(PARTITIONS)):
        # Elections, and the first fetches of all followers, are over.
        time.sleep(SETTLED_AFTER_S)
        yield idle
