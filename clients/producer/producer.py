"""The producer: it takes records and returns futures of their places in the log.

`send` returns as soon as the record is buffered. On its usual path (the topic is known, the buffer
has room) it neither suspends nor makes a task: it encodes the record into the batch of its
partition and returns a future. The sender sends batches and completes the futures.

With `producer.type` in its settings it behaves as Kafka's older producer: it takes ProducerData and
calls handlers (old_producer.py), and sends to brokers in the same way.
"""

import asyncio
import random
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Self, TypeVar, overload

from clients.arguments import check_offsets, check_timeout, to_partition_number
from clients.cluster import Cluster
from clients.errors import (
    BufferExhausted,
    DeadlineExceeded,
    InvalidTransactionState,
    KgroupError,
    ProducerClosed,
)
from clients.group_metadata import ConsumerGroupMetadata
from clients.named_object import made_of
from clients.own_loop import OwnLoop
from clients.producer.accumulator import Accumulator, Waiters
from clients.producer.alike_records import AlikeRecords
from clients.producer.config import ProducerConfig, load_producer_config
from clients.producer.deliveries import Delivery, RecordMetadata
from clients.producer.encoded_record import EncodedRecord, Header
from clients.producer.handlers import ProducerMetrics
from clients.producer.lot import Lot
from clients.producer.messages import KeyedMessage, Messages, ProducerData, keyed_messages
from clients.producer.old_config import (
    load_old_producer_config,
    names_producer_type,
    refuse_old_names,
)
from clients.producer.old_producer import OldProducer
from clients.producer.partitioner import StickyPartitions, key_partition, partition_rule
from clients.producer.record_encoder import RecordEncoder
from clients.producer.sender import Sender, monotonic_ms
from clients.producer.sequences import Sequences
from clients.producer.transactions.transactions import Transactions
from clients.shared_close import SharedClose
from protocol.records.batch import BatchBuilder
from protocol.records.compression import Codec, compress
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

__all__ = ["KeyedMessage", "Producer", "ProducerData", "RecordMetadata"]

T = TypeVar("T")
Sending = Coroutine[Any, Any, T]
Deliveries = Waiters[Any]
"""What takes the results of records as asyncio futures do, by the record's number."""


