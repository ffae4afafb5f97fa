"""Stock admins move replicas of ours between log directories: kafka-python, and Kafka's tools."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import attrs
import kafka  # type: ignore[import-untyped]
import kafka.errors  # type: ignore[import-untyped]
import pytest

from tests.stage.cluster import DevCluster
from tests.stage.stock_kafka import run_tool
from tests.stage.waiting import block_until

TIMEOUT_S = 30.0
RECORDS = 200


@attrs.frozen
class Moving:
    """A topic with records on a broker of two disks, and where it is."""

    bootstrap: str
    topic: str
    source: str
    target: str

    def directories(self) -> dict[str, bool]:
        """Where the replica is (False), and where it is going (True)."""
        with contextlib.closing(kafka.KafkaAdminClient(bootstrap_servers=self.bootstrap)) as admin:
            (found,) = admin.describe_log_dirs([self.topic])
        return {
            log_dir["log_dir"]: partition["is_future_key"]
            for log_dir in found["log_dirs"]
            for each in log_dir["topics"]
            if each["name"] == self.topic
            for partition in each["partitions"]
        }

    def arrives(self) -> None:
        block_until(
            lambda: self.directories() == {self.target: False}, "the replica in its new place"
        )

    def values(self) -> list[bytes]:
        consumer = kafka.KafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            auto_offset_reset="earliest",
            group_id=None,
            enable_auto_commit=False,
            consumer_timeout_ms=int(TIMEOUT_S * 1000),
        )
        with contextlib.closing(consumer):
            return [message.value for _, message in zip(range(RECORDS), consumer, strict=False)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    where = tmp_path_factory.mktemp("disks")
    settings = ("--set", f"log.dirs={where / 'a'},{where / 'b'}")
    with DevCluster(where, settings) as running:
        yield running


@pytest.fixture
def moving(cluster: DevCluster) -> Moving:
    bootstrap, topic = cluster.address("bootstrap"), f"t-{uuid4().hex[:8]}"
    with contextlib.closing(kafka.KafkaProducer(bootstrap_servers=bootstrap)) as producer:
        for number in range(RECORDS):
            producer.send(topic, b"%d" % number, partition=0)
        producer.flush(TIMEOUT_S)
    paths = {str(cluster.directory / name) for name in "ab"}
    (source,) = Moving(bootstrap, topic, "", "").directories()
    (target,) = paths - {source}
    return Moving(bootstrap, topic, source, target)


def test_kafka_python_moves_a_replica(moving: Moving) -> None:
    replica = kafka.TopicPartitionReplica(topic=moving.topic, partition=0, broker_id=0)
    with contextlib.closing(kafka.KafkaAdminClient(bootstrap_servers=moving.bootstrap)) as admin:
        refused = admin.alter_replica_log_dirs({replica: "/nowhere"})
        assert refused == {replica: kafka.errors.LogDirNotFoundError}
        begun = admin.alter_replica_log_dirs({replica: moving.target})
        assert begun == {replica: kafka.errors.NoError}
    moving.arrives()
    assert moving.values() == [b"%d" % number for number in range(RECORDS)]


def test_kafkas_tools_move_a_replica_and_see_where_it_is(moving: Moving, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    partition = {"topic": moving.topic, "partition": 0, "replicas": [0]}
    content = {"version": 1, "partitions": [partition | {"log_dirs": [moving.target]}]}
    plan.write_text(json.dumps(content))
    tool = (
        *("kafka.admin.ReassignPartitionsCommand", "--bootstrap-server", moving.bootstrap),
        *("--reassignment-json-file", str(plan)),
    )
    said = run_tool(*tool, "--execute", "--replica-alter-log-dirs-throttle", "10000000")
    assert f"Successfully started log directory move for: {moving.topic}-0-0" in said
    moving.arrives()
    said = run_tool(*tool, "--verify")
    assert f"Reassignment of replica {moving.topic}-0-0 completed successfully." in said
    said = run_tool(
        *("kafka.admin.LogDirsCommand", "--bootstrap-server", moving.bootstrap),
        *("--describe", "--topic-list", moving.topic),
    )
    (described,) = [line for line in said.splitlines() if line.startswith('{"version"')]
    (broker,) = json.loads(described)["brokers"]
    found = {each["logDir"]: each["partitions"] for each in broker["logDirs"]}
    assert found[moving.source] == []
    (replica,) = found[moving.target]
    assert (replica["partition"], replica["offsetLag"]) == (f"{moving.topic}-0", 0)
    assert replica["isFuture"] is False
    assert moving.values() == [b"%d" % number for number in range(RECORDS)]
