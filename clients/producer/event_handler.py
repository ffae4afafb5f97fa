"""What becomes of messages with `producer.type`: encoded, given a partition, sent, acknowledged.

Kafka's DefaultEventHandler of 0.8.2, with its faults mended: a message that cannot be sent holds up
no other, and the error says which were not stored. Batches, retries and leaders are the business of
the producer's own sender; here a batch is handed to it and waited for.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from clients.cluster import Cluster
from clients.errors import ClientError, FailedToSendMessage, KgroupError
from clients.named_object import made_of
from clients.producer.deliveries import Delivery, RecordMetadata
from clients.producer.handlers import CallbackHandler, ProducerMetrics, messages_of
from clients.producer.messages import KeyedMessage
from clients.producer.old_config import OldProducerConfig
from clients.producer.old_partitioner import KeptPartitions, key_to_partition
from clients.serializers import bytes_encoder, encoder_of

_log = logging.getLogger(__name__)

Buffer = Callable[[str, bytes | None, bytes | None, int], Awaitable[Delivery]]
"""The producer's own way to send: topic, value, key, partition."""


class _Encoded(NamedTuple):
    event: KeyedMessage
    key: bytes | None
    value: bytes | None


class DefaultEventHandler:
    """Sends batches of messages for a producer whose own settings are `config.producer_config`."""

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
        encoder, key_encoder = config.serializer, config.key_serializer
        self._encode = made_of("serializer.class", encoder_of, encoder)
        self._encode_key = made_of("key.serializer.class", encoder_of, key_encoder or encoder)
        self._partition_of_key = made_of("partitioner.class", key_to_partition, config.partitioner)
        self._keyless = KeptPartitions(random.randrange)
        self._refreshed_at = float("-inf")

    async def handle(self, events: list[KeyedMessage]) -> list[RecordMetadata]:
        """Send them; return where they went, in their order, once all are acknowledged.

        Raises FailedToSendMessage for those that were not; and, in a sync producer, what an encoder
        raises, with nothing sent.
        """
        events = messages_of(self._hooks.before_sending_data(events), "before_sending_data")
        outcomes: dict[int, RecordMetadata | Exception] = {}
        encoded = self._encoded(events, outcomes)
        by_topic: dict[str, list[int]] = {}
        for index, record in encoded.items():
            by_topic.setdefault(record.event.topic, []).append(index)
        await self._keep_metadata_fresh(by_topic)

        async def send(topic: str, indexes: list[int]) -> None:
            sent = await self._send(topic, [encoded[index] for index in indexes])
            outcomes.update(zip(indexes, sent, strict=True))

        # Each topic by itself: one whose metadata must be waited for holds up no other.
        async with asyncio.TaskGroup() as tasks:
            for topic, indexes in by_topic.items():
                tasks.create_task(send(topic, indexes))
        failed = {n: error for n, error in outcomes.items() if isinstance(error, Exception)}
        if failed:
            first = failed[min(failed)]
            messages = [events[index] for index in sorted(failed)]
            raise FailedToSendMessage(messages, f"{messages[0].topic}: {first}") from first
        return [sent for _, sent in sorted(outcomes.items()) if isinstance(sent, RecordMetadata)]

    def close(self) -> None:
        """Nothing is held here."""

    def _encoded(
        self, events: Sequence[KeyedMessage], outcomes: dict[int, RecordMetadata | Exception]
    ) -> dict[int, _Encoded]:
        encoded = {}
        for index, event in enumerate(events):
            try:
                key, value = self._encode_key(event.key), self._encode(event.message)
                encoded[index] = _Encoded(event, bytes_encoder(key), bytes_encoder(value))
            except Exception as error:
                self._metrics.serialization_errors += 1
                if self._config.producer_type == "sync":
                    raise
                outcomes[index] = error
        return encoded

    async def _keep_metadata_fresh(self, topics: Iterable[str]) -> None:
        """Read it anew when it is old; that it could not be read is not yet an error."""
        interval_ms = self._config.metadata_max_age_ms
        now = asyncio.get_running_loop().time()
        if interval_ms < 0 or now - self._refreshed_at <= interval_ms / 1000:
            return
        self._refreshed_at = now
        self._keyless.forget()
        try:
            await self._cluster.refresh(topics)
        except ClientError as error:
            _log.warning("metadata could not be read: %s", error)

    async def _send(self, topic: str, records: list[_Encoded]) -> list[RecordMetadata | Exception]:
        """Send messages of one topic; what became of each."""
        try:
            num_partitions = await self._num_partitions(topic)
        except KgroupError as error:
            return [error] * len(records)
        partitions = self._cluster.view.topics[topic]
        led = [index for index, partition in partitions.items() if partition.leader >= 0]
        sent: list[Delivery | Exception] = []
        for event, key, value in records:
            try:
                partition = self._partition(event, num_partitions, led)
                sent.append(await self._buffer(topic, value, key, partition))
            except Exception as error:
                sent.append(error)
        outcomes: list[RecordMetadata | Exception] = []
        for delivery in sent:
            try:
                outcomes.append(delivery if isinstance(delivery, Exception) else await delivery)
            except KgroupError as error:
                outcomes.append(error)
        if any(isinstance(outcome, Exception) for outcome in outcomes):
            self._keyless.forget()
        return outcomes

    async def _num_partitions(self, topic: str) -> int:
        """A cluster of which no broker can be reached is given up after the attempts there are; a
        topic that has no leader yet is waited for, as long as they might have taken.
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
        partition = self._partition_of_key(event.partition_key, num_partitions)
        if not 0 <= partition < num_partitions:
            raise ValueError(f"partitioner chose {partition} of {num_partitions} partitions")
        return partition
