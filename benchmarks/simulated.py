"""The cluster in virtual time: how many of its seconds a second of a processor tells.

The tests' stories (`tests/simulation`): three brokers, clients and faults, in one process.
"""

from collections.abc import Iterator

from benchmarks.rounds import Rounds
from benchmarks.table import Row, Wanted
from tests.simulation.simulation import outcome_of

FIRST_SEED = 10_000


def measure(rounds: Rounds) -> Iterator[Row]:
    """One row; a round is one story."""
    outcomes = [outcome_of(FIRST_SEED + each) for each in range(rounds.number)]
    speeds = tuple(each.virtual_s / each.cpu_s for each in outcomes)
    title = "a simulated cluster, seconds a processor second"
    yield Row(title, "s/s", Wanted("≥", 20, "s/s"), [speeds])
