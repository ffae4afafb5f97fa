"""The toy client of docs/testing.md: seeds find its bug; corrected, it passes all seeds."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.kgroup.testing.toy_client import GUIDE, correct_toy, write_toy
from tests.stage.processes import ROOT

DEADLINE_S = 300.0


def run_tests(
    directory: Path, *options: str, hash_seed: int = 0
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("test_billing.py", *options),
        ],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def test_every_second_seed_finds_the_bug_of_the_toy(tmp_path: Path) -> None:
    assert "\nEvery second seed, or more of them, finds that orders are lost" in GUIDE.read_text()
    write_toy(tmp_path)

    # Half of the six, whichever they are: they differ with the release, and with Python's.
    printed = run_tests(tmp_path, "--maxfail=3").stdout
    assert "\n3 failed" in printed, printed


def test_bug_of_the_toy_is_found_and_its_story_is_the_same_each_time(tmp_path: Path) -> None:
    write_toy(tmp_path)

    printed = run_tests(tmp_path, "-x").stdout
    assert "all is billed: not within 30 s" in printed
    assert "never billed: [b'order " in printed
    assert re.search(r"FAULT +client kill: billing", printed)
    assert "\n1 failed" in printed

    story = re.search(r"\nE +seed \d+\n.*\nE +counts: [^\n]*", printed, re.DOTALL)
    assert story is not None, printed
    assert story[0] in run_tests(tmp_path, "-x", hash_seed=1).stdout


def test_corrected_toy_loses_nothing_under_any_seed(tmp_path: Path) -> None:
    write_toy(tmp_path)
    correct_toy(tmp_path)

    printed = run_tests(tmp_path).stdout
    assert "\n6 passed" in printed, printed
