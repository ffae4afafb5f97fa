"""Resets while a broker hangs, and commands that reset at the same time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from clients.admin import Admin, NewTopic
from clients.command_line.output import Target
from clients.kgroup.reset import ResetJob, reset_groups
from clients.resets.reset_plan import Named
from protocol.internal_topics import JOURNAL_TOPIC
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.interop.kafka_cluster import unique
from tests.stage.cluster import DevCluster
from tests.stage.processes import frozen
from tests.stage.waiting import block_until

TIMEOUT_MS = "3000"
SESSION_MS = 60_000
"""Longer than a broker hangs here: nobody may take its place."""
TOGETHER = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """Two brokers: the first one has the journal, the second one the group's other partition."""
    args = ("--brokers", "2", "--set", f"zookeeper.session.timeout.ms={SESSION_MS}")
    with DevCluster(tmp_path_factory.mktemp("two"), args) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def topic(cluster: DevCluster) -> str:
    """Make topics, and return the one of the groups."""
    topic = unique("t")
    compacted = {"cleanup.policy": "compact"}

    async def create() -> None:
        async with Admin(cluster.address("bootstrap")) as admin:
            topics = [
                NewTopic(topic, assignments={0: [0], 1: [1]}),
                NewTopic(JOURNAL_TOPIC, assignments={0: [0]}, configs=compacted),
            ]
            assert set((await admin.create_topics(topics)).values()) == {None}

    asyncio.run(create())
    return topic


async def group_at(cluster: DevCluster, topic: str, broker_id: int) -> str:
    """Make a group that this broker coordinates."""
    async with Admin(cluster.address("bootstrap")) as admin:
        while True:
            group = unique("g")
            described = (await admin.describe_groups([group]))[group]
            if described.coordinator.node_id == broker_id:
                break
        offsets = {TopicPartition(topic, number): OffsetAndMetadata(5) for number in (0, 1)}
        await admin.commit_group_offsets(group, offsets)
    return group


async def committed(cluster: DevCluster, group: str, topic: str) -> int:
    """Return the group's offset of partition 0."""
    async with Admin(cluster.address("bootstrap")) as admin:
        return (await admin.group_offsets(group))[TopicPartition(topic, 0)].offset


def run_on_the_first(cluster: DevCluster, *args: str) -> dict[str, Any]:
    """Run a command that finds the first broker only; return the JSON of its failure."""
    first = cluster.address("bootstrap").split(",")[0]
    result = cluster.run("kgroup", *args, "-b", first, "--timeout", TIMEOUT_MS, "-o", "json")
    assert result.returncode == 1, result.stdout + result.stderr
    listing: dict[str, Any] = json.loads(result.stdout)
    return listing


def test_a_leader_that_hangs_is_named_and_the_other_partitions_are_planned(
    cluster: DevCluster, topic: str
) -> None:
    group = asyncio.run(group_at(cluster, topic, 0))
    with frozen(cluster.pid("broker-1")):
        listing = run_on_the_first(cluster, "reset", group, "--all-topics", "--to-earliest")
    assert [(item["partition"], item["new_offset"]) for item in listing["items"]] == [(0, 0)]
    assert [error["what"] for error in listing["errors"]] == [f"{topic}-1"]


def test_a_coordinator_that_hangs_is_named_and_the_other_group_is_planned(
    cluster: DevCluster, topic: str
) -> None:
    good = asyncio.run(group_at(cluster, topic, 0))
    bad = asyncio.run(group_at(cluster, topic, 1))
    where = ("--topic", f"{topic}:0", "--to-earliest")
    with frozen(cluster.pid("broker-1")):
        listing = run_on_the_first(cluster, "reset", bad, good, *where)
    assert [item["group"] for item in listing["items"]] == [good]
    assert [error["what"] for error in listing["errors"]] == [bad]


def test_a_commit_that_is_not_answered_leaves_its_entry_begun_until_it_is_settled(
    cluster: DevCluster, topic: str
) -> None:
    group = asyncio.run(group_at(cluster, topic, 0))
    where = ("--topic", f"{topic}:0", "--to-earliest", "--execute")

    # The coordinator waits for the other replica of its log, which hangs.
    with frozen(cluster.pid("broker-1")):
        listing = run_on_the_first(cluster, "reset", group, *where)
    assert listing["items"] == []
    what, number = listing["errors"][-1]["what"].rsplit(" ", 1)
    assert what == "journal entry"

    # The commit comes through after all.
    block_until(lambda: asyncio.run(committed(cluster, group, topic)) == 0, "the late commit")
    settled = cluster.run("kgroup", "journal", "--settle", number, "-o", "json")
    assert [item["status"] for item in json.loads(settled.stdout)["items"]] == ["done"]


def test_resets_at_the_same_time_have_entries_of_their_own(cluster: DevCluster, topic: str) -> None:
    groups = [asyncio.run(group_at(cluster, topic, 0)) for _ in range(TOGETHER)]
    target = Target(cluster.address("bootstrap"), None, {}, 30_000)

    def reset(group: str) -> int:
        job = ResetJob(
            [group],
            Named.EARLIEST,
            None,
            None,
            execute=True,
            online=False,
            reason=None,
            keep_ms=86_400_000,
        )
        return asyncio.run(reset_groups(target, job)).outcomes[group].entry.id

    with ThreadPoolExecutor(TOGETHER) as threads:
        numbers = dict(zip(threads.map(reset, groups), groups, strict=True))

    listed = json.loads(cluster.run("kgroup", "journal", "-o", "json").stdout)["items"]
    entries = {item["id"]: (item["group"], item["status"]) for item in listed}
    assert {number: entries[number] for number in numbers} == {
        number: (group, "done") for number, group in numbers.items()
    }
    assert len(numbers) == TOGETHER
