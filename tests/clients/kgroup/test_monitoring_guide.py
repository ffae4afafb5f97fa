"""The commands of docs/monitoring.md, on a running cluster."""

import asyncio
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.admin import Admin, NewTopic
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.cluster import DevCluster
from tests.stage.processes import first_line
from tests.stage.waiting import DEADLINE_S

GUIDE = (Path(__file__).parents[3] / "docs" / "monitoring.md").read_text("utf-8")
COMMANDS = [
    shlex.split(line, comments=True)
    for line in re.findall(r"^(?:kgroup|kbroker) .+$", GUIDE, re.MULTILINE)
]
LASTING = {"record": ("recording to", ()), "serve": ("serving http://", ("--port", "0"))}
"""Commands that go on until a signal: how they begin, and options that tests need."""


@pytest.fixture(scope="module")
def analytics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """A cluster of its own, whose only group `analytics` is well."""

    async def prepare(bootstrap: str) -> None:
        async with Admin(bootstrap) as admin:
            assert await admin.create_topics([NewTopic("flights", 1, 1)]) == {"flights": None}
            for _ in range(3):
                committed = {TopicPartition("flights", 0): OffsetAndMetadata(0)}
                await admin.commit_group_offsets("analytics", committed)

    with DevCluster(tmp_path_factory.mktemp("analytics")) as cluster:
        asyncio.run(prepare(cluster.address("bootstrap")))
        yield cluster


@pytest.mark.parametrize("command", [c for c in COMMANDS if c[1] not in LASTING], ids=" ".join)
def test_a_command_of_the_guide_runs(analytics: DevCluster, command: list[str]) -> None:
    ran = analytics.run(*command)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("command", [c for c in COMMANDS if c[1] in LASTING], ids=" ".join)
def test_a_command_of_the_guide_goes_on_until_a_signal(
    analytics: DevCluster, tmp_path: Path, command: list[str]
) -> None:
    # A file that the guide has made before.
    token = tmp_path / "token"
    token.write_text("a-token-of-the-guide")
    command = [str(token) if word.endswith(".token") else word for word in command]

    beginning, options = LASTING[command[1]]
    process = analytics.begin(*command, "--data", str(tmp_path / "h"), *options)
    assert first_line(process).startswith(beginning)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=DEADLINE_S)[1] == ""
