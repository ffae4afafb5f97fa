"""What clients of transactions do in a simulated cluster, with the product's own clients."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import attrs

from clients.cluster import Cluster as ClientCluster
from clients.config import ClusterConfig
from clients.errors import KgroupError, TransactionError, TransactionFailed, TransactionInDoubt
from clients.fetching import Isolation
from clients.group_metadata import ConsumerGroupMetadata
from clients.producer.producer import Producer
from clients.simple_consumer import FetchRequest, SimpleConsumer
from kgroup.testing.simulation.cluster import CLIENT, Cluster
from offsets.requests import fetch_offsets_request, fetch_results
from protocol.errors import ApiError, ErrorCode
from protocol.settings import load
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.transactions.history import Attempt, History, Outcome, Reading, read_value, value_of

ACCOUNTS, COPIES = "accounts", "copies"
PARTITIONS = 3
GROUP = "copiers"
TIMEOUT_MS = 6000
"""A client that is paused for longer loses its transaction."""
FAILURES = (KgroupError, ApiError, OSError)
PAUSE_S = 0.1
MOST_INPUTS = 5
ABORTS = 0.25
"""Chance that a client changes its mind."""


@attrs.define(eq=False)
class Stage:
    """A cluster, and what happens in it. `is_over`: the clients are to end."""

    cluster: Cluster
    history: History = attrs.field(factory=History)
    is_over: bool = False

    def tell(self, name: str, what: str) -> None:
        """Add a line to the story."""
        self.cluster.story.tell(name, what)


@attrs.define(eq=False)
class TransactionalClient:
    """A client with one transactional id, which it shares with its next self and with rivals."""

    stage: Stage
    name: str
    transactional_id: str
    rng: Random

    async def live(self) -> None:
        """Run transactions until the story is over; begin with a new producer when one fails."""
        settings = CLIENT | {
            "bootstrap.servers": self.stage.cluster.bootstrap,
            "transactional.id": self.transactional_id,
            "transaction.timeout.ms": TIMEOUT_MS,
            "linger.ms": 2,
            "delivery.timeout.ms": 15_000,
            "max.block.ms": 8000,
        }
        while not self.stage.is_over:
            try:
                async with Producer(settings) as producer:
                    await self.begin(producer)
                    while not self.stage.is_over:
                        await asyncio.sleep(self.rng.expovariate(1 / PAUSE_S))
                        await self.step(producer)
            except FAILURES as error:
                self.stage.tell(self.name, f"begins again: {error}")
                await asyncio.sleep(self.rng.uniform(0.1, 1.0))

    async def begin(self, producer: Producer) -> None:
        """Prepare; the producer has just fenced all others."""

    async def step(self, producer: Producer) -> None:
        """Run one transaction."""
        raise NotImplementedError

    async def run(
        self,
        producer: Producer,
        attempt: Attempt,
        writes: Sequence[tuple[TopicPartition, bytes]],
        offsets: Mapping[TopicPartition, int],
    ) -> None:
        """Write in a transaction, and end it. Raises what makes the producer useless."""
        await producer.begin_transaction()
        try:
            await self._write(producer, attempt, writes, offsets)
            if self.rng.random() < ABORTS:
                await producer.abort_transaction()
                return
            # From here on the process may die, and never know.
            attempt.outcome = Outcome.UNKNOWN
            await self._commit(producer)
            attempt.outcome = Outcome.COMMITTED
        except TransactionError as error:
            self._note(attempt, error)
            if not isinstance(error, TransactionFailed):
                raise
            await producer.abort_transaction()
        except FAILURES:
            # What is not told of a record: the transaction cannot be committed as it was meant.
            await producer.abort_transaction()

    async def _write(
        self,
        producer: Producer,
        attempt: Attempt,
        writes: Sequence[tuple[TopicPartition, bytes]],
        offsets: Mapping[TopicPartition, int],
    ) -> None:
        deliveries = []
        for (topic, partition), value in writes:
            attempt.writes[value] = TopicPartition(topic, partition), -1
            deliveries.append(await producer.send(topic, value, partition=partition))
        for (partition_of, value), delivery in zip(writes, deliveries, strict=True):
            placed = await delivery
            attempt.writes[value] = partition_of, placed.offset
        if offsets:
            attempt.offsets.update(offsets)
            await producer.send_offsets_to_transaction(
                {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()},
                ConsumerGroupMetadata(GROUP),
            )

    async def _commit(self, producer: Producer) -> None:
        while True:
            try:
                await producer.commit_transaction()
            except TransactionInDoubt as error:
                self.stage.tell(self.name, f"asks again: {error}")
                if self.stage.is_over and self.rng.random() < 0.1:
                    raise
            else:
                return

    def _note(self, attempt: Attempt, error: TransactionError) -> None:
        if attempt.outcome is Outcome.UNKNOWN and not error.transaction_in_doubt:
            attempt.outcome = Outcome.ABORTED
        self.stage.tell(self.name, f"transaction {attempt.number} fails: {error}")


@attrs.define(eq=False)
class Mover(TransactionalClient):
    """Moves amounts between accounts in several partitions: each transaction adds up to 0."""

    async def step(self, producer: Producer) -> None:
        attempt = self.stage.history.begin(self.transactional_id)
        size = self.rng.randint(2, 4)
        amounts = [self.rng.randint(-9, 9) for _ in range(size - 1)]
        amounts.append(-sum(amounts))
        writes = [
            (
                TopicPartition(ACCOUNTS, self.rng.randrange(PARTITIONS)),
                value_of(attempt.number, place, amount),
            )
            for place, amount in enumerate(amounts)
        ]
        await self.run(producer, attempt, writes, {})


@attrs.define(eq=False)
class Copier(TransactionalClient):
    """Copies a partition of accounts: it consumes, produces, and commits its offset with that."""

    partition: TopicPartition = attrs.field(kw_only=True)
    _position: int = 0
    _consumer: SimpleConsumer | None = None

    async def begin(self, producer: Producer) -> None:
        await self._go_back()

    async def step(self, producer: Producer) -> None:
        rows = await self._read()
        if not rows:
            return
        attempt = self.stage.history.begin(
            self.transactional_id, {read_value(value)[0] for _, value in rows}
        )
        attempt.inputs = [(self.partition, offset) for offset, _ in rows]
        writes = [
            (
                TopicPartition(COPIES, self.rng.randrange(PARTITIONS)),
                value_of(attempt.number, place),
            )
            for place in range(len(rows))
        ]
        position = rows[-1][0] + 1
        await self.run(producer, attempt, writes, {self.partition: position})
        if attempt.outcome is Outcome.COMMITTED:
            self._position = position
        else:
            await self._go_back()

    async def _go_back(self) -> None:
        """Go on where the last committed transaction ended, once that is decided."""
        client = _client_of(self.stage)
        try:
            self._position = max((await committed_offset(client, self.partition)) or 0, 0)
        finally:
            await client.close()

    async def _read(self) -> list[tuple[int, bytes]]:
        try:
            if self._consumer is None:
                self._consumer = await _consumer_of(self.stage, self.partition)
            rows, next_offset = await read(
                self._consumer, self.partition, self._position, Isolation.READ_COMMITTED
            )
        except FAILURES:
            await self._forget_consumer()
            raise
        if not rows:
            self._position = max(self._position, next_offset)
        return rows[: self.rng.randint(1, MOST_INPUTS)]

    async def _forget_consumer(self) -> None:
        if self._consumer is not None:
            with suppress(*FAILURES):
                await self._consumer.close()
            self._consumer = None


@attrs.define(eq=False)
class Reader:
    """Reads a partition from its beginning on with one isolation level, for ever."""

    stage: Stage
    name: str
    partition: TopicPartition
    isolation: Isolation

    async def live(self) -> None:
        is_committed = self.isolation is Isolation.READ_COMMITTED
        reading = self.stage.history.read(self.name, self.partition, is_committed=is_committed)
        while True:
            try:
                consumer = await _consumer_of(self.stage, self.partition)
                async with consumer:
                    while True:
                        await self._read(consumer, reading)
            except FAILURES as error:
                self.stage.tell(self.name, f"cannot read {self.partition}: {error}")
                await asyncio.sleep(0.2)

    async def _read(self, consumer: SimpleConsumer, reading: Reading) -> None:
        rows, next_offset = await read(consumer, self.partition, reading.position, self.isolation)
        reading.rows += rows
        reading.position = max(reading.position, next_offset)


@attrs.define(eq=False)
class Onlooker:
    """Asks for the group's committed offsets, again and again."""

    stage: Stage
    name: str
    partitions: Sequence[TopicPartition]

    async def live(self) -> None:
        client = _client_of(self.stage)
        while True:
            await asyncio.sleep(0.5)
            try:
                await self.look(client)
            except FAILURES:
                client.forget_coordinator(GROUP)

    async def look(self, client: ClientCluster) -> None:
        """Note what is committed now."""
        found = {}
        for partition in self.partitions:
            offset = await committed_offset(client, partition)
            if offset is not None and offset >= 0:
                found[partition] = offset
        self.stage.history.observed.append(found)


