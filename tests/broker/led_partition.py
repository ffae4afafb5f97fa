"""A partition that a started broker leads."""

from __future__ import annotations

from clients.transport.connection import Connection
from protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from tests.broker.replication.replicas import batch
from tests.stage.waiting import until


async def describe(connection: Connection, *topics: str) -> MetadataResponse:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in topics])
    response: MetadataResponse = await connection.call(request)
    return response


async def led(connection: Connection, topic: str) -> None:
    """Create the topic by asking for it, and wait until it has a leader that knows that it leads.

    A new controller describes the cluster as it is before it elects leaders.
    """

    async def is_led() -> bool:
        (entry,) = (await describe(connection, topic)).topics
        if entry.error_code or any(p.error_code for p in entry.partitions):
            return False
        response = await connection.call(fetch_request(topic))
        (part,) = response.responses[0].partitions
        return not part.error_code

    await until(is_led, f"{topic} has a leader")


async def produce(connection: Connection, topic: str, value: bytes) -> int:
    part = ProduceRequestPartition(index=0, records=batch(value))
    data = [ProduceRequestTopic(name=topic, partition_data=[part])]
    response = await connection.call(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=data))
    (entry,) = response.responses[0].partition_responses
    assert not entry.error_code
    offset: int = entry.base_offset
    return offset


def fetch_request(topic: str, offset: int = 0, max_wait_ms: int = 0) -> FetchRequest:
    part = FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        topics=[FetchRequestTopic(topic=topic, partitions=[part])],
    )
