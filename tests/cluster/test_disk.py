"""What a broker leaves on disk: Kafka's files, read by Kafka's own tool and by Kafka's broker."""

import asyncio
import re
import resource
import signal
import struct
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from clients.admin import EARLIEST_TIME, Admin, NewTopic
from clients.producer.producer import Producer
from protocol.errors import ErrorCode
from protocol.java_hash import group_partition
from protocol.messages.produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from protocol.records.batch import Record, encode_batch
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.cluster.raw_client import RawClient
from tests.stage.cluster import DevCluster
from tests.stage.stock_kafka import run_tool, stock_broker
from tests.stage.topic_contents import contents

PARTITION = TopicPartition("disk", 0)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS_A_CODEC = 200
SEGMENT_BYTES = 8_192
GROUP = "on-disk"
SHORT = TopicPartition("short", 0)
PATIENCE_S = 30.0


async def fill(bootstrap: str) -> None:
    """Records of every codec, over several segments, and a commit."""
    async with Admin(bootstrap) as admin:
        configs = {"segment.bytes": str(SEGMENT_BYTES), "index.interval.bytes": "1000"}
        assert await admin.create_topics([NewTopic("disk", 1, 1, configs)]) == {"disk": None}
        await admin.commit_group_offsets(GROUP, {PARTITION: OffsetAndMetadata(42, "note")})
    number = 0
    for codec in CODECS:
        async with Producer(
            bootstrap_servers=bootstrap, compression_type=codec, batch_size=1000, linger_ms=5
        ) as producer:
            for _ in range(RECORDS_A_CODEC):
                await producer.send(
                    "disk",
                    None if number % 50 == 7 else b"value %d " % number + b"." * 90,
                    key=None if number % 50 == 3 else b"key %d" % number,
                    headers=[("h", b"%d" % number), ("null", None)] if number % 20 == 0 else [],
                    timestamp_ms=1_600_000_000_000 + number,
                )
                number += 1


@attrs.frozen
class Written:
    """A cluster whose broker has written, and was stopped in good order; ZooKeeper runs on."""

    cluster: DevCluster
    records: list[Record]

    @property
    def log_dir(self) -> Path:
        return self.cluster.directory / "broker-0"

    def files(self, suffix: str, partition: TopicPartition = PARTITION) -> list[Path]:
        """A partition's files of one kind, oldest first."""
        return sorted((self.log_dir / str(partition)).glob(f"*{suffix}"))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    with DevCluster(tmp_path_factory.mktemp("disk")) as cluster:
        bootstrap = cluster.address("bootstrap")
        asyncio.run(fill(bootstrap))
        records = asyncio.run(contents(bootstrap, PARTITION))
        cluster.kill("broker-0", signal.SIGTERM)
        yield Written(cluster, records)


def test_a_log_directory_holds_what_kafkas_holds(written: Written) -> None:
    here = {path.name for path in written.log_dir.iterdir()}
    assert here - {f"__consumer_offsets-{n}" for n in range(50)} == {
        ".kafka_cleanshutdown",
        ".lock",
        "disk-0",
        # Ours: Kafka looks at no other files.
        "in-use-since",
        "log-start-offset-checkpoint",
        "meta.properties",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    }
    meta = (written.log_dir / "meta.properties").read_text().splitlines()
    assert {line.partition("=")[0] for line in meta if not line.startswith("#")} == {
        "version",
        "broker.id",
        "cluster.id",
    }


@pytest.mark.parametrize("name", ["recovery-point", "replication"])
def test_checkpoints_name_each_partition_with_its_offset(written: Written, name: str) -> None:
    version, count, *lines = (
        (written.log_dir / f"{name}-offset-checkpoint").read_text().splitlines()
    )
    assert (version, int(count)) == ("0", len(lines))
    assert f"disk 0 {len(written.records)}" in lines
    assert len(lines) == 51


def test_segments_are_named_by_their_base_offset_and_have_their_indexes(written: Written) -> None:
    here = {path.name for path in (written.log_dir / "disk-0").iterdir()}
    bases = [int(path.stem) for path in written.files(".log")]
    kinds = (".log", ".index", ".timeindex")
    assert {f"{base:020d}{kind}" for base in bases for kind in kinds} <= here
    assert "leader-epoch-checkpoint" in here
    assert bases[0] == 0
    assert len(bases) > 3
    for file, base in zip(written.files(".log"), bases, strict=True):
        content = file.read_bytes()
        assert len(content) <= SEGMENT_BYTES
        assert struct.unpack_from(">q", content) == (base,)
    assert all(path.stat().st_size % 8 == 0 for path in written.files(".index"))
    assert all(path.stat().st_size % 12 == 0 for path in written.files(".timeindex"))
    assert sum(path.stat().st_size for path in written.files(".index")) > 0


# ---- Kafka's own eyes

DEEP = re.compile(
    r"^\| offset: (\d+) isValid: (\w+) .*?keySize: (-?\d+) valueSize: (-?\d+) "
    r"CreateTime: (\d+) .*headerKeys: \[(.*?)\]",
    re.MULTILINE,
)


def test_kafkas_dump_tool_finds_every_record_valid(written: Written) -> None:
    files = ",".join(map(str, written.files(".log")))
    said = run_tool("kafka.tools.DumpLogSegments", "--deep-iteration", "--files", files)
    assert [
        (int(offset), valid, int(key), int(value), int(time), headers)
        for offset, valid, key, value, time, headers in DEEP.findall(said)
    ] == [
        (
            record.offset,
            "true",
            -1 if record.key is None else len(record.key),
            -1 if record.value is None else len(record.value),
            record.timestamp_ms,
            ",".join(name for name, _ in record.headers),
        )
        for record in written.records
    ]
    assert len(written.records) == RECORDS_A_CODEC * len(CODECS)
    assert "isvalid: false" not in said
    assert "invalid bytes" not in said
    assert "Non-consecutive" not in said
    for codec in CODECS:
        assert f"compresscodec: {codec.upper()}" in said


