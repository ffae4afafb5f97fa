"""The commands and the program of docs/kgroup.md, on a running cluster."""

import asyncio
import json
import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.admin import Admin, NewTopic
from clients.producer.producer import Producer
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.cluster import DevCluster

DOCS = (Path(__file__).parents[3] / "docs" / "kgroup.md").read_text("utf-8")
COMMANDS = re.findall(r"^    (kgroup .+)$", DOCS, re.MULTILINE)
PROGRAM = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)[0]


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """A cluster of its own, whose only group `orders` is two records behind."""

    async def prepare(bootstrap: str) -> None:
        async with Admin(bootstrap) as admin:
            assert await admin.create_topics([NewTopic("orders", 1, 1)]) == {"orders": None}
            async with Producer(bootstrap_servers=bootstrap) as producer:
                for _ in range(3):
                    await producer.send("orders", b"v", partition=0)
            committed = {TopicPartition("orders", 0): OffsetAndMetadata(1)}
            await admin.commit_group_offsets("orders", committed)

    with DevCluster(tmp_path_factory.mktemp("orders")) as cluster:
        asyncio.run(prepare(cluster.address("bootstrap")))
        yield cluster


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_docs_runs(orders: DevCluster, command: str) -> None:
    ran = orders.run(*shlex.split(command))
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_worst_group_and_its_partition_are_found_as_the_docs_say(orders: DevCluster) -> None:
    listing, describing = COMMANDS[:2]
    listed = orders.run(*shlex.split(listing), "-o", "json")
    lags = {item["group"]: item["lag"] for item in json.loads(listed.stdout)["items"]}
    assert lags["orders"] == 2
    assert list(lags.values()) == sorted(lags.values(), reverse=True)
    header, row = orders.run(*shlex.split(describing)).stdout.splitlines()
    assert header.split() == ["TOPIC", "PARTITION", "LAG", "TIME-LAG", "AGE", "CONSUMER-ID"]
    assert row.split()[:3] == ["orders", "0", "2"]


async def test_the_program_of_the_docs_prints_the_lag(
    orders: DevCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    source = PROGRAM.replace("localhost:9092", orders.address("bootstrap"))
    imports, _, body = source.partition("\n\n")
    scope: dict[str, object] = {}
    exec(f"{imports}\n\nasync def main():\n{textwrap.indent(body, '    ')}", scope)
    await scope["main"]()  # type: ignore[operator]
    assert capsys.readouterr().out == "orders-0 2\n"
