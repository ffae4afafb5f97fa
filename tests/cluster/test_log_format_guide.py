"""What docs/log-format.md has a reader type, typed: one shell runs all of its blocks."""

from __future__ import annotations

import re
from pathlib import Path

from core_log.segments.index_file import GATHERED_BYTES
from tests.cluster.typed_guide import typed
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT

GUIDE = ROOT / "docs" / "log-format.md"
DEADLINE_S = 120.0


def test_the_guide_can_be_followed_as_it_is_written(tmp_path: Path) -> None:
    with DevCluster(tmp_path / "dev") as cluster:
        followed = typed(GUIDE, cluster, tmp_path, DEADLINE_S)
    transcript = followed.stdout
    assert followed.returncode == 0, transcript
    described = [line for line in transcript.splitlines() if re.match(r"^\s*\S+\s+flights\s", line)]
    assert len(described) > 1
    assert re.search(r"^offset: \d+ position: \d+$", transcript, re.MULTILINE)
    assert re.search(r"^timestamp: \d+ offset: \d+$", transcript, re.MULTILINE)
    assert "baseOffset: 0 lastOffset: " in transcript


def test_the_guide_says_when_entries_of_indexes_are_written() -> None:
    assert f"written when there are {GATHERED_BYTES // 1024} KB of them" in GUIDE.read_text()


def test_every_module_that_the_guide_names_is_there() -> None:
    _, _, table = GUIDE.read_text().partition("## Where it is written down")
    for row in re.findall(r"^\| .* \| (`.*) \|$", table, re.MULTILINE):
        folder = ROOT
        for name in re.findall(r"`([^`]+)`", row):
            if "/" in name:
                folder = (ROOT / name).parent if name.endswith(".py") else ROOT / name
            assert (ROOT / name if "/" in name else folder / name).exists(), name
