"""What docs/kgroup.md has one type to simulate, measure, and name clusters."""

import re
import subprocess
from pathlib import Path

from clients.command_line.named_clusters import parse_clusters
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT, command_line
from tests.stage.waiting import DEADLINE_S

GUIDE = (ROOT / "docs" / "kgroup.md").read_text()


def section(title: str) -> str:
    return GUIDE.split(f"## {title}\n")[1].split("\n## ")[0]


def blocks(title: str) -> list[str]:
    found: list[str] = re.findall(r"```\w*\n(.*?)```", section(title), re.DOTALL)
    return found


def test_the_simulation_prints_what_the_guide_shows() -> None:
    (block,) = blocks("Try it before you do it")
    typed, _, printed = block.partition("\n")
    ran = subprocess.run(
        command_line(*typed.removeprefix("$ ").split()),
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=DEADLINE_S,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert [line.rstrip() for line in ran.stdout.splitlines()] == printed.splitlines()


def test_the_measurements_of_the_guide_run(dev_cluster: DevCluster) -> None:
    dev_cluster.run("kbroker", "topics", "create", "flights", "--partitions", "2")
    (block,) = blocks("How fast is it")
    for line in block.splitlines():
        ran = dev_cluster.run(*line.split())
        assert ran.returncode == 0, ran.stderr
        assert "sec" in ran.stdout


def test_the_file_of_the_guide_names_its_clusters(tmp_path: Path) -> None:
    (text,) = blocks("Named clusters")
    known = parse_clusters(text, tmp_path / "config.toml")
    assert (known.default, list(known.clusters)) == ("prod", ["prod", "staging"])
