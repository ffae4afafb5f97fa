"""Copies of the tree in which some code is other code, for as long as something is run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.mutants.places import PACKAGES, plan_change

ROOT = Path(__file__).resolve().parents[2]
COPIED = (*PACKAGES, "benchmarks", "examples", "building", "tests", "conftest.py", "pyproject.toml")


def copy_of_the_tree(target: Path) -> Path:
    """Copy what tests need to `target`, which it makes."""
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=ignored)
        else:
            shutil.copy(source, target / name)
    return target


@contextmanager
def changed(copy: Path, place: str, code: str, instead: str) -> Iterator[None]:
    """Have `instead` where `code` stands in the copy. Raises NoSuchPlace."""
    change = plan_change(copy, place, code, instead)
    try:
        change.file.write_text(change.after)
        yield
    finally:
        change.file.write_text(change.before)
