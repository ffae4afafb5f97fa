"""The scenes of docs/events.md, played on a real cluster: `kgroup events` says what the page shows.

All scenes are played at once, each in a group of its own, which has the name of its trigger. What
differs from run to run is folded: times, ids, and who was late by some seconds.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest

from clients.admin import Admin, NewPartitions, NewTopic
from clients.errors import ClientError
from clients.high_level.connector import ConsumerConnector
from clients.kgroup.events import read_events, sources
from clients.producer.producer import Producer
from clients.simple_consumer import SimpleConsumer
from clients.transport.connection import Connection
from groups.zookeeper.filters import Whitelist
from protocol.consumer_protocol import (
    Assignment,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from protocol.errors import ApiError, ErrorCode
from protocol.internal_topics import EVENTS_TOPIC
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from protocol.topic_partition import TopicPartition
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT
from tests.stage.waiting import until

GUIDE = (ROOT / "docs" / "events.md").read_text()
SHOWN: Mapping[str, str] = dict(
    re.findall(r"^### `(\w+)`\n.*?```text\n(.*?)\n```", GUIDE, re.MULTILINE | re.DOTALL)
)
"""What the page shows, by trigger."""

PARTITIONS = 4
SETTINGS = ("--set", "offsets.topic.num.partitions=1")
LONG_MS = 45_000
SHORT_MS = 6000
"""The least session that a broker takes by its defaults."""

FOLDED = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
    (r"TIME +\d+\.\d s", "TIME STOOD"),
    # Late by some seconds; "never" stays.
    (r", \S+ \d+\.\d s(?= )", ""),
    (r"(?<= )\S+ \d+\.\d s(?= )", "-"),
    (r"rebalances? in \d+ s", "rebalances in N s"),
    (r"one message for [\d.]+ m?s", "one message for N"),
    (r"-[0-9a-f]{8}-?[0-9a-f-]{27}", "-ID"),
    (r" +", " "),
)


def fold(text: str) -> list[str]:
    for pattern, replacement in FOLDED:
        text = re.sub(pattern, replacement, text)
    return [line.strip() for line in text.strip().splitlines()]


# ---- the stage


@attrs.define(eq=False)
class Stage:
    """A cluster, and the group and topic of one scene."""

    cluster: DevCluster
    group: str

    @property
    def bootstrap(self) -> str:
        return self.cluster.address("bootstrap")

    @property
    def topic(self) -> str:
        return f"{self.group}.flights"

    async def create_topic(self, name: str) -> None:
        async with Admin(self.bootstrap) as admin:
            assert await admin.create_topics([NewTopic(name, PARTITIONS, 1)]) == {name: None}

    @asynccontextmanager
    async def member(
        self,
        name: str,
        work: Callable[[], Awaitable[object]] | None = None,
        **settings: Any,
    ) -> AsyncIterator[ConsumerConnector]:
        """A member of ours that reads the group's topics to the end of the block."""
        connector = ConsumerConnector(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "client.id": name,
                "membership": "coordinator",
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 100,
                "metadata.max.age.ms": 200,
                **{key.replace("_", "."): value for key, value in settings.items()},
            }
        )

        async def read(stream: Any) -> None:
            async for _ in stream:
                if work is not None:
                    await work()

        async with connector, asyncio.TaskGroup() as tasks:
            topics = Whitelist(re.escape(self.group) + r"\..*")
            (stream,) = await connector.create_message_streams_by_filter(topics)
            tasks.create_task(read(stream))
            yield connector
            await connector.shutdown()

    async def until_events(self, number: int) -> None:
        """Return when the group has so many events."""

        async def count() -> bool:
            settings = {"bootstrap.servers": self.bootstrap}
            partition = TopicPartition(EVENTS_TOPIC, 0)
            async with await SimpleConsumer.for_leader(settings, *partition) as consumer:
                events = 0
                source, _ = sources(self.group)
                async for _, event in read_events(consumer, source, partition, 0):
                    events += event is not None
                    if event is None:
                        return events >= number
            return False

        await until(
            count, f"{number} events of {self.group}", pause_s=0.1, retry_on=(ClientError, ApiError)
        )

    async def show(self) -> list[str]:
        """Wait for as many events as the page shows; return what the command shows."""
        await self.until_events(SHOWN[self.group].count("\n20"))
        done = await asyncio.to_thread(self.cluster.run, "kgroup", "events", self.group)
        assert done.returncode == 0, done.stderr
        return fold(done.stdout)


