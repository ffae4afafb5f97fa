"""franz-go's tests of its client, from its module, with three brokers.

A chain of three groups copies records, in transactions or without, while members join, leave and
abort; with each assignor of the client. Each record must come through once.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

from tests.interop.suites.brokers import SuiteBrokers, Wanted
from tests.interop.suites.go_tests import build_tests, select
from tests.interop.suites.suite import Results, Suite, read_go, run_to_end

MODULE, VERSION = "github.com/twmb/franz-go", "v1.16.1"
RECORDS = 20_000
_BOLD = {"KGO_TEST_STABLE_FETCH": "1", "KGO_TEST_UNSAFE": "1"}


def _prepare() -> Path:
    return build_tests(MODULE, VERSION, "./pkg/kgo")


def _run(
    built: Path,
    brokers: SuiteBrokers,
    directory: Path,
    names: Collection[str],
    *,
    tests: str,
    more: Mapping[str, str],
) -> Results:
    env = os.environ | {
        "KGO_SEEDS": brokers.bootstrap,
        "KGO_TEST_RECORDS": str(RECORDS),
        "KGO_LOG_LEVEL": "none",
    }
    command = [str(built / "tests"), "-test.v", f"-test.run={select(names, tests)}"]
    source = built / "source" / "pkg" / "kgo"
    return read_go(run_to_end(command, source, env | more, directory / "go.log"))


FRANZ_GO = Suite(
    name="franz-go",
    wanted=Wanted(brokers=3),
    prepare=_prepare,
    run=partial(_run, tests="^Test", more={}),
    passes=200,
)

BOLD_FRANZ_GO = Suite(
    name="franz-go-at-its-boldest",
    # Offsets that are in a transaction are waited for; the next one begins while one ends.
    wanted=Wanted(brokers=3),
    prepare=_prepare,
    run=partial(_run, tests="^TestTxnEtl$", more=_BOLD),
    passes=5,
)
