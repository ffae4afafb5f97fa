"""Stories of a cluster, more than the tests tell.

python -m tests.simulation 42                  one story; on a violation all of it
python -m tests.simulation 1000:2000           these, on all processors
python -m tests.simulation --tell 42           the whole story whatever comes of it
python -m tests.simulation --first 0:2000      one after the other, until one is violated
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

import attrs

from tests.simulation.simulation import Outcome, outcome_of
from tests.stage.story_totals import most_common, seeds_of

PROGRESS_S = 10.0


def main(arguments: Sequence[str]) -> int:
    """Exit code 1 when a story was violated."""
    *options, wanted = arguments
    if options == ["--tell"]:
        print(outcome_of(int(wanted)).transcript)
        return 0
    seeds, total, progress = seeds_of(wanted), Totals(), Progress()
    outcomes = one_by_one(seeds) if options == ["--first"] else on_all_processors(seeds)
    for outcome in outcomes:
        total.add(outcome)
        progress.tell(total)
        if outcome.violation:
            print(outcome.transcript, end="\n\n", flush=True)
    print(total)
    return 1 if total.violated else 0


def one_by_one(seeds: range) -> Iterator[Outcome]:
    """In order, the first that is violated being the last."""
    for seed in seeds:
        outcome = outcome_of(seed)
        yield outcome
        if outcome.violation:
            return


def on_all_processors(seeds: range) -> Iterator[Outcome]:
    """As they end."""
    with ProcessPoolExecutor() as processes:
        for told in as_completed([processes.submit(outcome_of, seed) for seed in seeds]):
            yield told.result()


class Totals:
    """What many stories come to."""

    def __init__(self) -> None:
        self.stories = self.bitten = self.violated = 0
        self.virtual_s = self.cpu_s = 0.0
        self.faults: Counter[str] = Counter()
        self.bites: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()

    def add(self, outcome: Outcome) -> None:
        """Count one more."""
        self.stories += 1
        self.bitten += bool(outcome.bites)
        self.violated += bool(outcome.violation)
        self.virtual_s += outcome.virtual_s
        self.cpu_s += outcome.cpu_s
        self.faults += outcome.faults
        self.bites += outcome.bites
        self.counts += outcome.counts

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.stories} stories of a cluster, {self.bitten} in which a fault bit,"
                f" {self.violated} violated",
                f"{self.virtual_s:.0f} virtual seconds in {self.cpu_s:.0f} s of a processor",
                f"faults: {most_common(self.faults)}",
                f"bites: {most_common(self.bites)}",
                f"counts: {most_common(self.counts)}",
            ]
        )


@attrs.define(eq=False)
class Progress:
    """A line for who waits, every ten seconds."""

    _began_s: float = attrs.field(factory=time.monotonic)
    _told_s: float = attrs.field(factory=time.monotonic)

    def tell(self, total: Totals) -> None:
        """Say how far it is, if it is time."""
        now_s = time.monotonic()
        if now_s - self._told_s >= PROGRESS_S:
            self._told_s = now_s
            per_minute = total.stories * 60 / (now_s - self._began_s)
            print(
                f"{total.stories} stories done, {total.violated} violated,"
                f" {per_minute:.0f} a minute",
                file=sys.stderr,
                flush=True,
            )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
