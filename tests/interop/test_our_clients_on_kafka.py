"""Our clients with a stock broker of Apache Kafka."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from uuid import uuid4

import confluent_kafka
import pytest

from clients.admin import EARLIEST_TIME, LATEST_TIME, Admin, ConfigResource, NewTopic
from clients.high_level.connector import ConsumerConnector
from clients.high_level.streams import MessageStream
from clients.producer.producer import Producer
from clients.simple_consumer import FetchRequest, SimpleConsumer
from offsets.zookeeper_store import ZooKeeperStore
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.interop.traffic import CODECS, TRAFFIC, heard, new_topic, say
from tests.stage.processes import ROOT, command_line
from tests.stage.stock_kafka import stock_broker
from tests.stage.waiting import until
from tests.stage.zookeeper import zookeeper_session

PATIENCE_S = 60.0
TRANSACTIONS = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
}
PARTITIONS = 4
STORES = {
    "zookeeper": {"offsets.storage": "zookeeper"},
    "kafka": {"offsets.storage": "kafka", "dual.commit.enabled": "false"},
}


@pytest.fixture(scope="module")
def stock_zookeeper(zookeeper: str) -> str:
    """Where the stock broker keeps its tree."""
    return f"{zookeeper}/stock-{uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def stock(stock_zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("stock")
    with stock_broker(stock_zookeeper, directory, TRANSACTIONS) as bootstrap:
        yield bootstrap


@pytest.mark.parametrize("codec", CODECS)
async def test_what_our_producer_sends_our_simple_consumer_reads(stock: str, codec: str) -> None:
    topic = await new_topic(stock)
    await say(stock, topic, codec)
    assert await heard(stock, topic) == list(TRAFFIC)


async def test_keys_go_where_another_client_of_the_java_hash_sends_them(stock: str) -> None:
    topic, keys = await new_topic(stock, partitions=7), [b"key %d" % n for n in range(50)]
    theirs: dict[bytes, int | None] = {}

    def delivered(error: object, message: confluent_kafka.Message) -> None:
        key = message.key()
        assert error is None
        assert isinstance(key, bytes)
        theirs[key] = message.partition()

    other = confluent_kafka.Producer(
        {"bootstrap.servers": stock, "partitioner": "murmur2_random", "linger.ms": 5}
    )
    for key in keys:
        other.produce(topic, b"", key, on_delivery=delivered)
    assert other.flush(PATIENCE_S) == 0
    async with Producer(bootstrap_servers=stock) as producer:
        ours = {key: (await producer.send_and_wait(topic, b"", key=key)).partition for key in keys}
    assert ours == theirs
    assert len(set(ours.values())) > 1


async def test_the_simple_consumer_finds_offsets_waits_and_commits(stock: str) -> None:
    topic, group = await new_topic(stock, partitions=2), f"g-{uuid4().hex[:8]}"
    partition, settings = TopicPartition(topic, 0), {"bootstrap.servers": stock}
    await say(stock, topic)
    async with Admin(stock) as admin:
        await admin.group_offsets(group)  # makes the offsets topic, if this is the first group
    async with await SimpleConsumer.for_leader(settings, *partition) as consumer:
        assert await consumer.earliest_or_latest_offset(*partition, LATEST_TIME) == len(TRAFFIC)
        assert await consumer.get_offsets_before(*partition, LATEST_TIME, 9) == [len(TRAFFIC), 0]
        assert await consumer.get_offsets_before(*partition, EARLIEST_TIME, 9) == [0]
        first, empty, beyond = await consumer.multifetch(
            [FetchRequest(topic, 0, 40), FetchRequest(topic, 1, 0), FetchRequest(topic, 1, 7)]
        )
        assert next(iter(first)).offset == 40
        assert list(empty) == []
        assert beyond.error is ErrorCode.OFFSET_OUT_OF_RANGE
        at_end = FetchRequest(topic, 0, len(TRAFFIC))
        waiting = asyncio.create_task(consumer.fetch(at_end, max_wait_ms=20_000, min_bytes=1))
        await say(stock, topic)
        assert next(iter(await waiting)).offset == len(TRAFFIC)
        committed = await consumer.commit_offsets(group, {partition: OffsetAndMetadata(7, "note")})
        assert committed == {partition: ErrorCode.NONE}
        found = (await consumer.fetch_offsets(group, [partition]))[partition]
        assert (found.offset, found.metadata) == (7, "note")


async def test_the_admin_client_manages_topics(stock: str) -> None:
    name = f"t-{uuid4().hex[:8]}"
    async with Admin(stock) as admin:
        new = NewTopic(name, 3, 1, {"retention.ms": "1234567"})
        assert await admin.create_topics([new]) == {name: None}
        again = (await admin.create_topics([new]))[name]
        assert isinstance(again, ApiError)
        assert again.code is ErrorCode.TOPIC_ALREADY_EXISTS
        described = (await admin.describe_topics([name]))[name]
        assert {p: view.leader for p, view in described.partitions.items()} == {0: 0, 1: 0, 2: 0}
        resource = ConfigResource.topic(name)
        configs = (await admin.describe_configs([resource]))[resource]
        assert {c.name: c.value for c in configs}["retention.ms"] == "1234567"
        cluster = await admin.describe_cluster()
        assert (cluster.controller_id, [b.node_id for b in cluster.brokers]) == (0, [0])
        assert await admin.delete_topics([name]) == {name: None}
        assert name not in await admin.list_topics()


async def test_the_admin_client_knows_offsets_by_time_and_groups(stock: str) -> None:
    topic, group = await new_topic(stock), f"g-{uuid4().hex[:8]}"
    partition = TopicPartition(topic, 0)
    await say(stock, topic)
    async with Admin(stock) as admin:
        listed = (await admin.list_offsets({partition: TRAFFIC[70].timestamp_ms - 1}))[partition]
        assert (listed.offset, listed.timestamp_ms) == (70, TRAFFIC[70].timestamp_ms)
        await admin.commit_group_offsets(group, {partition: OffsetAndMetadata(7, "note", 0)})
        assert await admin.group_offsets(group) == {partition: OffsetAndMetadata(7, "note", 0)}
        assert group in {found.group_id for found in await admin.list_groups()}
        description = (await admin.describe_groups([group]))[group]
        assert description.group.group_state == "Empty"


async def produce(bootstrap: str, topic: str, count: int) -> None:
    """Records for all partitions in turn."""
    async with Producer(bootstrap_servers=bootstrap, acks="all") as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


async def consume(streams: list[MessageStream], count: int) -> list[list[tuple[int, int]]]:
    """Partition and offset of each message, by stream, when there are so many of them in all."""
    found: list[list[tuple[int, int]]] = [[] for _ in streams]
    enough = asyncio.Event()

    async def drain(stream: MessageStream, into: list[tuple[int, int]]) -> None:
        async for message in stream:
            into.append((message.partition, message.offset))
            if sum(map(len, found)) == count:
                enough.set()

    tasks = [asyncio.create_task(drain(*each)) for each in zip(streams, found, strict=True)]
    async with asyncio.timeout(PATIENCE_S):
        await enough.wait()
    for task in tasks:
        task.cancel()
    return found


@pytest.mark.parametrize("storage", STORES)
async def test_a_group_of_our_consumers_shares_a_topic_and_goes_on_where_it_was(
    stock: str, stock_zookeeper: str, storage: str
) -> None:
    topic, group = await new_topic(stock, PARTITIONS), f"g-{uuid4().hex[:8]}"
    settings = {
        "zookeeper.connect": stock_zookeeper,
        "group.id": group,
        "auto.offset.reset": "smallest",
        "auto.commit.enable": "false",
        **STORES[storage],
    }
    async with ConsumerConnector(settings) as first, ConsumerConnector(settings) as second:
        streams = [
            (await connector.create_message_streams({topic: 1}))[topic][0]
            for connector in (first, second)
        ]
        await produce(stock, topic, 400)
        found = await consume(streams, 400)
        assert sorted(len({partition for partition, _ in each}) for each in found) == [2, 2]
        assert sorted(found[0] + found[1]) == [
            (p, n) for p in range(PARTITIONS) for n in range(100)
        ]
        await first.commit_offsets()
        await second.commit_offsets()
    partitions = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    assert await committed(storage, stock, stock_zookeeper, group, partitions) == dict.fromkeys(
        partitions, 100
    )
    await produce(stock, topic, 40)
    async with ConsumerConnector(settings) as third:
        (stream,) = (await third.create_message_streams({topic: 1}))[topic]
        (again,) = await consume([stream], 40)
    assert sorted(again) == [(p, n) for p in range(PARTITIONS) for n in range(100, 110)]


def open_transaction(bootstrap: str, topic: str) -> confluent_kafka.Producer:
    """One that was aborted, one that was committed, and one that is open still."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 0}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(PATIENCE_S)
    for word in ("aborted", "committed", "open"):
        producer.begin_transaction()
        for number in range(10):
            producer.produce(topic, f"{word} {number}", partition=0)
        producer.flush(PATIENCE_S)
        if word == "aborted":
            producer.abort_transaction(PATIENCE_S)
        if word == "committed":
            producer.commit_transaction(PATIENCE_S)
    return producer


