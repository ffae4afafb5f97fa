"""Stories of transactions under faults: whatever befalls them, each promise is kept."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.mutants.changed_copy import ROOT
from tests.transactions.story import tell

SEEDS = range(4)
FEWEST = 20
"""Transactions of a story that is worth telling."""


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_befalls_transactions_each_is_whole_or_not_there(seed: int) -> None:
    told = tell(seed)
    assert list(map(str, told.findings)) == []
    history = told.history
    committed = {value for rows in history.committed.values() for value in rows.values()}
    everything = {value for rows in history.everything.values() for value in rows.values()}
    assert len(history.attempts) >= FEWEST
    assert committed < everything, "something was aborted"
    assert history.stable, "somebody looked how far all is decided"
    assert told.copies, "requests came late"
    assert told.lost, "requests came again"
    assert told.held, "requests came late by the connection that was lost"


def test_a_story_told_again_is_the_same_to_the_last_word() -> None:
    told = [
        subprocess.run(
            [sys.executable, "-m", "tests.transactions.story", "--tell", "5"],
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
