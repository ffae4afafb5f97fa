"""Other projects' own tests against our brokers: all passes that passes twice on stock Kafka 2.8.2.

`python -m tests.interop.suites NAME 2.8.2 DIR` runs a suite on stock brokers; what does not pass
there, though it is tried again, is in the suite's table `otherwise` with the reason.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.interop.handover import OURS
from tests.interop.suites.all_suites import SUITES
from tests.interop.suites.suite import Outcome, Suite, failures

pytestmark = pytest.mark.product


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_all_passes_that_passes_on_stock_brokers(suite: Suite, tmp_path: Path) -> None:
    results = suite.run_on(OURS, tmp_path)

    # What passes by now goes from the table of what does not yet.
    assert failures(results).keys() - suite.otherwise.keys() == suite.not_yet.keys()
    # The tests have run, and none has gone.
    counts = Counter(results.values())
    assert counts[Outcome.PASSED] >= suite.passes, counts
    assert suite.otherwise.keys() - results.keys() == set()
