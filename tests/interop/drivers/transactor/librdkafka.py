"""Transactions by librdkafka, which confluent-kafka is made of, call by call."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import attrs
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.interop.drivers.transactor.calls import (
    ABORTABLE,
    FENCED,
    ILLEGAL,
    OTHER,
    TIMEOUT,
    render,
    serve,
    settings_of,
)

POLL_S = 0.2
READ_S = 60.0
DEFAULT_BLOCK_S = 60.0

KINDS = {
    KafkaError._FENCED: FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH: FENCED,
    KafkaError.PRODUCER_FENCED: FENCED,
    KafkaError._TIMED_OUT: TIMEOUT,
    KafkaError._MSG_TIMED_OUT: TIMEOUT,
    KafkaError._STATE: ILLEGAL,
    # The reason is with the transaction.
    KafkaError._PURGE_QUEUE: ABORTABLE,
}


def kind_of(error: BaseException | None) -> str:
    """Return what an error means to the program."""
    # A fatal one is raised as it is, maybe in the middle of a call of `Transacting.note`.
    while isinstance(error, SystemError):
        error = error.__cause__
    reason = error.args[0] if isinstance(error, KafkaException) else error
    if not isinstance(reason, KafkaError):
        return OTHER
    if reason.code() in KINDS:
        return KINDS[reason.code()]
    if reason.txn_requires_abort():
        return ABORTABLE
    # It gives the reason for which it has tried until the end of the time.
    return TIMEOUT if reason.retriable() else OTHER


@attrs.define(eq=False)
class Transacting:
    """A producer, and the errors of the records that it could not deliver."""

    producer: Producer
    block_s: float
    errors: list[KafkaError] = attrs.field(factory=list)

    def note(self, error: KafkaError | None, _: Message) -> None:
        """Note how a record was delivered."""
        if error is not None:
            self.errors.append(error)


@attrs.define(eq=False)
class Transactor:
    """The producers and consumers, by the names that the test gives them."""

    bootstrap: str
    producers: dict[str, Transacting] = attrs.field(factory=dict)
    consumers: dict[str, Consumer] = attrs.field(factory=dict)
    most_polled: dict[str, int] = attrs.field(factory=dict)

    # ---- producers

    def create(self, name: str, *pairs: str) -> None:
        settings: dict[str, Any] = settings_of(pairs)
        block_ms = int(settings.pop("max.block.ms", 0))
        if block_ms:
            # Offsets are sent for as long as a request may take, whatever the call allows.
            settings["socket.timeout.ms"] = block_ms
        settings["bootstrap.servers"] = self.bootstrap
        self.producers[name] = Transacting(Producer(settings), block_ms / 1000 or DEFAULT_BLOCK_S)

    def init(self, name: str) -> None:
        self.producers[name].producer.init_transactions(self.producers[name].block_s)

    def begin(self, name: str) -> None:
        self.producers[name].producer.begin_transaction()

    def send(self, name: str, topic: str, partition: str, timestamp: str, *values: str) -> None:
        made = self.producers[name]
        for value in values:
            made.producer.produce(
                topic,
                value.encode(),
                partition=int(partition),
                timestamp=int(timestamp),
                on_delivery=made.note,
            )

    def flush(self, name: str) -> None:
        made = self.producers[name]
        made.producer.flush(READ_S)
        errors, made.errors = made.errors, []
        if errors:
            raise KafkaException(errors[0])

    def commit(self, name: str) -> None:
        self.producers[name].producer.commit_transaction(self.producers[name].block_s)

    def abort(self, name: str) -> None:
        self.producers[name].producer.abort_transaction(self.producers[name].block_s)

    def send_offset(
        self,
        name: str,
        group: str,
        topic: str,
        partition: str,
        offset: str,
        epoch: str,
        metadata: str,
    ) -> None:
        """Commit an offset for a group that has no members."""
        at = TopicPartition(topic, int(partition), int(offset), metadata, int(epoch))
        consumer = self._reader("read_committed", **{"group.id": group})
        made = self.producers[name]
        made.producer.send_offsets_to_transaction(
            [at], consumer.consumer_group_metadata(), made.block_s
        )
        consumer.close()

    def send_positions(self, name: str, consumer_name: str) -> None:
        consumer, made = self.consumers[consumer_name], self.producers[name]
        made.producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()),
            consumer.consumer_group_metadata(),
            made.block_s,
        )

    def close(self, name: str) -> None:
        del self.producers[name]

    # ---- consumers

    def subscribe(self, name: str, group: str, topic: str, most_polled: str) -> None:
        consumer = self._reader("read_committed", **{"group.id": group})
        consumer.subscribe([topic])
        self.consumers[name] = consumer
        self.most_polled[name] = int(most_polled)

    def poll(self, name: str) -> list[str]:
        return words_of(self.consumers[name].consume(self.most_polled[name], POLL_S))

    def rewind(self, name: str) -> None:
        consumer = self.consumers[name]
        for at in committed_of(consumer):
            offset = at.offset if at.offset >= 0 else OFFSET_BEGINNING
            consumer.seek(TopicPartition(at.topic, at.partition, offset))

    def leave(self, name: str) -> None:
        self.consumers.pop(name).close()

    def read(self, topic: str, isolation: str, partitions: str, min_bytes: str) -> list[str]:
        consumer = self._reader(
            isolation,
            **{
                "group.id": "unused",
                "enable.partition.eof": "true",
                "fetch.min.bytes": min_bytes,
                "fetch.wait.max.ms": "100",
            },
        )
        words: list[str] = []
        ended: set[int] = set()
        consumer.assign([TopicPartition(topic, n, 0) for n in range(int(partitions))])
        while len(ended) < int(partitions):
            message = consumer.poll(READ_S)
            if message is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition() or 0)
            else:
                words += words_of([message])
        consumer.close()
        return words

    def find_end(self, topic: str, isolation: str) -> list[str]:
        consumer = self._reader(isolation, **{"group.id": "unused"})
        watermarks = consumer.get_watermark_offsets(TopicPartition(topic, 0), READ_S)
        consumer.close()
        return [str(watermarks[1])]

    def look_up(self, topic: str, isolation: str, timestamp: str) -> list[str]:
        consumer = self._reader(isolation, **{"group.id": "unused"})
        (at,) = consumer.offsets_for_times([TopicPartition(topic, 0, int(timestamp))], READ_S)
        consumer.close()
        return [str(at.offset)]

    def _reader(self, isolation: str, **more: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "isolation.level": isolation,
                "enable.auto.commit": "false",
                "auto.offset.reset": "earliest",
                **more,
            }
        )


def committed_of(consumer: Consumer) -> list[TopicPartition]:
    """Return the group's offsets; librdkafka does not look for a group that has moved."""
    ends_s = time.monotonic() + READ_S
    while True:
        try:
            return list(consumer.committed(consumer.assignment(), READ_S))
        except KafkaException as error:
            has_moved = error.args[0].code() == KafkaError.NOT_COORDINATOR
            if not has_moved or time.monotonic() > ends_s:
                raise
        time.sleep(POLL_S)


def words_of(messages: Sequence[Message]) -> list[str]:
    """Return messages as words. Raises KafkaException for the first that is none."""
    words = []
    for message in messages:
        error = message.error()
        if error is not None:
            raise KafkaException(error)
        words.append(
            render(message.partition() or 0, message.offset() or 0, message.value() or b"")
        )
    return words


if __name__ == "__main__":
    transactor = Transactor(sys.argv[1])
    serve(
        {
            "producer": transactor.create,
            "init": transactor.init,
            "begin": transactor.begin,
            "send": transactor.send,
            "flush": transactor.flush,
            "commit": transactor.commit,
            "abort": transactor.abort,
            "offset_of_group": transactor.send_offset,
            "positions_of_consumer": transactor.send_positions,
            "close": transactor.close,
            "consumer": transactor.subscribe,
            "poll": transactor.poll,
            "rewind": transactor.rewind,
            "leave": transactor.leave,
            "read": transactor.read,
            "end": transactor.find_end,
            "lookup": transactor.look_up,
        },
        kind_of,
    )