# ---- reading


async def read(
    consumer: SimpleConsumer, partition: TopicPartition, position: int, isolation: Isolation
) -> tuple[list[tuple[int, bytes]], int]:
    """Return the records from a position on, and where to go on. Raises ApiError."""
    request = FetchRequest(partition.topic, partition.partition, position)
    fetched = await consumer.fetch(request, max_wait_ms=300, min_bytes=1, isolation=isolation)
    fetched.raise_for_error()
    return [(row[0], row[3] or b"") for row in fetched.rows], fetched.next_offset


async def committed_offset(client: ClientCluster, partition: TopicPartition) -> int | None:
    """Return the offset that the group has committed, once no transaction is about to change it.

    None: it is not decided yet. Raises ApiError.
    """
    request = attrs.evolve(fetch_offsets_request(GROUP, [partition]), require_stable=True)
    while True:
        response = await client.call_coordinator(GROUP, request)
        if response.error_code:
            client.forget_coordinator(GROUP)
            raise ApiError(ErrorCode.of(response.error_code), GROUP)
        found = fetch_results(response)[partition]
        if found.error is ErrorCode.NONE:
            return found.offset
        if found.error is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
            raise ApiError(found.error, str(partition))
        await asyncio.sleep(0.1)


async def _consumer_of(stage: Stage, partition: TopicPartition) -> SimpleConsumer:
    settings: dict[str, Any] = CLIENT | {"bootstrap.servers": stage.cluster.bootstrap}
    return await SimpleConsumer.for_leader(settings, partition.topic, partition.partition)


def _client_of(stage: Stage) -> ClientCluster:
    bootstrap = stage.cluster.bootstrap
    config = load(ClusterConfig, {"bootstrap.servers": bootstrap, **CLIENT})[0]
    return ClientCluster(bootstrap.split(","), config=config)
