"""Read what a task has written from the logs: batches have the id of their producer."""

import asyncio
from collections.abc import Mapping

from clients.cluster import Cluster
from clients.config import ClusterConfig
from clients.errors import BrokerError, ConnectionFailed
from clients.offset_requests import CONSUMER_REPLICA_ID
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponsePartition,
)
from protocol.records.batch import decode_batch
from protocol.records.batch_header import BatchHeader
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.entry import read_entry
from protocol.topic_partition import TopicPartition
from spark_connector.sink.once import Found, NotRepeatable, Offsets, TaskIdentity

FETCH_BYTES = 4 * 2**20
"""Bytes that one fetch asks for; a larger batch comes whole all the same (KIP-74)."""
MAX_WAIT_MS = 500


def read_back(config: ClusterConfig, task: TaskIdentity, start: Offsets, end: Offsets) -> Found:
    """Return what earlier attempts of a task wrote between two places. Raises KgroupError.

    Records that were deleted since are not found, and no reader sees them either.
    """
    ranges = {
        partition: (start.get(partition, 0), end_offset)
        for partition, end_offset in end.items()
        if start.get(partition, 0) < end_offset
    }
    found = Found()
    if ranges:
        asyncio.run(_read_all(config, task, ranges, found))
    return found


async def _read_all(
    config: ClusterConfig,
    task: TaskIdentity,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    found: Found,
) -> None:
    cluster = Cluster(config.bootstrap_servers, config=config)
    try:
        for partition, (position, end) in ranges.items():
            while position < end:
                response = await _fetch(cluster, partition, position)
                position = _read(response, task, partition, position, found)
    finally:
        await cluster.close()


def _read(
    response: FetchResponsePartition,
    task: TaskIdentity,
    partition: TopicPartition,
    position: int,
    found: Found,
) -> int:
    """Note the task's batches of a response; return where to fetch next."""
    # Retention has been here: what is left begins later.
    if ErrorCode.of(response.error_code) is ErrorCode.OFFSET_OUT_OF_RANGE:
        return max(response.log_start_offset, position + 1)

    buf = response.records or b""
    at = 0
    while (header := read_entry(buf, at, len(buf))) is not None:
        # The first batch may begin before the place that was asked for.
        is_ours = (
            isinstance(header, BatchHeader)
            and header.producer_id == task.producer_id
            and header.producer_epoch == task.epoch
            and header.base_offset >= position
        )
        if is_ours and isinstance(header, BatchHeader):
            next_sequence = header.base_sequence + header.last_offset_delta + 1
            try:
                records = decode_batch(buf, at, header)
            except CorruptRecord as error:
                raise NotRepeatable(
                    f"{partition}: what an earlier attempt of query {task.query_id}, batch "
                    f"{task.batch_id}, task {task.task} wrote at offset {header.base_offset} "
                    f"cannot be read ({error}); let a replica lead whose log is sound, or restart "
                    "with delivery=at-least-once"
                ) from error
            found.add(partition, next_sequence, records)
        at += header.size
        position = max(position, header.next_offset)
    return position


async def _fetch(
    cluster: Cluster, partition: TopicPartition, position: int
) -> FetchResponsePartition:
    async def ask() -> FetchResponsePartition:
        leader = await cluster.leader(partition)
        try:
            connection = await cluster.connection(leader)
            response = await connection.call(_request(partition, position))
        except ConnectionFailed:
            # The leader's broker is gone, and perhaps another leads by now.
            await cluster.refresh([partition.topic])
            raise

        result: FetchResponsePartition = response.responses[0].partitions[0]
        code = ErrorCode.of(result.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and result.log_start_offset > position:
            return result
        if code.is_stale_metadata:
            await cluster.refresh([partition.topic])
        if code is not ErrorCode.NONE:
            raise BrokerError(code, f"{partition} at offset {position}")

        # A new leader may need a moment to know how far its log is committed.
        if not result.records:
            raise BrokerError(
                ErrorCode.OFFSET_NOT_AVAILABLE, f"{partition} has nothing at {position}"
            )
        return result

    return await cluster.retrying(ask, f"records of {partition}")


def _request(partition: TopicPartition, position: int) -> FetchRequest:
    wanted = FetchRequestPartition(
        partition=partition.partition, fetch_offset=position, partition_max_bytes=FETCH_BYTES
    )
    return FetchRequest(
        replica_id=CONSUMER_REPLICA_ID,
        max_wait_ms=MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        isolation_level=0,
        topics=[FetchRequestTopic(topic=partition.topic, partitions=[wanted])],
    )
