"""What docs/compaction.md has a reader type, typed: one shell runs all of its blocks."""

from __future__ import annotations

from pathlib import Path

from compaction.status import STATUS_FILE, decode_status
from tests.cluster.typed_guide import typed
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT
from tests.stage.waiting import block_until

GUIDE = ROOT / "docs" / "compaction.md"
DEADLINE_S = 120.0
QUICKLY = ("--set", "log.cleaner.backoff.ms=200")


def test_the_guide_can_be_followed_as_it_is_written(tmp_path: Path) -> None:
    data = tmp_path / "dev"
    with DevCluster(data, QUICKLY) as cluster:
        followed = typed(GUIDE, cluster, tmp_path, DEADLINE_S)
        assert followed.returncode == 0, followed.stdout

        def is_cleaned() -> bool:
            file = data / "broker-0" / STATUS_FILE
            text = file.read_bytes() if file.exists() else None
            found = decode_status(text).get("positions-0")
            return found is not None and found.last is not None

        block_until(is_cleaned, "a cleaning")
        listed = cluster.run("kbroker", "log", "cleaner", "positions", "-o", "csv")
        assert "positions,0,cleaned," in listed.stdout
