"""Logs go from Kafka's hands to ours and back: each opens, continues and cleans what it finds.

The brokers serve one after the other, with one broker id, on one directory and one ZooKeeper tree.
"""

import asyncio
import json
import re
from pathlib import Path
from uuid import uuid4

import confluent_kafka
import pytest

from clients.admin import Admin, NewPartitions, NewTopic
from compaction.status import STATUS_FILE, decode_status
from core_log.directory_name import Kind
from core_log.first_use import IN_USE_SINCE
from core_log.meta_properties import META_PROPERTIES, MetaProperties
from core_log.producers.producer_snapshots import SNAPSHOT
from core_log.topic_identity_file import TOPIC_IDENTITY
from core_log.topics_mark_file import TOPICS_MARK
from protocol.internal_topics import OFFSETS_TOPIC
from tests.interop.handover import CODECS, LATEST, OURS, Site
from tests.interop.test_dump_log_segments import ours, stock
from tests.interop.test_stock_snapshots import produce
from tests.stage.waiting import DEADLINE_S, block_until
from tests.stage.zookeeper import zookeeper_session
from zk.znodes import Controller, TopicAssignment

GROUP = "readers"
NOTHING = r"(?!)"
ZSTD = (*CODECS, "zstd")
COMPACTED = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0.1",
    "min_compaction_lag_ms": "0",
}
STOCK = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "log.flush.scheduler.interval.ms": "500",
    "log.flush.interval.ms": "500",
}
NO_CLEANER = {"log.cleaner.enable": "false"}
SLOW_CLEANER = {"log.cleaner.io.max.bytes.per.second": "20000"}
PARTITION_METADATA = "partition.metadata"


@pytest.fixture
def site(zookeeper: str, tmp_path: Path) -> Site:
    return Site(f"{zookeeper}/disk-{uuid4().hex[:8]}", tmp_path)


def speaking(version: str) -> dict[str, str]:
    """Settings of a broker of ours among brokers of a version."""
    return {"inter.broker.protocol.version": version, "log.message.format.version": version}


def consumed(bootstrap: str, site: Site, topics: list[str], known: int, *, joins: bool) -> int:
    """The group goes on where it was, with a member that `joins` it or one on its own; returns how
    much there is by now."""
    all_lines = {(topic, *line) for topic in topics for line in site.written[topic]}
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    if joins:
        consumer.subscribe(topics)
    else:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0) for topic in topics])
    found: list[tuple[object, ...]] = []
    while len(found) < len(all_lines) - known:
        messages = consumer.consume(len(all_lines) - known - len(found), DEADLINE_S)
        assert messages, f"{len(found)} of {len(all_lines) - known} new messages"
        assert [m.error() for m in messages if m.error()] == []
        found += [(m.topic(), m.offset(), m.key(), m.value()) for m in messages]
    consumer.commit(asynchronous=False)
    consumer.close()
    assert len(set(found)) == len(found)
    assert set(found) <= all_lines
    return len(all_lines)


