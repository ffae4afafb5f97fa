"""An offsets topic with a partition that cannot be cleaned, for `kgroup doctor`."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clients.admin import Admin, ConfigResource, NewTopic
from core_log.segments.file_name import file_name
from offsets.topic import partition_for
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.records.batch_header import HEADER_BYTES
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.processes import ROOT, command_line
from tests.stage.waiting import DEADLINE_S, block_until

SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "offsets.topic.segment.bytes": "20000",
    "log.cleaner.backoff.ms": "200",
}
COMMITS = 500
"""Of each group: some segments' worth of them."""


def name_of(group: str) -> str:
    """The partition of the topic that has a group."""
    return f"{OFFSETS_TOPIC}-{partition_for(group, 2)}"


P0, P1 = name_of("g0"), name_of("g1")


def examine(bootstrap: str) -> tuple[int, dict[str, Any], str]:
    """Run `kgroup doctor`: its exit code, its rows by their subjects, and the verdict."""
    command = command_line("kgroup", "doctor", "-b", bootstrap, "-o", "json")
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=DEADLINE_S)
    listing = json.loads(done.stdout)
    assert (listing["kind"], listing["errors"]) == ("doctor", []), done.stderr
    return done.returncode, {row["subject"]: row for row in listing["items"]}, listing["verdict"]


def wrong(rows: Mapping[str, Any]) -> set[str]:
    """The subjects that are not OK."""
    return {subject for subject, row in rows.items() if row["verdict"] != "OK"}


async def commit(admin: Admin, count: int = COMMITS) -> None:
    """Commit an offset of two groups, in one partition of the topic each, again and again."""
    await admin.create_topics([NewTopic("t", 1, 1)])
    for offset in range(count):
        for group in ("g0", "g1"):
            await admin.commit_group_offsets(
                group, {TopicPartition("t", 0): OffsetAndMetadata(offset)}
            )


async def set_lag(admin: Admin, lag_ms: int) -> None:
    """Let the cleaner leave alone what is younger."""
    topic = ConfigResource.topic(OFFSETS_TOPIC)
    change = {"min.compaction.lag.ms": str(lag_ms)}
    assert await admin.incremental_alter_configs({topic: change}) == {topic: None}


def spoil(segment: Path) -> None:
    """Change the length of its first record."""
    with segment.open("r+b") as file:
        file.seek(HEADER_BYTES)
        (byte,) = file.read(1)
        file.seek(HEADER_BYTES)
        file.write(bytes([byte ^ 1]))


def find_the_spoiled_partition(bootstrap: str, log_dir: Path) -> None:
    """Spoil P0 before it is cleaned: doctor finds it, and P1, which is cleaned, is OK."""

    async def run() -> None:
        async with Admin(bootstrap) as admin:
            # Nothing is cleaned before the damage is done.
            await commit(admin, 1)
            await set_lag(admin, 3_600_000)
            await commit(admin)
            spoil(log_dir / P0 / file_name(0, ".log"))
            await set_lag(admin, 0)

    asyncio.run(run())
    block_until(lambda: examine(bootstrap)[1][P1]["records"] < COMMITS // 2, f"a cleaning of {P1}")
    code, rows, verdict = examine(bootstrap)
    assert (code, wrong(rows)) == (1, {P0})
    assert "a batch is damaged" in rows[P0]["why"]
    assert verdict.endswith(f": 1 ERR; first {P0}: {rows[P0]['why']}")
    healthy = rows[P1]
    assert (healthy["keys"], healthy["leader"], healthy["log_end_offset"]) == (1, 0, COMMITS + 1)
    assert healthy["size_bytes"] > 0
