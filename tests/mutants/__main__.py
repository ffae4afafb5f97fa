"""`make mutants`: take each remedy away in turn; the tests must notice.

    python -m tests.mutants            all of them
    python -m tests.mutants 26 27      those of these hazards

Works in copies of the tree, one for each processor. Exit code 1 when a remedy can be taken away and
the tests stay green, or when they fail with all remedies in place.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.remedies import REMEDIES, Remedy

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    *("protocol", "zk", "core_log", "offsets", "groups", "clients", "broker", "tests"),
    *("conftest.py", "pyproject.toml"),
)
TIMEOUT_S = 120  # a test that waits for ever has noticed too


def main(arguments: Sequence[str]) -> int:
    """Print a line for each remedy."""
    wanted = {int(argument) for argument in arguments}
    remedies = [remedy for remedy in REMEDIES if not wanted or remedy.hazard in wanted]
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        copies: SimpleQueue[Path] = SimpleQueue()
        workers = os.cpu_count() or 1
        for number in range(workers):
            copies.put(_copy(Path(directory) / str(number)))
        if noise := _failure(copies, sorted({remedy.noticed_by for remedy in remedies})):
            print(noise, "The tests fail with all remedies in place.", sep="\n")
            return 1
        with ThreadPoolExecutor(workers) as threads:
            noticed = list(threads.map(lambda remedy: _is_noticed(copies, remedy), remedies))
    missed = noticed.count(False)
    print(f"{len(remedies)} remedies taken away, {missed} without a test noticing")
    return 1 if missed else 0


def _copy(target: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=ignored)
        else:
            shutil.copy(source, target / name)
    return target


def _is_noticed(copies: SimpleQueue[Path], remedy: Remedy) -> bool:
    copy = copies.get()
    source = copy / remedy.file
    whole = source.read_text()
    assert whole.count(remedy.words) == 1, f"{remedy.file}: {remedy.words!r}"
    try:
        source.write_text(whole.replace(remedy.words, remedy.instead))
        noticed = bool(_run(copy, remedy.noticed_by.split()))
    finally:
        source.write_text(whole)
        copies.put(copy)
    verdict = "noticed" if noticed else "NOT NOTICED"
    print(f"{verdict:11}  {remedy.hazard:2}  {remedy.what}", flush=True)
    return noticed


def _failure(copies: SimpleQueue[Path], tests: Sequence[str]) -> str:
    copy = copies.get()
    try:
        return _run(copy, tests)
    finally:
        copies.put(copy)


def _run(copy: Path, tests: Sequence[str]) -> str:
    """What pytest prints if a test fails; else nothing."""
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        ran = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return "a test does not end"
    return ran.stdout + ran.stderr if ran.returncode else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