def test_a_directory_goes_through_the_hands_of_three_releases_with_ours_between(site: Site) -> None:
    asyncio.run(site.found_cluster())
    topics: list[str] = []
    known = 0

    async def continued(bootstrap: str, word: str, *new: str) -> None:
        for version in new:
            await site.create(bootstrap, f"v{version}", message_format_version=version)
        await site.assert_whole(bootstrap, *topics)
        topics.extend(f"v{version}" for version in new)
        for topic in topics:
            await site.write(bootstrap, topic, word, ZSTD if topic == "v2.8" else CODECS)
        await site.assert_whole(bootstrap, *topics)

    for release, version, new in (
        ("0.10.2.2", "0.10.2", ("0.9.0", "0.10.2")),
        ("0.10.2.2", "0.10.2", ()),
        ("1.1.1", "1.1", ("1.1",)),
        (LATEST, "2.8", ("2.8",)),
    ):
        with site.served_by(release) as bootstrap:
            asyncio.run(continued(bootstrap, release, *new))
            known = consumed(bootstrap, site, topics, known, joins=True)
        with site.served_by(OURS, speaking(version)) as bootstrap:
            asyncio.run(continued(bootstrap, f"ours after {release}"))
            known = consumed(bootstrap, site, topics, known, joins=False)
    assert {topic: site.magics(topic) for topic in topics} == {
        "v0.9.0": {0},
        "v0.10.2": {1},
        "v1.1": {2},
        "v2.8": {2},
    }
    assert min(len(site.segments(topic)) for topic in topics) > 3
    site.verify()
    dumped_alike(site, "--print-data-log", *topics)
    dumped_alike(site, "--offsets-decoder", "__consumer_offsets")
    for make, expected in (
        # it looks for leaders before it has registered itself
        ("0.10.2.2", r"No meta.properties file|state\.change\.logger"),
        ("1.1.1", NOTHING),
        (LATEST, NOTHING),
        # 0.10 indexes the times that messages of format 0 came with, though it does not store them
        (OURS, r"/v0\.9\.0-0: 0+\d+\.timeindex ends with"),
    ):
        others = [line for line in site.complaints(make) if not re.search(expected, line)]
        assert others == []


def transact(bootstrap: str, topic: str) -> None:
    """Ten records that are taken back, and ten that are not."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": "payer", "linger.ms": 0}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(DEADLINE_S)
    for word, end in (
        ("aborted", producer.abort_transaction),
        ("committed", producer.commit_transaction),
    ):
        producer.begin_transaction()
        for number in range(10):
            producer.produce(topic, f"{word} {number}", partition=0)
        producer.flush(DEADLINE_S)
        end(DEADLINE_S)


def paid(bootstrap: str, topic: str) -> list[str]:
    """The first ten that were not taken back."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    messages = consumer.consume(10, DEADLINE_S)
    consumer.close()
    return [(message.value() or b"").decode() for message in messages]


COMMITTED = [f"committed {number}" for number in range(10)]


async def depose_controller(site: Site) -> None:
    """The next one tells of all topics again; then 2.8 notes their ids beside the logs."""
    async with zookeeper_session(site.zookeeper) as session:
        await session.delete(Controller.path())


async def topic_id(site: Site, topic: str) -> object:
    """As 2.8 keeps it in the topic's znode."""
    async with zookeeper_session(site.zookeeper) as session:
        data, _ = await session.get(TopicAssignment.path(topic))
    return json.loads(data or b"{}").get("topic_id")


def dumped_alike(site: Site, option: str, *topics: str) -> None:
    """The stock tool says what ours says, of every file of their partitions."""
    files = [file for topic in topics for file in site.files(topic)]
    arguments = ("--files", ",".join(files), option)
    theirs, mine = stock(site.log_dir, *arguments), ours(site.log_dir, *arguments)
    assert mine.stdout == theirs.stdout
    assert (mine.returncode, theirs.returncode, mine.stderr) == (0, 0, "")
    assert mine.stdout.count("Dumping ") == len(files)


