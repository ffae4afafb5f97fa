"""A member of a coordinator's group by our streams, with the lines of `tests/interop/drivers`.

It commits nothing, so that whoever gets a partition begins at its first message.
"""

import argparse
import asyncio
from collections.abc import Mapping, Set

from clients.high_level.connector import ConsumerConnector
from protocol.topic_partition import TopicPartition
from tests.interop.drivers.member import say_changed, say_message


class Listener:
    """Writes what changes."""

    def before_releasing_partitions(self, partition_ownership: Mapping[str, Set[int]]) -> None:
        """Do nothing."""

    def before_starting_fetchers(
        self, consumer_id: str, global_partition_assignment: Mapping[TopicPartition, str]
    ) -> None:
        """Do nothing."""

    def on_partitions_revoked(self, partitions: Set[TopicPartition]) -> None:
        """Write what the member gives up."""
        say_changed("revoked", partitions)

    def on_partitions_assigned(self, partitions: Set[TopicPartition]) -> None:
        """Write what the member gets."""
        say_changed("assigned", partitions)

    def on_partitions_lost(self, partitions: Set[TopicPartition]) -> None:
        """Write what others may have already."""
        say_changed("lost", partitions)


async def consume(settings: Mapping[str, str], topic: str) -> None:
    """Write messages until the process is killed."""
    async with ConsumerConnector(settings) as connector:
        connector.set_consumer_rebalance_listener(Listener())
        streams = await connector.create_message_streams({topic: 1})
        async for message in streams[topic][0]:
            say_message(message.topic, message.partition, message.offset, message.value)


def main() -> None:
    """Consume as the arguments say."""
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "group", "topics", "strategy", "client-id", "heartbeat-ms"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--commits", choices=["false"])
    words = parser.parse_args()
    settings = {
        "membership": "coordinator",
        "bootstrap.servers": words.bootstrap,
        "group.id": words.group,
        "client.id": words.client_id,
        "partition.assignment.strategy": words.strategy,
        "heartbeat.interval.ms": words.heartbeat_ms,
        "session.timeout.ms": "10000",
        "auto.offset.reset": "earliest",
        "auto.commit.enable": "false",
    }
    asyncio.run(consume(settings, words.topics))


if __name__ == "__main__":
    main()
