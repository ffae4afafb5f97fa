"""What docs/log-format.md has a reader type, typed: one shell runs all of its blocks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compaction.status import STATUS_FILE
from core_log.first_use import IN_USE_SINCE
from core_log.segments.index_file import GATHERED_BYTES
from core_log.topic_identity_file import TOPIC_IDENTITY
from core_log.topics_mark_file import TOPICS_MARK
from tests.cluster.typed_guide import typed
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT

GUIDE = ROOT / "docs" / "log-format.md"
REPLICATION = ROOT / "docs" / "replication.md"
DEADLINE_S = 120.0

KAFKAS = re.compile(
    r"\.lock|meta\.properties|\.kafka_cleanshutdown"
    r"|(recovery-point|replication|log-start|cleaner)-offset-checkpoint|leader-epoch-checkpoint"
    r"|\d{20}\.(log|index|timeindex|txnindex|snapshot)(\.deleted)?"
)
"""Names of files that a broker of Kafka writes too."""
ONLY_OURS = set(re.findall(r"── (\S+) +only ours", GUIDE.read_text()))
"""Those that the page says it does not."""


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

    names = {file.name for file in (tmp_path / "dev" / "broker-0").rglob("*") if file.is_file()}
    others = {name for name in names if not KAFKAS.fullmatch(name)}
    assert {IN_USE_SINCE, TOPIC_IDENTITY} <= others <= ONLY_OURS


def test_the_guide_names_the_files_that_are_only_ours() -> None:
    assert {STATUS_FILE, IN_USE_SINCE, TOPIC_IDENTITY, TOPICS_MARK} == ONLY_OURS


def test_the_guide_says_when_entries_of_indexes_are_written() -> None:
    assert f"written when there are {GATHERED_BYTES // 1024} KB of them" in GUIDE.read_text()


@pytest.mark.parametrize("guide", [GUIDE, REPLICATION], ids=lambda guide: guide.stem)
def test_every_module_that_a_guide_names_is_there(guide: Path) -> None:
    _, _, table = guide.read_text().partition("## Where to find it in the code")
    rows = re.findall(r"^\| .* \| (`.*) \|$", table, re.MULTILINE)
    assert rows
    for row in rows:
        folder = ROOT
        for name in re.findall(r"`([\w/]+(?:\.py|/))`", row):
            if "/" in name:
                folder = (ROOT / name).parent if name.endswith(".py") else ROOT / name
            assert (ROOT / name if "/" in name else folder / name).exists(), name