@attrs.define(eq=False)
class RawMember:
    """A member that does what it is told to, and sends no heartbeats."""

    connection: Connection
    stage: Stage
    session_timeout_ms: int = LONG_MS
    rebalance_timeout_ms: int = LONG_MS
    member_id: str = ""
    generation_id: int = -1

    async def join(self, reason: str = "the consumer joins") -> None:
        """Join, twice if an id is handed out first."""
        subscription = Subscription((self.stage.topic,))
        request = JoinGroupRequest(
            group_id=self.stage.group,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name="range", metadata=encode_subscription(subscription))
            ],
            reason=reason,
        )
        response = await self.connection.call(request)
        self.member_id = response.member_id
        if ErrorCode.of(response.error_code) is ErrorCode.MEMBER_ID_REQUIRED:
            await self.join(reason)
            return
        assert response.error_code == 0
        self.generation_id = response.generation_id

    async def sync(self, *partitions: int) -> None:
        """Ask for the assignment, or assign so many partitions to itself."""
        given = Assignment(tuple(TopicPartition(self.stage.topic, p) for p in partitions))
        own = SyncGroupRequestAssignment(
            member_id=self.member_id, assignment=encode_assignment(given)
        )
        response = await self.connection.call(
            SyncGroupRequest(
                group_id=self.stage.group,
                generation_id=self.generation_id,
                member_id=self.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[own] if partitions else [],
            )
        )
        assert response.error_code == 0


@asynccontextmanager
async def raw_member(stage: Stage, name: str, **timeouts: int) -> AsyncIterator[RawMember]:
    host, _, port = stage.bootstrap.rpartition(":")
    connection = await Connection.open(host, int(port), client_id=name)
    try:
        yield RawMember(connection, stage, **timeouts)
    finally:
        await connection.close()


# ---- the scenes


async def member_joined(stage: Stage) -> list[str]:
    async with stage.member("m1"):
        await stage.until_events(1)
        async with stage.member("m2"):
            return await stage.show()


async def member_left(stage: Stage) -> list[str]:
    async with stage.member("m1"):
        await stage.until_events(1)
        async with stage.member("m2"):
            await stage.until_events(2)
        await stage.until_events(3)
        async with stage.member("m2"):
            return await stage.show()


async def member_kicked(stage: Stage) -> list[str]:
    async with stage.member("m1"):
        await stage.until_events(1)
        kick = ("kgroup", "kick", stage.group, "--all", "--reason", "maintenance")
        done = await asyncio.to_thread(stage.cluster.run, *kick)
        assert done.returncode == 0, done.stderr
        return await stage.show()


async def session_expired(stage: Stage) -> list[str]:
    async with (
        stage.member("m1"),
        raw_member(stage, "m2", session_timeout_ms=SHORT_MS) as silent,
    ):
        await stage.until_events(1)
        await silent.join()
        await silent.sync()
        return await stage.show()


async def poll_interval_exceeded(stage: Stage) -> list[str]:
    async with Producer({"bootstrap.servers": stage.bootstrap}) as producer:
        await producer.send_and_wait(stage.topic, b"a message that takes long")

    async def work() -> None:
        await stage.until_events(2)  # until others have it

    async with stage.member("m3", work, max_poll_interval_ms=SHORT_MS):
        return await stage.show()


