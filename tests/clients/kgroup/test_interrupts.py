"""Commands that write many things, interrupted in the middle of it: as processes, by signals."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import IO, Any

import pytest

from clients.command_line.output import Target
from clients.kgroup.copy_group import CopyJob
from clients.kgroup.rename import rename
from tests.clients.kgroup.reset_stage import ResetStage, filled_dev
from tests.interop.kafka_cluster import unique
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT, command_line, interrupt_after
from tests.stage.zookeeper import zookeeper_session
from zk.znodes import ConsumerOffset, ConsumerRegistration

pytestmark = pytest.mark.fault("scale-C3")


@pytest.fixture(scope="module")
def stage(dev_cluster: DevCluster) -> ResetStage:
    return filled_dev(dev_cluster)


def begin(stage: ResetStage, *args: str, zookeeper: bool = True) -> subprocess.Popen[str]:
    """Begin a command whose result is JSON."""
    env = dict(stage.env)
    if not zookeeper:
        del env["KGROUP_ZOOKEEPER"]
    return subprocess.Popen(
        command_line("kgroup", *args, "-o", "json"),
        cwd=ROOT,
        env=env,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def interrupted(
    process: subprocess.Popen[str], beginning: str, number: signal.Signals = signal.SIGINT
) -> dict[str, Any]:
    """Interrupt a command when it has said that; return its document."""
    stdout, stderr = interrupt_after(process, beginning, number)
    assert process.returncode == 130, stderr
    document: dict[str, Any] = json.loads(stdout)
    assert {error["error"] for error in document["errors"]} == {"Interrupted"}
    return document


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_delete(stage: ResetStage, number: signal.Signals) -> None:
    groups = [stage.group({stage.t0: 7}) for _ in range(60)]
    process = begin(stage, "delete", *groups, zookeeper=False)
    listing = interrupted(process, f"deleted: {groups[0]} in kafka", number)

    done = [item["group"] for item in listing["items"]]
    not_done = [error["what"] for error in listing["errors"]]
    assert done + not_done == groups
    assert done
    assert not_done
    assert {group for group in groups if stage.offsets(group)} == set(not_done)


def test_delete_offsets(stage: ResetStage) -> None:
    group = unique("g")
    paths = [ConsumerOffset.path(group, stage.topic, number) for number in range(1000)]

    async def create() -> None:
        async with zookeeper_session(stage.zookeeper) as session:
            await session.create(paths[0], b"7", make_parents=True)
            await asyncio.gather(*(session.create(path, b"7") for path in paths[1:]))

    async def left() -> int:
        async with zookeeper_session(stage.zookeeper) as session:
            return sum(node is not None for node in await session.get_many(paths))

    asyncio.run(create())
    process = begin(stage, "delete-offsets", group, "--topic", stage.topic)
    listing = interrupted(process, f"deleted: {stage.topic}-0 in zookeeper")

    # By hundreds, and each is said.
    assert len(listing["items"]) in range(100, 1000, 100)
    assert len(listing["items"]) + len(listing["errors"]) == 1000
    assert asyncio.run(left()) == len(listing["errors"])


def test_import(stage: ResetStage, tmp_path: Path) -> None:
    groups = sorted(unique("g") for _ in range(60))
    stores = {"group": "", "topic": stage.topic, "partition": 0, "offset": 5, "store": "kafka"}
    items = [{**stores, "group": group} for group in groups]
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"kind": "export", "version": 1, "items": items, "errors": []}))
    process = begin(stage, "import", str(file), zookeeper=False)
    listing = interrupted(process, f"written: {groups[0]}, 1 offsets")

    done = [item["group"] for item in listing["items"]]
    assert done + [error["what"] for error in listing["errors"]] == groups
    assert {group for group in groups if stage.offsets(group) == {0: 5}} == set(done)


def test_a_migration_that_waits(stage: ResetStage) -> None:
    group = unique("g")
    stage.write(
        {
            ConsumerOffset.path(group, *stage.t0): b"7",
            # Of a member that is not ours, and does not follow.
            ConsumerRegistration.path(group, "strange"): b'{"version":1,"subscription":{}}',
        }
    )
    process = begin(stage, "migrate", "start", group, "--wait", "600")
    listing = interrupted(process, f"written: {group} is started, dual-zookeeper")
    assert [error["what"] for error in listing["errors"]] == [group]
    assert {item["step"] for item in listing["items"]} == {"started"}

    # It goes on where it stopped; nobody is at work on it any more.
    assert stage.run("migrate", "rollback", group, "--wait", "0", "--seconds", "0").exit_code == 0


class Signalling:
    """A stream that has this process interrupted by what is written to it."""

    def __init__(self, beginning: str) -> None:
        self.beginning = beginning
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        if text.startswith(self.beginning):
            os.kill(os.getpid(), signal.SIGINT)
        return len(text)

    def flush(self) -> None:
        pass


def test_a_rename_between_copy_and_deletion(stage: ResetStage) -> None:
    old, new = stage.group({stage.t0: 7}), unique("g")
    job = CopyJob(old, new, None, False, False, False, "test", removes_source=True)
    target = Target(stage.bootstrap, None, {}, 30_000)
    stream: IO[str] = Signalling(f"journal: {new} is entry")  # type: ignore[assignment]
    with contextlib.redirect_stderr(stream):
        copied, deleted, failures = asyncio.run(rename(target, job))

    assert copied.outcome is not None
    assert deleted is None
    assert [(failure.what, failure.error) for failure in failures] == [(old, "Interrupted")]
    assert (stage.offsets(old), stage.offsets(new)) == ({0: 7}, {0: 7})
