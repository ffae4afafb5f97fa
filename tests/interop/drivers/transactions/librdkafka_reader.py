"""A reader of committed data by librdkafka: a line for each record, until it is killed."""

import argparse

from confluent_kafka import Consumer, TopicPartition

from tests.interop.drivers.transactions.transactor import say


def main() -> None:
    """Read the partitions, given as "topic-0,topic-1", from their beginning on."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--partitions", required=True)
    arguments = parser.parse_args()
    consumer = Consumer(
        {
            "bootstrap.servers": arguments.bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    places = [name.rsplit("-", 1) for name in arguments.partitions.split(",")]
    consumer.assign([TopicPartition(topic, int(number), 0) for topic, number in places])
    while True:
        for message in consumer.consume(500, 0.5):
            if message.error() is None:
                place = message.topic(), message.partition(), message.offset()
                say("row", *place, message.value().decode())


if __name__ == "__main__":
    main()
