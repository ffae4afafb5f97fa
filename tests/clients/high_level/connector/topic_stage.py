"""A topic on a real broker, and consumers of a group of the same name."""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from clients.errors import ConsumerTimeout
from clients.high_level.connector import ConsumerConnector
from clients.high_level.streams import MessageAndMetadata, MessageStream
from clients.producer.producer import Producer
from clients.serializers import str_decoder
from tests.stage.cluster import DevCluster
from tests.stage.waiting import DEADLINE_S
from zk.session import KazooSession
from zk.znodes import ConsumerOffset, PartitionOwner

SILENCE_MS = 700
PATIENT = 50
"""Attempts to rebalance, for members on a busy machine."""


class TopicStage:
    """A topic of its own, and consumers of a group with the topic's name."""

    def __init__(self, cluster: DevCluster, name: str, partitions: int = 2) -> None:
        self.cluster = cluster
        self.name = name
        self.partitions = partitions
        cluster.create_topic(name, partitions)

    async def produce(self, count: int, topic: str | None = None, **settings: str) -> list[str]:
        """Send messages v0, v1, ..., one partition after the other."""
        settings = {"bootstrap.servers": self.cluster.address("bootstrap"), **settings}
        values = [f"v{i}" for i in range(count)]
        async with Producer(settings) as producer:
            sent = [
                await producer.send(topic or self.name, v.encode(), partition=i % self.partitions)
                for i, v in enumerate(values)
            ]
            await asyncio.gather(*sent)
        return values

    def connector(self, **settings: Any) -> ConsumerConnector:
        return ConsumerConnector(
            {
                "zookeeper.connect": self.cluster.address("zookeeper"),
                "group.id": self.name,
                "auto_offset_reset": "smallest",
                "consumer_timeout_ms": SILENCE_MS,
                "rebalance_backoff_ms": 200,
                "rebalance_max_retries": PATIENT,
                "auto_commit_interval_ms": 600_000,
                **settings,
            }
        )

    async def zookeeper(self) -> KazooSession:
        session = KazooSession(self.cluster.address("zookeeper"))
        await session.start()
        return session

    async def owners(self) -> dict[int, str]:
        session = await self.zookeeper()
        paths = [PartitionOwner.path(self.name, self.name, p) for p in range(self.partitions)]
        owners = {
            p: ((await session.get(path))[0] or b"").decode()
            for p, path in enumerate(paths)
            if await session.exists(path)
        }
        await session.close()
        return owners

    async def committed(self) -> dict[int, int]:
        session = await self.zookeeper()
        paths = [ConsumerOffset.path(self.name, self.name, p) for p in range(self.partitions)]
        offsets = {
            p: ConsumerOffset.decode((await session.get(path))[0]).offset
            for p, path in enumerate(paths)
            if await session.exists(path)
        }
        await session.close()
        return offsets


async def drain(*streams: MessageStream, count: int) -> list[MessageAndMetadata]:
    """Take so many messages, and more until each stream has been silent."""
    messages: list[MessageAndMetadata] = []
    ends = time.monotonic() + DEADLINE_S

    async def drain_stream(stream: MessageStream) -> None:
        with contextlib.suppress(ConsumerTimeout):
            async for message in stream:
                messages.append(message)

    while True:
        await asyncio.gather(*map(drain_stream, streams))
        if len(messages) >= count:
            return messages
        assert time.monotonic() < ends, f"{len(messages)} of {count} messages came"


def values(messages: Sequence[MessageAndMetadata]) -> list[str]:
    return sorted(message.value for message in messages)


async def open_streams(
    connector: ConsumerConnector, counts: Mapping[str, int]
) -> dict[str, list[MessageStream]]:
    return await connector.create_message_streams(counts, str_decoder, str_decoder)
