"""A topic is deleted while commands, the tail of `serve` and consumers read it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from clients.admin import Admin, NewTopic
from clients.command_line.output import Target
from clients.command_line.sessions import Sessions
from clients.errors import BrokerError
from clients.fetch_requests import Isolation
from clients.high_level.connector import ConsumerConnector
from clients.kgroup.at_risk import risks_of
from clients.kgroup.health import health_of
from clients.kgroup.history import history_of
from clients.kgroup.partition_stream import Place, partition_stream
from clients.serve.monitor import Monitor
from clients.watching.group_watch import GroupWatch
from kgroup.testing.simulation import CLIENT, Cluster, Faults, simulate, until
from protocol.internal_topics import OFFSETS_TOPIC
from tests.clients.kgroup.bad_input.operator import (
    T0,
    TIMEOUT_MS,
    TIMES,
    U0,
    Operator,
    commit,
    errors_of,
    produce,
    rows_of,
)
from zk.znodes import ConsumerOffset

R = TypeVar("R")

KEPT_MS = 86_400_000
QUICK_S = TIMEOUT_MS / 1000
"""A topic that is gone is not waited for until the time-out of a request."""


async def delete(cluster: Cluster, topic: str) -> None:
    async with Admin(cluster.bootstrap) as admin:
        assert await admin.delete_topics([topic]) == {topic: None}


async def create(cluster: Cluster, topic: str) -> None:
    async with Admin(cluster.bootstrap) as admin:
        assert await admin.create_topics([NewTopic(topic, 1, 1)]) == {topic: None}


def while_deleted(ask: Callable[[Operator], Awaitable[R]], pause_s: float = 0.0) -> tuple[R, float]:
    """Ask while topic u, of which group g has consumed a part, is being deleted.

    That began `pause_s` before. Returns the result, and the seconds that it took.
    """

    async def scene(cluster: Cluster, faults: Faults) -> tuple[R, float]:
        operator = Operator.of(cluster)
        for partition in (T0, U0):
            await operator.run(lambda of=partition: produce(cluster, of, [b"a", b"b"]))
        for offset in (0, 1, 1):
            await operator.run(lambda at=offset: commit(cluster, "g", {T0: at, U0: at}))

        deleting = asyncio.create_task(cluster.client("deleter").run(lambda: delete(cluster, "u")))
        await asyncio.sleep(pause_s)
        began_s = cluster.world.now
        result = await ask(operator)
        took_s = cluster.world.now - began_s
        await deleting
        return result, took_s

    return simulate(scene, seed=1, brokers=1, topics={"t": 1, "u": 1})


@pytest.mark.parametrize("pause_s", [0.0, 0.05, 0.1, 0.15, 0.2])
def test_describe_shows_the_other_topic_with_its_times(pause_s: float) -> None:
    (listing, remarks), took_s = while_deleted(
        lambda operator: operator.describe(["g"], TIMES), pause_s
    )
    assert rows_of(listing, "lag")["g", "t-0"] == 1
    assert rows_of(listing, "time_lag_ms")["g", "t-0"] >= 0
    assert (errors_of(listing), [text for text in remarks if "cannot be read" in text]) == ({}, [])
    assert took_s < QUICK_S


def test_health_judges_the_other_topic() -> None:
    async def judge(operator: Operator) -> object:
        return await operator.run(lambda: health_of(operator.target, ["g"]))

    (listing, _), took_s = while_deleted(judge)
    assert "t-0" in {f"{item['topic']}-{item['partition']}" for item in listing.items}
    assert errors_of(listing) == {}
    assert took_s < QUICK_S


def test_history_has_the_commits_of_both_topics() -> None:
    async def read(operator: Operator) -> object:
        return await operator.run(lambda: history_of(operator.target, "g", (), 0, None))

    listing, took_s = while_deleted(read)
    assert {item["topic"] for item in listing.items} == {"t", "u"}
    assert errors_of(listing) == {}
    assert took_s < QUICK_S


def test_at_risk_tells_of_the_other_topic_without_a_doubt() -> None:
    async def find(operator: Operator) -> object:
        return await operator.run(lambda: risks_of(operator.target, ["g"], KEPT_MS * 30))

    (listing, doubts), took_s = while_deleted(find)
    assert "t" in {item["topic"] for item in listing.items}
    assert (doubts, errors_of(listing)) == ([], {})
    assert took_s < QUICK_S


def test_tail_of_serve_goes_on_and_the_topic_leaves_it(tmp_path: Path) -> None:
    """The group in ZooKeeper keeps its offset of the topic; the other one's goes with it."""

    async def scene(cluster: Cluster, faults: Faults) -> None:
        operator = Operator.of(cluster)
        await operator.run(lambda: commit(cluster, "g", {T0: 0, U0: 0}))
        await operator.run(lambda: watch(cluster))

    async def watch(cluster: Cluster) -> None:
        zk = await cluster.open_session()
        for partition in (T0, U0):
            path = ConsumerOffset.path("in-zookeeper", *partition)
            await zk.create(path, b"0", make_parents=True)

        async with Admin(CLIENT | {"bootstrap.servers": cluster.bootstrap}) as admin:
            monitor = Monitor(Sessions(admin, zk), tmp_path / "h", KEPT_MS, 1)
            await monitor.look()
            topics = {group: topics_of(monitor, group) for group in monitor.groups}
            assert topics == {"g": {"t", "u"}, "in-zookeeper": {"t", "u"}}

            await delete(cluster, "u")
            for _ in range(3):
                began_s = cluster.world.now
                await monitor.look()
                assert cluster.world.now - began_s < QUICK_S
                assert monitor.failures == []
            assert topics_of(monitor, "g") == {"t"}
            (row,) = [i for i in monitor.partitions("in-zookeeper") if i["topic"] == "u"]
            assert (row["current_offset"], row["log_end_offset"], row["lag"]) == (0, None, None)

            # A topic of the same name is another one.
            await create(cluster, "u")
            await produce(cluster, U0, [b"a"])
            await monitor.look()
            (row,) = [i for i in monitor.partitions("in-zookeeper") if i["topic"] == "u"]
            assert (row["log_end_offset"], row["lag"]) == (1, 1)
            monitor.close()

    simulate(scene, seed=1, brokers=1, topics={"t": 1, "u": 1})


