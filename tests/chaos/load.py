"""Who works while things go wrong: producers, committers, members of a group, readers.

Each is a task that goes on until told to stop, whatever happens, and writes down what it is told.
None gives up: what an outage delays is to be delivered when it is over.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import confluent_kafka

from clients.admin import Admin
from clients.errors import KgroupError
from clients.high_level.connector import ConsumerConnector
from clients.high_level.streams import MessageStream
from clients.producer.deliveries import RecordMetadata
from clients.producer.producer import Producer
from clients.simple_consumer import FetchRequest, SimpleConsumer
from protocol.errors import ApiError
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.chaos.ledger import Committed, Observed, Produced, value_of
from zk.api import ZkError

PARTITIONS = 3
MOST_IN_FLIGHT = 600
PAUSE_S = 0.02
COMMIT_PAUSE_S = 0.1
LOOK_S = 1.0
HEARD_S = 10.0
"""Time within which a coordinator has heard that it is one no longer."""
PATIENT = {"delivery.timeout.ms": 3_600_000, "request.timeout.ms": 5_000, "linger.ms": 5}
PROMPT = {"request.timeout.ms": 5_000, "default.api.timeout.ms": 15_000}
GROUP = "members"
WENT_WRONG = (KgroupError, ApiError, OSError, TimeoutError, ZkError)

Now = Callable[[], float]


@attrs.define(eq=False)
class OurProducer:
    """Ours, to one topic, a record each PAUSE_S."""

    bootstrap: str
    topic: str
    produced: Produced
    now: Now

    async def run(self, stop: asyncio.Event) -> None:
        """Send until told to stop; return when all is answered."""
        settings = PATIENT | {
            "bootstrap.servers": self.bootstrap,
            "acks": "all",
            "enable.idempotence": str(self.produced.is_idempotent).lower(),
            "client.id": self.produced.producer,
            "max.block.ms": 3_600_000,
        }
        room = asyncio.Semaphore(MOST_IN_FLIGHT)
        async with Producer(settings) as producer:
            turn = 0
            while not stop.is_set():
                turn += 1
                at = TopicPartition(self.topic, turn % PARTITIONS)
                await room.acquire()
                number = self.produced.sent[at]
                self.produced.sent[at] += 1
                value = value_of(self.produced.producer, number)
                delivery = await producer.send(at.topic, value, partition=at.partition)
                delivery.add_done_callback(partial(self._answered, at, number, room))
                await asyncio.sleep(PAUSE_S)

    def _answered(
        self,
        at: TopicPartition,
        number: int,
        room: asyncio.Semaphore,
        delivery: "asyncio.Future[RecordMetadata]",
    ) -> None:
        room.release()
        error = delivery.exception()
        if error is not None:
            self.produced.failed.append(f"{at} {number}: {error!r}")
        else:
            self.produced.enter(at, number, delivery.result().offset, self.now())


@attrs.define(eq=False)
class StockProducer:
    """librdkafka's, idempotent; on a thread of its own."""

    bootstrap: str
    topic: str
    produced: Produced
    now: Now
    fatal: list[str] = attrs.field(factory=list)

    async def run(self, stop: asyncio.Event) -> None:
        """Send until told to stop; return when all is answered."""
        ending = threading.Event()
        work = asyncio.create_task(asyncio.to_thread(self._work, ending))
        try:
            await stop.wait()
            ending.set()
            await asyncio.shield(work)
        finally:
            self._abandoned = True
            ending.set()

    _abandoned: bool = attrs.field(default=False, init=False)

    def _work(self, ending: threading.Event) -> None:
        log = logging.getLogger("librdkafka")
        log.addFilter(self._noted)
        try:
            self._produce(ending, log)
        finally:
            log.removeFilter(self._noted)

    def _noted(self, line: logging.LogRecord) -> bool:
        said = line.getMessage()
        self.produced.renumbered += "epoch bump" in said and "skipped sequence numbers" in said
        return True

    def _produce(self, ending: threading.Event, log: logging.Logger) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 0,
                "socket.timeout.ms": 5000,
                "linger.ms": 5,
                "debug": "eos",  # if it numbers anew, it says why
                "error_cb": self._error,
                "logger": log,
            }
        )
        turn = 0
        while not ending.is_set() and not self.fatal:
            if len(producer) < MOST_IN_FLIGHT:
                turn += 1
                at = TopicPartition(self.topic, turn % PARTITIONS)
                number = self.produced.sent[at]
                self.produced.sent[at] += 1
                producer.produce(
                    at.topic,
                    value_of(self.produced.producer, number),
                    partition=at.partition,
                    on_delivery=partial(self._answered, at, number),
                )
            producer.poll(0)
            time.sleep(PAUSE_S)
        while len(producer) and not self.fatal and not self._abandoned:
            producer.flush(0.5)
        producer.purge()

    def _answered(
        self,
        at: TopicPartition,
        number: int,
        error: confluent_kafka.KafkaError | None,
        message: confluent_kafka.Message,
    ) -> None:
        if error is not None:
            self.produced.failed.append(f"{at} {number}: {error}")
        else:
            offset = message.offset()
            self.produced.enter(at, number, -1 if offset is None else offset, self.now())

    def _error(self, error: confluent_kafka.KafkaError) -> None:
        if error.fatal():
            self.fatal.append(str(error))
            self.produced.failed.append(f"fatal: {error}")


