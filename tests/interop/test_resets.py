"""Resets on stock brokers: of 2.8 beside Kafka's own tool, and of 0.10.2 as far as it can."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress

import pytest

from clients.admin import Admin, ConfigResource, NewTopic
from clients.producer.producer import Producer
from clients.resets.journal_entry import Status
from clients.resets.journal_topic import JournalTopic
from protocol.internal_topics import JOURNAL_TOPIC
from protocol.topic_partition import TopicPartition
from tests.clients.kgroup.killed_reset import ONE_PARTITION
from tests.clients.kgroup.reset_stage import RECORDS, ResetStage, filled
from tests.clients.kgroup.test_killed_reset import kill_reset, settle
from tests.interop.kafka_cluster import unique
from tests.interop.test_groups_on_old_brokers import give_cluster_id
from tests.stage.cluster import DevCluster
from tests.stage.old_kafka import old_broker
from tests.stage.stock_kafka import run_tool, stock_broker
from zk.znodes import ConsumerOffset

POSITIONS = (
    "--to-current",
    "--to-offset 99",
    "--shift-by -2",
    "--to-datetime 2013-05-31T13:38:20.000+02:00",
    "--by-duration PT1M",
)
"""Those about which one could be mistaken; a JVM takes its time for each."""
SETTINGS = {
    # The messages are of 2013.
    "log.retention.ms": "-1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


@pytest.fixture(scope="module")
def stock(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResetStage]:
    tree = f"{zookeeper}/{unique('stock')}"
    with stock_broker(tree, tmp_path_factory.mktemp("stock"), SETTINGS) as bootstrap:
        yield filled(bootstrap, tree)


def test_every_position_of_kafkas_tool_exports_what_ours_does(stock: ResetStage) -> None:
    group = stock.group({stock.t0: 7, stock.t1: 0})
    for position in POSITIONS:
        words = ["--topic", stock.topic, *shlex.split(position), "--dry-run", "--export"]
        theirs = run_tool(
            *("kafka.admin.ConsumerGroupCommand", "--bootstrap-server", stock.bootstrap),
            *("--reset-offsets", "--group", group, *words),
        )
        ours = stock.run("--reset-offsets", "--group", group, *words)
        assert ours.exit_code == 0, ours.output

        # Their warnings and an empty line are on the same stream.
        lines = [line for line in theirs.splitlines() if line.startswith(stock.topic)]
        assert sorted(ours.stdout.splitlines()) == sorted(lines), position


def test_a_reset_is_undone_on_a_stock_broker_and_its_first_commits_are_deleted(
    stock: ResetStage,
) -> None:
    group = stock.group({stock.t0: 7})
    number = stock.reset(group, "--to-earliest")
    assert stock.offsets(group) == {0: 0, 1: 0}
    stock.items("undo", str(number))
    assert stock.offsets(group) == {0: 7}


def test_both_stores_are_reset_and_a_renamed_group_moves_with_both(stock: ResetStage) -> None:
    group, target = stock.group({stock.t0: 5}), unique("new")
    stock.write({ConsumerOffset.path(group, *stock.t0): b"7"})
    stock.items("reset", group, "--all-topics", "--to-earliest", "--execute")
    assert (stock.offsets(group), stock.read(group)) == ({0: 0}, b"0")

    stock.items("rename", group, target)
    assert (stock.offsets(target), stock.read(target)) == ({0: 0}, b"0")
    assert (stock.offsets(group), stock.read(group)) == ({}, None)


def test_the_journal_of_a_stock_cluster_is_a_compacted_topic_of_one_partition(
    stock: ResetStage,
) -> None:
    stock.reset(stock.group({stock.t0: 7}), "--to-earliest")

    async def describe() -> tuple[int, int, str | None]:
        async with Admin(stock.bootstrap) as admin:
            (partition,) = (await admin.describe_topics([JOURNAL_TOPIC]))[
                JOURNAL_TOPIC
            ].partitions.values()
            resource = ConfigResource.topic(JOURNAL_TOPIC)
            settings = (await admin.describe_configs([resource]))[resource]
            policy = {setting.name: setting.value for setting in settings}["cleanup.policy"]
            return len(partition.replicas), len((await JournalTopic(admin).read())[0]), policy

    replicas, records, policy = asyncio.run(describe())
    assert (replicas, policy) == (1, "compact")
    assert records > 0


def test_a_killed_reset_is_settled_on_a_stock_broker(stock: ResetStage) -> None:
    group = stock.group({stock.t0: 5, stock.t1: 3})
    number = kill_reset(stock, ONE_PARTITION, group)
    assert settle(stock, number) == Status.DONE
    assert stock.offsets(group) == {0: 0, 1: 0}


def test_a_copy_to_another_cluster_goes_by_offset_or_by_time(
    stock: ResetStage, dev_cluster: DevCluster
) -> None:
    addresses = dev_cluster.address("bootstrap"), dev_cluster.address("zookeeper")
    # The other cluster has messages that this one does not have.
    there = filled(*addresses, stock.topic, older=3, newer=2)
    group = stock.group({stock.t0: 4, stock.t1: 0})
    to = ("--to-bootstrap-server", there.bootstrap)

    by_offset, by_time, at_end = unique("g"), unique("g"), unique("g")
    stock.items("copy", group, by_offset, *to)
    stock.items("copy", group, by_time, *to, "--by", "timestamp")
    assert (there.offsets(by_offset), there.offsets(by_time)) == ({0: 4, 1: 0}, {0: 7, 1: 0})
    assert {held.metadata for held in there.committed(by_time).values()} == {"note"}

    # A group that has consumed all here goes on with what is younger there.
    stock.group({stock.t0: RECORDS}, group)
    (item, _) = stock.items("copy", group, at_end, *to, "--by", "timestamp")
    assert there.offsets(at_end) == {0: RECORDS + 3, 1: 0}

    # The journal is that of the cluster that was written.
    there.items("undo", str(item["journal_id"]))
    assert there.offsets(at_end) == {}
    said = stock.run("copy", group, at_end, *to, "--by", "timestamp").stderr
    number = item["journal_id"] + 2
    options = f"--bootstrap-server {there.bootstrap} --zookeeper ''"
    assert f"`kgroup undo {number} {options}` takes it back" in said


@pytest.mark.fault("strangers-89")
def test_a_copy_by_time_does_not_go_by_what_was_aborted(
    stock: ResetStage, dev_cluster: DevCluster
) -> None:
    """The other cluster has what was committed, and event times that go back behind the abort."""
    topic, there = unique("aborted"), dev_cluster.address("bootstrap")
    # Markers are of now, and must be no later than messages.
    base_ms = 1000 * (int(time.time()) + 3600)
    committed, aborted, older = (100, 101, 102), (130, 131), (110, 111, 112)

    async def produce(bootstrap: str, *batches: Sequence[int], **settings: str) -> None:
        async with Admin(bootstrap) as admin:
            assert await admin.create_topics([NewTopic(topic, 1, 1)]) == {topic: None}
        async with Producer({"bootstrap.servers": bootstrap, **settings}) as producer:
            for batch in batches:
                with suppress(InterruptedError):
                    async with producer.transaction() if settings else nullcontext():
                        for time_s in batch:
                            at_ms = base_ms + 1000 * time_s
                            await producer.send(topic, b"x", timestamp_ms=at_ms)
                        if batch is aborted:
                            # What is not on its way by then is never sent.
                            await producer.flush()
                            raise InterruptedError

    asyncio.run(produce(stock.bootstrap, committed, aborted, older, **{"transactional.id": topic}))
    asyncio.run(produce(there, committed, older))
    target = ResetStage(there, dev_cluster.address("zookeeper"), topic)
    for offset, expected in ((2, 2), (3, 3), (4, 3), (5, 3), (6, 3), (7, 3), (8, 4)):
        group, copied = stock.group({TopicPartition(topic, 0): offset}), unique("copy")
        to = ("--to-bootstrap-server", there, "--by", "timestamp")
        stock.items("copy", group, copied, *to)
        assert target.offsets(copied) == {0: expected}, offset


@pytest.mark.fault("strangers-93")
def test_a_copy_by_time_of_all_that_was_read_goes_on_behind_it_whatever_markers_follow(
    stock: ResetStage, dev_cluster: DevCluster
) -> None:
    """Two transactions at the same time end with two markers; the other cluster has news."""
    topic, there = unique("markers"), dev_cluster.address("bootstrap")
    base_ms = 1000 * (int(time.time()) - 3600)

    async def produce_here() -> None:
        async with Admin(stock.bootstrap) as admin:
            assert await admin.create_topics([NewTopic(topic, 1, 1)]) == {topic: None}
        first, second = (
            Producer({"bootstrap.servers": stock.bootstrap, "transactional.id": f"{topic}{n}"})
            for n in range(2)
        )
        async with first, second, first.transaction(), second.transaction():
            for number, producer in enumerate((first, second)):
                await producer.send(topic, b"x", timestamp_ms=base_ms + number)
                await producer.flush()

    async def produce_there() -> None:
        async with Admin(there) as admin:
            assert await admin.create_topics([NewTopic(topic, 1, 1)]) == {topic: None}
        async with Producer({"bootstrap.servers": there}) as producer:
            for number in (0, 1, 5, 6):
                await producer.send(topic, b"x", timestamp_ms=base_ms + number)

    asyncio.run(produce_here())
    asyncio.run(produce_there())
    group, copied = stock.group({TopicPartition(topic, 0): 4}), unique("copy")
    stock.items("copy", group, copied, "--to-bootstrap-server", there, "--by", "timestamp")
    target = ResetStage(there, dev_cluster.address("zookeeper"), topic)
    assert target.offsets(copied) == {0: 2}


# --- 0.10.2


@pytest.fixture(scope="module")
def old(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResetStage]:
    tree = f"{zookeeper}/{unique('old')}"
    asyncio.run(give_cluster_id(tree))
    with old_broker("0.10.2.2", tree, tmp_path_factory.mktemp("old")) as bootstrap:
        yield filled(bootstrap, tree)


def test_a_reset_is_undone_on_an_old_broker(old: ResetStage) -> None:
    group = old.group({old.t0: 7, old.t1: 0})
    number = old.reset(group, "--to-datetime", "2013-05-31T11:38:20.000")
    assert old.offsets(group) == {0: 5, 1: 0}
    old.items("undo", str(number))
    assert old.offsets(group) == {0: 7, 1: 0}


def test_an_old_broker_keeps_the_offset_that_a_reset_was_the_first_to_commit(
    old: ResetStage,
) -> None:
    group = old.group({old.t0: 7})
    number = old.reset(group, "--to-earliest")
    error, partly = old.errors("undo", str(number))
    assert error["error"] == "UnsupportedApi"
    assert partly["message"].startswith("1 of 2 offsets were changed")
    assert old.offsets(group) == {0: 7, 1: 0}
