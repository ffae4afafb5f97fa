"""Pack rows into record batches, one open batch for each partition. Pure.

Rows of a partition keep their order. Rows without key and partition fill the batch of one partition
and go on with the next, as Kafka's producer does; the first one is the caller's choice.
"""

from collections.abc import Callable, Iterator

import attrs

from clients.errors import RecordTooLarge
from clients.producer.partitioner import PartitionRule, key_partition
from protocol.records.builder import BatchBuilder
from protocol.records.compression import Codec
from protocol.topic_partition import TopicPartition
from spark_connector.sink.rows import Headers, Rows

MOST_KEYS = 100_000
"""Most keys whose partition is remembered; hashing one takes longer than all else of a row."""

Packed = tuple[TopicPartition, BatchBuilder]
Skip = Callable[[bytes | None, bytes | None, Headers], bool]
"""Returns whether a record of this key, value and headers is to be left out."""


@attrs.define(eq=False)
class Packer:
    """The open batches of a task."""

    count_partitions: Callable[[str], int]
    """Returns the number of partitions of a topic."""
    codec: Codec
    batch_bytes: int
    """Bytes of a batch before compression."""
    request_bytes: int
    """`max.request.size`: bound on a single record."""
    rule: PartitionRule | None = None
    """The user's `partitioner.class`."""
    first: int = 0
    """Where rows without key and partition begin, modulo the number of partitions."""
    rows: int = attrs.field(init=False, default=0)
    """Number of rows packed."""
    _open: dict[TopicPartition, BatchBuilder] = attrs.field(init=False, factory=dict)
    _sticky: dict[str, TopicPartition] = attrs.field(init=False, factory=dict)
    _of_keys: dict[tuple[str, bytes], TopicPartition] = attrs.field(init=False, factory=dict)

    def pack(self, rows: Rows, skip: Skip | None = None) -> Iterator[Packed]:
        """Add rows, and yield each batch that is full. Raises RecordTooLarge."""
        if rows.is_plain and skip is None and self.rule is None:
            yield from self._pack_plain(rows)
        else:
            yield from self._pack_any(rows, skip)

    def rest(self) -> Iterator[Packed]:
        """Yield the batches that are not full."""
        yield from self._open.items()
        self._open = {}

    def _pack_plain(self, rows: Rows) -> Iterator[Packed]:
        """Add rows that have only a value, so that any partition will do."""
        topic = next(iter(rows.topics))
        timestamp_ms = next(iter(rows.timestamps_ms))
        partition = self._sticky_partition(topic)
        builder = self._open.get(partition) or BatchBuilder(self.codec, self.batch_bytes)
        append = builder.try_append

        for value in rows.values:
            if not append(timestamp_ms, None, value):
                self._open.pop(partition, None)
                yield partition, builder
                # All rows of a task are plain, so the next partition has no open batch.
                partition = self._move(topic)
                builder = BatchBuilder(self.codec, self.batch_bytes)
                append = builder.try_append
                append(timestamp_ms, None, value)

            if builder.count == 1:
                self._require_fit(partition, builder)

        self._open[partition] = builder
        self.rows += rows.count

    def _pack_any(self, rows: Rows, skip: Skip | None) -> Iterator[Packed]:
        fields = zip(
            rows.topics,
            rows.partition_ids,
            rows.timestamps_ms,
            rows.keys,
            rows.values,
            rows.headers,
            strict=False,
        )
        for topic, partition_id, timestamp_ms, key, value, headers in fields:
            if skip is not None and skip(key, value, headers):
                continue

            partition = self._partition(topic, partition_id, key)
            builder = self._open.get(partition)
            if builder is None:
                builder = self._open[partition] = BatchBuilder(self.codec, self.batch_bytes)

            # A full batch leaves, and the row opens another; perhaps of another partition.
            if not builder.try_append(timestamp_ms, key, value, headers):
                del self._open[partition]
                yield partition, builder
                if key is None and partition_id is None and self.rule is None:
                    partition = self._move(topic)
                yield from self._reopen(partition, timestamp_ms, key, value, headers)
                builder = self._open[partition]

            if builder.count == 1:
                self._require_fit(partition, builder)
            self.rows += 1

    def _reopen(
        self,
        partition: TopicPartition,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> Iterator[Packed]:
        builder = self._open.get(partition)
        if builder is not None:
            # The next partition has a batch of rows with keys; it may be full too.
            if builder.try_append(timestamp_ms, key, value, headers):
                return
            yield partition, builder

        builder = self._open[partition] = BatchBuilder(self.codec, self.batch_bytes)
        builder.try_append(timestamp_ms, key, value, headers)

    def _partition(self, topic: str, partition_id: int | None, key: bytes | None) -> TopicPartition:
        if partition_id is not None:
            return TopicPartition(topic, partition_id)
        if self.rule is not None:
            return TopicPartition(topic, self.rule(key, key, self.count_partitions(topic)))
        if key is None:
            return self._sticky_partition(topic)

        # Equal keys are hashed once.
        partition = self._of_keys.get((topic, key))
        if partition is None:
            if len(self._of_keys) >= MOST_KEYS:
                self._of_keys.clear()
            partition = TopicPartition(topic, key_partition(key, self.count_partitions(topic)))
            self._of_keys[topic, key] = partition
        return partition

    def _sticky_partition(self, topic: str) -> TopicPartition:
        partition = self._sticky.get(topic)
        if partition is None:
            partition = TopicPartition(topic, self.first % self.count_partitions(topic))
            self._sticky[topic] = partition
        return partition

    def _move(self, topic: str) -> TopicPartition:
        last = self._sticky[topic].partition
        partition = TopicPartition(topic, (last + 1) % self.count_partitions(topic))
        self._sticky[topic] = partition
        return partition

    def _require_fit(self, partition: TopicPartition, builder: BatchBuilder) -> None:
        if builder.size_estimate > self.request_bytes:
            raise RecordTooLarge(
                f"{partition}: a record of {builder.size_estimate} bytes is larger than "
                f"max.request.size, {self.request_bytes}: set kafka.max.request.size, and "
                "max.message.bytes of the topic"
            )
