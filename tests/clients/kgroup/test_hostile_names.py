"""What strangers call groups and clients, and write into commits, in every output of a command."""

from __future__ import annotations

import asyncio
import csv
import json
from contextlib import closing

import click
import pytest
from kafka import KafkaConsumer

from clients.admin import Admin
from clients.kgroup.reset import print_csv
from clients.resets.reset import ResetPlan
from protocol.topic_partition import OffsetAndMetadata
from tests.clients.kgroup.reset_stage import ResetStage, filled_dev
from tests.stage.cluster import DevCluster
from tests.stage.waiting import block_until

EVIL = "\x1b]0;owned\x07\nerror: everything is lost\x9b2J\u202e"
SAFE = r"\x1b]0;owned\x07\nerror: everything is lost\x9b2J\u202e"
FORMATS = ("table", "wide", "json", "csv")


async def commit(stage: ResetStage) -> None:
    async with Admin(stage.bootstrap) as admin:
        await admin.commit_group_offsets(EVIL, {stage.t0: OffsetAndMetadata(3, EVIL)})


@pytest.fixture(scope="module")
def stage(dev_cluster: DevCluster) -> ResetStage:
    """Fill the topic, and have a group whose names are hostile: one has been, one is a member."""
    stage = filled_dev(dev_cluster)
    asyncio.run(commit(stage))
    # Not our own consumer: others have such names.
    member = KafkaConsumer(
        stage.topic,
        bootstrap_servers=stage.bootstrap,
        group_id=EVIL,
        client_id=EVIL,
        enable_auto_commit=False,
    )

    def has_joined() -> bool:
        member.poll(200)
        return [*stage.items("describe", EVIL, "--members")] != []

    with closing(member):
        block_until(has_joined, "a member with a hostile name")
    return stage


@pytest.mark.fault("security-12")
@pytest.mark.parametrize("output", FORMATS)
@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["describe", EVIL],
        ["describe", EVIL, "--members"],
        ["describe", EVIL, "--state"],
        ["health", EVIL],
        ["history", EVIL],
        ["events", EVIL],
        ["at-risk"],
        ["top", "--once"],
        ["reset", EVIL, "--all-topics", "--to-earliest"],
        ["reset", EVIL, "--all-topics", "--to-latest", "--execute", "--reason", EVIL],
        ["journal"],
        ["simulate", EVIL],
        ["delete-offsets", EVIL, "--topic", EVIL],
        ["delete", f"{EVIL}2"],
        ["copy", f"{EVIL}2", "other"],
        ["offsets", "--topic", EVIL],
    ],
    ids=lambda words: "-".join(word for word in words if word.isprintable()),
)
def test_no_output_has_what_a_terminal_obeys(
    stage: ResetStage, words: list[str], output: str
) -> None:
    result = stage.run(*words, "-o", output)
    assert not isinstance(result.exception, Exception), result.output
    lines = (result.stdout + result.stderr).split("\n")
    assert [line for line in lines if not line.isprintable()] == []
    assert [line for line in lines if line.startswith("error: everything")] == []


def test_json_has_the_name_itself_and_csv_that_of_the_table(stage: ResetStage) -> None:
    assert EVIL in {item["group"] for item in stage.items("list")}
    rows = list(csv.reader(stage.run("list", "-o", "csv").stdout.splitlines()))
    assert SAFE in {row[0] for row in rows}
    asyncio.run(commit(stage))  # a reset has no metadata
    exported = json.loads(stage.run("export", EVIL, "--store", "kafka").stdout)["items"]
    assert [(item["group"], item["metadata"]) for item in exported] == [(EVIL, EVIL)]


@pytest.mark.fault("security-12")
def test_a_plan_of_several_groups_names_none_by_another_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(click.exceptions.Exit):
        print_csv([ResetPlan(EVIL, ()), ResetPlan("g", ())], [])
    assert capsys.readouterr().err.startswith(f"error: {SAFE}: no line of CSV can have its name")
    print_csv([ResetPlan(EVIL, ())], [])
