"""Sends what the accumulator says is ready, and tells each record's future what became of it.

One task runs the loop; it never waits for a broker. A request is a future with a callback; what
must be waited for (a connection, fresh metadata) runs as a child task that wakes the loop when
done, so one slow broker holds up only its own partitions.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count, groupby, repeat
from typing import Any, NamedTuple

from clients.cluster import Cluster
from clients.connection import Connection
from clients.errors import ClientError, ConnectionFailed, DeliveryTimedOut, ProducerClosed
from clients.producer.accumulator import Accumulator, ProducerBatch, Ready, Verdict, verdict
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponsePartition,
)
from protocol.records.batch import decode_batch
from protocol.records.compression import Codec
from protocol.records.convert import down_convert
from protocol.topic_partition import TopicPartition

PURPOSE = "produce"

NEWEST_MAGIC = 2
_OLD_MAGIC = (0, 0, 1)
"""By version of Produce: the format of messages it carries; later ones carry record batches."""
_FIRST_VERSION_WITH_ZSTD = 7


class RecordMetadata(NamedTuple):
    """Where a record went. `offset` is -1 if it is not known (acks=0).

    `timestamp_ms` is the time of appending for topics that use it, else the record's own.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


Delivery = asyncio.Future[RecordMetadata]
Batch = ProducerBatch[Delivery]


def now_ms() -> int:
    """Wall clock in ms: timestamps are part of the record."""
    return time.time_ns() // 1_000_000