def test_logs_that_each_has_written_and_cleaned_are_whole_with_the_other(site: Site) -> None:
    table = site.log_dir / "table-0"

    async def write(bootstrap: str, word: str) -> None:
        await site.write(bootstrap, "plain", word, ZSTD)
        await site.write(bootstrap, "table", word, ZSTD, count=100, enable_idempotence=True)

    with site.served_by(OURS, NO_CLEANER) as bootstrap:
        asyncio.run(site.create(bootstrap, "plain"))
        asyncio.run(site.create(bootstrap, "table", **COMPACTED))
        asyncio.run(write(bootstrap, "ours"))
    with site.served_by(LATEST, STOCK) as bootstrap:
        asyncio.run(site.assert_whole(bootstrap, "plain"))
        asyncio.run(site.assert_cleaned(bootstrap, "table"))
        asyncio.run(write(bootstrap, "theirs"))
        asyncio.run(site.assert_cleaned(bootstrap, "table"))
        asyncio.run(site.create(bootstrap, "payments"))
        transact(bootstrap, "payments")
        asyncio.run(depose_controller(site))
        block_until((table / PARTITION_METADATA).exists, "topic ids on disk")
    ids = {path: path.read_bytes() for path in site.log_dir.glob(f"*/{PARTITION_METADATA}")}
    assert table / PARTITION_METADATA in ids
    plain_id = asyncio.run(topic_id(site, "plain"))
    assert plain_id is not None
    meta = MetaProperties.decode((site.log_dir / META_PROPERTIES).read_bytes())
    assert meta.cluster_id is not None

    with site.served_by(OURS) as bootstrap:
        asyncio.run(site.assert_whole(bootstrap, "plain"))
        asyncio.run(site.assert_cleaned(bootstrap, "table"))
        assert paid(bootstrap, "payments") == COMMITTED
        asyncio.run(write(bootstrap, "ours again"))
        block_until(lambda: passes(site, "table"), "a cleaning by us")
        asyncio.run(site.assert_cleaned(bootstrap, "table"))
        asyncio.run(add_partition(bootstrap, "plain"))
    assert {path: path.read_bytes() for path in ids} == ids
    assert asyncio.run(topic_id(site, "plain")) == plain_id
    assert MetaProperties.decode((site.log_dir / META_PROPERTIES).read_bytes()) == meta
    assert list(table.glob(f"*{SNAPSHOT}"))
    site.verify()
    dumped_alike(site, "--print-data-log", "plain", "table", "payments")
    dumped_alike(site, "--transaction-log-decoder", "__transaction_state")

    with site.served_by(LATEST, STOCK) as bootstrap:
        asyncio.run(site.assert_whole(bootstrap, "plain"))
        asyncio.run(site.assert_cleaned(bootstrap, "table"))
        assert paid(bootstrap, "payments") == COMMITTED
    assert [site.complaints(make) for make in (LATEST, OURS)] == [[], []]


async def add_partition(bootstrap: str, topic: str) -> None:
    """One more than it had."""
    async with Admin(bootstrap) as admin:
        assert await admin.create_partitions({topic: NewPartitions(2)}) == {topic: None}


def passes(site: Site, topic: str) -> bool:
    """Whether our cleaner has been over it."""
    file = site.log_dir / STATUS_FILE
    status = decode_status(file.read_bytes() if file.exists() else None)
    found = status.get(f"{topic}-0")
    return found is not None and found.last is not None


async def create_again(bootstrap: str, topic: str) -> None:
    """Delete a topic, and create one of its name once it is gone."""
    async with Admin(bootstrap) as admin:
        assert await admin.delete_topics([topic]) == {topic: None}
        async with asyncio.timeout(DEADLINE_S):
            while await admin.create_topics([NewTopic(topic, 1, 1)]) != {topic: None}:
                await asyncio.sleep(0.2)


async def committed(bootstrap: str, *topics: str) -> dict[str, int | None]:
    """The offsets that GROUP has committed for these topics."""
    async with Admin(bootstrap) as admin:
        offsets = await admin.group_offsets(GROUP)
    found = {tp.topic: stored.offset for tp, stored in offsets.items()}
    return {topic: found.get(topic) for topic in topics}


