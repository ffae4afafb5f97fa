"""`kgroup describe` and `at-risk` on stock brokers, from old to new."""

import asyncio
import json
import subprocess
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from clients.admin import Admin
from clients.producer.producer import Producer
from clients.watching.history_file import HistoryFile
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.interop.traffic import new_topic
from tests.stage.kraft_kafka import kraft_broker
from tests.stage.processes import ROOT, command_line, first_line
from tests.stage.stock_kafka import stock_broker
from tests.stage.waiting import DEADLINE_S, block_until

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


def run(*args: str, code: int = 0) -> Any:
    """Run `kgroup` to its end; what it printed as JSON."""
    command = command_line("kgroup", *args, "-o", "json")
    ran = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=DEADLINE_S)
    assert ran.returncode == code, ran.stderr
    return json.loads(ran.stdout)


def check_commands_that_watch(bootstrap: str, data: Path) -> None:
    """See that history, health, record and serve know the group that committed once."""
    (item,) = run("history", "-b", bootstrap, "g")["items"]
    assert item["offset"] == 1
    (item,) = run("health", "-b", bootstrap, "g", code=3)["items"]
    assert (item["lag"], item["commits"], item["verdict"]) == (2, 1, "UNKNOWN")

    for name, options in (("record", ()), ("serve", ("--port", "0"))):
        file = data / f"{name}.sqlite"
        command = command_line("kgroup", name, "-b", bootstrap, "--data", str(file), *options)
        process = subprocess.Popen(
            command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            line = first_line(process)
            with HistoryFile(file) as history:
                block_until(lambda: history.commits("g"), f"the first look of {name}")
            if name == "serve":
                address = line.removeprefix("serving ").strip()
                with urllib.request.urlopen(f"{address}metrics", timeout=DEADLINE_S) as response:
                    assert 'kgroup_group_lag{group="g"} 2.0' in response.read().decode()
        finally:
            process.terminate()
            _, errors = process.communicate(timeout=DEADLINE_S)
        assert errors == ""


@pytest.mark.parametrize("start", BROKERS)
def test_a_group_that_only_commits_has_times_expires_and_is_watched(
    start: Start, zk_chroot: str, tmp_path: Path
) -> None:
    with start(zk_chroot, tmp_path) as bootstrap:
        asyncio.run(commit_one_of_three(bootstrap))
        (item,) = run("describe", "-b", bootstrap, "g")["items"]
        assert item["lag"] == 2
        assert 0 <= item["age_ms"] < DAY
        assert WEEK - DAY / 2 < item["expires_in_ms"] <= WEEK
        assert (item["time_lag_method"], item["time_lag_ms"] < DAY) == ("exact", True)
        check_commands_that_watch(bootstrap, tmp_path)
