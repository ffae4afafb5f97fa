"""A cluster under test, ours or Kafka's, as the clients of either side find it."""

from collections.abc import Mapping
from uuid import uuid4

import attrs

from clients.admin import Admin, NewTopic
from clients.producer.producer import Producer
from protocol.topic_partition import TopicPartition
from tests.interop.mixed_group import Messages


def unique(word: str) -> str:
    """A name that nobody else has."""
    return f"{word}-{uuid4().hex[:8]}"


@attrs.frozen
class Cluster:
    """Where a broker and its ZooKeeper tree are."""

    bootstrap: str
    zookeeper: str
    settings: Mapping[str, str] = attrs.field(factory=dict)
    """What clients of ours must be told besides."""

    async def create_topic(self, name: str, partitions: int) -> None:
        """Return when it is there."""
        async with Admin(self.client_settings) as admin:
            assert await admin.create_topics([NewTopic(name, partitions, 1)]) == {name: None}

    async def produce(self, topics: Mapping[str, int], word: str, count: int) -> Messages:
        """So many messages for each topic, to its partitions in turn; what was acknowledged."""
        messages: Messages = set()
        async with Producer(self.client_settings, acks="all") as producer:
            for topic, partitions in topics.items():
                for number in range(count):
                    value = f"{word} {topic} {number}"
                    at = await producer.send_and_wait(
                        topic, value.encode(), partition=number % partitions
                    )
                    messages.add((TopicPartition(topic, at.partition), at.offset, value))
        return messages

    @property
    def client_settings(self) -> dict[str, str]:
        """Of an admin or a producer."""
        return {"bootstrap.servers": self.bootstrap, **self.settings}
