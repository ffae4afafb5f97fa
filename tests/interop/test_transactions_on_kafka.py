"""Transactions of our producer on a stock broker of Apache Kafka; the usual ones on ours too."""

import asyncio
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from clients import blocking
from clients.admin import Admin, NewTopic
from clients.errors import (
    ProducerFailed,
    ProducerFenced,
    SettingError,
    TransactionFailed,
)
from clients.fetch_requests import Isolation
from clients.group_metadata import ConsumerGroupMetadata
from clients.high_level.connector import ConsumerConnector
from clients.producer.producer import Producer
from clients.simple_consumer import LATEST_TIME
from protocol.errors import ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.interop.traffic import new_topic
from tests.stage.processes import ROOT, command_line
from tests.stage.stock_kafka import stock_broker
from tests.stage.topic_contents import contents
from tests.stage.waiting import DEADLINE_S, until, until_equal

GUIDE = (ROOT / "docs" / "transactions.md").read_text("utf-8")
PROGRAM = "\n".join(re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL))
COMMANDS = re.findall(r"^(kgroup .+)$", GUIDE.replace("\\\n", " "), re.MULTILINE)

SETTINGS = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "offsets.topic.num.partitions": "1",
}


@pytest.fixture(scope="module")
def stock_zookeeper(zookeeper: str) -> str:
    """Where the stock broker keeps its tree."""
    return f"{zookeeper}/transactions-{uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def stock(stock_zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with stock_broker(stock_zookeeper, tmp_path_factory.mktemp("stock"), SETTINGS) as bootstrap:
        yield bootstrap


def settings_of(bootstrap: str, name: str | None = None, **more: Any) -> dict[str, Any]:
    """The settings of a producer with an id of its own, or with this one."""
    name = name or f"x-{uuid4().hex[:8]}"
    return {"bootstrap.servers": bootstrap, "transactional.id": name, **more}


async def read(
    bootstrap: str, partition: TopicPartition, isolation: Isolation = Isolation.READ_COMMITTED
) -> list[bytes | None]:
    """The values that a reader of a partition sees from its start to its end."""
    return [record.value for record in await contents(bootstrap, partition, isolation=isolation)]


async def committed(bootstrap: str, group: str) -> dict[TopicPartition, int]:
    async with Admin(bootstrap) as admin:
        offsets = await admin.group_offsets(group)
    return {partition: offset.offset for partition, offset in offsets.items()}


async def test_a_transaction_is_seen_as_a_whole_or_not_at_all(either: str) -> None:
    topic = await new_topic(either, partitions=3)
    places = [TopicPartition(topic, number) for number in range(3)]

    async def seen() -> list[list[bytes | None]]:
        return [await read(either, place) for place in places]

    async def send(producer: Producer, value: bytes) -> None:
        for place in places:
            await producer.send(topic, value, partition=place.partition)
        await producer.flush()

    async def fail(producer: Producer) -> None:
        async with producer.transaction():
            await send(producer, b"aborted")
            raise RuntimeError("no more")

    async with Producer(settings_of(either)) as producer:
        async with producer.transaction():
            await send(producer, b"committed")
            assert await seen() == [[], [], []]
        await until_equal(seen, [[b"committed"]] * 3)

        # The next ones go on at once, in the same partitions.
        with pytest.raises(RuntimeError, match="no more"):
            await fail(producer)
        async with producer.transaction():
            await producer.send(topic, b"later", partition=0)
        await until_equal(seen, [[b"committed", b"later"], [b"committed"], [b"committed"]])

    uncommitted = await read(either, places[0], Isolation.READ_UNCOMMITTED)
    assert uncommitted == [b"committed", b"aborted", b"later"]


def test_the_blocking_twin_has_transactions_too(either: str) -> None:
    topic = asyncio.run(new_topic(either))
    place = TopicPartition(topic, 0)

    def fail(producer: Any) -> None:
        with producer.transaction():
            producer.send(topic, b"aborted")
            raise RuntimeError("no more")

    with blocking.Producer(settings_of(either)) as producer:
        with pytest.raises(RuntimeError, match="no more"):
            fail(producer)
        with producer.transaction():
            for number in range(300):
                producer.send(topic, b"%d" % number)
            producer.send_offsets_to_transaction(
                {place: OffsetAndMetadata(5)}, ConsumerGroupMetadata(topic)
            )
    expected = [b"%d" % number for number in range(300)]
    asyncio.run(until_equal(lambda: read(either, place), expected))
    asyncio.run(until_equal(lambda: committed(either, topic), {place: 5}))


