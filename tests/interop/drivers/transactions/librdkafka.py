"""Transactions by librdkafka, which confluent-kafka is made of."""

import sys
from collections.abc import Callable
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.interop.drivers.transactions.transactor import (
    REQUEST_MS,
    Arguments,
    Wanted,
    fail,
    next_transaction,
    parse_arguments,
    say,
)

CALL_S = 10.0


def transact(arguments: Arguments) -> int:
    """Run all transactions; return the exit code."""
    producer = Producer(
        {
            "bootstrap.servers": arguments.bootstrap,
            "transactional.id": arguments.transactional_id,
            "transaction.timeout.ms": arguments.timeout_ms,
            "socket.timeout.ms": REQUEST_MS,
            "linger.ms": 2,
        }
    )
    try:
        again(lambda: producer.init_transactions(CALL_S))
        say("ready")
        while wanted := next_transaction():
            run(arguments, producer, wanted)
    except KafkaException as error:
        return fail(error)
    return 0


def run(arguments: Arguments, producer: Producer, wanted: Wanted) -> None:
    """Run a transaction. Raises KafkaException when that ends the producer."""
    producer.begin_transaction()
    try:
        write(arguments, producer, wanted)
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        again(lambda: producer.abort_transaction(CALL_S))
        say("aborted", error.args[0].name())
        return

    if wanted.commits:
        say("ending")
        again(lambda: producer.commit_transaction(CALL_S))
        say("committed")
    else:
        again(lambda: producer.abort_transaction(CALL_S))
        say("aborted")


def write(arguments: Arguments, producer: Producer, wanted: Wanted) -> None:
    """Send the records and the offsets; return when all are written."""
    for (topic, partition), value in wanted.writes:
        delivered = partial(delivery, value)
        producer.produce(topic, value, partition=partition, on_delivery=delivered)
    producer.flush()
    if wanted.offsets:
        consumer = Consumer({"bootstrap.servers": arguments.bootstrap, "group.id": wanted.group})
        metadata = consumer.consumer_group_metadata()
        consumer.close()
        offsets = [TopicPartition(*place, offset) for place, offset in wanted.offsets.items()]
        again(lambda: producer.send_offsets_to_transaction(offsets, metadata, CALL_S))


def delivery(value: str, error: KafkaError | None, message: Message) -> None:
    """Write where a record is. One that failed fails the transaction too."""
    if error is None:
        say("written", value, message.offset())


def again(call: Callable[[], object]) -> None:
    """Call until it is done. Raises KafkaException for what does not pass."""
    while True:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


if __name__ == "__main__":
    sys.exit(transact(parse_arguments()))
