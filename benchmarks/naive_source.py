"""A Spark source as one writes it in an afternoon: tuples from confluent-kafka's consumer."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from spark_connector.row_columns import row_columns, schema

_POLL_RECORDS = 10_000
_TIMEOUT_S = 10.0


class NaiveSource(DataSource):
    """The format `naive`, for batch queries of a whole topic."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "naive"

    def schema(self) -> str:
        """Return the columns of Spark's own source."""
        return schema(row_columns(include_headers=False))

    def reader(self, schema: Any) -> DataSourceReader:
        """Make the reader."""
        return _Reader(self.options["kafka.bootstrap.servers"], self.options["subscribe"])


class _Reader(DataSourceReader):
    def __init__(self, bootstrap: str, topic: str) -> None:
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "naive",
            "enable.auto.commit": False,
        }
        self._topic = topic

    def partitions(self) -> Sequence[InputPartition]:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(self._settings)
        partitions = consumer.list_topics(self._topic).topics[self._topic].partitions
        tasks = []
        for number in sorted(partitions):
            place = TopicPartition(self._topic, number)
            low, high = consumer.get_watermark_offsets(place)
            tasks.append(InputPartition((number, low, high)))
        consumer.close()
        return tasks

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        from confluent_kafka import Consumer, TopicPartition

        number, position, end = partition.value
        consumer = Consumer(self._settings)
        consumer.assign([TopicPartition(self._topic, number, position)])
        while position < end:
            messages = consumer.consume(_POLL_RECORDS, _TIMEOUT_S)
            if not messages:
                raise RuntimeError(f"{self._topic}-{number} has nothing at {position}")
            for message in messages:
                position += 1
                kind, time_ms = message.timestamp()
                yield (
                    message.key(),
                    message.value(),
                    message.topic(),
                    message.partition(),
                    message.offset(),
                    datetime.fromtimestamp(time_ms / 1000, UTC),
                    kind - 1,
                )
        consumer.close()
