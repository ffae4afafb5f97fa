"""Copies of the tree in which some words of a file are others, for as long as something is run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    *("protocol", "zk", "core_log", "compaction", "offsets", "groups", "clients", "broker"),
    *("tests", "conftest.py", "pyproject.toml"),
)


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
def changed(copy: Path, file: str, words: str, instead: str) -> Iterator[None]:
    """Have `instead` where `words` stand, once, in a file of the copy."""
    source = copy / file
    whole = source.read_text()
    assert whole.count(words) == 1, f"{file}: {words!r}"
    try:
        source.write_text(whole.replace(words, instead))
        yield
    finally:
        source.write_text(whole)
