"""What docs/operations.md has an operator type, typed: one shell runs all of its blocks."""

import asyncio
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clients.admin import LATEST_TIME, Admin
from protocol.topic_partition import TopicPartition
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT, command_line

GUIDE = ROOT / "docs" / "operations.md"
DEADLINE_S = 240.0
BROKERS = ("--brokers", "3", "--set", "zookeeper.session.timeout.ms=3000")


def script(guide: str) -> str:
    """Its blocks of shell as one program, which says what it does and stops where it fails."""
    return "set -eux\n" + "".join(re.findall(r"```sh\n(.*?)```", guide, re.DOTALL))


def put_on_path(directory: Path) -> str:
    """A PATH on which the commands are found without being installed."""
    directory.mkdir()
    for program in ("kbroker", "kgroup"):
        file = directory / program
        file.write_text(f'#!/bin/sh\nexec {shlex.join(command_line(program))} "$@"\n')
        file.chmod(0o755)
    return f"{directory}:{os.environ['PATH']}"


@contextmanager
def shell(text: str, cwd: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A shell on a program; what it has left in the background ends with the block."""
    with (cwd / "transcript").open("w") as transcript:
        process = subprocess.Popen(
            ["bash", "-c", text],
            cwd=cwd,
            env=env,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=transcript,
            stderr=transcript,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def typed(
    guide: Path, cluster: DevCluster, directory: Path, deadline_s: float
) -> subprocess.CompletedProcess[str]:
    """What a guide says is typed in `directory`, all of it in one shell; what comes of it."""
    return subprocess.run(
        ["bash", "-c", script(guide.read_text())],
        cwd=directory,
        env=cluster.env | {"PATH": put_on_path(directory / "bin"), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=deadline_s,
    )


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
