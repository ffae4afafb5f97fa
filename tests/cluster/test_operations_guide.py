"""What docs/operations.md has an operator type, typed: one shell runs all of its blocks."""

import asyncio
import re
from pathlib import Path

from clients.admin import LATEST_TIME, Admin
from protocol.topic_partition import TopicPartition
from tests.cluster.typed_guide import put_on_path, script, shell
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT

GUIDE = ROOT / "docs" / "operations.md"
DEADLINE_S = 240.0
BROKERS = ("--brokers", "3", "--set", "zookeeper.session.timeout.ms=3000")


async def ends(bootstrap: str, topic: str, partitions: int) -> int:
    """How many messages have ever been written to a topic."""
    async with Admin(bootstrap) as admin:
        times = {TopicPartition(topic, p): LATEST_TIME for p in range(partitions)}
        return sum(found.offset for found in (await admin.list_offsets(times)).values())


def test_the_guide_can_be_followed_as_it_is_written(tmp_path: Path) -> None:
    with DevCluster(tmp_path / "dev", BROKERS) as cluster:
        env = cluster.env | {
            "PATH": put_on_path(tmp_path / "bin"),
            "PYTHONPATH": str(ROOT),
        }
        with shell(script(GUIDE.read_text()), tmp_path, env) as process:
            code = process.wait(DEADLINE_S)
            transcript = (tmp_path / "transcript").read_text()
            assert code == 0, transcript
            bootstrap = cluster.address("bootstrap")
            assert asyncio.run(ends(bootstrap, "flights", 6)) == 10_000
            assert asyncio.run(ends(bootstrap, "readings", 1)) == 100  # what broker 1 had is gone
    offline, elected = re.findall(r"Topic: readings\tPartition: 0\tLeader: (\S+)", transcript)[-2:]
    assert (offline, elected) == ("none", "2")
    assert "Clearing throttles on" in transcript
