"""Measure the simulation: seconds of virtual time in a second of processor time.

It runs the stories of `tests/simulation`: three brokers, clients and failures, in one process.
"""

from collections.abc import Iterator

from benchmarks.rounds import Rounds
from benchmarks.table import Beside, Row, Wanted
from tests.simulation.simulation import outcome_of

FIRST_SEED = 10_000


def measure(rounds: Rounds) -> Iterator[Row]:
    """Yield one row; a round is one story."""
    outcomes = [outcome_of(FIRST_SEED + nth) for nth in range(rounds.number)]
    speeds = tuple(outcome.virtual_s / outcome.cpu_s for outcome in outcomes)
    title = "a simulated cluster, seconds a processor second"
    yield Row(title, "s/s", Wanted("≥", 20, "s/s"), [speeds], beside=Beside.OURSELVES)
