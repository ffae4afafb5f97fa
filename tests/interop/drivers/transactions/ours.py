"""Transactions by our producer."""

import asyncio
import sys

from clients.errors import KgroupError, TransactionError, TransactionFailed, TransactionInDoubt
from clients.group_metadata import ConsumerGroupMetadata
from clients.producer.producer import Producer
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.interop.drivers.transactions.transactor import (
    REQUEST_MS,
    Arguments,
    Wanted,
    fail,
    next_transaction,
    parse_arguments,
    say,
)


async def transact(arguments: Arguments) -> int:
    """Run all transactions; return the exit code."""
    settings = {
        "bootstrap.servers": arguments.bootstrap,
        "transactional.id": arguments.transactional_id,
        "transaction.timeout.ms": arguments.timeout_ms,
        "request.timeout.ms": REQUEST_MS,
        "linger.ms": 2,
        "delivery.timeout.ms": 15_000,
        "max.block.ms": 30_000,
    }
    try:
        async with Producer(settings) as producer:
            say("ready")
            while wanted := await asyncio.to_thread(next_transaction):
                await run(producer, wanted)
    except (KgroupError, OSError) as error:
        return fail(error)
    return 0


async def run(producer: Producer, wanted: Wanted) -> None:
    """Run a transaction. Raises what ends the producer."""
    is_ending = False
    await producer.begin_transaction()
    try:
        await write(producer, wanted)
        if not wanted.commits:
            await producer.abort_transaction()
            say("aborted")
            return

        say("ending")
        is_ending = True
        await commit(producer)
        say("committed")
    except TransactionFailed as error:
        if error.transaction_in_doubt:
            raise
        await producer.abort_transaction()
        say("aborted", type(error).__name__)
    except TransactionError:
        raise
    except (KgroupError, OSError) as error:
        if is_ending:
            raise
        await producer.abort_transaction()
        say("aborted", type(error).__name__)


async def write(producer: Producer, wanted: Wanted) -> None:
    """Send the records and the offsets."""
    deliveries = [
        (value, await producer.send(topic, value.encode(), partition=partition))
        for (topic, partition), value in wanted.writes
    ]
    for value, delivery in deliveries:
        say("written", value, (await delivery).offset)
    if wanted.offsets:
        offsets = {
            TopicPartition(*place): OffsetAndMetadata(offset)
            for place, offset in wanted.offsets.items()
        }
        await producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata(wanted.group))


async def commit(producer: Producer) -> None:
    """Ask until it is known."""
    while True:
        try:
            return await producer.commit_transaction()
        except TransactionInDoubt:
            continue


if __name__ == "__main__":
    sys.exit(asyncio.run(transact(parse_arguments())))
