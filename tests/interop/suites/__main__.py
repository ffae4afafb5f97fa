"""Run a suite on brokers of either make, and say which tests do not pass.

python -m tests.interop.suites kafka-python 2.8.2 /tmp/stock
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from tests.interop.suites.all_suites import SUITES
from tests.interop.suites.suite import Outcome


def main(name: str, make: str, directory: str) -> None:
    """Run it once; what it wrote stays in the directory."""
    (suite,) = [suite for suite in SUITES if suite.name == name]
    path = Path(directory)
    path.mkdir(parents=True)
    results = suite.run_on(make, path)
    for test, outcome in sorted(results.items()):
        if outcome is not Outcome.PASSED:
            print(outcome, test, {**suite.otherwise, **suite.not_yet}.get(test, ""))
    print(*(f"{count} {outcome}" for outcome, count in Counter(results.values()).items()), sep=", ")


if __name__ == "__main__":
    main(*sys.argv[1:])
