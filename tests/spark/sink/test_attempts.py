"""Attempts of one task on a real broker: what one has written, the next one finds."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import uuid4

import attrs
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StructField, StructType

from clients import blocking
from clients.admin import NewTopic
from clients.simple_consumer import FetchRequest, SimpleConsumer
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchResponsePartition
from protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from protocol.records.batch import encode_batch
from protocol.records.builder import BatchBuilder
from protocol.topic_partition import TopicPartition
from spark_connector.sink.once import Found, NotRepeatable, TaskIdentity, TaskNumbers
from spark_connector.sink.options import SinkOptions, read_sink_options
from spark_connector.sink.reading_back import _read, read_back
from spark_connector.sink.sending import Sending, WriteFailed
from spark_connector.sink.writer import (
    BATCH_ID,
    QUERY_ID,
    KgroupStreamWriter,
    WrittenRows,
    list_log_ends,
)
from tests.clients.scripted_broker import ScriptedBroker
from tests.spark.damaged_log import damage_batch
from tests.stage.cluster import DevCluster
from tests.stage.waiting import block_until


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

    def values(self) -> list[bytes]:
        """Return what the log has, sorted."""

        async def read() -> list[bytes]:
            values: list[bytes] = []
            settings = {"bootstrap.servers": self.options.producer["bootstrap.servers"]}
            async with await SimpleConsumer.for_leader(settings, *self.partition) as consumer:
                while len(values) < self.end_offset():
                    request = FetchRequest(*self.partition, len(values))
                    values += [message.value or b"" for message in await consumer.fetch(request)]
            return sorted(values)

        return asyncio.run(read())

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
    found = log.find(ours, start=1)
    assert (found.next_by_partition, found.rows.total()) == ({}, 0)


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


def batch_of(task: TaskIdentity, sequence: int, offset: int, *values: bytes) -> bytes:
    return encode_batch(
        [(1_000, None, value, ()) for value in values],
        base_offset=offset,
        producer_id=task.producer_id,
        producer_epoch=task.epoch,
        base_sequence=sequence,
    )


def read(task: TaskIdentity, *parts: FetchResponsePartition) -> Found:
    """Read the responses of one log, from its beginning on."""
    found, position = Found(), 0
    for part in parts:
        position = _read(part, task, TopicPartition("t", 0), position, found)
    return found


def response(records: bytes, error: ErrorCode = ErrorCode.NONE) -> FetchResponsePartition:
    return FetchResponsePartition(
        partition_index=0,
        error_code=error,
        high_watermark=9,
        log_start_offset=3,
        records=memoryview(records),
    )


@pytest.mark.fault("strangers-40")
def test_an_attempt_that_compaction_has_gone_through_is_not_repeated() -> None:
    """What it would write again would replace newer values of the same keys."""
    ours = task()
    whole = batch_of(ours, 0, 0, b"a", b"b") + batch_of(ours, 2, 2, b"c")
    assert read(ours, response(whole)).rows.total() == 3

    gap = batch_of(ours, 0, 0, b"a") + batch_of(ours, 2, 2, b"c")
    said = (
        r"^t-0: compaction has removed 1 records before offset 3 that an earlier attempt of query"
    )
    with pytest.raises(NotRepeatable, match=said):
        read(ours, response(gap))
    with pytest.raises(NotRepeatable):
        read(ours, response(batch_of(ours, 2, 2, b"c")))

    # No reader sees what retention has deleted; behind that nothing may be missing.
    deleted = response(b"", ErrorCode.OFFSET_OUT_OF_RANGE)
    assert read(ours, deleted, response(batch_of(ours, 3, 3, b"d"))).rows.total() == 1
    late_gap = batch_of(ours, 3, 3, b"d") + batch_of(ours, 5, 5, b"f")
    with pytest.raises(NotRepeatable):
        read(ours, deleted, response(late_gap))


@pytest.mark.fault("strangers-31")
def test_an_attempt_above_its_quota_waits_and_finds_what_was_written(
    log: Log, dev_cluster: DevCluster
) -> None:
    ours = task()
    log.write(ours, b"a")
    client = f"c-{uuid4().hex[:8]}"
    entity = (("client-id", client),)
    with blocking.Admin(dev_cluster.address("bootstrap")) as admin:
        # Some four responses in ten seconds.
        quotas = {"consumer_byte_rate": 50.0}
        assert admin.alter_client_quotas({entity: quotas}) == {entity: None}

    held_back = Log(
        read_sink_options(
            {
                "kafka.bootstrap.servers": dev_cluster.address("bootstrap"),
                "kafka.client.id": client,
                "topic": log.partition.topic,
                "delivery": "once",
            }
        ),
        log.partition,
    )
    assert [held_back.find(ours).rows.total() for _ in range(6)] == [1] * 6


# --- whole attempts, also at the same time


class KilledError(Exception):
    """An executor is gone."""


def attempt(options: SinkOptions, query: str, number: int, batches: Iterable[list[bytes]]) -> int:
    """Run an attempt of the only task of a query's batch, in this thread; return its new rows."""
    context = TaskContext._getOrCreate()
    before = context.__dict__.copy()
    own = {
        "_attemptNumber": number,
        "_partitionId": 0,
        "_localProperties": {QUERY_ID: query, BATCH_ID: "7"},
    }

    def arrow() -> Iterator[pa.RecordBatch]:
        for values in batches:
            yield pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], ["value"])
            # An attempt that ran in between has changed it.
            context.__dict__.update(own)

    context.__dict__.update(own)
    try:
        schema = StructType([StructField("value", BinaryType())])
        written = KgroupStreamWriter(options, schema).write(arrow())
    finally:
        context.__dict__.clear()
        context.__dict__.update(before)
    assert isinstance(written, WrittenRows)
    return written.rows


