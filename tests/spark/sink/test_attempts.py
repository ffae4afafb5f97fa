"""Attempts of one task on a real broker: what one has written, the next one finds."""

from typing import Any
from uuid import uuid4

import attrs
import pytest

from clients import blocking
from clients.admin import NewTopic
from protocol.records.builder import BatchBuilder
from protocol.topic_partition import TopicPartition
from spark_connector.sink.once import Found, NotRepeatable, TaskIdentity, TaskNumbers
from spark_connector.sink.options import SinkOptions, read_sink_options
from spark_connector.sink.reading_back import read_back
from spark_connector.sink.sending import Sending, WriteFailed
from tests.spark.damaged_log import damage_batch
from tests.stage.cluster import DevCluster


@attrs.define(eq=False)
class Log:
    """A topic of one partition, and the options with which attempts write to it."""

    options: SinkOptions
    partition: TopicPartition

    def write(self, task: TaskIdentity, *values: bytes, after: int = 0) -> None:
        """Write values as one batch of a task, as if `after` records of it were there."""
        sending = Sending(self.options.producer)
        try:
            sending.use_numbers(
                TaskNumbers(
                    producer_id=task.producer_id,
                    epoch=task.epoch,
                    next_by_partition={self.partition: after},
                )
            )
            builder = BatchBuilder()
            for value in values:
                builder.try_append(1_000, None, value)
            sending.send([(self.partition, builder)])
            sending.finish()
        finally:
            sending.close(0)

    def end_offset(self) -> int:
        with blocking.Admin(self.options.producer["bootstrap.servers"]) as admin:
            listed: dict[TopicPartition, Any] = admin.list_offsets({self.partition: -1})
        return int(listed[self.partition].offset)

    def find(self, task: TaskIdentity, start: int = 0) -> Found:
        end = {self.partition: self.end_offset()}
        return read_back(self.options.producer_config, task, {self.partition: start}, end)


@pytest.fixture
def log(dev_cluster: DevCluster) -> Log:
    topic = f"t-{uuid4().hex[:8]}"
    bootstrap = dev_cluster.address("bootstrap")
    with blocking.Admin(bootstrap) as admin:
        assert admin.create_topics([NewTopic(topic, 1, 1)]) == {topic: None}
    given = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "delivery": "once"}
    return Log(read_sink_options(given), TopicPartition(topic, 0))


def task(batch_id: int = 0, number: int = 0) -> TaskIdentity:
    return TaskIdentity(f"q-{uuid4().hex}", batch_id, number)


def test_an_attempt_finds_what_the_one_before_wrote_and_nothing_else(log: Log) -> None:
    ours = task(batch_id=5)
    log.write(ours, b"a", b"b")
    log.write(task(), b"c")
    log.write(ours, b"d", after=2)

    found = log.find(ours)
    assert found.next_by_partition == {log.partition: 3}
    assert [found.take(None, value, ()) for value in (b"d", b"b", b"a", b"c")] == [
        *(True, True, True, False)
    ]


def test_what_was_written_before_the_batch_began_is_not_looked_for(log: Log) -> None:
    ours = task()
    log.write(ours, b"a", b"b")
    log.write(ours, b"c", after=2)
    found = log.find(ours, start=1)
    assert found.next_by_partition == {log.partition: 3}
    assert found.rows.total() == 1


def test_two_attempts_at_a_time_cannot_both_write_the_next_rows(log: Log) -> None:
    ours = task()
    log.write(ours, b"a", b"b")
    with pytest.raises(WriteFailed, match="another attempt of this task has written meanwhile"):
        log.write(ours, b"a", b"b", b"c", after=1)
    assert log.end_offset() == 2


def test_the_same_rows_at_the_same_place_are_there_once(log: Log) -> None:
    ours = task()
    log.write(ours, b"a", b"b")
    log.write(ours, b"a", b"b")
    assert log.end_offset() == 2


def test_a_later_batch_shuts_out_what_is_left_of_an_earlier_one(log: Log) -> None:
    earlier = task(batch_id=5)
    later = TaskIdentity(earlier.query_id, 6, earlier.task)
    log.write(earlier, b"a")
    log.write(later, b"b")
    with pytest.raises(WriteFailed, match="a later batch of this query has been written"):
        log.write(earlier, b"c", after=1)
    assert log.end_offset() == 2


def test_what_an_attempt_wrote_and_nobody_can_read_is_named(
    log: Log, dev_cluster: DevCluster
) -> None:
    ours = task(batch_id=5)
    log.write(ours, b"a")
    log.write(ours, b"b", after=1)
    damage_batch(dev_cluster, log.partition.topic, 1)
    with pytest.raises(NotRepeatable, match=rf"^{log.partition}: .*batch 5.* at offset 1 cannot"):
        log.find(ours)
