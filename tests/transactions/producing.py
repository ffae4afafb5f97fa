"""Our producer runs the transactions of a client, in the same process."""

from __future__ import annotations

import asyncio
from random import Random

import attrs

from clients.errors import TransactionError, TransactionFailed, TransactionInDoubt
from clients.group_metadata import ConsumerGroupMetadata
from clients.producer.producer import Producer
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.transactions.history import Attempt, Outcome
from tests.transactions.workload import FAILURES, GROUP, TIMEOUT_MS, Part, Plan, Stage

PAUSE_S = 0.1
DELIVERY_MS = 15_000


@attrs.define(eq=False)
class ProducingClient:
    """A client with a producer of its own, and with another one when that fails."""

    stage: Stage
    name: str
    part: Part
    rng: Random

    async def live(self) -> None:
        """Run transactions until the story is over."""
        settings = self.stage.client_settings | {
            "transactional.id": self.part.transactional_id,
            "transaction.timeout.ms": TIMEOUT_MS,
            "linger.ms": 2,
            "delivery.timeout.ms": DELIVERY_MS,
            "max.block.ms": 8000,
        }
        while not self.stage.is_over:
            try:
                async with Producer(settings) as producer:
                    await self.part.begin()
                    while not self.stage.is_over:
                        await asyncio.sleep(self.rng.expovariate(1 / PAUSE_S))
                        plan = await self.part.plan()
                        if plan is not None:
                            await self._run(producer, plan)
                            await self.part.note(plan)
            except FAILURES as error:
                self.stage.tell(self.name, f"begins again: {error}")
                await asyncio.sleep(self.rng.uniform(0.1, 1.0))

    async def _run(self, producer: Producer, plan: Plan) -> None:
        """Write in a transaction, and end it. Raises what makes the producer useless."""
        attempt = plan.attempt
        await producer.begin_transaction()
        try:
            await write(producer, plan)
            if not plan.commits:
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


async def write(producer: Producer, plan: Plan) -> None:
    """Write what belongs to a transaction, and note where each value is."""
    attempt = plan.attempt
    deliveries = []
    for (topic, partition), value in plan.writes:
        attempt.writes[value] = TopicPartition(topic, partition), -1
        deliveries.append(await producer.send(topic, value, partition=partition))
    for (partition_of, value), delivery in zip(plan.writes, deliveries, strict=True):
        placed = await delivery
        attempt.writes[value] = partition_of, placed.offset
    if plan.offsets:
        attempt.offsets.update(plan.offsets)
        await producer.send_offsets_to_transaction(
            {partition: OffsetAndMetadata(offset) for partition, offset in plan.offsets.items()},
            ConsumerGroupMetadata(GROUP),
        )
