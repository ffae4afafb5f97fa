"""What clients of transactions do: which transactions they want, what readers see.

Who runs a transaction is somebody else: a producer in the simulation (`producing.py`), or a process
around any client (`tests/chaos/transactions`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Protocol

import attrs

from clients.admin import LATEST_TIME, Admin
from clients.cluster import Cluster as ClientCluster
from clients.config import ClusterConfig
from clients.errors import KgroupError
from clients.fetch_requests import Isolation
from clients.simple_consumer import FetchRequest, SimpleConsumer
from offsets.requests import fetch_offsets_request, fetch_results
from protocol.errors import ApiError, ErrorCode
from protocol.settings import load
from protocol.topic_partition import TopicPartition
from tests.transactions.history import Attempt, History, Outcome, Reading, read_value, value_of

ACCOUNTS, COPIES = "accounts", "copies"
PARTITIONS = 3
ALL_PARTITIONS = [
    TopicPartition(topic, number) for topic in (ACCOUNTS, COPIES) for number in range(PARTITIONS)
]
COPIED = [TopicPartition(ACCOUNTS, number) for number in range(2)]
"""The partitions that copiers copy."""
GROUP = "copiers"
TIMEOUT_MS = 6000
"""A client that is paused for longer loses its transaction."""
FAILURES = (KgroupError, ApiError, OSError)
MOST_INPUTS = 5
HEARD_S = 10.0
"""Time within which a coordinator has heard that it is one no longer."""
ABORTS = 0.25
"""Chance that a client changes its mind."""


@attrs.define(eq=False)
class Stage:
    """A cluster, and what happens in it.

    - `settings`: those of each client.
    - `tell`: adds a line to the story: who, and what.
    - `is_over`: the clients are to end.
    """

    bootstrap: str
    settings: Mapping[str, Any]
    tell: Callable[[str, str], None]
    history: History = attrs.field(factory=History)
    is_over: bool = False

    @property
    def client_settings(self) -> dict[str, Any]:
        """Return the settings of a client of this cluster."""
        return {"bootstrap.servers": self.bootstrap, **self.settings}

    def client(self) -> ClientCluster:
        """Return a client for requests."""
        config, _ = load(ClusterConfig, self.client_settings)
        return ClientCluster(self.bootstrap.split(","), config=config)


@attrs.frozen
class Plan:
    """A transaction that a client wants; whoever runs it notes in `attempt` what becomes of it."""

    attempt: Attempt
    writes: Sequence[tuple[TopicPartition, bytes]]
    offsets: Mapping[TopicPartition, int]
    commits: bool


class Part(Protocol):
    """Who a transactional client is: it knows which transaction comes next.

    `transactional_id` is its own, its next self's, and that of its rivals.
    """

    transactional_id: str

    async def begin(self) -> None:
        """Prepare; the producer has just fenced all others."""

    async def plan(self) -> Plan | None:
        """Return the next transaction, if there is something to do."""

    async def note(self, plan: Plan) -> None:
        """Take note of what has become of a transaction."""


@attrs.define(eq=False)
class Mover:
    """Moves amounts between accounts in several partitions: each transaction adds up to 0."""

    stage: Stage
    transactional_id: str
    rng: Random

    async def begin(self) -> None:
        """Know nothing of what was before."""

    async def plan(self) -> Plan | None:
        """Return a transfer."""
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
        return Plan(attempt, writes, {}, commits=self.rng.random() >= ABORTS)

    async def note(self, plan: Plan) -> None:
        """Go on, whatever it was."""


@attrs.define(eq=False)
class Copier:
    """Copies a partition of accounts: it consumes, produces, and commits its offset with that."""

    stage: Stage
    transactional_id: str
    rng: Random
    partition: TopicPartition
    _position: int = 0
    _consumer: SimpleConsumer | None = None

    async def begin(self) -> None:
        """Go on where the last committed transaction ended, once that is decided."""
        client = self.stage.client()
        try:
            at_least = self.stage.history.confirmed(self.partition)
            self._position = max(await committed_offset(client, self.partition, at_least), 0)
        finally:
            await client.close()

    async def plan(self) -> Plan | None:
        """Return a transaction that copies what comes next."""
        rows = await self._read()
        if not rows:
            return None

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
        offsets = {self.partition: rows[-1][0] + 1}
        return Plan(attempt, writes, offsets, commits=self.rng.random() >= ABORTS)

    async def note(self, plan: Plan) -> None:
        """Go on behind what is committed."""
        if plan.attempt.outcome is Outcome.COMMITTED:
            self._position = plan.offsets[self.partition]
        else:
            await self.begin()

    async def _read(self) -> list[tuple[int, bytes]]:
        try:
            if self._consumer is None:
                self._consumer = await consumer_of(self.stage, self.partition)
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
        """Read on, whatever happens."""
        is_committed = self.isolation is Isolation.READ_COMMITTED
        reading = self.stage.history.read(self.name, self.partition, is_committed=is_committed)
        while True:
            try:
                consumer = await consumer_of(self.stage, self.partition)
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
    partitions: Sequence[TopicPartition]

    async def live(self) -> None:
        """Look every now and then, whatever happens."""
        client = self.stage.client()
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
            at_least = self.stage.history.confirmed(partition)
            offset = await committed_offset(client, partition, at_least)
            if offset >= 0:
                found[partition] = offset
        self.stage.history.observed.append(found)


@attrs.define(eq=False)
class StableOnlooker:
    """Asks how far readers of committed data may read, again and again."""

    stage: Stage

    async def live(self) -> None:
        """Look every now and then, whatever happens."""
        async with Admin(self.stage.client_settings) as admin:
            while True:
                await asyncio.sleep(0.5)
                with suppress(*FAILURES):
                    await self._look(admin)

    async def _look(self, admin: Admin) -> None:
        times = dict.fromkeys(ALL_PARTITIONS, LATEST_TIME)
        listed = await admin.list_offsets(times, isolation=Isolation.READ_COMMITTED)
        self.stage.history.stable += [
            (partition, found.leader_epoch, found.offset)
            for partition, found in listed.items()
            if found.error is ErrorCode.NONE
        ]


# ---- reading


async def read(
    consumer: SimpleConsumer, partition: TopicPartition, position: int, isolation: Isolation
) -> tuple[list[tuple[int, bytes]], int]:
    """Return the records from a position on, and where to go on. Raises ApiError."""
    request = FetchRequest(partition.topic, partition.partition, position)
    fetched = await consumer.fetch(request, max_wait_ms=300, min_bytes=1, isolation=isolation)
    fetched.raise_for_error()
    return [(row[0], row[3] or b"") for row in fetched.rows], fetched.next_offset


async def committed_offset(
    client: ClientCluster, partition: TopicPartition, at_least: int = -1
) -> int:
    """Return the offset that the group has committed, once no transaction is about to change it.

    A coordinator that was stopped, and has a successor, shows what it had until it hears of that;
    Kafka's does too. So who finds less than what is known to be committed asks again. Raises
    ApiError.
    """
    loop = asyncio.get_running_loop()
    ends = loop.time() + HEARD_S
    request = attrs.evolve(fetch_offsets_request(GROUP, [partition]), require_stable=True)
    while True:
        response = await client.call_coordinator(GROUP, request)
        if response.error_code:
            client.forget_coordinator(GROUP)
            raise ApiError(ErrorCode.of(response.error_code), GROUP)
        found = fetch_results(response)[partition]
        if found.error is ErrorCode.NONE:
            if found.offset >= at_least or loop.time() > ends:
                return found.offset
            client.forget_coordinator(GROUP)
        elif found.error is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
            raise ApiError(found.error, str(partition))
        await asyncio.sleep(0.1)


async def consumer_of(stage: Stage, partition: TopicPartition) -> SimpleConsumer:
    """Return a consumer at the leader of a partition. Raises what FAILURES has."""
    settings = stage.client_settings
    return await SimpleConsumer.for_leader(settings, partition.topic, partition.partition)
