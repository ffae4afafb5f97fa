"""Topics are created, moved and deleted under all faults, and their names used again."""

from __future__ import annotations

import pytest

from tests.simulation.administrators import violation_of

SEEDS = range(6)


@pytest.mark.parametrize("seed", SEEDS)
def test_topic_has_its_own_records_and_no_others_whoever_had_its_name(seed: int) -> None:
    violation = violation_of(seed)
    assert not violation, violation
