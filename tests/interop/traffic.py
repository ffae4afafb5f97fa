"""What every stock client is made to say, and hears again."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import uuid4

from clients.admin import Admin, NewTopic
from clients.producer.producer import Producer
from protocol.topic_partition import TopicPartition
from tests.stage.topic_contents import contents

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Said(NamedTuple):
    """A record, as all clients can say it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int = 0


TRAFFIC: Sequence[Said] = tuple(
    Said(
        None if number % 10 == 3 else b"key %d" % number,
        None if number % 10 == 7 else b"value %d " % number + b"." * number,
        (("n", b"%d" % number), ("n", b"again"), ("empty", b"")) if number % 4 == 0 else (),
        1_600_000_000_000 + 1000 * number,
    )
    for number in range(100)
)


async def new_topic(bootstrap: str, partitions: int = 1) -> str:
    """A topic of our own."""
    name = f"t-{uuid4().hex[:8]}"
    async with Admin(bootstrap) as admin:
        assert await admin.create_topics([NewTopic(name, partitions, 1)]) == {name: None}
    return name


async def say(bootstrap: str, topic: str, codec: str = "none") -> None:
    """Send the traffic to partition 0 with our producer."""
    async with Producer(
        bootstrap_servers=bootstrap, compression_type=codec, linger_ms=5, batch_size=2000
    ) as producer:
        for said in TRAFFIC:
            await producer.send(
                topic,
                said.value,
                key=said.key,
                partition=0,
                headers=said.headers,
                timestamp_ms=said.timestamp_ms,
            )


async def heard(bootstrap: str, topic: str) -> list[Said]:
    """Partition 0 as our consumer reads it."""
    return [
        Said(record.key, record.value, tuple(record.headers), record.timestamp_ms)  # type: ignore[arg-type]
        for record in await contents(bootstrap, TopicPartition(topic, 0))
    ]