async def rebalance_timed_out(stage: Stage) -> list[str]:
    async with (
        stage.member("m1", max_poll_interval_ms=SHORT_MS),
        raw_member(stage, "m2", rebalance_timeout_ms=SHORT_MS) as silent,
    ):
        await stage.until_events(1)
        await silent.join()
        return await stage.show()


async def subscription_changed(stage: Stage) -> list[str]:
    async with stage.member("m1"):
        await stage.until_events(1)
        await stage.create_topic(f"{stage.group}.trains")
        return await stage.show()


async def partitions_added(stage: Stage) -> list[str]:
    async with stage.member("m1"):
        await stage.until_events(1)
        async with Admin(stage.bootstrap) as admin:
            added = {stage.topic: NewPartitions(PARTITIONS + 2)}
            assert await admin.create_partitions(added) == {stage.topic: None}
        return await stage.show()


async def topic_deleted(stage: Stage) -> list[str]:
    trains = f"{stage.group}.trains"
    await stage.create_topic(trains)
    async with stage.member("m1"):
        await stage.until_events(1)
        async with Admin(stage.bootstrap) as admin:
            assert await admin.delete_topics([trains]) == {trains: None}
        return await stage.show()


async def leader_rejoined(stage: Stage) -> list[str]:
    async with raw_member(stage, "m1") as leader:
        await leader.join()
        await leader.sync(*range(PARTITIONS))
        await leader.join("rebalance enforced by user")
        await leader.sync(*range(PARTITIONS))
        return await stage.show()


async def static_member_replaced(stage: Stage) -> list[str]:
    async with stage.member("m1", group_instance_id="host-1"):
        await stage.until_events(1)
    async with stage.member("m1", group_instance_id="host-1"):
        return await stage.show()


async def coordinator_loaded(stage: Stage) -> list[str]:
    async with stage.member("m1"):
        await stage.until_events(1)
        await asyncio.to_thread(stage.cluster.kill, "broker-0")
        with stage.cluster.started_again():
            return await stage.show()


SCENES: Mapping[str, Callable[[Stage], Awaitable[list[str]]]] = {
    "member_joined": member_joined,
    "member_left": member_left,
    "member_kicked": member_kicked,
    "session_expired": session_expired,
    "poll_interval_exceeded": poll_interval_exceeded,
    "rebalance_timed_out": rebalance_timed_out,
    "subscription_changed": subscription_changed,
    "partitions_added": partitions_added,
    "topic_deleted": topic_deleted,
    "leader_rejoined": leader_rejoined,
    "static_member_replaced": static_member_replaced,
}
LAST_SCENE = "coordinator_loaded"
"""This one kills the broker of all."""


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, object]]:
    """What the command shows of each scene, or how the scene failed."""

    async def play(cluster: DevCluster) -> Mapping[str, object]:
        stages = [Stage(cluster, trigger) for trigger in (*SCENES, LAST_SCENE)]
        for stage in stages:
            await stage.create_topic(stage.topic)
        async with Admin(cluster.address("bootstrap")) as admin:
            await admin.group_offsets("nobody")  # makes the offsets topic
        *others, last = stages
        outputs = await asyncio.gather(
            *(SCENES[stage.group](stage) for stage in others), return_exceptions=True
        )
        outputs += await asyncio.gather(coordinator_loaded(last), return_exceptions=True)
        return {stage.group: output for stage, output in zip(stages, outputs, strict=True)}

    with DevCluster(tmp_path_factory.mktemp("events") / "dev", SETTINGS) as cluster:
        yield asyncio.run(play(cluster))


@pytest.mark.parametrize("trigger", [*SCENES, LAST_SCENE])
def test_command_says_of_each_cause_what_the_page_shows(
    played: Mapping[str, object], trigger: str
) -> None:
    output = played[trigger]
    if isinstance(output, BaseException):
        raise output
    assert output == fold(SHOWN[trigger])
