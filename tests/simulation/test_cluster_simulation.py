"""A whole cluster under faults: stories, thirty in each run, and that each can be told again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kgroup.testing.simulation.faults import FEWEST
from tests.simulation.__main__ import Totals
from tests.simulation.simulation import outcome_of

ROOT = Path(__file__).resolve().parents[2]
SEEDS, OF_EACH_RUN = range(50), 30
CHUNK = 10
TOLD = [int(line.split()[0]) for line in (ROOT / "tests/simulation/seeds").open()]
"""Seeds that once told of a fault, each with what it was."""


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=() if first < OF_EACH_RUN else pytest.mark.product)
        for first in SEEDS[::CHUNK]
    ],
)
def test_whatever_befalls_a_cluster_it_keeps_its_promises(
    first: int, record_property: Callable[[str, object], None]
) -> None:
    totals = Totals()
    seeds = range(first, first + CHUNK)
    for seed in seeds:
        outcome = outcome_of(seed)
        assert not outcome.violation, outcome.transcript
        assert outcome.faults.total() >= FEWEST
        totals.add(outcome)
    assert totals.bitten == len(seeds), "a story in which nothing bit does not count"
    record_property("counts", str(totals))


@pytest.mark.parametrize("seed", [seed for seed in TOLD if seed >= OF_EACH_RUN])
def test_what_once_went_wrong_goes_well(seed: int) -> None:
    outcome = outcome_of(seed)
    assert not outcome.violation, outcome.transcript


def test_a_story_told_again_is_the_same_to_the_last_word() -> None:
    told = [
        subprocess.run(
            [sys.executable, "-m", "tests.simulation", "--tell", "7"],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert told[0] == told[1]
    assert "FAULT" in told[0]
