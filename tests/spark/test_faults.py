"""Damage, loss and brokers that go away, under queries of a real Spark."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from protocol.records.entry import read_entry
from tests.spark.streaming import run_to_its_end
from tests.spark.topic import Topic, create_topic
from tests.stage.cluster import DevCluster


@pytest.fixture
def topic(spark: SparkSession, dev_cluster: DevCluster, tmp_path: Path) -> Topic:
    return create_topic(spark, dev_cluster.address("bootstrap"), tmp_path)


def damage_batch(cluster: DevCluster, topic: Topic, number: int) -> None:
    """Change a byte of a record in a batch of partition 0, in the broker's file."""
    (path,) = (cluster.directory / "broker-0" / f"{topic.name}-0").glob("*.log")
    buf = path.read_bytes()
    pos = 0
    for _ in range(number):
        header = read_entry(buf, pos, len(buf))
        assert header is not None
        pos += header.size

    header = read_entry(buf, pos, len(buf))
    assert header is not None
    with path.open("r+b") as file:
        file.seek(pos + header.size - 3)
        file.write(bytes([buf[pos + header.size - 3] ^ 1]))


def test_a_damaged_batch_fails_the_query_or_is_left_out(
    topic: Topic, dev_cluster: DevCluster
) -> None:
    for first in (0, 20, 40):
        topic.produce(range(first, first + 20))
    damage_batch(dev_cluster, topic, 1)

    text = rf"{topic.name}-0: the batch with offsets 10 to 19 cannot be read.*kgroup.corrupt=skip"
    with pytest.raises(PySparkException, match=text):
        topic.table().collect()

    # The even ones from 20 to 38 were in it.
    left = [n for n in range(60) if n % 2 or not 20 <= n < 40]
    rows = topic.table(**{"kgroup.corrupt": "skip"}).collect()
    assert sorted(int(row.value) for row in rows) == left

    # A stream that failed goes on from its checkpoint.
    seen: list[int] = []
    with pytest.raises(Exception, match=text):
        run_to_its_end(
            topic.writer(seen.extend, {"availableNow": True}, startingOffsets="earliest")
        )
    topic.run_available(seen.extend, startingOffsets="earliest", **{"kgroup.corrupt": "skip"})
    assert sorted(seen) == left
