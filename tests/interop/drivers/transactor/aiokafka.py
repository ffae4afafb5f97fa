"""Transactions by aiokafka, call by call.

Its producer gets its id when it starts, which is `init` here. It has no time-outs of commits and
aborts, no epochs of its own after an error, and commits offsets by the group's id alone.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

import attrs
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # type: ignore[import-untyped]
from aiokafka.errors import (  # type: ignore[import-untyped]
    IllegalOperation,
    InvalidProducerEpoch,
    KafkaTimeoutError,
    ProducerFenced,
    RequestTimedOutError,
)
from aiokafka.structs import OffsetAndMetadata, TopicPartition  # type: ignore[import-untyped]

from tests.interop.drivers.transactor.calls import (
    FENCED,
    ILLEGAL,
    OTHER,
    TIMEOUT,
    Call,
    render,
    serve,
    settings_of,
)

POLL_MS = 200
READ_S = 60.0


def kind_of(error: Exception) -> str:
    """Return what an error means to the program."""
    if isinstance(error, ProducerFenced | InvalidProducerEpoch):
        return FENCED
    if isinstance(error, IllegalOperation):
        return ILLEGAL
    if isinstance(error, KafkaTimeoutError | RequestTimedOutError | TimeoutError):
        return TIMEOUT
    return OTHER


@attrs.define(eq=False)
class Transacting:
    """A producer, and the records that it has not delivered."""

    producer: Any
    sent: list[Any] = attrs.field(factory=list)


@attrs.define(eq=False)
class Transactor:
    """The producers and consumers, by the names that the test gives them."""

    bootstrap: str
    producers: dict[str, Transacting] = attrs.field(factory=dict)
    consumers: dict[str, Any] = attrs.field(factory=dict)
    most_polled: dict[str, int] = attrs.field(factory=dict)

    # ---- producers

    async def create(self, name: str, *pairs: str) -> None:
        settings = settings_of(pairs)
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            transactional_id=settings["transactional.id"],
            transaction_timeout_ms=int(settings.get("transaction.timeout.ms", "60000")),
        )
        self.producers[name] = Transacting(producer)

    async def init(self, name: str) -> None:
        await self.producers[name].producer.start()

    async def begin(self, name: str) -> None:
        await self.producers[name].producer.begin_transaction()

    async def send(
        self, name: str, topic: str, partition: str, timestamp: str, *values: str
    ) -> None:
        made = self.producers[name]
        for value in values:
            made.sent.append(
                await made.producer.send(
                    topic, value.encode(), partition=int(partition), timestamp_ms=int(timestamp)
                )
            )

    async def flush(self, name: str) -> None:
        made = self.producers[name]
        sent, made.sent = made.sent, []
        async with asyncio.timeout(READ_S):
            for delivery in sent:
                await delivery

    async def commit(self, name: str) -> None:
        self.producers[name].sent = []
        async with asyncio.timeout(READ_S):
            await self.producers[name].producer.commit_transaction()

    async def abort(self, name: str) -> None:
        self.producers[name].sent = []
        async with asyncio.timeout(READ_S):
            await self.producers[name].producer.abort_transaction()

    async def send_offset(
        self, name: str, group: str, topic: str, partition: str, offset: str, _: str, metadata: str
    ) -> None:
        position = {TopicPartition(topic, int(partition)): OffsetAndMetadata(int(offset), metadata)}
        async with asyncio.timeout(READ_S):
            await self.producers[name].producer.send_offsets_to_transaction(position, group)

    async def close(self, name: str) -> None:
        await self.producers.pop(name).producer.stop()

    # ---- consumers

    async def subscribe(self, name: str, group: str, topic: str, most_polled: str) -> None:
        self.most_polled[name] = int(most_polled)
        self.consumers[name] = self._reader("read_committed", topic, group_id=group)
        await self.consumers[name].start()

    async def poll(self, name: str) -> list[str]:
        most = self.most_polled[name]
        return words_of(await self.consumers[name].getmany(timeout_ms=POLL_MS, max_records=most))

    async def rewind(self, name: str) -> None:
        consumer = self.consumers[name]
        for at, offset in (await consumer.seek_to_committed()).items():
            if offset is None:
                consumer.seek(at, 0)

    async def leave(self, name: str) -> None:
        await self.consumers.pop(name).stop()

    async def read(self, topic: str, isolation: str, partitions: str, min_bytes: str) -> list[str]:
        all_of_them = [TopicPartition(topic, number) for number in range(int(partitions))]
        words: list[str] = []
        reader = self._reader(isolation, fetch_min_bytes=int(min_bytes), fetch_max_wait_ms=100)
        async with reader as consumer, asyncio.timeout(READ_S):
            consumer.assign(all_of_them)
            await consumer.seek_to_beginning()
            for at, end in (await consumer.end_offsets(all_of_them)).items():
                while await consumer.position(at) < end:
                    words += words_of(await consumer.getmany(timeout_ms=POLL_MS))
        return words

    async def find_end(self, topic: str, isolation: str) -> list[str]:
        at = TopicPartition(topic, 0)
        async with self._reader(isolation) as consumer:
            return [str((await consumer.end_offsets([at]))[at])]

    async def look_up(self, topic: str, isolation: str, timestamp: str) -> list[str]:
        at = TopicPartition(topic, 0)
        async with self._reader(isolation) as consumer:
            found = (await consumer.offsets_for_times({at: int(timestamp)}))[at]
            return [str(-1 if found is None else found.offset)]

    def _reader(self, isolation: str, *topics: str, **more: Any) -> Any:
        return AIOKafkaConsumer(
            *topics,
            bootstrap_servers=self.bootstrap,
            isolation_level=isolation,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            **more,
        )


def words_of(polled: Any) -> list[str]:
    """Return the records of a poll as words."""
    return [
        render(record.partition, record.offset, record.value)
        for records in polled.values()
        for record in records
    ]


def main() -> None:
    """Make all calls on one loop: clients have tasks that go on between them."""
    transactor = Transactor(sys.argv[1])
    with asyncio.Runner() as runner:
        loop = runner.get_loop()

        def on_loop(method: Any) -> Call:
            def call(*words: str) -> Any:
                work: Coroutine[Any, Any, Any] = method(*words)
                return asyncio.run_coroutine_threadsafe(work, loop).result()

            return call

        calls = {
            "producer": on_loop(transactor.create),
            "init": on_loop(transactor.init),
            "begin": on_loop(transactor.begin),
            "send": on_loop(transactor.send),
            "flush": on_loop(transactor.flush),
            "commit": on_loop(transactor.commit),
            "abort": on_loop(transactor.abort),
            "offset_of_group": on_loop(transactor.send_offset),
            "close": on_loop(transactor.close),
            "consumer": on_loop(transactor.subscribe),
            "poll": on_loop(transactor.poll),
            "rewind": on_loop(transactor.rewind),
            "leave": on_loop(transactor.leave),
            "read": on_loop(transactor.read),
            "end": on_loop(transactor.find_end),
            "lookup": on_loop(transactor.look_up),
        }
        runner.run(asyncio.to_thread(serve, calls, kind_of))


if __name__ == "__main__":
    main()
