"""What docs/kgroup-reset.md has one type, typed: one shell runs all of its blocks."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from clients.admin import Admin
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.cluster.typed_guide import typed
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT

GUIDE = ROOT / "docs" / "kgroup-reset.md"
DEADLINE_S = 120.0
PARTITION = TopicPartition("flights", 0)


def test_the_commands_of_the_guide_reset_a_group_and_take_it_back(tmp_path: Path) -> None:
    with DevCluster(tmp_path / "dev") as cluster:  # its own: the guide's ids are the first ones
        assert cluster.run("kbroker", "topics", "create", "flights").returncode == 0
        lines = "".join(f"{number}\n" for number in range(20))
        assert cluster.run("kgroup", "produce", "--topic", "flights", stdin=lines).returncode == 0
        asyncio.run(commit(cluster, 12))

        followed = typed(GUIDE, cluster, tmp_path, DEADLINE_S)
        assert followed.returncode == 0, followed.stdout
        assert "\nflights,0,10\n" in followed.stdout

        # Done, undone, copied, and renamed.
        listed = json.loads(cluster.run("kgroup", "journal", "-o", "json").stdout)["items"]
        assert [(item["id"], item["action"], item["status"]) for item in listed] == [
            (1, "reset", "undone"),
            (2, "undo", "done"),
            (3, "copy", "done"),
            (4, "copy", "done"),
            (5, "delete", "done"),
        ]
        assert asyncio.run(committed(cluster, "analytics")) == 12
        assert asyncio.run(committed(cluster, "analytics-v2")) == 12

        # The program does what the first command does.
        (program,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
        names: dict[str, Any] = {}
        exec(program, names)
        back_to_the_start = names["back_to_the_start"]
        journal_id = asyncio.run(
            back_to_the_start(cluster.address("bootstrap"), "analytics", "flights")
        )
        assert (journal_id, asyncio.run(committed(cluster, "analytics"))) == (6, 0)


async def commit(cluster: DevCluster, offset: int) -> None:
    async with Admin(cluster.address("bootstrap")) as admin:
        await admin.commit_group_offsets("analytics", {PARTITION: OffsetAndMetadata(offset)})


async def committed(cluster: DevCluster, group: str) -> int:
    async with Admin(cluster.address("bootstrap")) as admin:
        return (await admin.group_offsets(group))[PARTITION].offset
