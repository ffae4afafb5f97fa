"""Measure a start, from the start of the process to the first good response, and idle memory.

Every start has empty data and an empty part of a running ZooKeeper. The broker serves when it
responds to Metadata with itself as the controller.
"""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

from benchmarks.brokers import Side, start_broker
from benchmarks.rounds import Rounds, alternate
from benchmarks.table import Row, at_most

SETTLED_AFTER_S = 2.0


def measure(sides: Sequence[Side], directory: Path, rounds: Rounds) -> Iterator[Row]:
    """Yield a row of the time to serving, and one of the memory SETTLED_AFTER_S later."""
    contestants = [_starter(side, directory / f"start-{i}") for i, side in enumerate(sides)]
    seconds, megabytes = alternate(contestants, rounds)
    yield Row("start to serving", "s", at_most(1 / 3), seconds)
    yield Row("resident memory, idle", "MB", at_most(1 / 4), megabytes)


def _starter(side: Side, directory: Path) -> Callable[[float], tuple[float, float]]:
    numbers = count()

    def start(_: float) -> tuple[float, float]:
        broker = start_broker(side, directory, f"{directory.name}-{next(numbers)}")
        try:
            # Memory is read when the start is over.
            time.sleep(SETTLED_AFTER_S)
            return broker.start_s, broker.process.resident_bytes / 1e6
        finally:
            broker.process.stop(at_once=True)
            shutil.rmtree(directory)

    return start
