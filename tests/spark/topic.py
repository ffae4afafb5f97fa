"""A topic that queries read: what a test needs around it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from clients import blocking
from clients.admin import LATEST_TIME, NewTopic
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.spark.streaming import run_to_its_end, start


@attrs.define(eq=False)
class Topic:
    """A topic of two partitions, a group and a checkpoint for one test."""

    spark: SparkSession
    bootstrap: str
    checkpoint: Path
    name: str = attrs.field(factory=lambda: f"t-{uuid4().hex[:8]}")

    @property
    def group(self) -> str:
        return f"g-{self.name}"

    def produce(self, values: Sequence[int]) -> None:
        """Send even values to partition 0, odd ones to partition 1."""
        # Each partition gets one batch, which goes out with the flush.
        settings = {"bootstrap.servers": self.bootstrap, "linger.ms": 60_000}
        with blocking.Producer(settings) as producer:
            for value in values:
                producer.send(
                    self.name,
                    str(value).encode(),
                    key=b"k%d" % value,
                    partition=value % 2,
                    headers=[("n", str(value).encode())] if value % 2 else [],
                    timestamp_ms=1_000 + value,
                )
            producer.flush()

    def stream(self, **options: str) -> DataFrame:
        reader = self.spark.readStream.format("kgroup")
        return reader.options(**self.options(**options)).load()

    def table(self, **options: str) -> DataFrame:
        return self.spark.read.format("kgroup").options(**self.options(**options)).load()

    def run(
        self,
        sink: Callable[[list[int]], None],
        trigger: dict[str, Any] | None = None,
        **options: str,
    ) -> StreamingQuery:
        """Start the query; `sink` gets each batch's values."""
        return start(self.writer(sink, trigger, **options))

    def writer(
        self,
        sink: Callable[[list[int]], None],
        trigger: dict[str, Any] | None = None,
        **options: str,
    ) -> DataStreamWriter:
        """Return the query before its start."""

        def values_of(batch: DataFrame, batch_id: int) -> None:
            rows = batch.selectExpr("cast(cast(value as string) as int) as value").collect()
            sink(sorted(row["value"] for row in rows))

        stream = self.stream(**{"commit.group.id": self.group, **options})
        writer = stream.writeStream.foreachBatch(values_of)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**trigger) if trigger else writer

    def run_available(self, sink: Callable[[list[int]], None], **options: str) -> None:
        """Run the query until it has read all that is there now."""
        run_to_its_end(self.writer(sink, {"availableNow": True}, **options))

    def lag(self) -> dict[int, int]:
        """Return the lag of each partition that the group has committed."""
        partitions = [TopicPartition(self.name, n) for n in range(2)]
        with blocking.Admin(self.bootstrap) as admin:
            ends = admin.list_offsets(dict.fromkeys(partitions, LATEST_TIME))
            committed = admin.group_offsets(self.group, partitions)
        return {p.partition: ends[p].offset - held.offset for p, held in committed.items()}

    def reset(self, offsets: dict[int, int]) -> None:
        """Commit to the group as a tool does."""
        places = {TopicPartition(self.name, p): OffsetAndMetadata(o) for p, o in offsets.items()}
        with blocking.Admin(self.bootstrap) as admin:
            admin.commit_group_offsets(self.group, places)

    def options(self, **more: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.name, **more}


def create_topic(spark: SparkSession, bootstrap: str, directory: Path) -> Topic:
    """Create a topic; the checkpoint of its query is in `directory`."""
    topic = Topic(spark, bootstrap, directory / "checkpoint")
    with blocking.Admin(bootstrap) as admin:
        assert admin.create_topics([NewTopic(topic.name, 2, 1)]) == {topic.name: None}
    return topic
