"""What Linux has and other systems have not: simulated here, for we have no other system."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clients.resets.journal_file import JournalFile
from core_log.directory import LogDirectory
from core_log.segments.segment_file import SegmentFile
from tests.stage.processes import ROOT
from tests.stage.waiting import DEADLINE_S

WITHOUT_UNIX = """
import importlib, importlib.abc, sys

class NoUnix(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in ("fcntl", "grp", "pwd", "resource", "termios", "tty"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None

sys.meta_path.insert(0, NoUnix())
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def test_all_that_programs_import_is_there_without_the_modules_of_unix() -> None:
    fronts = [f"kgroup.{path.stem}" for path in (ROOT / "kgroup").glob("*.py")]
    fronts = [name for name in fronts if "__" not in name]
    assert {"kgroup.admin", "kgroup.blocking", "kgroup.serializers"} <= {*fronts}
    programs = ["clients.kgroup.program", "broker.kbroker.program", "clients.serve.app"]
    imported = subprocess.run(
        [sys.executable, "-c", WITHOUT_UNIX, *fronts, *programs, "kgroup.testing.simulation"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (imported.returncode, imported.stderr) == (0, "")


def test_the_journal_is_written_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    journal = JournalFile(tmp_path / "journal.jsonl")
    for key in "ab":
        asyncio.run(journal.append([(key, "1")]))
    records, end = asyncio.run(journal.read())
    assert records == [("a", "1"), ("b", "1")]
    assert end == journal.path.stat().st_size


def test_a_segment_has_its_size_where_no_blocks_can_be_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    file = SegmentFile(LogDirectory(tmp_path), "0.log")
    file.reserve(1000)
    assert (tmp_path / "0.log").stat().st_size == 1000
    file.trim()
    assert (tmp_path / "0.log").stat().st_size == 0
