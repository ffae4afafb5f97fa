"""Resets while a broker hangs, and commands that reset at the same time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from clients.admin import Admin, NewTopic
from clients.kgroup.reset import ResetJob, reset_groups
from clients.output import Target
from clients.reset_plan import Named
from protocol.internal_topics import JOURNAL_TOPIC
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.interop.kafka_cluster import unique
from tests.stage.cluster import DevCluster
from tests.stage.processes import frozen

TIMEOUT_MS = "3000"
TOGETHER = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """Two brokers: the first one has the journal, the second one the group's other partition."""
    with DevCluster(tmp_path_factory.mktemp("two"), ("--brokers", "2")) as cluster:
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


def test_a_leader_that_hangs_is_named_and_the_other_partitions_are_reset(
    cluster: DevCluster, topic: str
) -> None:
    group = asyncio.run(group_at(cluster, topic, 0))
    first = cluster.address("bootstrap").split(",")[0]
    with frozen(cluster.pid("broker-1")):
        result = cluster.run(
            *("kgroup", "reset", group, "--all-topics", "--to-earliest", "--execute"),
            *("-b", first, "--timeout", TIMEOUT_MS, "-o", "json"),
        )
    assert result.returncode == 1, result.stderr
    listing = json.loads(result.stdout)
    assert [(item["partition"], item["new_offset"]) for item in listing["items"]] == [(0, 0)], (
        result.stdout + result.stderr
    )
    assert [error["what"] for error in listing["errors"]] == [f"{topic}-1"]


def test_a_coordinator_that_hangs_is_named_and_the_other_group_is_reset(
    cluster: DevCluster, topic: str
) -> None:
    good = asyncio.run(group_at(cluster, topic, 0))
    bad = asyncio.run(group_at(cluster, topic, 1))
    first = cluster.address("bootstrap").split(",")[0]
    with frozen(cluster.pid("broker-1")):
        result = cluster.run(
            *("kgroup", "reset", bad, good, "--topic", f"{topic}:0", "--to-earliest"),
            *("--execute", "-b", first, "--timeout", TIMEOUT_MS, "-o", "json"),
        )
    assert result.returncode == 1, result.stderr
    listing = json.loads(result.stdout)
    assert [item["group"] for item in listing["items"]] == [good]
    assert [error["what"] for error in listing["errors"]] == [bad]


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
