"""Commands of somebody who may not see all: what brokers leave out in silence, commands name."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Set
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from broker.network.authorization import Resource
from broker.network.session import Principal
from clients.admin import Admin, NewTopic
from clients.producer.producer import Producer
from protocol.acls import Operation, ResourceType
from protocol.internal_topics import JOURNAL_TOPIC
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.authorizer import AskingAuthorizer
from tests.stage.broker import Site
from tests.stage.processes import command_line
from tests.stage.waiting import DEADLINE_S

BILLING, AUDIT = "billing", "audit"
INVOICES, SECRETS = TopicPartition("invoices", 0), TopicPartition("secrets", 0)
CLUSTER, GROUPS, TOPICS, TRANSACTIONS = "cluster", "groups", "topics", "transactions"
EVERYTHING = frozenset({CLUSTER, GROUPS, TOPICS, TRANSACTIONS})
"""What may be described; a topic or group by its name is one of them."""

HIDDEN_GROUPS = ("groups", "GROUP_AUTHORIZATION_FAILED")


@attrs.define(eq=False)
class Stage:
    """A broker with two groups: billing has offsets of both topics, audit of the secret one."""

    bootstrap: str
    home: Path
    allowed: Set[str] = EVERYTHING
    denied: Set[tuple[Operation, str]] = frozenset()
    """What else may not be done: operations, each with the name of a topic or group."""

    def may(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        kinds = {
            ResourceType.CLUSTER: CLUSTER,
            ResourceType.GROUP: GROUPS,
            ResourceType.TOPIC: TOPICS,
            ResourceType.TRANSACTIONAL_ID: TRANSACTIONS,
        }
        if (operation, resource.name) in self.denied:
            return False
        # Brokers may describe all transactions.
        if operation is Operation.CLUSTER_ACTION:
            return TRANSACTIONS in self.allowed
        if operation is not Operation.DESCRIBE or resource.kind not in kinds:
            return True
        return not self.allowed.isdisjoint({kinds[resource.kind], resource.name})

    async def run(self, *args: str) -> tuple[int | None, Any, list[tuple[str, str]], str]:
        """Run `kgroup`; return its exit code, items, (what, error) of each error, and stderr."""
        code, printed, errors = await self.print("kgroup", *args)
        assert printed, errors
        listing = json.loads(printed)
        named = [(error["what"], error["error"]) for error in listing["errors"]]
        return code, listing["items"], named, errors

    async def print(self, program: str, *args: str) -> tuple[int | None, str, str]:
        """Run a command; return its exit code, and what it prints on stdout and stderr."""
        program, *rest = command_line(program, *args, "-b", self.bootstrap)
        env = os.environ | {"XDG_DATA_HOME": str(self.home)}
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            program, *rest, stdout=pipe, stderr=pipe, env=env
        )
        async with asyncio.timeout(DEADLINE_S):
            printed, errors = await process.communicate()
        return process.returncode, printed.decode(), errors.decode()


@asynccontextmanager
async def running(tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage("", tmp_path / "home")
    site = Site(tmp_path, authorizer=AskingAuthorizer(lambda *asked: stage.may(*asked)))
    settings = {"offsets_topic_replication_factor": "1", "offsets_topic_num_partitions": "1"}
    async with site.running(1, **settings) as broker:
        stage.bootstrap = broker.bootstrap
        async with Admin(stage.bootstrap) as admin:
            topics = [INVOICES.topic, SECRETS.topic, JOURNAL_TOPIC]
            await admin.create_topics([NewTopic(topic, 1, 1) for topic in topics])
            one = OffsetAndMetadata(0)
            await admin.commit_group_offsets(BILLING, {INVOICES: one, SECRETS: one})
            await admin.commit_group_offsets(AUDIT, {SECRETS: one})
        yield stage


@pytest.mark.fault("strangers-49")
async def test_lags_in_time_that_may_not_be_read_are_named_with_the_right(tmp_path: Path) -> None:
    async with running(tmp_path) as stage:
        async with Producer({"bootstrap.servers": stage.bootstrap}) as producer:
            await producer.send_and_wait(SECRETS.topic, b"v")
        stage.denied = {(Operation.READ, SECRETS.topic)}
        code, printed, errors = await stage.print(
            "kgroup", "describe", AUDIT, "--columns", "lag,time-lag"
        )
    assert (code, printed.split()[-2:]) == (0, ["1", "-"])
    assert "logs cannot be read, so lags in time are missing" in errors
    assert "secrets; ask for READ on the topic" in errors


LISTING = (
    ("list",),
    ("describe", "--all-groups"),
    ("at-risk",),
    ("top", "--once"),
    ("delete", "--all-groups"),
    ("reset", "--all-groups", "--all-topics", "--to-current"),
)


async def test_groups_that_are_not_listed_are_an_error_of_each_command(tmp_path: Path) -> None:
    async with running(tmp_path) as stage:
        stage.allowed = {TOPICS}
        for command in LISTING:
            code, items, errors, _ = await stage.run(*command, "-o", "json")
            assert (command, code, items, errors) == (command, 1, [], [HIDDEN_GROUPS])
        code, items, errors, _ = await stage.run("export")
        assert (code, items, errors) == (1, [], [HIDDEN_GROUPS])


@pytest.mark.parametrize("allowed", [{GROUPS, TOPICS}, {CLUSTER, BILLING, AUDIT, TOPICS}])
async def test_who_may_see_every_group_is_told_nothing(tmp_path: Path, allowed: set[str]) -> None:
    async with running(tmp_path) as stage:
        stage.allowed = allowed
        code, items, errors, _ = await stage.run("list", "-o", "json")
        assert (code, [item["group"] for item in items], errors) == (0, [AUDIT, BILLING], [])


async def test_who_may_see_some_groups_has_a_list_of_these(tmp_path: Path) -> None:
    async with running(tmp_path) as stage:
        stage.allowed = {BILLING, TOPICS}
        code, items, errors, _ = await stage.run("list", "-o", "json")
        assert (code, [item["group"] for item in items], errors) == (0, [BILLING], [])
        code, items, errors, _ = await stage.run("at-risk", "-o", "json")
        assert (code, errors) == (1, [HIDDEN_GROUPS])


async def test_export_says_that_offsets_may_be_left_out(tmp_path: Path) -> None:
    async with running(tmp_path) as stage:
        stage.allowed = {GROUPS, INVOICES.topic}
        code, items, errors, said = await stage.run("export")
        # Nothing of a group is an error; a part of it may be all of it.
        assert [(item["group"], item["topic"]) for item in items] == [(BILLING, "invoices")]
        assert (code, errors) == (1, [(AUDIT, "TOPIC_AUTHORIZATION_FAILED")])
        assert "offsets of the others are not in the export" in said

        # The owner of a group sees it as before.
        stage.allowed = {BILLING, INVOICES.topic}
        code, items, errors, _ = await stage.run("describe", BILLING, "-o", "json")
        assert (code, len(items), errors) == (0, 1, [])
        code, items, errors, _ = await stage.run("describe", AUDIT, "-o", "json")
        assert (code, items, errors) == (1, [], [(AUDIT, "GROUP_AUTHORIZATION_FAILED")])


async def test_group_whose_offsets_are_all_hidden_is_named(tmp_path: Path) -> None:
    async with running(tmp_path) as stage:
        stage.allowed = {GROUPS, INVOICES.topic}
        for command in (("describe", AUDIT), ("at-risk", AUDIT), ("list", "--columns", "lag")):
            code, _, errors, _ = await stage.run(*command, "-o", "json")
            assert (code, errors) == (1, [(AUDIT, "TOPIC_AUTHORIZATION_FAILED")])


async def test_journal_that_may_not_be_seen_is_named(tmp_path: Path) -> None:
    async with running(tmp_path) as stage:
        code, items, errors, _ = await stage.run("journal", "-o", "json")
        assert (code, items, errors) == (0, [], [])
        stage.allowed = {GROUPS, INVOICES.topic}
        code, items, errors, _ = await stage.run("journal", "-o", "json")
        assert (code, items) == (1, [])
        assert errors == [(JOURNAL_TOPIC, "TOPIC_AUTHORIZATION_FAILED")]


HIDDEN_TOPICS = (
    "error: topics: you may not describe every topic, and brokers do not list the others; ask for "
    "DESCRIBE on all topics\n"
)


async def test_topics_that_are_not_listed_are_an_error_of_each_command(tmp_path: Path) -> None:
    whole = (
        ("cluster", "describe"),
        ("topics", "describe", "--under-replicated"),
        ("transactions", "find-hanging"),
    )
    lists = (("topics", "list"), ("topics", "describe"))
    async with running(tmp_path) as stage:
        stage.allowed = {GROUPS}
        for command in (*whole, *lists):
            code, _, said = await stage.print("kbroker", *command)
            assert (command, code, said) == (command, 1, HIDDEN_TOPICS)
        _, printed, _ = await stage.print("kbroker", "cluster", "describe", "-o", "json")
        assert json.loads(printed)["errors"][0]["error"] == "TOPIC_AUTHORIZATION_FAILED"

        # A broker that is not there has no replica, and nothing that could hang.
        stage.allowed = EVERYTHING
        command = ("transactions", "find-hanging", "--broker-id", "9")
        code, printed, said = await stage.print("kbroker", *command)
        assert (code, printed, said) == (1, "", "error: there is no broker 9; brokers: 1\n")

        # Who sees some has a list of these, with a note where people look.
        stage.allowed = {INVOICES.topic}
        for command in whole:
            code, _, said = await stage.print("kbroker", *command)
            assert (command, code, said) == (command, 1, HIDDEN_TOPICS)
        for command in lists:
            code, printed, said = await stage.print("kbroker", *command)
            assert (code, said, "invoices" in printed) == (0, "", True)
        _, _, said = await stage.print("kbroker", "topics", "list", "-o", "wide")
        assert said == HIDDEN_TOPICS.replace("error: topics", "note")
        code, _, said = await stage.print("kbroker", "topics", "describe", "secrets")
        assert (code, "no topic secrets, or you may not describe it" in said) == (1, True)

        stage.allowed = {TOPICS}
        for command in (*whole, *lists):
            code, _, said = await stage.print("kbroker", *command)
            assert (command, code, said) == (command, 0, "")


SETTINGS_OF_INVOICES = (
    "error: settings of invoices: TOPIC_AUTHORIZATION_FAILED: invoices; ask for DESCRIBE_CONFIGS "
    "on the topic\n"
)


async def test_settings_that_may_not_be_seen_are_named_and_the_rest_is_shown(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as stage:
        stage.denied = {(Operation.DESCRIBE_CONFIGS, "invoices")}
        code, printed, said = await stage.print("kbroker", "topics", "describe")
        assert (code, said) == (1, SETTINGS_OF_INVOICES)
        lines = printed.splitlines()
        assert "Topic: invoices\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: -" in lines
        assert "Topic: secrets\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: " in lines
        assert "\tTopic: invoices\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1" in lines
        code, printed, said = await stage.print("kbroker", "cluster", "describe")
        assert (code, said) == (1, SETTINGS_OF_INVOICES)
        assert "Under-min-ISR partitions: not known\nOffline partitions: none" in printed
        code, _, said = await stage.print("kbroker", "topics", "describe", "--under-min-isr")
        assert (code, said) == (1, SETTINGS_OF_INVOICES)

        # Nothing of these is shown there.
        for args in (("--under-replicated",), ("-o", "csv"), ("secrets",)):
            code, _, said = await stage.print("kbroker", "topics", "describe", *args)
            assert (args, code, said) == (args, 0, "")


async def test_settings_that_may_not_be_seen_put_what_is_at_risk_in_doubt(tmp_path: Path) -> None:
    async with running(tmp_path) as stage:
        stage.denied = {(Operation.DESCRIBE_CONFIGS, "invoices")}
        code, items, errors, _ = await stage.run("at-risk", "-o", "json")
        assert (code, items, errors) == (1, [], [("settings", "TOPIC_AUTHORIZATION_FAILED")])
        code, printed, said = await stage.print("kgroup", "at-risk")
        assert (code, printed) == (1, "\nnothing is lost within 4h 0m, as far as it can be told\n")
        assert said == (
            "error: settings: cannot be read, so times are missing: TOPIC_AUTHORIZATION_FAILED: "
            "invoices; ask for DESCRIBE_CONFIGS on the topic\n"
        )
        # A table is one without these columns.
        code, _, said = await stage.print("kgroup", "describe", BILLING, "-o", "wide")
        assert (code, "settings cannot be read, so times are missing: TOPIC_AUT" in said) == (
            0,
            True,
        )


@pytest.mark.parametrize(
    "command",
    [
        ("reset", BILLING, "--topic", "invoices", "--to-offset", "9", "--execute"),
        ("copy", AUDIT, "new"),
        ("rename", AUDIT, "new"),
        ("import",),
    ],
)
async def test_who_may_not_write_offsets_is_told_what_to_ask_for(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    async with running(tmp_path) as stage:
        code, exported, _ = await stage.print("kgroup", "export", BILLING)
        assert code == 0
        file = tmp_path / "exported"
        file.write_text(exported)
        args = (*command, str(file)) if command == ("import",) else command

        stage.denied = {(Operation.READ, BILLING), (Operation.READ, "new")}
        code, _, said = await stage.print("kgroup", *args)
        assert (code, "GROUP_AUTHORIZATION_FAILED; ask for READ on the group\n" in said) == (
            1,
            True,
        )
        stage.denied = {(Operation.READ, "invoices"), (Operation.READ, "secrets")}
        code, _, said = await stage.print("kgroup", *args)
        assert (code, "TOPIC_AUTHORIZATION_FAILED; ask for READ on the topic\n" in said) == (
            1,
            True,
        )


async def test_refused_offsets_that_were_there_already_are_not_done(tmp_path: Path) -> None:
    async with running(tmp_path) as stage:
        _, exported, _ = await stage.print("kgroup", "export", BILLING)
        file = tmp_path / "exported"
        file.write_text(exported)

        stage.denied = {(Operation.READ, BILLING)}
        reset = ("reset", BILLING, "--all-topics", "--to-offset", "0", "--execute", "-o", "json")
        code, items, errors, said = await stage.run(*reset)
        assert (code, items) == (1, [])
        assert errors == [(f"{BILLING} in kafka", "CommitFailed")]
        assert "is entry 1 (abandoned)" in said
        code, items, errors, _ = await stage.run("import", str(file), "-o", "json")
        assert (code, items, errors) == (1, [], [(f"{BILLING} in kafka", "CommitFailed")])
        _, entries, _, _ = await stage.run("journal", "-o", "json")
        assert [entry["status"] for entry in entries] == ["abandoned"] * 2

        # Who may is told of both.
        stage.denied = frozenset()
        code, items, _, said = await stage.run(*reset)
        assert (code, len(items), "is entry 3 (done)" in said) == (0, 2, True)
        code, items, _, _ = await stage.run("import", str(file), "-o", "json")
        assert (code, len(items)) == (0, 2)


async def test_transactions_and_log_directories_that_may_not_be_seen_are_an_error(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as stage:
        stage.allowed = {TOPICS}
        code, _, said = await stage.print("kbroker", "transactions", "list")
        assert (code, "ask for DESCRIBE on all transactional ids" in said) == (1, True)
        code, printed, said = await stage.print("kbroker", "log", "dirs")
        assert (code, '"logDirs":[]' in printed) == (1, True)
        assert said.endswith("may not see its log directories; ask for DESCRIBE on the cluster\n")

        stage.allowed = EVERYTHING
        for command in (("transactions", "list"), ("log", "dirs")):
            code, _, said = await stage.print("kbroker", *command)
            assert (code, said) == (0, "")