class Sender:
    """The loop of one producer."""

    def __init__(
        self,
        accumulator: Accumulator[Delivery],
        cluster: Cluster,
        unreachable_is_attempt: bool = False,
    ) -> None:
        self._accumulator = accumulator
        self._unreachable_is_attempt = unreachable_is_attempt
        """Whether a leader that cannot be connected to costs its batches a retry."""
        self._config = accumulator.config
        self._cluster = cluster
        self._wake = asyncio.Event()
        self._progress: asyncio.Future[None] | None = None
        self._connecting: set[int] = set()
        self._refreshing = False
        self._refresh_wanted = False
        self._failure: BaseException | None = None

    def wake(self) -> None:
        """Say that there may be something to send."""
        self._wake.set()

    async def progress(self) -> None:
        """Return when a batch has been acknowledged or given up. Raises ProducerClosed."""
        if self._failure is not None:
            raise ProducerClosed("the producer is closed") from self._failure
        if self._progress is None:
            self._progress = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._progress)

    async def run(self) -> None:
        """Send until cancelled; then every record not acknowledged fails with ProducerClosed."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    self._wake.clear()
                    wait_ms = self._turn(tasks)
                    try:
                        async with asyncio.timeout(wait_ms / 1000):
                            await self._wake.wait()
                    except TimeoutError:
                        continue
        except BaseException as failure:
            self._failure = failure
            raise
        finally:
            self._accumulator.closed = True
            for batch in self._accumulator.abandon():
                _fail(batch, partial(ProducerClosed, "closed before the record was acknowledged"))
            self._announce()

    def _turn(self, tasks: asyncio.TaskGroup) -> int:
        """Send all that can go now; return for how long nothing else will, in ms."""
        now = now_ms()
        for batch in self._accumulator.expire(now):
            waited = f"{batch.partition}: not acknowledged in {now - batch.created_ms} ms"
            _fail(batch, partial(DeliveryTimedOut, waited))
            self._announce()
        ready = self._accumulator.ready(now, self._cluster.view.leaders.get)
        self._keep_metadata_fresh(ready, tasks)
        for node, partitions in ready.nodes.items():
            connection = self._cluster.open_connection(node, PURPOSE)
            if connection is None:
                self._connect(node, tasks)
            elif connection.in_flight < self._config.max_in_flight:
                self._send(connection, self._accumulator.drain(partitions, now), now)
        return ready.next_check_ms

    def _keep_metadata_fresh(self, ready: Ready, tasks: asyncio.TaskGroup) -> None:
        wanted = self._refresh_wanted or ready.leaderless or self._cluster.stale
        if wanted and not self._refreshing:
            self._refreshing = True
            self._refresh_wanted = False
            tasks.create_task(self._refresh(ready.leaderless))

    async def _refresh(self, topics: frozenset[str]) -> None:
        try:
            await self._cluster.refresh(topics)
        except ClientError:
            self._refresh_wanted = True  # paced by the cluster
            await asyncio.sleep(self._config.retry_backoff_ms / 1000)
        finally:
            self._refreshing = False
            self.wake()

    def _connect(self, node: int, tasks: asyncio.TaskGroup) -> None:
        if node not in self._connecting:
            self._connecting.add(node)
            tasks.create_task(self._connected(node))

    async def _connected(self, node: int) -> None:
        try:
            await self._cluster.connection(node, PURPOSE)
        except ClientError:
            self._refresh_wanted = True  # its partitions may have moved to others by now
            if self._unreachable_is_attempt:
                self._fail_attempt(node)
            await asyncio.sleep(self._config.reconnect_backoff_ms / 1000)
        finally:
            self._connecting.discard(node)
            self.wake()

    def _fail_attempt(self, node: int) -> None:
        now = now_ms()
        ready = self._accumulator.ready(now, self._cluster.view.leaders.get)
        batches = self._accumulator.drain(ready.nodes.get(node, ()), now)
        self._conclude_all(batches, ErrorCode.NETWORK_EXCEPTION, now)

    def _send(self, connection: Connection, drained: list[Batch], now: int) -> None:
        batches = [batch for batch in drained if self._sealed(batch)]
        if not batches:
            return
        try:
            magic = self._magic_for(connection)
            if magic < NEWEST_MAGIC:
                batches = self._without_headers(batches, now)
                if not batches:
                    return
            request = ProduceRequest(
                acks=self._config.required_acks,
                timeout_ms=self._config.request_timeout_ms,
                topic_data=_by_topic(batches, magic),
            )
            response = connection.send(request)
        except ConnectionFailed:
            self._conclude_all(batches, ErrorCode.NETWORK_EXCEPTION, now)
        except ClientError:
            self._conclude_all(batches, ErrorCode.UNSUPPORTED_VERSION, now)
        else:
            response.add_done_callback(partial(self._answered, batches))

    def _sealed(self, batch: Batch) -> bool:
        """Encode the batch. One that cannot be, for want of memory say, fails alone."""
        try:
            batch.seal()
        except Exception as error:
            self._accumulator.finish(batch)
            _fail(batch, partial(ClientError, f"{batch.partition}: not encoded: {error!r}"))
            self._announce()
            return False
        return True

    def _magic_for(self, connection: Connection) -> int:
        """The newest record format that the broker takes."""
        version = connection.version_of(ApiKey.PRODUCE)
        if version < _FIRST_VERSION_WITH_ZSTD and self._accumulator.codec is Codec.ZSTD:
            raise ClientError(f"{connection.host}:{connection.port} is too old for zstd")
        return NEWEST_MAGIC if version >= len(_OLD_MAGIC) else _OLD_MAGIC[version]

    def _without_headers(self, batches: list[Batch], now: int) -> list[Batch]:
        """Those that lose nothing in an old format; the others fail."""
        lossless = []
        for batch in batches:
            if any(record.headers for record in decode_batch(batch.seal())):
                self._conclude(batch, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, None, now)
            else:
                lossless.append(batch)
        self._announce()
        return lossless

    def _answered(self, batches: list[Batch], future: asyncio.Future[Any]) -> None:
        now = now_ms()
        if self._failure is not None or future.cancelled():
            return
        if future.exception() is not None:
            self._conclude_all(batches, ErrorCode.NETWORK_EXCEPTION, now)
            return
        response: ProduceResponse | None = future.result()
        if response is None:
            self._conclude_all(batches, ErrorCode.NONE, now)
            return
        answers = {
            TopicPartition(topic.name, answer.index): answer
            for topic in response.responses
            for answer in topic.partition_responses
        }
        for batch in batches:
            answer = answers.get(batch.partition)
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            if answer is not None:
                code = ErrorCode.of(answer.error_code)
            self._conclude(batch, code, answer, now)
        self._announce()

    def _conclude_all(self, batches: list[Batch], code: ErrorCode, now: int) -> None:
        for batch in batches:
            self._conclude(batch, code, None, now)
        self._announce()

    def _conclude(
        self, batch: Batch, code: ErrorCode, answer: ProduceResponsePartition | None, now: int
    ) -> None:
        if code.refresh_metadata:
            self._refresh_wanted = True
        outcome = verdict(batch, code, now, self._config)
        if outcome is Verdict.RETRY:
            self._accumulator.retry(batch)
        elif outcome is Verdict.SPLIT:
            self._accumulator.split(batch)
        else:
            self._accumulator.finish(batch)
            if outcome is Verdict.DELIVERED:
                _deliver(batch, answer)
            else:
                _fail(batch, partial(ApiError, code, str(batch.partition)))

    def _announce(self) -> None:
        if self._progress is not None:
            self._progress.set_result(None)
            self._progress = None
        self.wake()


def _by_topic(batches: Sequence[Batch], magic: int) -> list[ProduceRequestTopic]:
    ordered = sorted(batches, key=lambda batch: batch.partition)
    return [
        ProduceRequestTopic(
            name=topic,
            partition_data=[
                ProduceRequestPartition(
                    index=batch.partition.partition, records=_records(batch, magic)
                )
                for batch in same_topic
            ],
        )
        for topic, same_topic in groupby(ordered, key=lambda batch: batch.partition.topic)
    ]


def _records(batch: Batch, magic: int) -> bytes:
    sealed = batch.seal()
    if magic == NEWEST_MAGIC:
        return sealed
    return b"".join(messages for _, messages in down_convert(sealed, magic))


def _deliver(batch: Batch, answer: ProduceResponsePartition | None) -> None:
    """Complete the futures of an acknowledged batch: one loop, in record order."""
    topic, partition = batch.partition
    offsets: Iterable[int] = repeat(-1)
    if answer is not None and answer.base_offset >= 0:
        offsets = count(answer.base_offset)
    timestamps: Iterable[int] = batch.timestamps
    if answer is not None and answer.log_append_time_ms >= 0:
        timestamps = repeat(answer.log_append_time_ms)
    fields = zip(repeat(topic), repeat(partition), offsets, timestamps)
    # The NamedTuple's own constructor costs more than all else here.
    outcomes = map(tuple.__new__, repeat(RecordMetadata), fields)
    for delivery, metadata in zip(batch.waiters, outcomes, strict=False):
        if not delivery.done():
            delivery.set_result(metadata)


def _fail(batch: Batch, error: Callable[[], Exception]) -> None:
    """Each future gets an exception of its own: a shared one collects every awaiter's traceback."""
    for delivery in batch.waiters:
        if not delivery.done():
            delivery.set_exception(error())
            delivery.exception()  # seen: who does not await a record does not want to know