class Producer:
    """Sends records to a cluster.

    Takes settings under Kafka's names, as a mapping or as keywords:
    `Producer({"bootstrap.servers": "h:p"})` or `Producer(bootstrap_servers="h:p")`. Use it as an
    async context manager, or call `close`, which sends the buffered records.

    A record whose acknowledgement is lost is sent again, so it may be written twice. With
    `enable.idempotence` (off by default, as in Kafka 2.x) it is written once while the producer
    lives: records are numbered, and a broker recognises those that it has.

    With `transactional.id` records are sent in transactions alone, and written once also by the
    next producer of that id:

        async with producer.transaction():
            await producer.send("totals", b"...")
            await producer.send_offsets_to_transaction(offsets, connector.group_metadata())
    """

    config: ProducerConfig
    notes: list[str]
    """A text for each setting that is accepted and has no effect."""
    metrics: ProducerMetrics
    """Counts of records sent, sent again and given up."""

    def __init__(self, settings: Mapping[str, Any] | None = None, /, **keywords: Any) -> None:
        all_settings = {**(settings or {}), **keywords}
        old = None

        # `producer.type` asks for the older producer, and for its names of settings.
        if names_producer_type(all_settings):
            old, self.notes = load_old_producer_config(all_settings)
            self.config = old.producer_config
        else:
            refuse_old_names(all_settings)
            self.config, self.notes = load_producer_config(all_settings)

        config = self.config
        self._partition_rule = made_of("partitioner.class", partition_rule, config.partitioner)
        self.records = RecordEncoder(config, has_partition_rule=self._has_partitioner)
        """Turns what is sent into records."""

        self._cluster = Cluster(config.bootstrap_servers, config=config, create_topics=True)
        codec = Codec.of_name(config.compression_type)
        compress(codec, b"")  # raises now if the codec is not installed
        self._accumulator: Accumulator[Delivery] = Accumulator(config, codec)

        self.metrics = ProducerMetrics()
        self._sender = Sender(
            self._accumulator,
            self._cluster,
            self.metrics,
            unreachable_is_attempt=old is not None,
        )

        self._transactions = self._sender.transactions

        self._sticky = StickyPartitions(random.randrange)
        self._own_loop = OwnLoop()
        self._room = asyncio.Lock()
        self._runner: asyncio.Task[None] | None = None
        self._closing = SharedClose("producer-close")
        self._new_delivery: Callable[[], Delivery]  # set with the runner, whose loop it belongs to

        self._old = None
        if old is not None:
            self._old = OldProducer(old, self._cluster, self._buffer, self.metrics)

    async def __aenter__(self) -> Self:
        self._own_loop.check()
        self._start()
        if self._transactions is not None:
            try:
                await self._transactions.initialize()
            except BaseException:
                await self.close()
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @overload
    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
    ) -> Sending[asyncio.Future[RecordMetadata]]: ...

    @overload
    def send(self, topic: Messages) -> Sending[list[Any] | None]: ...

    def send(
        self,
        topic: str | Messages,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
    ) -> Sending[Any]:
        """Buffer a record and return the future of its delivery; for ProducerData a list of them.

        Waits only for the topic's metadata and for room in the buffer, `max.block.ms` in all.
        Raises RecordTooLarge, BufferExhausted, DeadlineExceeded, ProducerClosed; BrokerError for an
        invalid topic; ValueError for an invalid partition or time; and any error of the serializers
        and the partitioner. The future raises BrokerError, DeliveryTimedOut or ProducerClosed.

        With `producer.type=sync` it returns a list of RecordMetadata when all are acknowledged. It
        raises FailedToSendMessage, and errors of an encoder before anything is sent. With `async`
        it returns None when all are queued, and raises QueueFull and ProducerClosed.
        """
        # The usual path: one record, buffered.
        if self._old is None and isinstance(topic, str):
            return self._buffer(topic, value, key, partition, headers, timestamp_ms)

        if partition is not None or headers or timestamp_ms is not None:
            raise TypeError("a message cannot have partition, headers or timestamp_ms")

        data = KeyedMessage(topic, key, value) if isinstance(topic, str) else topic
        return self._send_messages(data)

    async def _send_messages(self, data: Messages) -> Any:
        messages = keyed_messages(data)

        # Messages go through the event handler, which buffers them in the end.
        if self._old is not None:
            return await self._old.send(messages)

        deliveries = []
        for message in messages:
            partition = None

            # A KeyedMessage may have a key that only chooses the partition.
            if message.part_key is not None:
                num_partitions = await self.partitions(message.topic)
                partition = key_partition(
                    self.records.encode_key(message.part_key) or b"", num_partitions
                )
            deliveries.append(
                await self._buffer(message.topic, message.message, message.key, partition)
            )
        return deliveries

    def _buffer(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
    ) -> Sending[Delivery]:
        # Encoded by the call, not by the wait for it: a coroutine less for each record.
        return self._buffer_record(
            self.records.encode(topic, value, key, partition, headers, timestamp_ms)
        )

    async def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None = None,
        *,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[Sequence[RecordMetadata]]:
        """Buffer records in order, and return one future for all of them.

        `keys` has a key for each value; partition, headers and time are the same for all. The
        future gives the RecordMetadata of each record, in the order of `values`. When all are done
        and some have failed, it raises RecordsNotDelivered, which has the results of all.

        Waits for room as often as the buffer is full, each time up to `max.block.ms`. Raises as
        `send`, before anything is buffered, if a record cannot be encoded or the first one cannot
        be buffered; if a later one cannot, it fails with all behind it. Raises ValueError unless
        there are as many keys as values, TypeError with `producer.type`.
        """
        if self._old is not None:
            raise TypeError("with producer.type, give `send` a list of messages")

        # Each letter of a text is a value too (fault strangers-165).
        if isinstance(values, str | bytes | bytearray | memoryview):
            raise TypeError("send_many takes a list of values: `send` takes one")
        values = list(values)
        keys = None if keys is None else list(keys)
        if keys is not None and len(keys) != len(values):
            raise ValueError(f"{len(keys)} keys were given for {len(values)} values")

        records = self.records.encode_many(topic, values, keys, partition, headers, timestamp_ms)

        future: asyncio.Future[Sequence[RecordMetadata]]
        future = asyncio.get_running_loop().create_future()
        lot = Lot(topic, len(records), future)
        num_buffered, error = await self._buffer_all(records, lot)

        # The caller needs the future of what is buffered.
        if error is not None:
            if num_buffered == 0:
                raise error
            lot.fail_from(num_buffered, error)
        return future

    async def _buffer_all(
        self,
        records: Sequence[EncodedRecord],
        deliveries: Deliveries,
        *,
        waits_for_partitions: bool = True,
    ) -> tuple[int, Exception | None]:
        """Buffer records up to the first that cannot be; return their number, and its error.

        `deliveries` take the results as asyncio futures do. Unless it `waits_for_partitions`, one
        whose partition is not known ends it without an error.
        """
        self._own_loop.check()
        accumulator = self._accumulator
        most_bytes = self.config.buffer_memory
        number = 0
        try:
            while number < len(records):
                topic, partition = records[number][:2]
                if not waits_for_partitions and not self._knows_partition(records[number]):
                    return number, None
                num_partitions = await self._wait_until_ready(records[number])
                number = self._join(records, num_partitions, deliveries, number)
                opens_batch = False

                # Without a look at the cluster for each: until the buffer is full, or a batch is,
                # or a record is for elsewhere.
                while (
                    number < len(records)
                    and not opens_batch
                    and accumulator.buffered_bytes + records[number][-1] <= most_bytes
                    and records[number][0] == topic
                    and records[number][1] == partition
                ):
                    opens_batch = self._append(records[number], num_partitions, deliveries[number])
                    number += 1

                if opens_batch:
                    self._sender.wake()
                    await asyncio.sleep(0)

        except Exception as error:
            return number, error
        return number, None

    @property
    def _has_partitioner(self) -> bool:
        """True if the application's partitioner chooses the partition of a record, on the loop."""
        return self._partition_rule is not None

    def _is_ready_for(self, record: EncodedRecord, ahead_bytes: int = 0) -> bool:
        """Return whether a record would be buffered at once, behind `ahead_bytes` of others."""
        buffered_bytes = self._accumulator.buffered_bytes + ahead_bytes
        return (
            self._knows_partition(record)
            and buffered_bytes + record[-1] <= self.config.buffer_memory
            and not self._room.locked()
            and self._runner is not None
            and self._accumulator.is_open
        )

    def _lacks_partition(self, record: EncodedRecord) -> bool:
        """Return whether the topic of a record is known, and its partition is not."""
        is_known = bool(self._cluster.view.topics.get(record[0]))
        return is_known and not self._knows_partition(record)

    def _knows_partition(self, record: EncodedRecord) -> bool:
        """Return whether the topic of a record is known, and has its partition if that is given."""
        num_partitions = len(self._cluster.view.topics.get(record[0], ()))
        partition = record[1]
        return num_partitions > 0 and (partition is None or 0 <= partition < num_partitions)

    async def _buffer_record(
        self, record: EncodedRecord, delivery: Delivery | None = None
    ) -> Delivery:
        """Buffer a record; `delivery`, or a new future, gets its delivery. Waits and raises as
        `send`."""
        self._own_loop.check()

        # On the usual path nothing is waited for.
        if self._is_ready_for(record):
            num_partitions = len(self._cluster.view.topics[record[0]])
        else:
            num_partitions = await self._prepare(record[0], record[1], record[-1])

        if delivery is None:
            delivery = self._new_delivery()
        if self._append(record, num_partitions, delivery):
            self._sender.wake()
            # A caller that does nothing but send would fill the buffer before any batch leaves.
            await asyncio.sleep(0)
        return delivery

    async def send_batch(
        self, partition: TopicPartition, builder: BatchBuilder, delivery: Delivery
    ) -> None:
        """Buffer records that the caller has encoded; they are sent as one batch.

        `delivery` gets the delivery of the first of them. Waits and raises as `send`.
        """
        self._own_loop.check()
        topic, partition_id = partition
        size = builder.size_estimate
        self.records.check_size(str(partition), size)

        if not self._is_ready_for((topic, partition_id, None, None, None, (), 0, size)):
            await self._prepare(topic, partition_id, size)

        self._accumulator.append_batch(partition, builder, delivery, monotonic_ms())
        self._sender.wake()

    def use_numbers(self, numbers: Sequences) -> None:
        """Number the records as `numbers` says, not by an id that a broker gives.

        Call it before the first record. Raises ValueError without `enable.idempotence`.
        """
        if not self.config.enable_idempotence:
            raise ValueError("records are numbered only with enable.idempotence")
        self._sender.use_numbers(numbers)

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send a record and wait until it is acknowledged. Raises as `send` and its future."""
        delivery = await self.send(
            topic,
            value,
            key=key,
            partition=partition,
            headers=headers,
            timestamp_ms=timestamp_ms,
        )

        return await delivery

    async def flush(self) -> None:
        """Send all buffered records without lingering, and wait until each succeeded or failed.

        As in Kafka this raises nothing for records that could not be delivered: their futures do,
        `metrics.record_error_total` counts them, and the log has a line for each partition and
        error. Records sent during the flush are not waited for. Raises ProducerClosed if the
        producer is closed during the flush.
        """
        self._own_loop.check()
        if self._old is not None:
            await self._old.flush()
        await self._flush()

    async def _flush(self) -> None:
        # Batches that are opened later do not count.
        serial = self._accumulator.last_serial
        self._accumulator.hurrying += 1
        self._sender.wake()
        try:
            while not self._accumulator.is_done_through(serial):
                await self._sender.progress()
        finally:
            self._accumulator.hurrying -= 1

    # --- transactions ---------------------------------------------------------------------------

    async def init_transactions(self) -> None:
        """Get the id of `transactional.id`, and fence the producer that had it before.

        An open transaction of that producer is aborted. The `async with` of a producer does it;
        again it does nothing. Waits up to `max.block.ms`. Raises ProducerFenced, ProducerFailed;
        DeadlineExceeded, after which it may be called again.
        """
        transactions = self._with_transactions("init_transactions")
        self._start()
        await transactions.initialize()

    def transaction(self) -> AbstractAsyncContextManager[None]:
        """Return a context manager: a transaction that is committed at its end.

        On an exception it is aborted. If that is TransactionFailed, its `can_be_run_again` says
        whether to run the block again. After TransactionInDoubt nothing is known: call
        `commit_transaction`. Raises as `begin_transaction` and `commit_transaction`.
        """
        return self._in_transaction()

    @asynccontextmanager
    async def _in_transaction(self) -> AsyncIterator[None]:
        await self.begin_transaction()
        try:
            yield
            await self.commit_transaction()
        except BaseException as error:
            # A commit whose end is not known must not be aborted, and one that ended cannot be.
            transactions = self._with_transactions("transaction")
            if transactions.can_abort:
                try:
                    await self.abort_transaction()
                except KgroupError as second:
                    error.add_note(f"the transaction was not aborted: {second}")
            raise

    async def begin_transaction(self) -> None:
        """Begin a transaction. All records that are sent until its end belong to it.

        Raises InvalidTransactionState if one is open, or the producer is not initialized;
        TransactionFailed if the last one must be aborted; ProducerFenced, ProducerFailed.
        """
        await self._with_transactions("begin_transaction").begin()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """Commit offsets with the transaction: the next ones to consume, of a consumer's group.

        `group` is the consumer's `group_metadata()`. Offsets are refused, and the transaction must
        be aborted, if the consumer is no longer the member that read the messages. Waits up to
        `max.block.ms`. Raises TransactionFailed, ProducerFenced, ProducerFailed,
        InvalidTransactionState; ValueError for an impossible offset; DeadlineExceeded, after which
        a commit goes on with them.
        """
        check_offsets(offsets)
        transactions = self._with_transactions("send_offsets_to_transaction")
        await transactions.send_offsets(offsets, group)

    async def commit_transaction(self) -> None:
        """Send what is buffered, and commit the transaction. Waits up to `max.block.ms`.

        Raises TransactionFailed if anything was not delivered: abort it, and run it again if that
        can help. TransactionInDoubt if it took too long: call this again. ProducerFenced,
        ProducerFailed, InvalidTransactionState.
        """
        await self._with_transactions("commit_transaction").commit()

    async def abort_transaction(self) -> None:
        """Drop what is buffered, and abort the transaction. Waits up to `max.block.ms`.

        Records that were not sent fail with TransactionAborted. Raises ProducerFenced,
        ProducerFailed, InvalidTransactionState; DeadlineExceeded, after which the abort goes on.
        """
        await self._with_transactions("abort_transaction").abort()

    def _with_transactions(self, call: str) -> Transactions:
        if self._transactions is None:
            raise InvalidTransactionState(f"{call} needs a producer with transactional.id")
        return self._transactions

    async def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic. Raises as `send`."""
        return await self._cluster.partitions(topic, timeout_ms=self.config.max_block_ms)

    async def close(self, timeout_ms: int | None = None) -> None:
        """Send all buffered records, for at most `timeout_ms`, and close the connections.

        Records that are not acknowledged by then fail with ProducerClosed. With
        `producer.type=async` the FailedToSendMessage that this raises has the messages that are
        still queued. A call while another one closes waits for the same end, sooner if its time is
        shorter, and raises the same. A caller that is cancelled does not stop the close; the next
        one hears how it ended.
        """
        self._own_loop.check()
        check_timeout(timeout_ms)
        await self._closing.join(self._close_all, timeout_ms)

    async def _close_all(self) -> None:
        try:
            if self._old is not None:
                await self._old.close(self._closing)
        finally:
            # The queue and the buffer share the callers' time.
            await self._close()

    async def _close(self) -> None:
        # From here on `send` is refused, and nothing lingers.
        self._accumulator.close()

        runner = self._runner
        self._runner = None

        # Send what is buffered, for as long as the callers give.
        try:
            if runner is not None and not runner.done():
                async with self._closing.in_time():
                    if self._transactions is not None:
                        await self._transactions.end()
                    await self._flush()
        finally:
            if runner is not None:
                # With records left, the loop's end fails them with ProducerClosed.
                runner.cancel()
                await asyncio.wait([runner])
            await self._cluster.close()

        # An error of the send loop reaches the caller.
        if runner is not None and not runner.cancelled():
            runner.result()

    def _start(self) -> None:
        if self._runner is None and not self._accumulator.closed:
            # Futures belong to the loop that runs the sender.
            self._new_delivery = asyncio.get_running_loop().create_future
            self._runner = asyncio.create_task(self._sender.run(), name="producer-sender")

    def _join(
        self,
        records: Sequence[EncodedRecord],
        num_partitions: int,
        deliveries: Deliveries,
        first: int,
    ) -> int:
        """Add the records that go where the first one goes to its batch, while there is room.

        Return the number of the first that is left: its partition depends on its key, or there is
        no batch that takes it.
        """
        topic, partition_id, _, key = records[first][:4]
        if partition_id is not None:
            partition = TopicPartition(topic, partition_id)
        elif key is None and self._partition_rule is None:
            sticky = self._sticky.current(topic)
            if sticky is None or sticky.partition >= num_partitions:
                return first
            partition = sticky
        else:
            return first

        if isinstance(records, AlikeRecords):
            return self._accumulator.join_alike(partition, records, deliveries[first], first)
        return self._accumulator.join_many(partition, records, deliveries, first)

    def _append(self, record: EncodedRecord, num_partitions: int, delivery: Delivery) -> bool:
        """Append a record for which there is room. Return whether it is the first of a batch."""
        topic, partition_id, original_key, key, value, headers, timestamp_ms, size = record
        content = (timestamp_ms, key, value, headers, delivery, size)
        accumulator = self._accumulator

        # The application's rule sees the original key and its bytes.
        if partition_id is None and self._partition_rule is not None:
            chosen = self._partition_rule(original_key, key, num_partitions)
            partition_id = to_partition_number(chosen)
            if not 0 <= partition_id < num_partitions:
                raise ValueError(
                    f"partitioner chose {partition_id} of {num_partitions} for {topic}"
                )

        # Equal keys go to one partition, whether it has a leader or not.
        elif partition_id is None and key is not None:
            partition_id = key_partition(key, num_partitions)

        if partition_id is not None:
            partition = TopicPartition(topic, partition_id)
        else:
            # Stay with the sticky partition while its batch has room.
            sticky = self._sticky.current(topic)
            if (
                sticky is not None
                and sticky.partition < num_partitions
                and accumulator.join_batch(sticky, *content)
            ):
                return False

            # A partition without a leader would keep its records waiting.
            views = self._cluster.view.topics[topic]
            led_partitions = [index for index, view in views.items() if view.leader >= 0]
            partition = self._sticky.move(topic, led_partitions or range(num_partitions))

        if accumulator.join_batch(partition, *content):
            return False
        accumulator.open_batch(partition, *content, monotonic_ms())
        return True

    async def _wait_until_ready(self, record: EncodedRecord) -> int:
        """Wait for metadata and room if need be; return the topic's number of partitions."""
        if self._is_ready_for(record):
            return len(self._cluster.view.topics[record[0]])
        return await self._prepare(record[0], record[1], record[-1])

    async def _prepare(self, topic: str, partition: int | None, size: int) -> int:
        """Wait for metadata and room for a record; return the topic's number of partitions."""
        if self._accumulator.closed:
            raise ProducerClosed("the producer is closed")
        transaction = 0
        if self._transactions is not None:
            self._transactions.check_open("send")
            transaction = self._transactions.number

        # An impossible partition fails now; one that is too high may be created yet.
        if partition is not None and partition < 0:
            raise ValueError(f"partition {partition} is negative")

        self._start()
        cluster = self._cluster
        block_ms = self.config.max_block_ms
        began_s = asyncio.get_running_loop().time()
        late: type[DeadlineExceeded] = DeadlineExceeded
        waiting_for = f"metadata of {topic}"
        try:
            async with asyncio.timeout(block_ms / 1000):
                num_partitions = await cluster.partitions(topic, timeout_ms=block_ms)

                # The partition may be new, and not in our metadata yet.
                while partition is not None and partition >= num_partitions:
                    waiting_for = f"partition {partition} of {topic}, which has {num_partitions}"
                    # As in Java's producer the error comes after max.block.ms, a minute later.
                    reason = f"topic {topic} has {num_partitions} partitions"
                    now_s = asyncio.get_running_loop().time()
                    cluster.complaints.failed(f"{topic}-{partition}", reason, began_s, now_s)
                    await cluster.retrying(partial(cluster.refresh, [topic]), "metadata", block_ms)
                    num_partitions = await cluster.partitions(topic, timeout_ms=block_ms)

                # From here on, being late means that the buffer is full.
                late = BufferExhausted
                waiting_for = f"room for {size} bytes in buffer.memory"
                await self._wait_for_room(size)

        except TimeoutError:
            silent = (
                "" if cluster.view.brokers else ": no broker of bootstrap.servers has responded"
            )
            raise late(f"waited max.block.ms for {waiting_for}{silent}") from None
        except KgroupError as error:
            # The close ended the wait; its error is not the cluster's.
            if self._accumulator.closed:
                raise ProducerClosed("the producer was closed meanwhile") from error
            raise

        # The wait may have outlasted the close, or the transaction.
        if self._accumulator.closed:
            raise ProducerClosed("the producer was closed meanwhile")
        if self._transactions is not None:
            self._transactions.check_open("send", transaction)
        return num_partitions

    async def _wait_for_room(self, size: int) -> None:
        """Wait in order of arrival, so that small records cannot pass a large one forever."""
        async with self._room:
            self._accumulator.hurrying += 1
            try:
                # Each batch that ends may have made room.
                while self._accumulator.buffered_bytes + size > self.config.buffer_memory:
                    self._sender.wake()
                    await self._sender.progress()
            finally:
                self._accumulator.hurrying -= 1
