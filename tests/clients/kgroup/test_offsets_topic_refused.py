"""Commands of somebody who may not read `__consumer_offsets`, and may ask for each group."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from broker.network.authorization import Resource
from broker.network.session import Principal
from clients.admin import Admin, NewTopic
from clients.producer.producer import Producer
from clients.watching.history_file import HistoryFile
from protocol.acls import Operation, ResourceType
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.authorizer import AskingAuthorizer
from tests.stage.broker import Site
from tests.stage.processes import command_line
from tests.stage.waiting import DEADLINE_S, until_equal

GROUP = "billing"
INVOICES = TopicPartition("invoices", 0)
TOPIC = Resource(ResourceType.TOPIC, OFFSETS_TOPIC)
REFUSED = "you may not read it"


@attrs.define(eq=False)
class Stage:
    """A broker that keeps the topic from everybody, and one group that has committed."""

    bootstrap: str
    home: Path
    """Where recordings are by default."""

    async def begin(self, *args: str) -> asyncio.subprocess.Process:
        program, *rest = command_line("kgroup", *args, "-b", self.bootstrap)
        env = os.environ | {"XDG_DATA_HOME": str(self.home)}
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            program, *rest, stdout=pipe, stderr=pipe, env=env
        )

    async def run(self, *args: str) -> tuple[int | None, str, str]:
        """Run a command; return its exit code and both outputs."""
        process = await self.begin(*args)
        async with asyncio.timeout(DEADLINE_S):
            printed, errors = await process.communicate()
        return process.returncode, printed.decode(), errors.decode()

    async def items(self, *args: str) -> tuple[int | None, Any]:
        """Run a command; return its exit code and its envelope."""
        code, printed, errors = await self.run(*args, "-o", "json")
        assert printed, errors
        return code, json.loads(printed)

    async def commit(self, offsets: Sequence[int], group: str = GROUP) -> None:
        async with Admin(self.bootstrap) as admin:
            for offset in offsets:
                await admin.commit_group_offsets(group, {INVOICES: OffsetAndMetadata(offset)})


async def until_recorded(file: HistoryFile, offset: int | None = None) -> None:
    """Wait for the first look, or for a commit of the group."""

    async def is_recorded() -> bool:
        if offset is None:
            return bool(file.recordings())
        return any(commit.offset == offset for commit in file.commits(GROUP))

    await until_equal(is_recorded, True)


@pytest.fixture(params=[Operation.DESCRIBE, Operation.READ])
def refused(request: pytest.FixtureRequest) -> Operation:
    """What nobody may do with the topic."""
    operation: Operation = request.param
    return operation


@asynccontextmanager
async def running(tmp_path: Path, refused: Operation) -> AsyncIterator[Stage]:
    """A stage on which nobody may do that with the topic."""

    def authorize(principal: Principal, operation: Operation, resource: Resource) -> bool:
        return (operation, resource) != (refused, TOPIC)

    site = Site(tmp_path, authorizer=AskingAuthorizer(authorize))
    settings = {"offsets_topic_replication_factor": "1", "offsets_topic_num_partitions": "1"}
    async with site.running(1, **settings) as broker:
        stage = Stage(broker.bootstrap, tmp_path / "home")
        async with Admin(stage.bootstrap) as admin:
            assert await admin.create_topics([NewTopic(INVOICES.topic, 1, 1)]) == {
                INVOICES.topic: None
            }
        async with Producer(bootstrap_servers=stage.bootstrap) as producer:
            for number in range(9):
                await producer.send_and_wait(INVOICES.topic, b"%d" % number)
        await stage.commit([4])
        yield stage


async def test_health_shows_where_groups_stand_and_what_is_not_allowed(
    tmp_path: Path, refused: Operation
) -> None:
    async with running(tmp_path, refused) as stage:
        for args in (("health",), ("health", GROUP)):
            code, health = await stage.items(*args)
            (item,) = health["items"]
            assert (code, item["group"], item["verdict"]) == (3, GROUP, "UNKNOWN")
            assert (item["topic"], item["last_commit_ms"]) == (INVOICES.topic, None)
            assert "kgroup record" in item["why"]
            (error,) = health["errors"]
            assert (error["what"], error["error"]) == (OFFSETS_TOPIC, "TOPIC_AUTHORIZATION_FAILED")
            assert REFUSED in error["message"]

        code, table, errors = await stage.run("health", GROUP)
        assert code == 3
        assert GROUP in table
        assert errors.startswith(f"error: {OFFSETS_TOPIC}: {REFUSED}")
        assert len(errors.splitlines()) == 1


@pytest.mark.parametrize("args", [("history", GROUP), ("describe", GROUP, "--as-of", "1h")])
async def test_history_without_a_recording_says_what_is_not_allowed_in_one_line(
    tmp_path: Path, refused: Operation, args: tuple[str, ...]
) -> None:
    async with running(tmp_path, refused) as stage:
        code, _, errors = await stage.run(*args)
        assert code == 1
        (line,) = errors.splitlines()
        assert line.startswith(f"error: {OFFSETS_TOPIC}: {REFUSED}")
        assert str(stage.home) in line
        assert "kgroup record" in line


async def test_history_health_and_as_of_go_on_with_a_recording(
    tmp_path: Path,
    refused: Operation,
) -> None:
    async with running(tmp_path, refused) as stage:
        data = tmp_path / "recording.sqlite"
        recorder = await stage.begin("record", "--data", str(data), "--interval", "0.1")
        with HistoryFile(data) as file:
            for offset in (5, 6, 7):
                await until_recorded(file)
                await stage.commit([offset])
                await until_recorded(file, offset)
            commits = file.commits(GROUP)
        recorder.terminate()
        assert (await recorder.communicate())[1] == b""

        named = ("--data", str(data))
        code, history = await stage.items("history", GROUP, *named)
        assert (code, [item["offset"] for item in history["items"]]) == (0, [5, 6, 7])
        assert history["verdict"].startswith(f"from {data}: commits from ")
        assert history["verdict"].endswith(f"{OFFSETS_TOPIC} may not be read")

        then = str(commits[1].at_ms)
        code, described = await stage.items("describe", GROUP, "--as-of", then, *named)
        assert (code, [item["offset"] for item in described["items"]]) == (0, [6])
        assert OFFSETS_TOPIC in described["verdict"]

        # Where the group stands now is asked for, also what was committed after the recording.
        assert (await stage.items("health", *named))[1]["items"][0]["commits"] == 3
        await stage.commit([9])
        await stage.commit([1], "newcomer")
        code, health = await stage.items("health", *named)
        assert (code, health["errors"]) == (3, [])
        assert [(item["group"], item["commits"]) for item in health["items"]] == [
            (GROUP, 4),
            ("newcomer", 1),
        ]
        assert "may not be read" in health["verdict"]


async def test_group_that_is_gone_since_the_recording_is_not_judged(
    tmp_path: Path,
    refused: Operation,
) -> None:
    async with running(tmp_path, refused) as stage:
        data = tmp_path / "recording.sqlite"
        recorder = await stage.begin("record", "--data", str(data), "--interval", "0.1")
        with HistoryFile(data) as file:
            await until_recorded(file)
            await stage.commit([5])
            await until_recorded(file, 5)
        recorder.terminate()
        await recorder.communicate()

        async with Admin(stage.bootstrap) as admin:
            await admin.delete_groups([GROUP])
        await stage.commit([1], "newcomer")
        _, health = await stage.items("health", "--data", str(data))
        assert [item["group"] for item in health["items"]] == ["newcomer"]


async def test_at_risk_and_doctor_say_what_is_not_allowed(
    tmp_path: Path, refused: Operation
) -> None:
    async with running(tmp_path, refused) as stage:
        code, printed, errors = await stage.run("at-risk")
        assert (code, printed) == (1, "\nnothing is lost within 4h 0m, as far as it can be told\n")
        assert errors == (
            f"error: {OFFSETS_TOPIC}: cannot be read, so times are missing: you may not read "
            f"{OFFSETS_TOPIC}; ask for DESCRIBE and READ on the topic\n"
        )

        code, printed, errors = await stage.run("doctor")
        assert code == 1
        assert "ask for DESCRIBE and READ on the topic" in printed + errors
        assert len(errors.splitlines()) <= 1


async def test_events_name_both_rights_that_they_need(tmp_path: Path, refused: Operation) -> None:
    async with running(tmp_path, refused) as stage:
        code, printed, errors = await stage.run("events", GROUP)
        assert (code, printed) == (1, "")
        assert errors == (
            f"error: TOPIC_AUTHORIZATION_FAILED: you may not read {OFFSETS_TOPIC}; ask for "
            "DESCRIBE and READ on the topic\n"
        )
