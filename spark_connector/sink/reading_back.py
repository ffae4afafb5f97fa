"""Read what a task has written from the logs: batches have the id of their producer."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from clients.cluster import Cluster
from clients.config import ClusterConfig
from clients.errors import BrokerError, ConnectionFailed
from clients.fetch_requests import request_records
from clients.offset_requests import (
    DEBUGGING_REPLICA_ID,
    list_offsets_request,
    listed_offsets,
)
from clients.producer.config import ProducerConfig
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchResponsePartition
from protocol.records.batch import decode_batch
from protocol.records.batch_header import BatchHeader
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.entry import read_entry
from protocol.special_values import LATEST_TIME
from protocol.topic_partition import TopicPartition
from spark_connector.sink.once import (
    Content,
    Found,
    NotRepeatable,
    Offsets,
    TaskIdentity,
    content_of,
)

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


def read_written(
    config: ProducerConfig, task: TaskIdentity, delivered: Iterable[tuple[TopicPartition, int]]
) -> Content | None:
    """Return what the log has at the places where batches of a task were acknowledged.

    A place that was named twice counts once. None if retention or compaction has been there.
    Raises KgroupError.
    """
    places: dict[TopicPartition, set[int]] = defaultdict(set)
    for partition, offset in delivered:
        places[partition].add(offset)
    return asyncio.run(_read_places(config, task, places))


async def _read_places(
    config: ProducerConfig, task: TaskIdentity, places: Mapping[TopicPartition, set[int]]
) -> Content | None:
    cluster = Cluster(config.bootstrap_servers, config=config)
    try:
        contents = await asyncio.gather(
            *(
                _read_batches_at(cluster, task, partition, offsets, config.batch_size)
                for partition, offsets in places.items()
            )
        )
    finally:
        await cluster.close()

    total = Content()
    for content in contents:
        if content is None:
            return None
        total += content
    return total


async def _read_batches_at(
    cluster: Cluster,
    task: TaskIdentity,
    partition: TopicPartition,
    offsets: Collection[int],
    size: int,
) -> Content | None:
    """Read a partition's batches that begin at these offsets, and little of what is between."""
    content = Content()
    left = sorted(offsets, reverse=True)
    while left:
        response = await _fetch(cluster, partition, left[-1], size)
        if ErrorCode.of(response.error_code) is ErrorCode.OFFSET_OUT_OF_RANGE:
            return None

        before = len(left)
        buf = response.records or b""
        at = 0
        while left and (header := read_entry(buf, at, len(buf))) is not None:
            if isinstance(header, BatchHeader) and header.base_offset == left[-1]:
                if header.count != header.last_offset_delta + 1:
                    return None
                left.pop()
                if _is_of(task, header):
                    content += content_of(decode_batch(buf, at, header))
            at += header.size
        # Compaction has deleted the batch.
        if len(left) == before:
            return None
    return content


def _is_of(task: TaskIdentity, header: BatchHeader) -> bool:
    return header.producer_id == task.producer_id and header.producer_epoch == task.epoch


def read_log_ends(config: ClusterConfig, partitions: Collection[TopicPartition]) -> Offsets:
    """Return where logs end for their leaders: behind what not all replicas have yet.

    Raises KgroupError.
    """
    return asyncio.run(_read_log_ends(config, partitions))


async def _read_log_ends(
    config: ClusterConfig, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    cluster = Cluster(config.bootstrap_servers, config=config)
    try:
        await cluster.refresh({partition.topic for partition in partitions})
        ends = await asyncio.gather(*(_log_end(cluster, partition) for partition in partitions))
    finally:
        await cluster.close()
    return dict(zip(partitions, ends, strict=True))


async def _log_end(cluster: Cluster, partition: TopicPartition) -> int:
    # To a consumer a log ends at its high watermark.
    request = list_offsets_request({partition: LATEST_TIME}, replica_id=DEBUGGING_REPLICA_ID)

    async def ask() -> int:
        leader = await cluster.leader(partition)
        try:
            connection = await cluster.connection(leader)
            response = await connection.call(request)
        except ConnectionFailed:
            await cluster.refresh([partition.topic])
            raise

        listed = listed_offsets(response)[partition]
        code = ErrorCode.of(listed.error_code)
        if code.is_stale_metadata:
            await cluster.refresh([partition.topic])
        if code is not ErrorCode.NONE:
            raise BrokerError(code, str(partition))
        return listed.offset

    return await cluster.retrying(ask, f"the log end of {partition}")


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
                response = await _fetch(cluster, partition, position, FETCH_BYTES)
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
        found.cut.add(partition)
        return max(response.log_start_offset, position + 1)

    buf = response.records or b""
    at = 0
    while (header := read_entry(buf, at, len(buf))) is not None:
        # The first batch may begin before the place that was asked for.
        is_ours = (
            isinstance(header, BatchHeader)
            and _is_of(task, header)
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
            # Written again, they would stand behind what has replaced them (fault strangers-40).
            _require_whole(task, partition, header, len(records), found)
            found.add(partition, next_sequence, records)
        at += header.size
        position = max(position, header.next_offset)
    return position


def _require_whole(
    task: TaskIdentity, partition: TopicPartition, header: BatchHeader, count: int, found: Found
) -> None:
    """Raise NotRepeatable if records are gone from a batch, or between it and the one before."""
    before = found.next_by_partition.get(partition, 0)
    if partition in found.cut:
        # No reader sees what retention has deleted.
        found.cut.remove(partition)
        before = header.base_sequence
    gone = header.base_sequence - before + header.last_offset_delta + 1 - count
    if gone > 0:
        raise NotRepeatable(
            f"{partition}: compaction has removed {gone} records before offset "
            f"{header.next_offset} that an earlier attempt of query {task.query_id}, batch "
            f"{task.batch_id}, task {task.task} wrote, so that it is not known which of its rows "
            "are there: restart with delivery=at-least-once"
        )


async def _fetch(
    cluster: Cluster, partition: TopicPartition, position: int, size: int
) -> FetchResponsePartition:
    async def ask() -> FetchResponsePartition:
        leader = await cluster.leader(partition)
        try:
            connection = await cluster.connection(leader)
            # A client above its quota is told of no partition (fault strangers-31).
            results = await request_records(
                connection,
                {partition: (position, size)},
                max_wait_ms=MAX_WAIT_MS,
                max_bytes=size,
            )
        except ConnectionFailed:
            # The leader's broker is gone, and perhaps another leads by now.
            await cluster.refresh([partition.topic])
            raise

        result = results[partition]
        code = ErrorCode.of(result.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and result.log_start_offset > position:
            return result
        if code.is_stale_metadata:
            await cluster.refresh([partition.topic])
        if code is not ErrorCode.NONE:
            raise BrokerError(code, f"{partition} at offset {position}")

        # A new leader may need a moment to know how far its log is committed.
        if not result.records:
            is_held = connection.throttled_until_s > asyncio.get_running_loop().time()
            why = "a quota holds this client back" if is_held else f"it has nothing at {position}"
            raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{partition}: {why}")
        return result

    return await cluster.retrying(ask, f"records of {partition}")