@pytest.fixture
def query() -> Iterator[str]:
    yield f"q-{uuid4().hex}"
    TaskContext._setTaskContext(None)


ROWS = [b"row %03d" % number + b"." * 93 for number in range(400)]


@pytest.mark.fault("core-R2")
def test_rows_that_a_broker_took_for_those_of_another_attempt_are_no_success(
    log: Log, query: str
) -> None:
    ours = TaskIdentity(query, 7, 0)

    def overlapped() -> Iterator[list[bytes]]:
        # When this attempt has looked, another one writes as many rows with the same numbers.
        log.write(ours, b"x", b"y")
        yield [b"a", b"b"]

    with pytest.raises(NotRepeatable, match="another attempt has written at the same time"):
        attempt(log.options, query, 0, overlapped())
    with pytest.raises(NotRepeatable, match="an earlier attempt wrote 2 records that are not"):
        attempt(log.options, query, 1, [[b"a", b"b"]])


@pytest.mark.fault("core-R2")
def test_attempts_that_overlap_leave_each_row_in_the_log_once(log: Log, query: str) -> None:
    options = attrs.evolve(log.options, producer={**log.options.producer, "batch.size": "20000"})

    def killed() -> Iterator[list[bytes]]:
        yield ROWS[:300]
        block_until(lambda: log.end_offset() > 0, "rows of the earlier attempt")
        raise KilledError

    def overlapped() -> Iterator[list[bytes]]:
        # The earlier attempt goes on when this one has looked what is there.
        with pytest.raises(KilledError):
            attempt(options, query, 0, killed())
        yield ROWS[::-1]

    with pytest.raises((WriteFailed, NotRepeatable)):
        attempt(options, query, 1, overlapped())
    attempt(options, query, 2, [ROWS[100:], ROWS[:100]])
    assert log.values() == sorted(ROWS)


@pytest.mark.fault("core-R2")
def test_an_attempt_waits_for_what_only_the_leader_has_of_the_one_before() -> None:
    """To a consumer the log ends where the follower is, to this one where the leader is."""

    def answer(request: ListOffsetsRequest) -> ListOffsetsResponse:
        end = 20 if request.replica_id == -2 else 5
        partition = ListOffsetsResponsePartition(partition_index=0, error_code=0, offset=end)
        return ListOffsetsResponse(
            topics=[ListOffsetsResponseTopic(name="t", partitions=[partition])]
        )

    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            broker.answers[ApiKey.LIST_OFFSETS] = answer
            given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "t", "delivery": "once"}
            options = read_sink_options(given)
            ends = await asyncio.to_thread(list_log_ends, options)
            assert ends == {TopicPartition("t", 0): 20}

    asyncio.run(scenario())