async def test_a_second_producer_with_the_id_fences_the_first_and_aborts_its_transaction(
    either: str,
) -> None:
    topic = await new_topic(either)
    place = TopicPartition(topic, 0)
    async with Producer(settings_of(either, topic)) as first:
        await first.begin_transaction()
        await first.send_and_wait(topic, b"first")

        async with Producer(settings_of(either, topic)) as second, second.transaction():
            await second.send(topic, b"second")
        with pytest.raises(ProducerFenced) as fenced:
            await first.commit_transaction()
        assert not fenced.value.transaction_in_doubt
        await until_equal(lambda: read(either, place), [b"second"])


async def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_fenced(
    stock: str,
) -> None:
    topic = await new_topic(stock)
    place = TopicPartition(topic, 0)
    settings = settings_of(stock, **{"transaction.timeout.ms": 500})

    async def is_decided() -> bool:
        async with Admin(stock) as admin:
            (offset,) = (await admin.list_offsets({place: LATEST_TIME}, isolation=1)).values()
        return offset.offset > 0

    async with Producer(settings) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"late")
        await until(is_decided, "the transaction aborted by its coordinator")
        with pytest.raises(ProducerFenced, match=r"transaction\.timeout\.ms"):
            await producer.commit_transaction()
    assert await read(stock, place) == []


async def test_a_time_above_the_brokers_limit_is_refused_by_the_setting(stock: str) -> None:
    producer = Producer(settings_of(stock, **{"transaction.timeout.ms": 10**9}))
    with pytest.raises(ProducerFailed, match=r"above transaction\.max\.timeout\.ms"):
        await producer.__aenter__()