@attrs.define(eq=False)
class Committer:
    """Counts up one offset of a group that has no members, and reads it back now and then."""

    bootstrap: str
    group: str
    at: TopicPartition
    committed: Committed

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop."""
        async with Admin({"bootstrap.servers": self.bootstrap} | PROMPT) as admin:
            number, looked = 0, time.monotonic()
            while not stop.is_set():
                number += 1
                self.committed.tried[self.at] = number
                offset = OffsetAndMetadata(number, f"commit {number}")
                with contextlib.suppress(*WENT_WRONG):
                    await admin.commit_group_offsets(self.group, {self.at: offset})
                    self.committed.confirm(self.at, number)
                    self.committed.count += 1
                if time.monotonic() - looked > LOOK_S:
                    with contextlib.suppress(*WENT_WRONG):
                        await look(admin, self.group, [self.at], self.committed)
                    looked = time.monotonic()
                await asyncio.sleep(COMMIT_PAUSE_S)


async def look(
    admin: Admin, group: str, partitions: Sequence[TopicPartition], committed: Committed
) -> None:
    """Read what a group has committed."""
    at_least = {at: committed.confirmed[at] for at in partitions}
    found = await admin.group_offsets(group, partitions)

    # A coordinator that has not heard of its successor yet shows what it had when it was one. That
    # a commit is lost for members is told by where they start.
    asked_s = time.monotonic()
    while _is_below(found, at_least) and time.monotonic() - asked_s < HEARD_S:
        await asyncio.sleep(0.05)
        brokers = ",".join(admin.config.bootstrap_servers)
        async with Admin({"bootstrap.servers": brokers} | PROMPT) as another:
            found = await another.group_offsets(group, partitions)

    for at in partitions:
        committed.read(at, found[at].offset if at in found else -1, at_least[at])


def _is_below(
    found: Mapping[TopicPartition, OffsetAndMetadata], at_least: Mapping[TopicPartition, int]
) -> bool:
    return any((found[at].offset if at in found else -1) < least for at, least in at_least.items())


@attrs.define(eq=False)
class Member:
    """A high-level consumer of all topics, in ZooKeeper; its offsets are kept with the brokers."""

    bootstrap: str
    zookeeper: str
    topics: Sequence[str]
    observed: Observed
    leave: asyncio.Event = attrs.field(factory=asyncio.Event)
    """Set it, and it leaves; it comes again at once."""

    async def run(self, stop: asyncio.Event) -> None:
        """Consume until told to stop."""
        while not stop.is_set():
            self.leave.clear()
            connector = ConsumerConnector(
                {
                    "group.id": GROUP,
                    "zookeeper.connect": self.zookeeper,
                    "zookeeper.session.timeout.ms": 4000,
                    "bootstrap.servers": self.bootstrap,
                    "auto.offset.reset": "smallest",
                    "auto.commit.interval.ms": 500,
                    "offsets.storage": "kafka",
                    "dual.commit.enabled": "false",
                    "socket.timeout.ms": 5000,
                    "rebalance.backoff.ms": 500,
                }
            )
            try:
                streams = await connector.create_message_streams(dict.fromkeys(self.topics, 1))
                reading = [self._read(stream) for each in streams.values() for stream in each]
                tasks = [asyncio.create_task(each) for each in reading]
                try:
                    ends = [asyncio.create_task(event.wait()) for event in (stop, self.leave)]
                    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                    for end in ends:
                        end.cancel()
                finally:
                    await connector.shutdown()
                    await asyncio.gather(*tasks)
            except WENT_WRONG:
                await connector.shutdown()
                await asyncio.sleep(LOOK_S)

    async def _read(self, stream: MessageStream) -> None:
        async for message in stream:
            at = TopicPartition(message.topic, message.partition)
            self.observed.enter(at, message.offset, message.value)


async def watch_group(
    bootstrap: str,
    group: str,
    partitions: Sequence[TopicPartition],
    committed: Committed,
    stop: asyncio.Event,
) -> None:
    """Read the offsets of a group with members, until told to stop."""
    async with Admin({"bootstrap.servers": bootstrap} | PROMPT) as admin:
        while not stop.is_set():
            with contextlib.suppress(*WENT_WRONG):
                await look(admin, group, partitions, committed)
            await asyncio.sleep(LOOK_S)


async def read_along(
    bootstrap: str, at: TopicPartition, observed: Observed, stop: asyncio.Event
) -> None:
    """Read a partition as it grows, until told to stop."""
    await keep_reading(bootstrap, at, observed, lambda offset: _is_set(stop))


async def _is_set(stop: asyncio.Event) -> bool:
    return stop.is_set()


async def read_through(bootstrap: str, at: TopicPartition, observed: Observed, end: int) -> None:
    """Read a partition from its beginning to `end`."""

    async def is_there(offset: int) -> bool:
        return offset >= end

    await keep_reading(bootstrap, at, observed, is_there)


async def keep_reading(
    bootstrap: str,
    at: TopicPartition,
    observed: Observed,
    is_enough: Callable[[int], Awaitable[bool]],
) -> None:
    """Read a partition from its beginning, whatever happens."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap} | PROMPT
    offset = 0
    while not await is_enough(offset):
        try:
            async with await SimpleConsumer.for_leader(settings, *at) as consumer:
                while not await is_enough(offset):
                    request = FetchRequest(*at, offset)
                    fetched = await consumer.fetch(request, max_wait_ms=300, min_bytes=1)
                    for record in fetched:
                        observed.enter(at, record.offset, record.value or b"")
                    offset = max(offset, fetched.next_offset)
        except WENT_WRONG:
            await asyncio.sleep(PAUSE_S * 10)
