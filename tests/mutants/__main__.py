"""`make mutants`: take each remedy away in turn, and plant each bug; it must be noticed.

    python -m tests.mutants             all of them
    python -m tests.mutants 26 A3 P7    the remedies of these hazards and findings
    python -m tests.mutants groups-2    the marked remedies of this fault
    python -m tests.mutants planted     the bugs
    python -m tests.mutants table       print the marked faults, with their remedies and tests

Works in copies of the tree, one for each processor. Exit code 1 when a remedy can be taken away and
the tests stay green, or when they fail with all remedies in place; and when a planted bug violates
no story.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from tests.mutants.all_remedies import REMEDIES
from tests.mutants.changed_copy import ROOT, changed, copy_of_the_tree
from tests.mutants.marks import MarkedRemedy, find_remedies, find_tests, table, without
from tests.mutants.planted import (
    BUGS,
    Bug,
    PlantedFault,
    first_violated,
    first_violated_without,
)
from tests.mutants.planted_faults import PLANTED_FAULTS
from tests.mutants.planted_members import MEMBER_BUGS
from tests.mutants.planted_transactions import TRANSACTION_BUGS
from tests.mutants.remedy import Remedy

T = TypeVar("T")

TIMEOUT_S = 120  # a test that waits for ever has noticed too
TIMEOUT_OF_ALL_S = 1200


def main(arguments: Sequence[str]) -> int:
    """Print a line for each remedy and each bug."""
    if list(arguments) == ["table"]:
        _print_table()
        return 0

    marked = find_remedies(ROOT)
    findings = {remedy.finding for remedy in REMEDIES} | {mark.fault for mark in marked}
    if unknown := set(arguments) - {"planted", *findings}:
        print(f"no remedy is known against {', '.join(sorted(unknown))}")
        return 1
    remedies = [remedy for remedy in REMEDIES if not arguments or remedy.finding in arguments]
    marked = [mark for mark in marked if not arguments or mark.fault in arguments]
    tests_of = _tests_by_fault()
    bugs: Sequence[Bug | PlantedFault] = ()
    if not arguments or "planted" in arguments:
        bugs = (*BUGS, *MEMBER_BUGS, *TRANSACTION_BUGS, *PLANTED_FAULTS)
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        copies: SimpleQueue[Path] = SimpleQueue()
        workers = os.cpu_count() or 1
        for number in range(workers):
            copies.put(copy_of_the_tree(Path(directory) / str(number)))
        tests = sorted(
            {test for remedy in remedies for test in remedy.tests.split()}
            | {test for mark in marked for test in tests_of[mark.fault]}
        )
        run_all = partial(_run, tests=tests, timeout_s=TIMEOUT_OF_ALL_S)
        if tests and (noise := _in_a_copy(copies, run_all)):
            print(noise, "The tests fail with all remedies in place.", sep="\n")
            return 1
        with ThreadPoolExecutor(workers) as threads:
            noticed = list(threads.map(lambda remedy: _is_noticed(copies, remedy), remedies))
            noticed += threads.map(
                lambda mark: _is_mark_noticed(copies, mark, tests_of[mark.fault]), marked
            )
            found = list(threads.map(lambda bug: _is_found(copies, bug), bugs))
    print(f"{len(noticed)} remedies taken away, {noticed.count(False)} without a test noticing")
    print(f"{len(bugs)} bugs planted, {found.count(False)} not found")
    return 0 if all(noticed) and all(found) else 1


def _in_a_copy(copies: SimpleQueue[Path], do: Callable[[Path], T]) -> T:
    copy = copies.get()
    try:
        return do(copy)
    finally:
        copies.put(copy)


def _is_noticed(copies: SimpleQueue[Path], remedy: Remedy) -> bool:
    def run(copy: Path) -> str:
        with changed(copy, remedy.place, remedy.code, remedy.instead):
            return _run(copy, remedy.tests.split())

    noticed = bool(_in_a_copy(copies, run))
    verdict = "noticed" if noticed else "NOT NOTICED"
    print(f"{verdict:11}  {remedy.finding:3}  {remedy.what}", flush=True)
    return noticed


def _is_mark_noticed(copies: SimpleQueue[Path], mark: MarkedRemedy, tests: Sequence[str]) -> bool:
    place = mark.file.relative_to(ROOT)

    def run(copy: Path) -> str:
        file = copy / place
        source = file.read_text()
        try:
            file.write_text(without(source, mark.line))
            return _run(copy, tests)
        finally:
            file.write_text(source)

    noticed = bool(_in_a_copy(copies, run))
    verdict = "noticed" if noticed else "NOT NOTICED"
    print(f"{verdict:11}  {mark.fault}  {place}:{mark.line}", flush=True)
    return noticed


def _tests_by_fault() -> dict[str, list[str]]:
    tests: dict[str, list[str]] = {}
    for test in find_tests(ROOT):
        tests.setdefault(test.fault, []).append(test.test_id)
    return tests


def _print_table() -> None:
    print("| fault | remedies | tests |", "|---|---|---|", sep="\n")
    for row in table(ROOT):
        print(f"| {' | '.join(row)} |")


def _is_found(copies: SimpleQueue[Path], bug: Bug | PlantedFault) -> bool:
    def find(copy: Path) -> int | None:
        if isinstance(bug, PlantedFault):
            return first_violated_without(copy, bug)
        return first_violated(copy, bug)

    seed = _in_a_copy(copies, find)
    verdict = "NOT FOUND" if seed is None else f"seed {seed}"
    print(f"{verdict:11}       {bug.what}", flush=True)
    return seed is not None


def _run(copy: Path, tests: Sequence[str], timeout_s: float = TIMEOUT_S) -> str:
    """What pytest prints if a test fails; else nothing."""
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        ran = subprocess.run(
            command,
            cwd=copy,
            # Processes that a test starts take the copy too, wherever they are started.
            env=os.environ | {"PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        return "a test does not end"
    return ran.stdout + ran.stderr if ran.returncode else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
