"""A task's producer on brokers that go away, and on a topic that is not there; without Spark."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from clients import blocking
from clients.admin import NewTopic
from protocol.topic_partition import TopicPartition
from spark_connector.sink.options import SinkOptions, read_sink_options
from spark_connector.sink.sending import WriteFailed, close_kept
from spark_connector.sink.writer import write_rows
from tests.stage.cluster import DevCluster

HASTY = {"kafka.delivery.timeout.ms": "2000", "kafka.request.timeout.ms": "1000"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DevCluster]:
    """A cluster of one test, which kills its broker; topics do not come by themselves."""
    settings = ("--set", "auto.create.topics.enable=false")
    with DevCluster(tmp_path / "dev", settings) as cluster:
        with blocking.Admin(cluster.address("bootstrap")) as admin:
            assert admin.create_topics([NewTopic("out", 1, 1)]) == {"out": None}
        yield cluster
        close_kept()


def options(cluster: DevCluster, **more: str) -> SinkOptions:
    given = {"kafka.bootstrap.servers": cluster.address("bootstrap"), "topic": "out", **more}
    return read_sink_options(given)


def rows(*values: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})


def end_offset(cluster: DevCluster) -> int:
    partition = TopicPartition("out", 0)
    with blocking.Admin(cluster.address("bootstrap")) as admin:
        listed: dict[TopicPartition, Any] = admin.list_offsets({partition: -1})
    return int(listed[partition].offset)


def test_a_topic_that_does_not_exist_fails_the_task_in_one_sentence(cluster: DevCluster) -> None:
    missing = options(cluster, topic="missing", **{"kafka.max.block.ms": "1000"})
    with pytest.raises(WriteFailed) as failed:
        write_rows(missing, iter([rows(b"a")]))
    assert "missing" in str(failed.value)
    assert "see whether the brokers are there, and the topic exists" in str(failed.value)


def test_rows_wait_for_a_broker_that_comes_back(cluster: DevCluster) -> None:
    with contextlib.ExitStack() as stack:

        def outage() -> Iterator[pa.RecordBatch]:
            yield rows(b"a")
            cluster.kill("broker-0")
            yield rows(b"b")
            stack.enter_context(cluster.started_again())
            yield rows(b"c")

        assert write_rows(options(cluster, **{"kafka.batch.size": "0"}), outage()) == 3
        assert end_offset(cluster) == 3


def test_a_broker_that_stays_away_fails_the_task_in_one_sentence(cluster: DevCluster) -> None:
    def outage() -> Iterator[pa.RecordBatch]:
        yield rows(b"a")
        cluster.kill("broker-0")

    # Known topics and partitions are not asked for again: the row itself waits in vain.
    write_rows(hasty := options(cluster, **HASTY), iter([rows(b"a")]))
    with pytest.raises(WriteFailed, match=r"^out-0: not acknowledged in \d+ ms.*see whether"):
        write_rows(hasty, outage())


def test_the_workers_producer_serves_its_next_task(cluster: DevCluster) -> None:
    assert write_rows(options(cluster), iter([rows(b"a")])) == 1
    other = options(cluster, topic="missing", **{"kafka.max.block.ms": "500"})
    with pytest.raises(WriteFailed):
        write_rows(other, iter([rows(b"x")]))
    assert write_rows(options(cluster), iter([rows(b"b"), rows(b"c")])) == 2
    assert end_offset(cluster) == 3