@pytest.mark.parametrize("membership", ["zookeeper", "coordinator"])
async def test_streams_of_what_is_committed_have_no_other_transactions(
    stock: str, stock_zookeeper: str, membership: str
) -> None:
    topic = await new_topic(stock)
    producer = await asyncio.to_thread(open_transaction, stock, topic)
    settings = {
        "membership": membership,
        "group.id": f"g-{uuid4().hex[:8]}",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    if membership == "zookeeper":
        settings["zookeeper.connect"] = stock_zookeeper
    else:
        settings["bootstrap.servers"] = stock

    async with ConsumerConnector(settings) as connector, asyncio.timeout(PATIENCE_S):
        (stream,) = (await connector.create_message_streams({topic: 1}))[topic]
        values = [(await anext(stream)).value for _ in range(10)]
        assert values == [b"committed %d" % number for number in range(10)]
        # What is open cannot be read, and so it is no lag.
        assert set(connector.metrics.consumer_lag.values()) == {0}

        await asyncio.to_thread(producer.commit_transaction, PATIENCE_S)
        values = [(await anext(stream)).value for _ in range(10)]
        assert values == [b"open %d" % number for number in range(10)]


async def committed(
    storage: str, bootstrap: str, zookeeper: str, group: str, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    if storage == "kafka":
        async with Admin(bootstrap) as admin:
            found = await admin.group_offsets(group)
    else:
        async with zookeeper_session(zookeeper) as zk:
            found = dict(await ZooKeeperStore(zk).fetch(group, partitions))
    return {partition: offset.offset for partition, offset in found.items()}


async def test_events_of_a_group_on_a_stock_broker_are_its_generations(stock: str) -> None:
    topic, group = await new_topic(stock, partitions=2), f"g-{uuid4().hex[:8]}"
    settings = {"bootstrap.servers": stock, "membership": "coordinator", "group.id": group}
    async with ConsumerConnector(settings) as first:
        await first.create_message_streams({topic: 1})
        async with ConsumerConnector(settings) as second:
            await second.create_message_streams({topic: 1})
            await until(lambda: len(first.assignment()) == 1, "sharing")

    shown = json.loads(await kgroup(stock, "events", group, "-o", "json"))
    assert "do not say why the group rebalanced" in shown["verdict"]
    members = [len(item["members"]) for item in shown["items"]]
    assert members[0] == 1
    assert 2 in members
    assert members[-1] == 0
    assert {item["protocol"] for item in shown["items"][:-1]} == {"range"}


async def kgroup(stock: str, *words: str) -> str:
    """What the command prints, which must succeed."""
    command = command_line("kgroup", *words, "-b", stock)
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def test_perf_top_and_simulate_work_with_a_stock_broker(stock: str) -> None:
    topic, group = await new_topic(stock, PARTITIONS), f"g-{uuid4().hex[:8]}"

    records = ("--num-records", "200", "--record-size", "10")
    produced = await kgroup(stock, "perf", "produce", "--topic", topic, *records)
    assert produced.splitlines()[-1].startswith("200 records sent, ")
    wanted = ("--topic", topic, "--messages", "200", "--group", group)
    consumed = await kgroup(stock, "perf", "consume", *wanted, "--hide-header")
    assert consumed.split(", ")[4] == "200"
    commits = ("--topic", topic, "--groups", "2", "--num-commits", "20")
    committed = await kgroup(stock, "perf", "commit", *commits)
    assert committed.splitlines()[-1].startswith("20 commits sent, ")

    # The groups of the last run are gone again.
    rows = json.loads(await kgroup(stock, "top", "--once", "-o", "json"))["items"]
    assert not [row["group"] for row in rows if row["group"].startswith("perf-")]
    (row,) = [row for row in rows if row["group"] == group]
    # The last message is not counted as consumed: no other was asked for.
    assert (row["state"], row["partitions"], row["lag"]) == ("Empty", PARTITIONS, 1)

    member = {"bootstrap.servers": stock, "group.id": group, "membership": "coordinator"}
    async with ConsumerConnector(member) as connector:
        await connector.create_message_streams({topic: 1})
        simulated = await kgroup(stock, "simulate", group, "--members", "+1", "-o", "json")
    loads = {item["assignor"]: item["max_partitions"] for item in json.loads(simulated)["items"]}
    assert loads["range"] == loads["cooperative-sticky"] == PARTITIONS // 2
