"""One group id, two memberships; and the events of groups in ZooKeeper. On a real cluster."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from clients.admin import Admin, NewTopic
from clients.errors import MembershipConflict
from clients.high_level.connector import ConsumerConnector
from clients.high_level.group_events import GroupEventSender
from clients.high_level.other_kind import COORDINATOR_KIND, ZOOKEEPER_KIND, conflict_event
from groups.group_event import ZOOKEEPER
from tests.stage.cluster import DevCluster
from tests.stage.waiting import until

TOPIC = "flights"
SETTINGS = (
    *("--set", "group.initial.rebalance.delay.ms=0"),
    *("--set", "offsets.topic.num.partitions=3"),
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    async def fill(bootstrap: str) -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topics([NewTopic(TOPIC, 4, 1)])

    with DevCluster(tmp_path_factory.mktemp("kinds") / "dev", SETTINGS) as cluster:
        asyncio.run(fill(cluster.address("bootstrap")))
        yield cluster


def connector(cluster: DevCluster, group: str, membership: str, **settings: Any) -> Any:
    where = {
        "zookeeper": {"zookeeper.connect": cluster.address("zookeeper")},
        "coordinator": {"bootstrap.servers": cluster.address("bootstrap")},
    }
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return ConsumerConnector(
        {"group.id": group, "membership": membership, **where[membership], **named}
    )


@asynccontextmanager
async def member(
    cluster: DevCluster, group: str, membership: str, **settings: Any
) -> AsyncIterator[ConsumerConnector]:
    """A member that has joined."""
    async with connector(cluster, group, membership, **settings) as joined:
        await joined.create_message_streams({TOPIC: 1})
        yield joined


async def events(cluster: DevCluster, group: str) -> list[dict[str, Any]]:
    """The events of a group, as the command shows them."""
    done = await asyncio.to_thread(cluster.run, "kgroup", "events", group, "-o", "json")
    return list(json.loads(done.stdout)["items"]) if done.returncode == 0 else []


async def make_topic_of_events(cluster: DevCluster) -> None:
    """Let a group at the coordinator have its first event, for which the topic is made."""
    group = "makes-the-topic"
    async with member(cluster, group, "coordinator"):
        await until(lambda: events(cluster, group), "its first event")


@pytest.mark.parametrize(
    ("first", "second", "place"),
    [
        ("zookeeper", "coordinator", ZOOKEEPER_KIND.place),
        ("coordinator", "zookeeper", COORDINATOR_KIND.place),
    ],
)
def test_member_does_not_start_beside_members_of_the_other_kind(
    cluster: DevCluster, first: str, second: str, place: str
) -> None:
    async def scene() -> None:
        group = f"first-{first}"
        async with member(cluster, group, first) as there:
            refused = connector(cluster, group, second)
            with pytest.raises(MembershipConflict, match=f"group {group} has members {place} too"):
                await refused.create_message_streams({TOPIC: 1})

            # It is shut down, and has left nothing in the group.
            assert refused.streams == {} or not refused.assignment()
            assert len(there.assignment()) == 4
            done = await asyncio.to_thread(
                cluster.run,
                *("kgroup", "consume", "--topic", TOPIC, "--group", group),
                *("--membership", second, "--timeout-ms", "1000"),
            )
            assert done.returncode == 1
            assert f"set membership={first}" in done.stderr

        # With the last member of that kind the group is free for the other.
        async with member(cluster, group, second) as successor:
            assert len(successor.assignment()) == 4

    asyncio.run(scene())


def test_describe_says_that_a_group_has_members_of_both_kinds(cluster: DevCluster) -> None:
    async def scene() -> str:
        async with member(cluster, "both", "coordinator"), cluster.zookeeper_session() as zk:
            registration = b'{"version":1,"subscription":{"flights":1},"pattern":"static"}'
            path = "/consumers/both/ids/both_jvm"
            await zk.create(path, registration, ephemeral=True, make_parents=True)
            done = await asyncio.to_thread(cluster.run, "kgroup", "describe", "both")
            assert done.returncode == 0, done.stderr
            return done.stderr

    assert "has members in ZooKeeper and at its coordinator" in asyncio.run(scene())


def test_group_in_zookeeper_has_events_once_there_is_a_topic_for_them(cluster: DevCluster) -> None:
    async def scene() -> Any:
        await make_topic_of_events(cluster)
        async with member(cluster, "old", "zookeeper", consumer_id="a") as first:
            async with member(cluster, "old", "zookeeper", consumer_id="b"):
                await until(lambda: len(first.assignment()) == 2, "sharing")
            await until(lambda: len(first.assignment()) == 4, "all partitions")
            return await until(three_events, "events")

    async def three_events() -> list[dict[str, Any]] | None:
        items = await events(cluster, "old")
        return items if len(items) == 3 else None

    alone, joined, left = asyncio.run(scene())
    assert [event["trigger"] for event in (alone, joined, left)] == [
        "member_joined",
        "member_joined",
        "member_left",
    ]
    assert {event["coordination"] for event in (alone, joined, left)} == {"zookeeper"}
    assert (joined["generation_before"], joined["generation_after"]) == (None, None)
    assert (joined["members_added"], joined["members_kept"]) == (["old_b"], ["old_a"])
    assert (left["members_gone"], left["partitions_moved"]) == (["old_b"], 2)


def test_group_with_both_kinds_has_an_event_that_says_so(cluster: DevCluster) -> None:
    async def scene() -> None:
        await make_topic_of_events(cluster)
        async with member(cluster, "asks", "coordinator") as coordinated:
            sender: GroupEventSender = coordinated._side._events  # type: ignore[attr-defined]
            now_ms = time.time_ns() // 1_000_000
            sender.add(conflict_event("doubled", ZOOKEEPER, "it has members of both", now_ms))
            await until(lambda: events(cluster, "doubled"), "the event")

    asyncio.run(scene())
    done = cluster.run("kgroup", "events", "doubled", "-o", "wide")
    assert "two_memberships" in done.stdout, done.stdout
    assert "it has members of both" in done.stdout, done.stdout
