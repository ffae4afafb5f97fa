"""Topics to write to."""

from uuid import uuid4

import attrs
import pytest
from pyspark.sql import DataFrame, SparkSession

from clients import blocking
from clients.admin import NewTopic
from protocol.topic_partition import TopicPartition
from tests.stage.cluster import DevCluster


@attrs.define(eq=False)
class Topic:
    """A topic of two partitions that a test writes to, and reads by our source."""

    spark: SparkSession
    bootstrap: str
    name: str = attrs.field(factory=lambda: f"t-{uuid4().hex[:8]}")

    def options(self, **more: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, "topic": self.name, **more}

    def table(self, **options: str) -> DataFrame:
        reader = self.spark.read.format("kgroup").option("kafka.bootstrap.servers", self.bootstrap)
        return reader.options(subscribe=self.name, **options).load()

    def values(self) -> list[bytes]:
        return sorted(bytes(row.value) for row in self.table().select("value").collect())

    def group(self, group_id: str) -> dict[int, tuple[int, str]]:
        partitions = [TopicPartition(self.name, n) for n in range(2)]
        with blocking.Admin(self.bootstrap) as admin:
            committed = admin.group_offsets(group_id, partitions)
        return {p.partition: (place.offset, place.metadata) for p, place in committed.items()}

    def write(self, rows: DataFrame, **options: str) -> None:
        writer = rows.write.format("kgroup").mode("append")
        writer.options(**self.options(**options)).save()

    def rows(self, *columns: str, count: int = 10) -> DataFrame:
        """Return a table with expressions of `id`, which is 0, 1, … in two tasks."""
        return self.spark.range(0, count, 1, 2).selectExpr(*columns)


@pytest.fixture
def topic(spark: SparkSession, dev_cluster: DevCluster) -> Topic:
    return create_topic(spark, dev_cluster)


@pytest.fixture
def other_topic(spark: SparkSession, dev_cluster: DevCluster) -> Topic:
    return create_topic(spark, dev_cluster)


def create_topic(spark: SparkSession, cluster: DevCluster) -> Topic:
    topic = Topic(spark, cluster.address("bootstrap"))
    with blocking.Admin(topic.bootstrap) as admin:
        assert admin.create_topics([NewTopic(topic.name, 2, 1)]) == {topic.name: None}
    return topic
