"""The functions of docs/kgroup-library.md, on a running cluster."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from clients.admin import Admin, NewTopic
from clients.command_line.sessions import Sessions
from clients.groups.group_reader import GroupReader
from clients.producer.producer import Producer
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT
from tests.stage.waiting import DEADLINE_S, until

GUIDE = (ROOT / "docs" / "kgroup-library.md").read_text()
LIBRARY: dict[str, Any] = {}
exec("\n".join(re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)), LIBRARY)


@pytest.mark.fault("users-28", needs_no_remedy="the page was wrong")
def test_a_type_checker_takes_the_page_and_the_listener_of_the_other(tmp_path: Path) -> None:
    programs = {"library.py": "\n".join(re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL))}
    groups = (ROOT / "docs" / "consumer-groups.md").read_text()
    (listener,) = re.findall(r"## A rebalance listener\n+```python\n(.*?)```", groups, re.DOTALL)
    programs["listener.py"] = (
        "from kgroup import ConsumerConnector\nconnector: ConsumerConnector\n"
        f"async def flush() -> None: ...\n{listener}"
    )
    for name, program in programs.items():
        (tmp_path / name).write_text(program)
    checked = subprocess.run(
        [sys.executable, "-P", "-m", "mypy", "--strict", *programs],
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert checked.returncode == 0, checked.stdout


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """A cluster of its own, whose only group `orders` is two records behind."""

    async def prepare(bootstrap: str) -> None:
        async with Admin(bootstrap) as admin, Producer(bootstrap_servers=bootstrap) as producer:
            assert await admin.create_topics([NewTopic("orders", 1, 1)]) == {"orders": None}
            for _ in range(3):
                await producer.send("orders", b"v", partition=0)
            await admin.commit_group_offsets(
                "orders", {TopicPartition("orders", 0): OffsetAndMetadata(1)}
            )

    with DevCluster(tmp_path_factory.mktemp("orders")) as cluster:
        asyncio.run(prepare(cluster.address("bootstrap")))
        yield cluster


@asynccontextmanager
async def sessions_with(cluster: DevCluster) -> AsyncIterator[Sessions]:
    async with Admin(cluster.address("bootstrap")) as admin:
        yield Sessions(admin)


@pytest.mark.parametrize(
    ("function", "result"),
    [
        ("group_states", [("orders", "Empty")]),
        ("total_lag", 2),
        ("lost_soon", []),
        # Of the topic of the same name.
        ("hanging", []),
        # One commit says nothing of a group's health.
        ("verdicts", {"orders": "UNKNOWN"}),
        ("offsets_an_hour_ago", {}),
        ("to_the_start_and_back", ["undone", "done"]),
    ],
)
async def test_a_function_of_the_docs_says_what_the_command_says(
    orders: DevCluster, function: str, result: object
) -> None:
    names_group = function != "group_states"
    async with sessions_with(orders) as sessions:
        arguments = (sessions, "orders") if names_group else (sessions,)
        assert await LIBRARY[function](*arguments) == result


async def test_the_program_of_the_docs_prints_groups_and_lags(
    orders: DevCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    await LIBRARY["ask"](orders.address("bootstrap"))
    assert capsys.readouterr().out == "orders Empty 2\n"


async def test_a_partition_without_an_owner_is_slow_by_the_age_of_its_next_record(
    orders: DevCluster,
) -> None:
    async with sessions_with(orders) as sessions:
        (slow,) = (await LIBRARY["slow_members"](sessions, "orders")).items()
    assert slow[0] is None
    assert slow[1] >= 0


async def test_the_doctor_of_the_docs_complains_as_the_command_does(orders: DevCluster) -> None:
    async with sessions_with(orders) as sessions:
        complaints = await LIBRARY["complaints"](sessions)
    rows = json.loads(orders.run("kgroup", "doctor", "-o", "json").stdout)["items"]
    assert [row["why"] for row in rows if row["verdict"] != "OK"] == complaints


async def test_a_member_that_is_made_up_takes_half_of_a_group(dev_cluster: DevCluster) -> None:
    group = topic = f"t-{uuid4().hex[:8]}"
    async with sessions_with(dev_cluster) as sessions:
        assert await sessions.admin.create_topics([NewTopic(topic, 4, 1)]) == {topic: None}
        member = dev_cluster.begin(
            *("kgroup", "consume", "--topic", topic, "--group", group),
            *("--membership", "coordinator"),
        )
        try:
            reader = GroupReader(sessions)

            async def is_stable() -> bool:
                facts = await reader.group(group)
                return facts.state == "Stable" and len(facts.partitions) == 4

            await until(is_stable, "the member with its partitions")
            assert await LIBRARY["moved_by_one_more"](sessions, group) == 2
        finally:
            member.terminate()
            member.communicate(timeout=DEADLINE_S)
