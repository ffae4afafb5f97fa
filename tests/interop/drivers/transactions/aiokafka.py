"""Transactions by aiokafka. Its producers never ask for another epoch, so an error ends one."""

import asyncio
import sys

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from tests.interop.drivers.transactions.transactor import (
    REQUEST_MS,
    TIMEOUT_S,
    Arguments,
    Wanted,
    fail,
    next_transaction,
    parse_arguments,
    say,
)


async def transact(arguments: Arguments) -> int:
    """Run all transactions; return the exit code."""
    try:
        producer = AIOKafkaProducer(
            bootstrap_servers=arguments.bootstrap,
            transactional_id=arguments.transactional_id,
            transaction_timeout_ms=arguments.timeout_ms,
            request_timeout_ms=REQUEST_MS,
        )
        async with asyncio.timeout(TIMEOUT_S):
            await producer.start()
        say("ready")
        while wanted := await asyncio.to_thread(next_transaction):
            async with asyncio.timeout(TIMEOUT_S):
                await run(producer, wanted)
    except (KafkaError, TimeoutError) as error:
        return fail(error)
    return 0


async def run(producer: AIOKafkaProducer, wanted: Wanted) -> None:
    """Run a transaction. Raises KafkaError."""
    await producer.begin_transaction()
    deliveries = [
        (value, await producer.send(topic, value.encode(), partition=partition))
        for (topic, partition), value in wanted.writes
    ]
    for value, delivery in deliveries:
        say("written", value, (await delivery).offset)
    if wanted.offsets:
        offsets = {TopicPartition(*place): offset for place, offset in wanted.offsets.items()}
        await producer.send_offsets_to_transaction(offsets, wanted.group)

    if wanted.commits:
        say("ending")
        await producer.commit_transaction()
        say("committed")
    else:
        await producer.abort_transaction()
        say("aborted")


if __name__ == "__main__":
    sys.exit(asyncio.run(transact(parse_arguments())))
