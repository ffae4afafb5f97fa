"""Old and new across the formats: our clients on a broker of 0.8.2.2, old tools on our broker.

Nobody here knows what the other side is: messages of formats 0 and 1 go one way and the other, in
every codec of the time, LZ4 with the header checksum that its Kafka of the day got wrong.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from clients.admin import LATEST_TIME, Admin, NewTopic
from clients.errors import DeadlineExceeded
from clients.producer.producer import Producer
from clients.simple_consumer import EARLIEST_TIME, FetchRequest, SimpleConsumer
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch import Record
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.cluster import DevCluster
from tests.stage.old_kafka import old_broker, run_old_tool

OLDEST, NEWER = "0.8.2.2", "0.10.2.2"
CODECS = ("none", "gzip", "snappy", "lz4")
RELEASES = [*((OLDEST, codec) for codec in CODECS), (NEWER, "none"), (NEWER, "lz4")]
COUNT = 3000
PATIENCE_S = 60.0
LINES = [f"message {number} " + "." * (number % 150) for number in range(COUNT)]
FALLBACK = {"broker.version.fallback": OLDEST}

# ---- our clients, an old broker


@pytest.fixture(scope="module")
def oldest(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    chroot = f"{zookeeper}/old-{uuid4().hex[:8]}"
    with old_broker(OLDEST, chroot, tmp_path_factory.mktemp("old")) as bootstrap:
        yield bootstrap


def named(bootstrap: str, **settings: str) -> dict[str, str]:
    return {"bootstrap.servers": bootstrap, **FALLBACK, **settings}


def some_topic() -> str:
    return f"t-{uuid4().hex[:8]}"


async def send(settings: dict[str, str], topic: str, codec: str) -> None:
    async with Producer(settings, compression_type=codec, linger_ms=20) as producer:
        sent = [await producer.send(topic, line.encode(), partition=0) for line in LINES]
        assert [(await one).offset for one in sent] == list(range(COUNT))


async def receive(settings: dict[str, str], topic: str) -> list[Record]:
    found: list[Record] = []
    async with await SimpleConsumer.for_leader(settings, topic, 0) as consumer:
        while len(found) < COUNT:
            fetched = await consumer.fetch(FetchRequest(topic, 0, len(found), 20_000))
            fetched.raise_for_error()
            assert fetched.records
            found += fetched.records
    return found


@pytest.mark.parametrize("codec", CODECS)
async def test_what_we_send_to_an_old_broker_comes_back(oldest: str, codec: str) -> None:
    topic = some_topic()
    await send(named(oldest), topic, codec)

    found = await receive(named(oldest), topic)

    assert [(r.offset, (r.value or b"").decode()) for r in found] == [*enumerate(LINES)]
    assert {r.timestamp_ms for r in found} == {-1}


async def test_old_broker_is_described_as_far_as_it_can_say(oldest: str) -> None:
    topic = some_topic()
    await send(named(oldest), topic, "none")
    partition = TopicPartition(topic, 0)

    async with Admin(named(oldest)) as admin:
        assert topic in await admin.list_topics()
        (broker,) = (await admin.describe_cluster()).brokers
        assert str(broker) == oldest
        assert (await admin.list_offsets({partition: LATEST_TIME}))[partition].offset == COUNT
        await admin.commit_group_offsets("g", {partition: OffsetAndMetadata(7, "note")})
        offsets = await admin.group_offsets("g", [partition])
    assert offsets == {partition: OffsetAndMetadata(7, "note")}


async def test_offsets_of_a_group_in_zookeeper_go_through_an_old_broker(oldest: str) -> None:
    topic, other = some_topic(), TopicPartition("none", 0)
    await send(named(oldest), topic, "none")
    partition = TopicPartition(topic, 0)

    async with await SimpleConsumer.for_leader(named(oldest), topic, 0) as consumer:
        committed = await consumer.commit_offsets("z", {partition: 9}, version=0)
        fetched = await consumer.fetch_offsets("z", [partition, other], version=0)
        assert await consumer.get_offsets_before(topic, 0, LATEST_TIME, 9) == [COUNT, 0]
        assert await consumer.earliest_or_latest_offset(topic, 0, EARLIEST_TIME) == 0
    assert committed == {partition: ErrorCode.NONE}
    assert fetched[partition].offset == 9
    assert fetched[other].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_headers_are_refused_rather_than_lost(oldest: str) -> None:
    async with Producer(named(oldest)) as producer:
        with pytest.raises(ApiError, match="UNSUPPORTED_FOR_MESSAGE_FORMAT"):
            await producer.send_and_wait(some_topic(), b"v", headers=[("h", b"x")])


async def test_old_broker_that_nobody_told_us_of_is_named_with_the_setting(oldest: str) -> None:
    settings = {"bootstrap.servers": oldest, "default.api.timeout.ms": 5000}
    async with Admin(settings) as admin:
        with pytest.raises(DeadlineExceeded, match=r"broker\.version\.fallback"):
            await admin.list_topics()


# ---- old tools, our broker


async def our_topic(cluster: DevCluster, **configs: str) -> str:
    name = some_topic()
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    async with Admin(cluster.address("bootstrap")) as admin:
        topic = NewTopic(name, 1, 1, configs=settings)
        assert await admin.create_topics([topic]) == {name: None}
    return name


async def produce(version: str, bootstrap: str, topic: str, codec: str) -> None:
    """The tool wants no acknowledgements: it may be gone before all is in the log."""
    run_old_tool(
        version,
        "kafka.tools.ConsoleProducer",
        *("--broker-list", bootstrap, "--topic", topic, "--compression-codec", codec),
        stdin="".join(line + "\n" for line in LINES),
    )
    settings, end = {"bootstrap.servers": bootstrap}, 0
    async with (
        asyncio.timeout(PATIENCE_S),
        await SimpleConsumer.for_leader(settings, topic, 0) as c,
    ):
        while end < COUNT:
            end = await c.earliest_or_latest_offset(topic, 0, LATEST_TIME)
            await asyncio.sleep(0.05)


def consume(version: str, bootstrap: str, topic: str, fetch_bytes: int = 1 << 20) -> list[str]:
    """By the shell around SimpleConsumer, from the start to the end of the log."""
    said = run_old_tool(
        version,
        "kafka.tools.SimpleConsumerShell",
        *("--broker-list", bootstrap, "--topic", topic, "--partition", "0"),
        *("--offset", "-2", "--no-wait-at-logend", "--fetchsize", str(fetch_bytes)),
    )
    return [line for line in said.splitlines() if line.startswith("message ")]


@pytest.mark.parametrize(("version", "codec"), RELEASES)
async def test_old_consumer_reads_what_we_keep_in_the_newest_format(
    dev_cluster: DevCluster, version: str, codec: str
) -> None:
    """All of it in one fetch, sent in pieces; then in small ones, that end within a batch."""
    topic = await our_topic(dev_cluster)
    bootstrap = dev_cluster.address("bootstrap")
    await send({"bootstrap.servers": bootstrap}, topic, codec)

    assert consume(version, bootstrap, topic) == LINES
    if codec == "none":
        assert consume(version, bootstrap, topic, fetch_bytes=20_000) == LINES


@pytest.mark.parametrize(("version", "codec"), RELEASES)
async def test_we_read_what_an_old_producer_has_sent_us(
    dev_cluster: DevCluster, version: str, codec: str
) -> None:
    topic = await our_topic(dev_cluster)
    bootstrap = dev_cluster.address("bootstrap")
    await produce(version, bootstrap, topic, codec)

    found = await receive({"bootstrap.servers": bootstrap}, topic)

    assert [(r.value or b"").decode() for r in found] == LINES
    assert all((r.timestamp_ms == -1) == (version == OLDEST) for r in found)


@pytest.mark.parametrize(("version", "kept"), [(OLDEST, "0.8.2"), (NEWER, "0.10.2")])
async def test_topic_in_an_old_format_is_shared_by_old_and_new(
    dev_cluster: DevCluster, version: str, kept: str
) -> None:
    topic = await our_topic(dev_cluster, message_format_version=kept)
    bootstrap = dev_cluster.address("bootstrap")
    await produce(version, bootstrap, topic, "snappy")

    assert consume(version, bootstrap, topic) == LINES
    found = await receive({"bootstrap.servers": bootstrap}, topic)
    assert [(r.value or b"").decode() for r in found] == LINES
    await send_more({"bootstrap.servers": bootstrap}, topic)
    assert consume(version, bootstrap, topic) == [*LINES, "message of today"]


async def send_more(settings: dict[str, str], topic: str) -> None:
    async with Producer(settings) as producer:
        await producer.send_and_wait(topic, b"message of today", partition=0)


async def test_old_tools_find_offsets_and_a_group_in_zookeeper(
    dev_cluster: DevCluster, tmp_path: Path
) -> None:
    topic, bootstrap = await our_topic(dev_cluster), dev_cluster.address("bootstrap")
    await send({"bootstrap.servers": bootstrap}, topic, "gzip")

    listed = run_old_tool(
        OLDEST,
        "kafka.tools.GetOffsetShell",
        *("--broker-list", bootstrap, "--topic", topic, "--time", "-1", "--offsets", "2"),
    )
    heard = run_old_tool(
        OLDEST,
        "kafka.tools.ConsoleConsumer",
        *("--zookeeper", dev_cluster.address("zookeeper"), "--topic", topic),
        *("--from-beginning", "--max-messages", str(COUNT)),
    )

    assert f"{topic}:0:{COUNT},0" in listed.splitlines()
    assert [line for line in heard.splitlines() if line.startswith("message ")] == LINES
