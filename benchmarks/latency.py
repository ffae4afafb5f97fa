"""Measure the slowest responses to a producer while the cleaner runs, and while it rests.

Requests of one batch of 1 KB are sent at a fixed rate, without waiting for responses; the broker is
far from busy. A round beside the cleaner is a whole cleaning, with its swaps of segments.
"""

import contextlib
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import quantiles

from benchmarks.brokers import Side
from benchmarks.cleaned_log import CleaningBroker, exclude_numpy, start_cleaning_broker
from benchmarks.compaction import COMMITS_LOAD, write_load
from benchmarks.load import pace
from benchmarks.produce import EQUAL, encode_produce, make_batch
from benchmarks.rounds import Rounds, alternate
from benchmarks.table import Beside, Row, at_most

REQUESTS_A_SECOND = 500
BATCH_BYTES = 1024
RESTING_S = 5.0
"""Length of a round without the cleaner; a round with it is as long as it runs."""
LOOK_S = 0.5
"""Interval between two looks at the cleaner."""


def measure(ours: Side, directory: Path, rounds: Rounds) -> Iterator[Row]:
    """Yield a row without numpy and one with it; the resting cleaner has the peer's place."""
    log = write_load(COMMITS_LOAD, directory / "dirty")
    pure = exclude_numpy(ours, directory / "no-numpy")
    title = f"produce 1 KB, {REQUESTS_A_SECOND} a second, p99 while the cleaner runs · rests"

    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, log.directory)
        for side, how in ((pure, "pure Python"), (ours, "numpy")):
            place = directory / f"{directory.name}-latency-{how.replace(' ', '-')}"
            with (
                # A dirty log for the warm-up, and one for each round.
                start_cleaning_broker(side, place, log, 1 + rounds.number) as cleaner,
                cleaner.broker.create_topic() as topic,
            ):
                contestants = [
                    partial(_while_cleaning, cleaner, topic),
                    partial(_at_rest, cleaner, topic),
                ]
                (millis,) = alternate(contestants, rounds)
            yield Row(f"{title} ({how})", "ms", at_most(1.5), millis, beside=Beside.OURSELVES)


def _while_cleaning(cleaner: CleaningBroker, topic: str, _: float) -> tuple[float]:
    # Produce in pieces of LOOK_S until the log is clean.
    times_s: list[float] = []
    cleaner.await_clean(cleaner.begin(), lambda: times_s.extend(_produce(cleaner, topic, LOOK_S)))
    return (_p99_ms(times_s),)


def _at_rest(cleaner: CleaningBroker, topic: str, _: float) -> tuple[float]:
    return (_p99_ms(_produce(cleaner, topic, RESTING_S)),)


def _produce(cleaner: CleaningBroker, topic: str, seconds: float) -> list[float]:
    """Produce at the fixed rate; return the seconds of each response."""
    batch, _ = make_batch(BATCH_BYTES, EQUAL)
    request = encode_produce(topic, batch, acks=1)
    address = cleaner.broker.address
    return pace(address, request, per_second=REQUESTS_A_SECOND, seconds=seconds)


def _p99_ms(times_s: list[float]) -> float:
    return quantiles(times_s, n=100)[-1] * 1000