async def test_a_refused_record_costs_the_transaction_and_a_gap_in_numbers_an_epoch(
    either: str,
) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    place = TopicPartition(topic, 0)
    async with Admin(either) as admin:
        new = NewTopic(topic, 1, 1, {"max.message.bytes": "1000"})
        assert await admin.create_topics([new]) == {topic: None}

    async def send(producer: Producer, *values: bytes) -> None:
        async with producer.transaction():
            for value in values:
                await producer.send_and_wait(topic, value)

    async with Producer(settings_of(either)) as producer:
        await send(producer, b"1", b"2")
        with pytest.raises(TransactionFailed, match="MESSAGE_TOO_LARGE"):
            async with producer.transaction():
                await producer.send(topic, b"." * 2000)
        await send(producer, b"3")
        assert producer._transactions is not None
        numbers = producer._transactions.numbers
        epoch = numbers.producer_epoch

        # The broker takes the gap for records that it has lost (KIP-360).
        numbers._next[place] += 5
        with pytest.raises(TransactionFailed, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
            async with producer.transaction():
                await producer.send(topic, b"4")
        assert numbers.producer_epoch > epoch
        await send(producer, b"5")
    await until_equal(lambda: read(either, place), [b"1", b"2", b"3", b"5"])


# ---- the offsets of a group


def consumer_settings(
    bootstrap: str, zookeeper: str, membership: str, group: str
) -> dict[str, Any]:
    settings = {
        "membership": membership,
        "group.id": group,
        "bootstrap.servers": bootstrap,
        "auto.commit.enable": "false",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "offsets.storage": "kafka",
        "dual.commit.enabled": "false",
    }
    return settings | ({"zookeeper.connect": zookeeper} if membership == "zookeeper" else {})


async def fill(bootstrap: str, topic: str, count: int) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await (await producer.send_many(topic, [b"%d" % n for n in range(count)], partition=0))


@pytest.mark.parametrize("membership", ["zookeeper", "coordinator"])
async def test_offsets_of_a_transaction_are_where_the_group_goes_on(
    stock: str, stock_zookeeper: str, membership: str
) -> None:
    topic, group = await new_topic(stock), f"g-{uuid4().hex[:8]}"
    place = TopicPartition(topic, 0)
    await fill(stock, topic, 10)
    settings = consumer_settings(stock, stock_zookeeper, membership, group)

    async def take(
        connector: ConsumerConnector, stream: Any, producer: Producer, count: int
    ) -> list[bytes]:
        """Commit the offset behind so many messages; then fail if there are too few."""
        values = [(await anext(stream)).value for _ in range(count)]
        position = {place: OffsetAndMetadata(int(values[-1]) + 1)}
        await producer.send_offsets_to_transaction(position, connector.group_metadata())
        return values

    async with (
        Producer(settings_of(stock)) as producer,
        ConsumerConnector(settings) as connector,
        asyncio.timeout(DEADLINE_S),
    ):
        (stream,) = (await connector.create_message_streams({topic: 1}))[topic]
        async with producer.transaction():
            assert await take(connector, stream, producer, 4) == [b"0", b"1", b"2", b"3"]

        # What is aborted is read again.
        await producer.begin_transaction()
        assert await take(connector, stream, producer, 3) == [b"4", b"5", b"6"]
        await producer.abort_transaction()
        await connector.seek_to_committed()
        async with producer.transaction():
            assert await take(connector, stream, producer, 2) == [b"4", b"5"]

    async with ConsumerConnector(settings) as successor, asyncio.timeout(DEADLINE_S):
        (stream,) = (await successor.create_message_streams({topic: 1}))[topic]
        assert (await anext(stream)).value == b"6"


@pytest.mark.parametrize("membership", ["zookeeper", "coordinator"])
async def test_who_has_left_the_group_is_refused_by_its_coordinator_alone(
    stock: str, stock_zookeeper: str, membership: str
) -> None:
    topic, group = await new_topic(stock), f"g-{uuid4().hex[:8]}"
    place = TopicPartition(topic, 0)
    await fill(stock, topic, 3)
    connector = ConsumerConnector(consumer_settings(stock, stock_zookeeper, membership, group))
    async with asyncio.timeout(DEADLINE_S), Producer(settings_of(stock)) as producer:
        async with connector:
            (stream,) = (await connector.create_message_streams({topic: 1}))[topic]
            message = await anext(stream)
            early = connector.group_metadata()
        late = connector.group_metadata()
        position = {place: OffsetAndMetadata(message.offset + 1)}

        async def commit(metadata: ConsumerGroupMetadata) -> None:
            async with producer.transaction():
                await producer.send_offsets_to_transaction(position, metadata)

        # The connector knows that it has left, whoever keeps the group.
        with pytest.raises(TransactionFailed, match="does not own"):
            await commit(late)
        assert await committed(stock, group) == {}

        # What it said before, the coordinator of the group compares; ZooKeeper's has no generation.
        if membership == "coordinator":
            with pytest.raises(TransactionFailed) as refused:
                await commit(early)
            assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
            assert await committed(stock, group) == {}
        else:
            assert (early.generation_id, early.member_id) == (-1, "")
            await commit(early)
            await until_equal(lambda: committed(stock, group), {place: 1})


@pytest.mark.parametrize(
    "settings",
    [
        {"auto.commit.enable": "true"},
        {"offsets.storage": "zookeeper"},
        {"dual.commit.enabled": "true"},
    ],
)
async def test_settings_that_would_go_past_the_transactions_are_refused(
    stock: str, stock_zookeeper: str, settings: dict[str, str]
) -> None:
    sound = consumer_settings(stock, stock_zookeeper, "zookeeper", "g")
    connector = ConsumerConnector({**sound, **settings})
    with pytest.raises(SettingError, match=r"auto\.commit\.enable|offsets\.storage"):
        connector.group_metadata()
    await connector.shutdown()


def test_commands_count_and_print_what_is_committed(stock: str) -> None:
    topic = asyncio.run(new_topic(stock))
    place = TopicPartition(topic, 0)

    def run(*arguments: str) -> list[str]:
        ran = subprocess.run(
            command_line("kgroup", *arguments, "--bootstrap-server", stock),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.splitlines()

    def lag(*options: str) -> Any:
        (row,) = json.loads("".join(run("describe", topic, "-o", "json", *options)))["items"]
        return row["log_end_offset"], row["lag"]

    committed_alone = ("--isolation", "read_committed")
    with blocking.Producer(settings_of(stock)) as producer:
        with producer.transaction():
            producer.send(topic, b"committed")
            producer.send_offsets_to_transaction(
                {place: OffsetAndMetadata(0)}, ConsumerGroupMetadata(topic)
            )
        asyncio.run(until_equal(lambda: committed(stock, topic), {place: 0}))
        producer.begin_transaction()
        producer.send_and_wait(topic, b"open")

        # The record, the marker of its transaction, and the record that is not committed.
        assert lag() == (3, 3)
        assert lag(*committed_alone) == (2, 2)
        reading = ("consume", "--topic", topic, "--partition", "0", "--from-beginning")
        until_now = ("--timeout-ms", "1000")
        assert run(*reading, *until_now) == ["committed", "open"]
        assert run(*reading, *until_now, *committed_alone) == ["committed"]
        producer.abort_transaction()


# ---- the guide


async def test_the_first_program_of_the_guide_pays(stock: str) -> None:
    async with Admin(stock) as admin:
        assert await admin.create_topics([NewTopic("accounts", 1, 1)]) == {"accounts": None}
    guide: dict[str, Any] = {}
    exec(PROGRAM, guide)
    await guide["pay"](stock)
    place = TopicPartition("accounts", 0)
    await until_equal(lambda: read(stock, place), [b"-10", b"+10"])


def test_a_loop_that_is_killed_leaves_one_output_for_each_input(stock: str) -> None:
    sent = asyncio.run(loop_that_is_killed(stock))

    # What the guide's commands print of it.
    ran = [
        subprocess.run(
            command_line(*shlex.split(command), "--bootstrap-server", stock),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        for command in COMMANDS
    ]
    assert [each.returncode for each in ran] == [0, 0], [each.stderr for each in ran]
    assert len(ran[0].stdout.splitlines()) == sent
    rows = [row.split() for row in ran[1].stdout.splitlines() if row.split()[:1] == ["transform"]]
    assert [row[5] for row in rows] == ["0", "0"]


async def loop_that_is_killed(bootstrap: str) -> int:
    """Kill the guide's loop twice, let it end, and return the number of its inputs."""
    places = [TopicPartition("output", number) for number in range(2)]
    async with Admin(bootstrap) as admin:
        new = [NewTopic(name, 2, 1) for name in ("input", "output")]
        assert await admin.create_topics(new) == {"input": None, "output": None}

    async def outputs(isolation: Isolation) -> list[bytes | None]:
        return [value for place in places for value in await read(bootstrap, place, isolation)]

    def start() -> subprocess.Popen[str]:
        run = f"import asyncio\nasyncio.run(transform({bootstrap!r}, 'transform-1'))"
        return subprocess.Popen([sys.executable, "-c", f"{PROGRAM}\n{run}"], cwd=ROOT, text=True)

    sent = 0
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for _ in range(2):
            # Killed as soon as something of it is in the log, and so in its transaction if not in
            # the next one.
            before = len(await outputs(Isolation.READ_UNCOMMITTED))
            process = start()
            try:
                for _ in range(200):
                    sent += 1
                    value = b"value %d" % sent
                    await producer.send("input", value, key=b"%d" % sent, partition=sent % 2)
                while len(await outputs(Isolation.READ_UNCOMMITTED)) == before:
                    assert process.poll() is None
            finally:
                process.kill()
                process.wait(DEADLINE_S)

    process = start()
    try:

        async def is_complete() -> bool:
            return len(await outputs(Isolation.READ_COMMITTED)) >= sent

        await until(is_complete, "an output for each input")
    finally:
        process.terminate()
        process.wait(DEADLINE_S)

    values = await outputs(Isolation.READ_COMMITTED)
    assert sorted(values, key=str) == sorted((b"VALUE %d" % n for n in range(1, sent + 1)), key=str)
    return sent
