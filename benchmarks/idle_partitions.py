"""Measure what replicating a record costs leader and follower among many idle partitions.

In a round the follower fetches behind its last record, waits, gets one, and fetches again, by which
the leader knows that it has the record. There is no network: leader and follower call each other.
"""

import asyncio
import time
from collections.abc import Iterator

from benchmarks.rounds import Contestant, Rounds, alternate
from benchmarks.table import Beside, Row, at_most
from tests.broker.replication.fetching_pair import FetchingPair

FEW, MANY = 300, 10_000
WARM_ROUNDS = 10


def measure(rounds: Rounds) -> Iterator[Row]:
    """Yield one row: many partitions, with few in the peer's place."""
    pairs = [FetchingPair(number) for number in (MANY, FEW)]
    contestants: list[Contestant] = [_Rounds(pair) for pair in pairs]
    (micros,) = alternate(contestants, rounds)
    title = f"a record replicated among {MANY:,} · {FEW} idle partitions"
    yield Row(title, "µs", at_most(1.25), micros, beside=Beside.OURSELVES)


class _Rounds:
    """Rounds of one pair."""

    def __init__(self, pair: FetchingPair) -> None:
        self.pair = pair
        asyncio.run(self._run(WARM_ROUNDS))

    def __call__(self, seconds: float) -> tuple[float]:
        """Return microseconds a record."""
        done = 0
        began = time.perf_counter()
        while time.perf_counter() < began + seconds:
            # Many rounds a loop, so that its start and end weigh little.
            asyncio.run(self._run(100))
            done += 100
        return ((time.perf_counter() - began) / done * 1e6,)

    async def _run(self, number: int) -> None:
        for _ in range(number):
            # The record arrives while the fetch waits; the next fetch acknowledges it.
            self.pair.round(lambda: self.pair.append(7))
            self.pair.round()
