"""Sends what the accumulator says is ready, and tells each record's future what became of it.

One task runs the loop; it never waits for a broker. A request is a future with a callback; what
must be waited for (a connection, fresh metadata) runs as a child task that wakes the loop when
done, so one slow broker holds up only its own partitions.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from clients.cluster import Cluster
from clients.errors import (
    BrokerError,
    ClientError,
    ConnectionFailed,
    DeliveryTimedOut,
    ProducerClosed,
)
from clients.producer.accumulator import Accumulator, Ready, Verdict, verdict
from clients.producer.deliveries import Batch, Delivery, deliver, fail
from clients.producer.handlers import ProducerMetrics
from clients.producer.sequences import REASONS, UNNUMBERED, Sequences
from clients.producer.undelivered import Undelivered
from clients.transport.connection import Connection
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest
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

_log = logging.getLogger(__name__)

PURPOSE = "produce"

NEWEST_MAGIC = 2
_OLD_MAGIC = (0, 0, 1)
"""By version of Produce: the format of messages it carries; later ones carry record batches."""
_FIRST_VERSION_WITH_ZSTD = 7


def now_ms() -> int:
    """Wall clock in ms: timestamps are part of the record."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """The loop's clock in ms, for all that waits or runs out: a wall clock that is set back an hour
    would hold records for as long, one that is set forward would give them up."""
    return int(asyncio.get_running_loop().time() * 1000)


class Sender:
    """The loop of one producer."""

    def __init__(
        self,
        accumulator: Accumulator[Delivery],
        cluster: Cluster,
        metrics: ProducerMetrics,
        unreachable_is_attempt: bool = False,
    ) -> None:
        self._accumulator = accumulator
        self._metrics = metrics
        self._undelivered = Undelivered()
        self._unreachable_is_attempt = unreachable_is_attempt
        """Whether a leader that cannot be connected to costs its batches a retry."""
        self._config = accumulator.config
        self._sequences = Sequences() if self._config.enable_idempotence else None
        self._identifying = False
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
            self._undelivered.write()
            abandoned = self._accumulator.abandon()
            for batch in abandoned:
                closed = partial(ProducerClosed, "closed before the record was acknowledged")
                self._metrics.record_error_total += fail(batch, closed)
            if left := sum(len(batch.waiters) for batch in abandoned if not batch.expired):
                _log.warning("%d records were not acknowledged when the producer closed", left)
            self._announce()

    def _turn(self, tasks: asyncio.TaskGroup) -> int:
        """Send all that can go now; return for how long nothing else will, in ms."""
        now = monotonic_ms()
        for batch in self._accumulator.expire(now):
            waited = f"{batch.partition}: not acknowledged in {now - batch.created_ms} ms"
            if batch.last_error is not ErrorCode.NONE:
                waited += f", the last attempt failed with {batch.last_error.name}"
            self._fail(batch, partial(DeliveryTimedOut, waited))
            if self._sequences is not None:
                self._sequences.given_up(batch.partition, batch.numbers)
            self._announce()
        ready = self._accumulator.ready(now, self._cluster.view.leaders.get)
        self._keep_metadata_fresh(ready, tasks)
        self._send_ready(ready, tasks, now)
        self._undelivered.write_due(now)
        due_in_ms = self._undelivered.due_in_ms(now)
        return ready.next_check_ms if due_in_ms is None else min(ready.next_check_ms, due_in_ms)

    def _send_ready(self, ready: Ready, tasks: asyncio.TaskGroup, now: int) -> None:
        if ready.nodes and self._sequences is not None and self._sequences.producer_id is None:
            if not self._identifying:
                self._identifying = True
                tasks.create_task(self._identify(self._sequences))
            return
        for node, partitions in ready.nodes.items():
            connection = self._cluster.open_connection(node, PURPOSE)
            if connection is None:
                self._connect(node, tasks)
            elif connection.in_flight < self._config.max_in_flight:
                self._send(connection, self._accumulator.drain(partitions, now), now)

    def _keep_metadata_fresh(self, ready: Ready, tasks: asyncio.TaskGroup) -> None:
        wanted = self._refresh_wanted or ready.leaderless or self._cluster.stale
        if wanted and not self._refreshing:
            if self._refresh_wanted or ready.leaderless:
                self._cluster.ask_another()
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

    async def _identify(self, sequences: Sequences) -> None:
        """Get a producer id. Where none is to be had, what waits for it fails."""
        try:
            ask = partial(_ask_for_id, self._cluster)
            bound_ms = self._config.delivery_timeout_ms
            sequences.producer_id = await self._cluster.retrying(ask, "producer id", bound_ms)
        except BrokerError as error:
            self._give_up_queued(partial(BrokerError, error.code, error.detail))
        except ClientError as error:
            self._give_up_queued(partial(ClientError, f"enable.idempotence: {error}"))
        finally:
            self._identifying = False
            self.wake()

    def _give_up_queued(self, error: Callable[[], Exception]) -> None:
        for batch in self._accumulator.give_up_queued():
            self._fail(batch, error)
        self._announce()

    def _fail(self, batch: Batch, error: Callable[[], Exception]) -> None:
        """Give a batch up: its futures, the metrics and the log are told."""
        failed = fail(batch, error)
        self._metrics.record_error_total += failed
        self._undelivered.add(batch.partition, error(), failed, monotonic_ms())

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
        now = monotonic_ms()
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
            self._metrics.record_send_total += sum(len(batch.waiters) for batch in batches)
        except ConnectionFailed:
            self._conclude_all(batches, ErrorCode.NETWORK_EXCEPTION, now)
        except ClientError:
            self._conclude_all(batches, ErrorCode.UNSUPPORTED_VERSION, now)
        else:
            response.add_done_callback(partial(self._answered, batches))

    def _sealed(self, batch: Batch) -> bool:
        """Encode the batch. One that cannot be, for want of memory say, fails alone."""
        if self._sequences is not None and batch.numbers == UNNUMBERED:
            batch.numbers = self._sequences.numbers(batch.partition)
        try:
            batch.seal()
        except Exception as error:
            self._accumulator.finish(batch)
            not_encoded = f"{batch.partition}: not encoded: {error!r}"
            self._fail(batch, partial(ClientError, not_encoded))
            self._announce()
            return False
        return True

    def _magic_for(self, connection: Connection) -> int:
        """The newest record format that the broker takes."""
        version = connection.version_of(ApiKey.PRODUCE)
        if version < len(_OLD_MAGIC) and self._sequences is not None:
            raise ClientError(f"{connection.host}:{connection.port} is too old for idempotence")
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
        now = monotonic_ms()
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
        if code.is_stale_metadata:
            self._refresh_wanted = True
        batch.last_error = code
        outcome = self._judged(batch, code, answer, now)
        if outcome is Verdict.RETRY:
            self._metrics.record_retry_total += len(batch.waiters)
            self._accumulator.retry(batch)
        elif outcome is Verdict.SPLIT:
            self._accumulator.split(batch)
        else:
            self._accumulator.finish(batch)
            if outcome is Verdict.DELIVERED:
                deliver(batch, answer)
            else:
                why = f"{batch.partition}: {REASONS[code]}" if code in REASONS else None
                self._fail(batch, partial(BrokerError, code, why or str(batch.partition)))

    def _judged(
        self, batch: Batch, code: ErrorCode, answer: ProduceResponsePartition | None, now: int
    ) -> Verdict:
        """What an answer means for a batch; with idempotence, for the numbers after it too."""
        sequences, place = self._sequences, (batch.partition, batch.numbers)
        if sequences is not None and answer and code is ErrorCode.UNKNOWN_PRODUCER_ID:
            start = answer.log_start_offset
            if sequences.may_begin_anew(*place, batch.attempts, start):
                sequences.given_up(*place)
                batch.numbers, batch.encoded = UNNUMBERED, None
                code = ErrorCode.NETWORK_EXCEPTION  # as if it had never arrived
            elif start < 0:
                code = ErrorCode.NETWORK_EXCEPTION  # another broker may know where the log starts
        outcome = verdict(batch, code, now, self._config)
        if sequences is not None:
            if outcome is Verdict.DELIVERED and answer:
                sequences.delivered(*place, len(batch.waiters), answer.base_offset)
            elif outcome is Verdict.FAILED:
                sequences.given_up(*place)
        return outcome

    def _announce(self) -> None:
        if self._progress is not None:
            self._progress.set_result(None)
            self._progress = None
        self.wake()


async def _ask_for_id(cluster: Cluster) -> int:
    request = InitProducerIdRequest()
    answer = await cluster.ask_any(lambda connection: connection.call(request))
    code = ErrorCode.of(answer.error_code)
    if code is not ErrorCode.NONE:
        raise BrokerError(code, "no producer id")
    producer_id: int = answer.producer_id
    return producer_id


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
