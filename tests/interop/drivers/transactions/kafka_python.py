"""Transactions by kafka-python. An error ends the producer."""

import sys

from kafka import KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError

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


def transact(arguments: Arguments) -> int:
    """Run all transactions; return the exit code."""
    try:
        producer = KafkaProducer(
            bootstrap_servers=arguments.bootstrap.split(","),
            transactional_id=arguments.transactional_id,
            transaction_timeout_ms=arguments.timeout_ms,
            request_timeout_ms=REQUEST_MS,
            delivery_timeout_ms=15_000,
            max_block_ms=30_000,
            linger_ms=2,
        )
        producer.init_transactions()
        say("ready")
        while wanted := next_transaction():
            run(producer, wanted)
    except (KafkaError, OSError) as error:
        return fail(error)
    return 0


def run(producer: KafkaProducer, wanted: Wanted) -> None:
    """Run a transaction. Raises KafkaError."""
    producer.begin_transaction()
    deliveries = [
        (value, producer.send(topic, value.encode(), partition=partition))
        for (topic, partition), value in wanted.writes
    ]
    for value, delivery in deliveries:
        say("written", value, delivery.get(TIMEOUT_S).offset)
    if wanted.offsets:
        offsets = {
            TopicPartition(*place): OffsetAndMetadata(offset, "", -1)
            for place, offset in wanted.offsets.items()
        }
        producer.send_offsets_to_transaction(offsets, wanted.group)

    if wanted.commits:
        say("ending")
        producer.commit_transaction()
        say("committed")
    else:
        producer.abort_transaction()
        say("aborted")


if __name__ == "__main__":
    sys.exit(transact(parse_arguments()))
