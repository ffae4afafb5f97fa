"""Ages in tables count from the present."""

from __future__ import annotations

import asyncio
import json
import time

from click.testing import CliRunner
from freezegun import freeze_time

from clients.kgroup.command import main
from tests.stage.cluster import DevCluster
from zk.znodes import ConsumerOffset

HOUR_MS = 3_600_000
KEEPS_THE_CLOCK = ["kazoo", "zk", "threading"]


def test_the_age_of_a_commit_in_zookeeper_is_told_from_the_present(dev_cluster: DevCluster) -> None:
    dev_cluster.run("kbroker", "topics", "create", "aged", "--partitions", "1")

    async def commit() -> int:
        path = ConsumerOffset.path("aging", "aged", 0)
        async with dev_cluster.zookeeper_session() as session:
            await session.create(path, ConsumerOffset(0).encode(), make_parents=True)
            stat = await session.exists(path)
        assert stat is not None
        return stat.mtime_ms

    committed_at_ms = asyncio.run(commit())
    arguments = ["describe", "aging", "-o", "json"]
    arguments += ["--zookeeper", dev_cluster.address("zookeeper")]
    arguments += ["--bootstrap-server", dev_cluster.address("bootstrap")]
    later = time.gmtime(committed_at_ms / 1000 + HOUR_MS / 1000)
    present = time.strftime("%Y-%m-%dT%H:%M:%S", later)
    with freeze_time(present, ignore=KEEPS_THE_CLOCK, real_asyncio=True):
        result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    (item,) = json.loads(result.stdout)["items"]
    assert item["committed_at_ms"] == committed_at_ms
    assert HOUR_MS - 1000 < item["age_ms"] <= HOUR_MS
