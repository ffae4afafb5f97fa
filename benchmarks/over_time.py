"""Measure produce and fetch beside an earlier state of this tree: what has been added since costs
nothing where it is off.

    git worktree add ../before COMMIT
    ln -s "$PWD/.venv" ../before/.venv
    .venv/bin/python -m benchmarks --before ../before over-time

The earlier state may have our virtual environment: each side imports the code of its own directory.
"""

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import attrs

from benchmarks import fetch, produce
from benchmarks.brokers import Side, start_broker
from benchmarks.rounds import Rounds
from benchmarks.table import Beside, Row, at_least, at_most

_COSTS = ("s/GB", "ms")


def measure(sides: Sequence[Side], directory: Path, rounds: Rounds) -> Iterator[Row]:
    """Yield the rows of produce and fetch; beside an earlier state."""
    if len(sides) == 1:
        return
    with contextlib.ExitStack() as stack:
        brokers = []
        for number, side in enumerate(sides):
            name = f"over-time-{number}"
            broker = start_broker(side, directory / name, f"{directory.name}-{name}")
            stack.callback(partial(broker.process.stop, at_once=True))
            brokers.append(broker)

        for row in produce.measure(brokers, rounds):
            yield _beside_earlier(row)
            yield _beside_earlier(_cost(row))
        for row in fetch.measure(brokers, rounds):
            yield _beside_earlier(row)


def _beside_earlier(row: Row) -> Row:
    wanted = at_most(1.05) if row.unit in _COSTS else at_least(0.95)
    question = f"{row.question} · before"
    return attrs.evolve(row, question=question, wanted=wanted, beside=Beside.BEFORE)


def _cost(row: Row) -> Row:
    """Return the row of the processor's time for what a row has a second."""
    figures = [
        tuple(cores / rate * 1000 for cores, rate in zip(of_side, rates, strict=True))
        for of_side, rates in zip(row.cores, row.figures, strict=True)
    ]
    unit = "s/GB" if row.unit == "MB/s" else "ms"
    return Row(f"broker CPU of {row.question}", unit, None, figures)