def test_tail_begins_again_with_the_offsets_topic_when_that_is_made_again() -> None:
    """Its new log ends before the tail's place, and what the old one had is gone."""

    async def watch(cluster: Cluster) -> None:
        async with Admin(CLIENT | {"bootstrap.servers": cluster.bootstrap}) as admin:
            for offset in range(5):
                await commit(cluster, "g", {T0: offset})
            await commit(cluster, "gone", {T0: 0})
            tail = GroupWatch(admin)
            await tail.refresh()
            assert tail.groups.keys() == {"g", "gone"}

            # An operator's mistake; the next commit makes the topic again.
            await delete(cluster, OFFSETS_TOPIC)
            await commit(cluster, "g", {T0: 7})
            await tail.refresh()
            offsets = {name: group.offsets[T0].offset for name, group in tail.groups.items()}
            assert offsets == {"g": 7}

    async def scene(cluster: Cluster, faults: Faults) -> None:
        await cluster.client("serve").run(lambda: watch(cluster))

    simulate(scene, seed=1, brokers=1, topics={"t": 1})


def topics_of(monitor: Monitor, group: str) -> set[str]:
    return {item["topic"] for item in monitor.partitions(group)}


@pytest.mark.parametrize("membership", ["zookeeper", "coordinator"])
def test_member_goes_on_with_its_other_topic_and_finds_the_next_of_that_name(
    membership: str,
) -> None:
    async def scene(cluster: Cluster, faults: Faults) -> list[tuple[str, bytes]]:
        received: list[tuple[str, bytes]] = []

        async def consume() -> None:
            config = CLIENT | {"group.id": "g", "auto.offset.reset": "smallest"}
            if membership == "coordinator":
                config |= {"membership": "coordinator", "bootstrap.servers": cluster.bootstrap}
                config |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000}
                connector = ConsumerConnector(config)
            else:
                config |= {"zookeeper.connect": "zk:2181"}
                connector = ConsumerConnector(config, zk=await cluster.open_session())
            streams = await connector.create_message_streams({"t": 1, "u": 1})

            async def read(topic: str) -> None:
                async for message in streams[topic][0]:
                    received.append((message.topic, message.value))

            await asyncio.gather(read("t"), read("u"))

        async def does(work: Callable[[], Awaitable[None]], number: int) -> None:
            await cluster.client("other").run(work)
            await until(lambda: len(received) == number, f"{number} messages")

        cluster.client("member").spawn(consume())
        # A position that the new log has too would be taken for one in it, as by stock clients.
        await does(lambda: produce(cluster, U0, [b"old", b"old"]), 2)
        await does(lambda: delete(cluster, "u"), 2)
        await asyncio.sleep(10)
        await does(lambda: produce(cluster, T0, [b"meanwhile"]), 3)
        await does(lambda: create(cluster, "u"), 3)
        await does(lambda: produce(cluster, U0, [b"new"]), 4)
        return received

    received = simulate(scene, seed=1, brokers=1, topics={"t": 1, "u": 1})
    assert received == [*[("u", b"old")] * 2, ("t", b"meanwhile"), ("u", b"new")]


def test_stream_of_one_partition_ends_and_names_the_topic() -> None:
    async def scene(cluster: Cluster, faults: Faults) -> list[bytes | None]:
        received: list[bytes | None] = []

        async def consume() -> None:
            target = Target(cluster.bootstrap, None, {}, TIMEOUT_MS)
            async with partition_stream(
                target, Place("u", 0, None, 0, 1 << 20, Isolation.READ_UNCOMMITTED, {}), None
            ) as stream:
                received.append((await anext(stream)).value)
                await delete(cluster, "u")
                with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION: u-0"):
                    await anext(stream)

        await cluster.client("admin").run(lambda: produce(cluster, U0, [b"a"]))
        await cluster.client("reader").run(consume)
        return received

    assert simulate(scene, seed=1, brokers=1, topics={"u": 1}) == [b"a"]