def test_kafkas_dump_tool_finds_the_indexes_right(written: Written) -> None:
    files = ",".join(map(str, [*written.files(".index"), *written.files(".timeindex")]))
    said = run_tool("kafka.tools.DumpLogSegments", "--verify-index-only", "--files", files)
    assert [line for line in said.splitlines() if not line.startswith("Dumping ")] == []


def test_kafkas_dump_tool_decodes_the_commits(written: Written) -> None:
    partition = TopicPartition("__consumer_offsets", group_partition(GROUP, 50))
    (file,) = written.files(".log", partition)
    said = run_tool("kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", str(file))
    assert f"key: offset_commit::group={GROUP},partition=disk-0" in said
    assert "payload: offset=42,metadata=note" in said


def test_a_broker_of_kafkas_goes_on_with_our_log_directory_and_ours_with_what_it_leaves(
    written: Written, tmp_path: Path
) -> None:
    settings = {"log.dirs": str(written.log_dir)}
    zookeeper = written.cluster.address("zookeeper")

    async def as_kafka_has_it(bootstrap: str) -> list[Record]:
        async with Admin(bootstrap) as admin:
            assert await admin.group_offsets(GROUP) == {PARTITION: OffsetAndMetadata(42, "note")}
            await admin.commit_group_offsets(GROUP, {PARTITION: OffsetAndMetadata(43, "stock")})
        assert await contents(bootstrap, PARTITION) == written.records
        async with Producer(bootstrap_servers=bootstrap, acks="all") as producer:
            for number in range(300):
                await producer.send_and_wait("disk", b"stock %d " % number + b"." * 90)
        return await contents(bootstrap, PARTITION)

    async def as_we_have_it(bootstrap: str) -> list[Record]:
        async with Admin(bootstrap) as admin:
            assert await admin.group_offsets(GROUP) == {PARTITION: OffsetAndMetadata(43, "stock")}
        return await contents(bootstrap, PARTITION)

    with stock_broker(zookeeper, tmp_path, settings) as bootstrap:
        theirs = asyncio.run(as_kafka_has_it(bootstrap))
    assert len(theirs) == len(written.records) + 300
    with written.cluster.started_again():
        assert asyncio.run(as_we_have_it(written.cluster.address("bootstrap"))) == theirs
        assert "with recovery" not in written.cluster.log().rpartition("loading")[2]


# ---- what goes again


def test_old_segments_and_deleted_topics_leave_the_disk(tmp_path: Path) -> None:
    async def scenario(bootstrap: str) -> None:
        configs = {
            "segment.bytes": "2000",
            "retention.bytes": "5000",
            "file.delete.delay.ms": "0",
        }
        async with Admin(bootstrap) as admin, Producer(bootstrap_servers=bootstrap) as producer:
            assert await admin.create_topics([NewTopic("short", 1, 1, configs)]) == {"short": None}
            for _ in range(100):
                await producer.send_and_wait("short", b"x" * 200)
            directory = tmp_path / "broker-0" / "short-0"
            async with asyncio.timeout(PATIENCE_S):
                while len(files := sorted(directory.glob("*.log*"))) > 4:
                    await asyncio.sleep(0.05)
            earliest = (await admin.list_offsets({SHORT: EARLIEST_TIME}))[SHORT].offset
            assert earliest == int(files[0].stem) > 0
            assert 5000 <= sum(file.stat().st_size for file in files) <= 8000
            assert [r.offset for r in await contents(bootstrap, SHORT, earliest)] == [
                *range(earliest, 100)
            ]
            assert await admin.delete_topics(["short"]) == {"short": None}
            async with asyncio.timeout(PATIENCE_S):
                while list((tmp_path / "broker-0").glob("short*")):
                    await asyncio.sleep(0.05)

    often = ("--set", "log.retention.check.interval.ms=200")
    with DevCluster(tmp_path, often) as cluster:
        asyncio.run(scenario(cluster.address("bootstrap")))


def test_a_partition_that_cannot_be_written_fails_alone(tmp_path: Path) -> None:
    """The system refuses to let a file of the broker grow, as a full disk would."""
    limit = 11 * 1024 * 1024  # an index is 10 MB while its segment is written
    batch = encode_batch([(0, None, b"x" * 900_000, ())])

    def send(client: RawClient, topic: str) -> ErrorCode:
        part = ProduceRequestPartition(index=0, records=batch)
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[ProduceRequestTopic(name=topic, partition_data=[part])],
        )
        answer = client.ask(request, 7)
        return ErrorCode.of(answer.responses[0].partition_responses[0].error_code)

    with DevCluster(tmp_path) as cluster, RawClient(cluster) as client:
        for topic in ("full", "other"):
            assert cluster.run("kbroker", "topics", "create", topic).returncode == 0
        resource.prlimit(cluster.pid("broker-0"), resource.RLIMIT_FSIZE, (limit, limit))
        codes = [send(client, "full") for _ in range(15)]
        written = codes.count(ErrorCode.NONE)
        assert written > 5
        assert codes[written:] == [ErrorCode.KAFKA_STORAGE_ERROR] * (15 - written)
        assert [send(client, "other") for _ in range(5)] == [ErrorCode.NONE] * 5
        stored = asyncio.run(contents(cluster.address("bootstrap"), TopicPartition("full", 0)))
        assert len(stored) == written
        assert "full-0 takes no more writes: " in cluster.log()