@pytest.mark.parametrize("killed", [False, True])
def test_files_that_kafka_does_not_know_neither_stop_it_nor_mislead_us_afterwards(
    site: Site, killed: bool
) -> None:
    """Of two topics one is made again while Kafka serves, which writes no such file."""
    topics = ["kept", "replaced"]
    offsets_log = site.log_dir / f"{OFFSETS_TOPIC}-0"
    known = 0

    with site.served_by(OURS, killed=killed) as bootstrap:
        for topic in topics:
            asyncio.run(site.create(bootstrap, topic))
            asyncio.run(site.write(bootstrap, topic, "ours"))
        known = consumed(bootstrap, site, topics, known, joins=True)
        block_until(lambda: (offsets_log / TOPICS_MARK).exists(), "a mark of the topics")
        at_first = asyncio.run(committed(bootstrap, *topics))
        assert at_first == {topic: len(site.written[topic]) for topic in topics}
    for file in (
        site.log_dir / IN_USE_SINCE,
        site.log_dir / "kept-0" / TOPIC_IDENTITY,
        offsets_log / TOPIC_IDENTITY,
    ):
        assert file.exists(), file

    with site.served_by(LATEST, killed=killed) as bootstrap:
        asyncio.run(site.assert_whole(bootstrap, *topics))
        assert asyncio.run(committed(bootstrap, *topics)) == at_first
        # Its log here has no identity, and what it has committed is behind our mark.
        asyncio.run(create_again(bootstrap, "replaced"))
        known -= len(site.written.pop("replaced"))
        for topic in topics:
            asyncio.run(site.write(bootstrap, topic, "theirs"))
        known = consumed(bootstrap, site, topics, known, joins=True)

    for _ in range(2):
        with site.served_by(OURS, killed=killed) as bootstrap:
            asyncio.run(site.assert_whole(bootstrap, *topics))
            ends = {topic: len(site.written[topic]) for topic in topics}
            assert asyncio.run(committed(bootstrap, *topics)) == ends
            for topic in topics:
                asyncio.run(site.write(bootstrap, topic, "ours again"))
            known = consumed(bootstrap, site, topics, known, joins=True)
    assert list(site.log_dir.glob(f"*{Kind.SET_ASIDE.value}-*")) == []
    site.verify()


def test_after_kill_9_each_recovers_what_the_other_has_left(site: Site) -> None:
    table = site.log_dir / "table-0"
    known = 0

    async def write(bootstrap: str, word: str) -> None:
        await site.write(bootstrap, "plain", word, ZSTD)
        await site.write(bootstrap, "table", word, ZSTD, count=100)

    with site.served_by(OURS, SLOW_CLEANER, killed=True) as bootstrap:
        for topic in ("plain", "numbered"):
            asyncio.run(site.create(bootstrap, topic))
        asyncio.run(site.create(bootstrap, "table", **COMPACTED))
        asyncio.run(write(bootstrap, "ours"))
        assert asyncio.run(produce(bootstrap, "numbered", 0, 2)) == [(0, 0), (0, 2)]
        block_until(lambda: passes(site, "table"), "a cleaning by us")
        known = consumed(bootstrap, site, ["plain"], known, joins=False)
        asyncio.run(write(bootstrap, "ours again"))

        def is_under_way() -> bool:
            """Or there is more to clean, lest the last one be over already."""
            asyncio.run(site.write(bootstrap, "table", "and again", ["none"]))
            return any(table.glob("*.cleaned"))

        block_until(is_under_way, "a second one under way")
    site.tear("plain")
    site.half_swap("plain")
    with site.served_by(LATEST, killed=True) as bootstrap:
        asyncio.run(site.assert_whole(bootstrap, "plain"))
        asyncio.run(site.assert_cleaned(bootstrap, "table"))
        assert asyncio.run(produce(bootstrap, "numbered", 2, 4)) == [(0, 2), (0, 4)]
        asyncio.run(write(bootstrap, "theirs"))
        known = consumed(bootstrap, site, ["plain"], known, joins=True)
    site.tear("plain")
    site.half_swap("plain")
    with site.served_by(OURS) as bootstrap:
        asyncio.run(site.assert_whole(bootstrap, "plain"))
        asyncio.run(site.assert_cleaned(bootstrap, "table"))
        assert asyncio.run(produce(bootstrap, "numbered", 4, 6)) == [(0, 4), (0, 6)]
        asyncio.run(write(bootstrap, "ours at last"))
        consumed(bootstrap, site, ["plain"], known, joins=False)
    site.verify()
    dumped_alike(site, "--print-data-log", "plain", "numbered")
    for make, words in ((LATEST, "truncating to offset 300"), (OURS, "truncates 100 bytes")):
        complaints = site.complaints(make)
        assert [words in line for line in complaints].count(True) == 1
        assert [line for line in complaints if "plain-0" not in line] == []
    assert site.leftovers("plain") == []
