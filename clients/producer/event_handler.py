"""Send messages with `producer.type`: encode them, choose partitions, wait for acknowledgement.

It is Kafka's DefaultEventHandler of 0.8.2 without its faults: a message that cannot be sent delays
no other, and the error has the messages that were not stored. The producer's sender does batches,
retries and leaders; this module hands it a batch and waits.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from clients.arguments import to_partition_number
from clients.cluster import Cluster
from clients.errors import ClientError, FailedToSendMessage, KgroupError
from clients.named_object import made_of
from clients.producer.deliveries import Delivery, RecordMetadata
from clients.producer.handlers import CallbackHandler, ProducerMetrics, messages_of
from clients.producer.messages import KeyedMessage
from clients.producer.old_config import OldProducerConfig
from clients.producer.old_partitioner import KeptPartitions, key_to_partition
from clients.serializers import bytes_encoder, encoder_of

logger = logging.getLogger(__name__)

Buffer = Callable[[str, bytes | None, bytes | None, int], Awaitable[Delivery]]
"""The producer's way to send: topic, value, key, partition."""


class _Encoded(NamedTuple):
    event: KeyedMessage
    key: bytes | None
    value: bytes | None


class DefaultEventHandler:
    """Sends batches of messages with a producer of the settings `config.producer_config`."""

    def __init__(
        self,
        config: OldProducerConfig,
        cluster: Cluster,
        buffer: Buffer,
        hooks: CallbackHandler,
        metrics: ProducerMetrics,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._buffer = buffer
        self._hooks = hooks
        self._metrics = metrics

        # Keys are encoded as messages are, unless they have an encoder of their own.
        encoder = config.serializer
        key_encoder = config.key_serializer
        self._encode = made_of("serializer.class", encoder_of, encoder)
        self._encode_key = made_of("key.serializer.class", encoder_of, key_encoder or encoder)
        self._partition_of_key = made_of("partitioner.class", key_to_partition, config.partitioner)

        self._keyless = KeptPartitions(random.randrange)
        self._refreshed_at = float("-inf")

    async def handle(self, events: list[KeyedMessage]) -> list[RecordMetadata]:
        """Send the messages; return their places, in order, when all are acknowledged.

        Raises FailedToSendMessage for those that are not. In a sync producer it raises errors of an
        encoder, before anything is sent.
        """
        events = messages_of(self._hooks.before_sending_data(events), "before_sending_data")
        results: dict[int, RecordMetadata | Exception] = {}
        # Failures of single messages are results beside the places.
        encoded = self._encode_all(events, results)

        # Indexes keep each message's place in the batch.
        by_topic: dict[str, list[int]] = {}
        for index, record in encoded.items():
            by_topic.setdefault(record.event.topic, []).append(index)
        await self._keep_metadata_fresh(by_topic)

        async def send(topic: str, indexes: list[int]) -> None:
            places = await self._send(topic, [encoded[index] for index in indexes])
            results.update(zip(indexes, places, strict=True))

        # Send each topic separately: waiting for one topic's metadata delays no other.
        async with asyncio.TaskGroup() as tasks:
            for topic, indexes in by_topic.items():
                tasks.create_task(send(topic, indexes))

        # The error names the first failure, and has all messages that failed.
        failed = {index: error for index, error in results.items() if isinstance(error, Exception)}
        if failed:
            first = failed[min(failed)]
            messages = [events[index] for index in sorted(failed)]
            raise FailedToSendMessage(messages, f"{messages[0].topic}: {first}") from first

        return [place for _, place in sorted(results.items()) if isinstance(place, RecordMetadata)]

    def close(self) -> None:
        """Do nothing: no resource is held here."""

    def _encode_all(
        self, events: Sequence[KeyedMessage], results: dict[int, RecordMetadata | Exception]
    ) -> dict[int, _Encoded]:
        encoded = {}
        for index, event in enumerate(events):
            try:
                key = self._encode_key(event.key)
                value = self._encode(event.message)
                # An encoder may return what is not bytes; that is its error, too.
                encoded[index] = _Encoded(event, bytes_encoder(key), bytes_encoder(value))
            except Exception as error:
                self._metrics.unserializable.count += 1
                if self._config.producer_type == "sync":
                    # In a sync producer the caller gets the encoder's error, and nothing is sent.
                    raise
                results[index] = error
        return encoded

    async def _keep_metadata_fresh(self, topics: Iterable[str]) -> None:
        """Read the metadata again if it is old. A failure is not an error yet."""
        interval_ms = self._config.metadata_max_age_ms
        now = asyncio.get_running_loop().time()
        if interval_ms < 0 or now - self._refreshed_at <= interval_ms / 1000:
            return

        # Noted before the attempt: brokers that cannot be asked are not asked at each send.
        self._refreshed_at = now
        # As in 0.8, keyless messages move to another partition with each refresh.
        self._keyless.forget()
        try:
            await self._cluster.refresh(topics)
        except ClientError as error:
            logger.warning("metadata not read: %s", error)

    async def _send(self, topic: str, records: list[_Encoded]) -> list[RecordMetadata | Exception]:
        """Send messages of one topic; return the result of each."""
        try:
            num_partitions = await self._num_partitions(topic)
        except KgroupError as error:
            # Without partitions no message of the topic can be sent.
            return [error] * len(records)

        partitions = self._cluster.view.topics[topic]
        # Keys use all partitions; messages without a key avoid those without a leader.
        led_partitions = [index for index, partition in partitions.items() if partition.leader >= 0]
        deliveries: list[Delivery | Exception] = []

        # Buffer all records first, so that they leave in few requests.
        for event, key, value in records:
            try:
                partition = self._partition(event, num_partitions, led_partitions)
                deliveries.append(await self._buffer(topic, value, key, partition))
            except Exception as error:
                deliveries.append(error)

        # Then wait for each; a failed one does not stop the others.
        results: list[RecordMetadata | Exception] = []
        for delivery in deliveries:
            try:
                results.append(delivery if isinstance(delivery, Exception) else await delivery)
            except KgroupError as error:
                results.append(error)

        # The chosen partition may have lost its leader.
        if any(isinstance(result, Exception) for result in results):
            self._keyless.forget()
        return results

    async def _num_partitions(self, topic: str) -> int:
        """Return the number of the topic's partitions, and wait for them.

        If no broker can be reached, it gives up after as many attempts as a send has. A topic
        without a leader is waited for as long as those attempts could take.
        """
        attempts_left = self._config.message_send_max_retries + 1
        while topic not in self._cluster.view.topics:
            try:
                await self._cluster.refresh([topic])
                break
            except ClientError:
                attempts_left -= 1
                if not attempts_left:
                    raise

        return await self._cluster.partitions(topic, timeout_ms=self._config.attempts_ms)

    def _partition(self, event: KeyedMessage, num_partitions: int, led: Sequence[int]) -> int:
        if event.partition_key is None:
            return self._keyless.of(event.topic, range(num_partitions), led)

        partition = to_partition_number(self._partition_of_key(event.partition_key, num_partitions))
        if not 0 <= partition < num_partitions:
            raise ValueError(f"partitioner chose {partition} of {num_partitions} partitions")
        return partition
