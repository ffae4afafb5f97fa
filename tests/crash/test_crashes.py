"""Logs crash at any byte that is written to them, and come back with all they had to keep."""

from __future__ import annotations

import pytest

from tests.crash.exploration import Counts, explore
from tests.crash.power_loss import EACH_BYTE, QUICK, Effort
from tests.crash.workloads import WORKLOADS, Workload

TRIED = Counts()


@pytest.mark.parametrize(
    "effort",
    [
        pytest.param(QUICK, id="some bytes"),
        pytest.param(EACH_BYTE, id="each byte", marks=pytest.mark.product),
    ],
)
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_every_crash_leaves_what_was_kept(workload: Workload, effort: Effort) -> None:
    counts = explore(workload, effort)
    TRIED.add(counts)
    print(f"{workload.name}: {counts}")
    assert counts.disks > 500
    assert counts.opened_again > 20


def test_counts_are_told_in_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{TRIED}")
