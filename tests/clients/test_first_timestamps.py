"""The first record that a group has not consumed: when it was made, and whether there is one."""

import asyncio
import struct
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

import pytest
from crc32c import crc32c

from clients.admin import Admin, NewTopic
from clients.cluster import Cluster
from clients.fetch_requests import Isolation
from clients.first_timestamps import (
    MAX_FETCHES,
    FirstRecords,
    look_for_records,
    read_first_records,
    read_first_timestamps,
)
from clients.producer.producer import Producer
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponseAbortedTransaction,
    FetchResponsePartition,
    FetchResponseTopic,
)
from protocol.records.batch import encode_batch
from protocol.records.batch_header import CRC_AT, CRC_COVERS_FROM, TRANSACTIONAL
from protocol.records.control_record import ABORT, COMMIT, encode_marker
from protocol.records.legacy import encode_messages
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


def marker(offset: int, kind: int = COMMIT) -> bytes:
    return encode_marker(
        kind,
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


# ---- is there a record?


def batch(*offsets: int, up_to: int | None = None, aborts: bool = False) -> bytes:
    """A batch of records at these offsets; compaction has removed others `up_to` the last one."""
    encoded = bytearray(
        encode_batch(
            [(2_000, None, b"v", ()) for _ in range(offsets[-1] - offsets[0] + 1)],
            base_offset=offsets[0],
            producer_id=1 if aborts else -1,
            flags=TRANSACTIONAL if aborts else 0,
        )
    )
    if up_to is not None:
        encoded[23:27] = struct.pack(">i", up_to - offsets[0])
        encoded[CRC_AT:CRC_COVERS_FROM] = struct.pack(">I", crc32c(bytes(encoded[21:])))
    return bytes(encoded)


def emptied(base_offset: int, last_offset: int) -> bytes:
    """A batch whose records compaction has all removed."""
    encoded = bytearray(batch(base_offset, up_to=last_offset)[:61])
    encoded[8:12] = struct.pack(">i", 49)
    encoded[57:61] = struct.pack(">i", 0)
    encoded[CRC_AT:CRC_COVERS_FROM] = struct.pack(">I", crc32c(bytes(encoded[21:])))
    return bytes(encoded)


OLD = (7, 2_000, None, b"v", ())
ABORTED = batch(7, aborts=True)
DAMAGED = batch(7)[:-1] + b"\x00"
LOGS_WITH: dict[str, bytes] = {
    "a record there": batch(7),
    "a record behind": batch(9),
    "a batch from before on": batch(5, 6, 7),
    "a compacted batch, then a record": batch(5, 6, up_to=8) + batch(9),
    "a marker, then a record": marker(7) + batch(8),
    "an old message": encode_messages([OLD], 1),
    "an aborted record, then another": ABORTED + marker(8, ABORT) + batch(9),
    # Nothing proves that there is none.
    "a damaged batch": DAMAGED,
    "half a batch": batch(7)[:40],
}
LOGS_WITHOUT: dict[str, tuple[bytes, int]] = {
    "a compacted batch from before on": (batch(5, 6, up_to=8), 9),
    "an emptied batch": (emptied(7, 9), 10),
    "a marker": (marker(7), 8),
    "an aborted record": (ABORTED + marker(8, ABORT), 9),
}


@pytest.mark.parametrize("name", LOGS_WITH)
def test_one_record_behind_an_offset_is_enough_for_a_lag(name: str) -> None:
    assert without_records(LOGS_WITH[name], high_watermark=20, last_stable_offset=20) == set()


@pytest.mark.parametrize("name", LOGS_WITHOUT)
def test_a_log_that_has_no_record_behind_an_offset_makes_no_lag(name: str) -> None:
    log, end = LOGS_WITHOUT[name]
    assert without_records(log, high_watermark=end, last_stable_offset=end) == {T0}


def test_records_behind_the_last_stable_offset_make_no_lag() -> None:
    assert without_records(marker(7), high_watermark=20, last_stable_offset=8) == {T0}


def without_records(
    log: bytes, *, high_watermark: int, last_stable_offset: int
) -> set[TopicPartition]:
    """Look for committed records from 7 on in this log, whose transaction of producer 1 aborts."""
    aborted = [FetchResponseAbortedTransaction(producer_id=1, first_offset=7)]

    def fetch(request: FetchRequest) -> FetchResponse:
        partition = FetchResponsePartition(
            partition_index=0,
            error_code=ErrorCode.NONE,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            aborted_transactions=aborted if ABORTED in log else None,
            records=log if offset_of(request) == 7 else b"",
        )
        return FetchResponse(responses=[FetchResponseTopic(topic="t", partitions=[partition])])

    async def scenario() -> set[TopicPartition]:
        async with ScriptedBroker({"t": 2}) as broker:
            broker.answers[ApiKey.FETCH] = fetch
            cluster = Cluster(broker.bootstrap)
            try:
                seen = await look_for_records(cluster, {T0: 7}, Isolation.READ_COMMITTED)
                return {partition for partition, has_records in seen.items() if not has_records}
            finally:
                await cluster.close()

    return asyncio.run(scenario())


# ---- records without a time


@pytest.mark.fault("tool-F1")
def test_a_record_without_a_timestamp_is_no_time_and_is_not_taken_for_none() -> None:
    old = encode_messages([(3, -1, None, b"v", ())], 0)

    async def scenario() -> FirstRecords:
        async with ScriptedBroker({"t": 2}) as broker:
            broker.answers[ApiKey.FETCH] = lambda request: fetched(old)
            cluster = Cluster(broker.bootstrap)
            try:
                return await read_first_records(cluster, {T0: 3})
            finally:
                await cluster.close()

    assert asyncio.run(scenario()) == FirstRecords(untimed={T0})
