"""`kgroup describe` and `at-risk` on stock brokers, from old to new."""

import asyncio
import json
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from clients.admin import Admin
from clients.producer.producer import Producer
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.interop.traffic import new_topic
from tests.stage.kraft_kafka import kraft_broker
from tests.stage.processes import ROOT, command_line
from tests.stage.stock_kafka import stock_broker
from tests.stage.waiting import DEADLINE_S

Start = Callable[[str, Path], AbstractContextManager[str]]
DAY = 86_400_000
WEEK = 7 * DAY


def start_of_today(zookeeper: str, directory: Path) -> AbstractContextManager[str]:
    return kraft_broker(directory)


BROKERS = [
    pytest.param(stock_broker, id="2.8.2"),
    pytest.param(start_of_today, id="4.1.1", marks=pytest.mark.product),
]


async def commit_one_of_three(bootstrap: str) -> None:
    """Commit for group g, two records before the end of a new topic."""
    topic = await new_topic(bootstrap)
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for _ in range(3):
            await producer.send(topic, b"v", partition=0)
    async with Admin(bootstrap) as admin:
        await admin.commit_group_offsets("g", {TopicPartition(topic, 0): OffsetAndMetadata(1)})


@pytest.mark.parametrize("start", BROKERS)
def test_a_group_that_only_commits_has_times_and_expires(
    start: Start, zk_chroot: str, tmp_path: Path
) -> None:
    with start(zk_chroot, tmp_path) as bootstrap:
        asyncio.run(commit_one_of_three(bootstrap))
        command = command_line("kgroup", "describe", "-b", bootstrap, "g", "-o", "json")
        ran = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=DEADLINE_S)
        assert ran.returncode == 0, ran.stderr
        (item,) = json.loads(ran.stdout)["items"]
        assert item["lag"] == 2
        assert 0 <= item["age_ms"] < DAY
        assert WEEK - DAY / 2 < item["expires_in_ms"] <= WEEK
        assert (item["time_lag_method"], item["time_lag_ms"] < DAY) == ("exact", True)
