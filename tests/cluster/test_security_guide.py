"""What docs/security.md has one type, typed: what takes a minute, and all that is by hand."""

from __future__ import annotations

import os
import re
import shutil
import socket
from pathlib import Path

import pytest

from broker.kbroker.local_cluster import claim_ports
from tests.cluster.typed_guide import put_on_path, script, shell
from tests.stage.processes import ROOT

GUIDE = (ROOT / "docs" / "security.md").read_text("utf-8")
DEADLINE_S = 240.0

IN_A_MINUTE, _, REST = GUIDE.partition("\n## From nothing to a secured cluster\n")
BY_HAND, _, REST = REST.partition("\n## Who may do what (ACLs)\n")
OF_ACLS, _, LAST = REST.partition("\n## ZooKeeper\n")
"""The commands about ACLs have a test of their own."""


def typed(guide: str, directory: Path) -> str:
    """Type all blocks of a part of the guide in a directory; return what was printed."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("KGROUP_")
    }
    environment |= {"PATH": put_on_path(directory / "bin"), "PYTHONPATH": str(ROOT)}
    with shell(script(guide), directory, environment) as process:
        code = process.wait(DEADLINE_S)
        transcript = (directory / "transcript").read_text()
    assert code == 0, transcript
    return transcript


def test_a_secured_cluster_is_tried_in_a_minute(tmp_path: Path) -> None:
    guide = IN_A_MINUTE.replace("--data dev", "--data dev --port 0 --zookeeper-port 0")
    transcript = typed(guide, tmp_path)
    assert "alice may not write" in transcript.splitlines()
    assert transcript.splitlines()[-2:] == ["AA1", "Processed a total of 1 messages"]


def test_a_cluster_that_cannot_start_is_not_waited_for(tmp_path: Path) -> None:
    block = re.findall(r"```sh\n.*?```", IN_A_MINUTE, re.DOTALL)[0]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = f"--data dev --port {port} --zookeeper-port 0"
        assert "Address already in use" in typed(block.replace("--data dev", options), tmp_path)


def test_no_page_waits_for_a_process_that_may_have_ended() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    text = "\n".join(page.read_text("utf-8") for page in pages)
    waits = re.findall(r"^until grep .*ready.*$", text, re.MULTILINE)
    assert len(waits) >= 5
    assert [wait for wait in waits if "|| ! kill -0 " not in wait] == []


def test_a_cluster_is_secured_by_hand_from_nothing(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("missing tool: openssl (Debian: apt-get install openssl)")
    guide = BY_HAND + LAST
    for port, free in zip(("2181", "9092", "9093"), claim_ports(0, 3), strict=True):
        guide = re.sub(rf"(localhost:|--port ){port}\b", rf"\g<1>{free}", guide)

    transcript = typed(guide, tmp_path)
    assert "AA1" in transcript.splitlines()
    assert re.search(r"^alice +SCRAM-SHA-512 +4096$", transcript, re.MULTILINE)
    assert "nodes belong to the brokers." in transcript.splitlines()[-1]
