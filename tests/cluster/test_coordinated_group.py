"""Our members in a group at the coordinator, on a real cluster, with its commands."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import attrs
import pytest

from clients.admin import Admin, NewTopic
from clients.high_level.connector import ConsumerConnector
from clients.producer.producer import Producer
from groups.consumer.member_failed import MemberFailed
from offsets.store_errors import CommitFailed
from protocol.errors import ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT, command_line
from tests.stage.waiting import DEADLINE_S, until

TOPIC = "flights"
PARTITIONS = 6
MESSAGES = 600
SETTINGS = (
    *("--set", "group.initial.rebalance.delay.ms=0", "--set", "group.min.session.timeout.ms=500"),
    *("--set", "offsets.topic.num.partitions=5"),
)
EVERYTHING = {TopicPartition(TOPIC, number) for number in range(PARTITIONS)}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    with DevCluster(tmp_path_factory.mktemp("groups") / "dev", SETTINGS) as cluster:
        asyncio.run(fill(cluster.address("bootstrap")))
        yield cluster


async def fill(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin, Producer({"bootstrap.servers": bootstrap}) as producer:
        await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
        for number in range(MESSAGES):
            await producer.send(TOPIC, str(number).encode(), partition=number % PARTITIONS)
        await producer.flush()


@attrs.define(eq=False)
class Reader:
    """A member and what its streams have handed out. `work` is done with each message."""

    connector: ConsumerConnector
    work: Callable[[int], None]
    handed_out: list[int] = attrs.field(factory=list)

    async def read(self, stream: Any) -> None:
        async for message in stream:
            self.handed_out.append(int(message.value))
            self.work(len(self.handed_out))

    @property
    def owned(self) -> set[TopicPartition]:
        return {feed.partition for feed in self.connector._delivery.owned}


@asynccontextmanager
async def member(
    cluster: DevCluster,
    group: str,
    work: Callable[[int], None] = lambda number: None,
    num_streams: int = 1,
    listener: Any = None,
    **settings: Any,
) -> AsyncIterator[Reader]:
    """A member that reads until the end of the block."""
    connector = ConsumerConnector(
        {
            "bootstrap.servers": cluster.address("bootstrap"),
            "group.id": group,
            "membership": "coordinator",
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 200,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    if listener is not None:
        connector.set_consumer_rebalance_listener(listener)
    async with connector, asyncio.TaskGroup() as tasks:
        streams = await connector.create_message_streams({TOPIC: num_streams})
        reader = Reader(connector, work)
        for stream in streams[TOPIC]:
            tasks.create_task(reader.read(stream))
        yield reader
        await connector.shutdown()


def events(cluster: DevCluster, group: str) -> list[dict[str, Any]]:
    """The events of a group, as the command shows them."""
    done = cluster.run("kgroup", "events", group, "-o", "json")
    return list(json.loads(done.stdout)["items"]) if done.returncode == 0 else []


@contextmanager
def follow_events(cluster: DevCluster, group: str) -> Iterator[subprocess.Popen[str]]:
    """Run `kgroup events --follow` until the end of the block."""
    process = subprocess.Popen(
        command_line("kgroup", "events", group, "--follow", "-o", "json"),
        cwd=ROOT,
        env=cluster.env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_events_are_followed_until_a_signal_comes(cluster: DevCluster) -> None:
    async def scene() -> None:
        async with member(cluster, "followed") as first:
            await until(lambda: first.owned == EVERYTHING, "all partitions")
            with follow_events(cluster, "followed") as following:
                assert following.stdout is not None
                joined = await asyncio.to_thread(following.stdout.readline)
                assert json.loads(joined)["trigger"] == "member_joined"

                # A rebalance that comes later is shown too.
                async with member(cluster, "followed"):
                    another = await asyncio.to_thread(following.stdout.readline)
                assert json.loads(another)["generation_after"] == 2
                following.send_signal(signal.SIGINT)
                _, said = await asyncio.to_thread(following.communicate, timeout=DEADLINE_S)
                assert (following.returncode, said) == (0, "")

    asyncio.run(scene())


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_members_share_the_partitions_and_each_message_is_handed_out_once(
    cluster: DevCluster, strategy: str
) -> None:
    async def scene() -> None:
        group = f"share-{strategy}"
        options = {"partition_assignment_strategy": strategy}
        async with member(cluster, group, **options) as first:
            await until(lambda: len(first.handed_out) == MESSAGES, "all messages")
            async with member(cluster, group, num_streams=2, **options) as second:
                await until(lambda: len(first.owned) == 3 and len(second.owned) == 3, "sharing")
                assert first.owned | second.owned == EVERYTHING
            await until(lambda: first.owned == EVERYTHING, "all partitions again")
            assert sorted(first.handed_out + second.handed_out) == list(range(MESSAGES))

    asyncio.run(scene())


def test_loop_that_is_busy_for_longer_than_a_session_keeps_its_membership(
    cluster: DevCluster,
) -> None:
    def compute(number: int) -> None:
        if number == 5:
            time.sleep(3)  # what an application does that computes on the loop

    async def scene() -> None:
        async with member(cluster, "busy", compute, session_timeout_ms=1000) as reader:
            await until(lambda: len(reader.handed_out) == MESSAGES, "all messages")

    asyncio.run(scene())
    triggers = [event["trigger"] for event in events(cluster, "busy")]
    assert triggers == ["member_joined", "member_left"]


def test_application_that_works_too_long_leaves_and_comes_back(cluster: DevCluster) -> None:
    def compute(number: int) -> None:
        if number == 5:
            time.sleep(2.5)

    async def scene() -> None:
        async with member(cluster, "slow", compute, max_poll_interval_ms=1000) as reader:
            await until(lambda: len(set(reader.handed_out)) == MESSAGES, "all messages")

    asyncio.run(scene())
    triggers = [event["trigger"] for event in events(cluster, "slow")]
    assert triggers == ["member_joined", "poll_interval_exceeded", "member_joined", "member_left"]


def test_static_member_that_restarts_makes_nobody_rebalance(cluster: DevCluster) -> None:
    async def scene() -> None:
        async with member(cluster, "static", group_instance_id="a") as first:
            await until(lambda: first.owned == EVERYTHING, "all partitions")
            async with member(cluster, "static", group_instance_id="b") as second:
                await until(lambda: len(first.owned) == 3 and len(second.owned) == 3, "sharing")
                owned = second.owned
            async with member(cluster, "static", group_instance_id="b") as again:
                await until(lambda: again.owned == owned, "the same partitions")
                assert first.owned == EVERYTHING - owned

    asyncio.run(scene())
    seen = [(event["trigger"], event["partitions_moved"]) for event in events(cluster, "static")]
    assert seen == [("member_joined", 6), ("member_joined", 3), ("static_member_replaced", 0)]


def test_member_whose_instance_id_another_takes_ends_with_an_error(cluster: DevCluster) -> None:
    async def be_fenced() -> None:
        async with member(cluster, "fenced", group_instance_id="a") as first:
            await until(lambda: first.owned == EVERYTHING, "all partitions")
            async with member(cluster, "fenced", group_instance_id="a") as second:
                await until(lambda: second.owned == EVERYTHING, "the other's partitions")
                await until(lambda: first.connector.metrics.rebalance_error, "the error")

    async def scene() -> None:
        with pytest.raises(ExceptionGroup) as raised:
            await be_fenced()
        (failure,) = raised.value.exceptions
        assert isinstance(failure, MemberFailed)
        assert failure.error is ErrorCode.FENCED_INSTANCE_ID
        assert "group.instance.id=a" in str(failure)

    asyncio.run(scene())


def test_member_that_is_kicked_comes_back_and_the_event_says_why(cluster: DevCluster) -> None:
    async def scene() -> None:
        async with member(cluster, "kicked") as reader:
            await until(lambda: reader.owned == EVERYTHING, "all partitions")
            done = await asyncio.to_thread(
                cluster.run, *("kgroup", "kick", "kicked", "--all", "--reason", "maintenance")
            )
            assert done.returncode == 0, done.stderr
            await until(
                lambda: reader.connector.metrics.rebalance_rate_and_time.count == 2, "its return"
            )
            assert reader.owned == EVERYTHING

    asyncio.run(scene())
    _, kick, again, _ = events(cluster, "kicked")
    assert (kick["trigger"], kick["reason"]) == ("member_kicked", "maintenance")
    assert again["trigger"] == "member_joined"


def test_commit_of_a_member_that_was_removed_says_so_and_where_to_look(cluster: DevCluster) -> None:
    async def scene() -> None:
        # It learns from the commit that it is no member any more, and not from a heartbeat.
        async with member(cluster, "removed", heartbeat_interval_ms=40_000) as reader:
            await until(lambda: reader.owned == EVERYTHING, "all partitions")
            done = await asyncio.to_thread(cluster.run, "kgroup", "kick", "removed", "--all")
            assert done.returncode == 0, done.stderr
            place = TopicPartition(TOPIC, 0)
            with pytest.raises(CommitFailed) as failure:
                await reader.connector.commit_offsets({place: OffsetAndMetadata(1)})
            assert failure.value.errors == {place: ErrorCode.UNKNOWN_MEMBER_ID}
            assert "was removed from group removed though its heartbeats were accepted" in str(
                failure.value
            )
            await until(lambda: reader.owned == EVERYTHING, "its return")

    asyncio.run(scene())


def test_group_that_nobody_knows_has_no_events(cluster: DevCluster) -> None:
    done = cluster.run("kgroup", "events", "nobody", "-o", "json")
    answer = json.loads(done.stdout)
    assert (answer["kind"], answer["items"], answer["verdict"]) == ("events", [], None)


def test_command_consumes_as_a_member_at_the_coordinator(cluster: DevCluster) -> None:
    done = cluster.run(
        *("kgroup", "consume", "--topic", TOPIC, "--membership", "coordinator"),
        *("--group", "console", "--from-beginning", "--max-messages", str(MESSAGES)),
    )
    assert done.returncode == 0, done.stderr
    assert sorted(map(int, done.stdout.split())) == list(range(MESSAGES))
    described = cluster.run("kgroup", "describe", "console", "-o", "json")
    assert {item["lag"] for item in json.loads(described.stdout)["items"]} == {0}


@attrs.define
class Told:
    """A listener that notes what it is told, one method plain and the others not."""

    calls: list[tuple[str, int]] = attrs.field(factory=list)

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        self.calls.append(("revoked", len(partitions)))

    async def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        self.calls.append(("assigned", len(partitions)))

    async def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
        self.calls.append(("lost", len(partitions)))


@pytest.mark.parametrize(
    ("strategy", "calls"),
    [
        ("range", [("assigned", 6), ("revoked", 6), ("assigned", 3), ("lost", 3), ("assigned", 3)]),
        (
            "cooperative-sticky",
            [("assigned", 6), ("revoked", 3), ("assigned", 0), ("lost", 3), ("assigned", 3)],
        ),
    ],
)
def test_listener_is_told_what_changes(
    cluster: DevCluster, strategy: str, calls: list[tuple[str, int]]
) -> None:
    async def scene() -> None:
        group = f"told-{strategy}"
        told = Told()
        options = {"partition_assignment_strategy": strategy}
        async with member(cluster, group, listener=told, **options) as first:
            await until(lambda: first.owned == EVERYTHING, "all partitions")
            async with member(cluster, group, **options) as second:
                await until(lambda: len(first.owned) == 3 and len(second.owned) == 3, "sharing")
                member_id = first.connector._side._member.consumer.member_id  # type: ignore[attr-defined]
                kick = ("kgroup", "kick", group, "--member", member_id)
                done = await asyncio.to_thread(cluster.run, *kick)
                assert done.returncode == 0, done.stderr
                await until(lambda: ("lost", 3) in told.calls, "the loss")
                await until(lambda: len(first.owned) == 3 and len(second.owned) == 3, "sharing")
        names = [call for call in told.calls if call[1]]
        assert names[:4] == [call for call in calls if call[1]][:4]

    asyncio.run(scene())


@pytest.mark.parametrize("membership", ["coordinator", "zookeeper"])
def test_listener_seeks_what_it_is_assigned_before_the_first_message(
    cluster: DevCluster, membership: str
) -> None:
    """A member that keeps offsets of its own goes on where it was."""

    class Seeker:
        assigned: frozenset[TopicPartition] = frozenset()

        async def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
            self.assigned = connector.assignment()
            for partition in partitions:
                await connector.seek(partition, 90)

    settings = {
        "group.id": f"seeks-{membership}",
        "membership": membership,
        "auto.offset.reset": "earliest" if membership == "coordinator" else "smallest",
        "consumer.timeout.ms": 60_000,
    }
    settings["bootstrap.servers"] = cluster.address("bootstrap")
    if membership == "zookeeper":
        settings["zookeeper.connect"] = cluster.address("zookeeper")
    seeker = Seeker()
    connector = ConsumerConnector(settings)
    connector.set_consumer_rebalance_listener(seeker)

    async def scene() -> None:
        async with connector:
            (stream,) = (await connector.create_message_streams({TOPIC: 1}))[TOPIC]
            offsets = [(await anext(stream)).offset for _ in range(6 * 10)]
            assert sorted(offsets) == sorted(6 * [*range(90, 100)])

    asyncio.run(scene())
    assert seeker.assigned == EVERYTHING
