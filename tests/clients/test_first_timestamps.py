"""The lag in time of a group: when the first record was made that it has not consumed."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

from clients.admin import Admin, NewTopic
from clients.cluster import Cluster
from clients.first_timestamps import MAX_FETCHES, read_first_timestamps
from clients.producer.producer import Producer
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)
from protocol.records.batch import encode_batch
from protocol.records.control_record import COMMIT, encode_marker
from protocol.topic_partition import TopicPartition
from tests.clients.scripted_broker import HANG_UP, ScriptedBroker
from tests.stage.cluster import DevCluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def read(bootstrap: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    cluster = Cluster(bootstrap)
    try:
        return await read_first_timestamps(cluster, offsets)
    finally:
        await cluster.close()


# ---- a real broker


async def test_the_record_at_each_offset_counts_also_in_the_midst_of_a_batch(
    dev_cluster: DevCluster,
) -> None:
    bootstrap = dev_cluster.address("bootstrap")
    topic = f"t-{uuid4().hex[:8]}"
    async with Admin(bootstrap) as admin:
        assert await admin.create_topics([NewTopic(topic, 3, 1)]) == {topic: None}
    async with Producer({"bootstrap.servers": bootstrap, "compression.type": "gzip"}) as producer:
        for partition in range(3):
            for n in range(4):
                await producer.send(topic, b"v", partition=partition, timestamp_ms=1_000 + n)
        await producer.flush()

    of = [TopicPartition(topic, n) for n in range(3)]
    asked = {of[0]: 0, of[1]: 2, of[2]: 4, TopicPartition("missing", 0): 0}
    assert await read(bootstrap, asked) == {of[0]: 1_000, of[1]: 1_002}


async def test_a_large_record_hides_no_other_partition(dev_cluster: DevCluster) -> None:
    bootstrap = dev_cluster.address("bootstrap")
    topic = f"t-{uuid4().hex[:8]}"
    async with Admin(bootstrap) as admin:
        assert await admin.create_topics([NewTopic(topic, 3, 1)]) == {topic: None}
    async with Producer({"bootstrap.servers": bootstrap}) as producer:
        for n in range(3):
            await producer.send(topic, b"v" * 200_000, partition=n, timestamp_ms=1_000 + n)
        await producer.flush()

    of = [TopicPartition(topic, n) for n in range(3)]
    assert await read(bootstrap, dict.fromkeys(of, 0)) == {p: 1_000 + p.partition for p in of}


# ---- what a broker seldom sends


def fetched(
    records: bytes = b"", error: ErrorCode = ErrorCode.NONE, partition_id: int = 0
) -> FetchResponse:
    partition = FetchResponsePartition(
        partition_index=partition_id, error_code=error, high_watermark=99, records=records
    )
    return FetchResponse(responses=[FetchResponseTopic(topic="t", partitions=[partition])])


def marker(offset: int) -> bytes:
    return encode_marker(
        COMMIT,
        producer_id=1,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=500,
        base_offset=offset,
    )


def run(
    fetch: Callable[[FetchRequest], Any], offsets: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, int], int]:
    """Read from a broker that answers fetches so; return the timestamps, and how many it got."""

    async def scenario() -> tuple[dict[TopicPartition, int], int]:
        async with ScriptedBroker({"t": 2}) as broker:
            broker.answers[ApiKey.FETCH] = fetch
            timestamps = await read(broker.bootstrap, offsets)
            return timestamps, len(broker.asked(ApiKey.FETCH))

    return asyncio.run(scenario())


def offset_of(request: FetchRequest) -> int:
    return request.topics[0].partitions[0].fetch_offset


def test_a_marker_of_a_transaction_is_no_record_and_the_next_one_counts() -> None:
    def fetch(request: FetchRequest) -> FetchResponse:
        if offset_of(request) == 7:
            return fetched(marker(7))
        return fetched(encode_batch([(2_000, None, b"v", ())], base_offset=8))

    assert run(fetch, {T0: 7}) == ({T0: 2_000}, 2)


def test_a_log_of_nothing_but_markers_is_given_up_after_a_few_fetches() -> None:
    assert run(lambda request: fetched(marker(offset_of(request))), {T0: 0}) == ({}, MAX_FETCHES)


def test_a_partition_that_cannot_be_read_is_left_out_beside_one_that_can() -> None:
    def fetch(request: FetchRequest) -> FetchResponse:
        good = fetched(encode_batch([(2_000, None, b"v", ())], base_offset=0))
        bad = fetched(error=ErrorCode.OFFSET_OUT_OF_RANGE, partition_id=1)
        return FetchResponse(responses=[*good.responses, *bad.responses])

    assert run(fetch, {T0: 0, T1: 50}) == ({T0: 2_000}, 1)


def test_a_leader_that_hangs_up_leaves_its_partitions_out() -> None:
    assert run(lambda request: HANG_UP, {T0: 0, T1: 0})[0] == {}
