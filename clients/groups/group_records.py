"""Read `__consumer_offsets`, from the start of its log or from where an earlier reading stopped.

Only the partitions of the groups asked for are read: each group has one. Leaders are asked at
once, each for all of its partitions in one request.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Protocol

from clients.admin import EARLIEST_TIME, LATEST_TIME, Admin
from clients.cluster import Cluster
from clients.errors import BrokerError, KgroupError
from clients.fetch_requests import request_records
from clients.groups.recorded_groups import RecordedGroups
from offsets.topic import offsets_partition, partition_for
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.records.compression import CompressionUnavailable
from protocol.records.corrupt_record import CorruptRecord

FETCH_BYTES = 1 << 20
"""Bytes that are asked for of each partition, at first."""
MAX_FETCH_BYTES = 1 << 30
"""Bytes that are asked for where brokers from before KIP-74 keep a larger batch."""
MAX_WAIT_MS = 500


class PartitionReader(Protocol):
    """Takes the batches of partitions; RecordedGroups is one."""

    @property
    def positions(self) -> dict[int, int]:
        """Partition of the topic -> the next offset to read."""

    @property
    def errors(self) -> dict[int, Exception]:
        """Partitions that could not be read to their ends."""

    def feed(self, partition_id: int, batches: bytes | memoryview) -> None:
        """Take batches from the position on, and move it. Raises CorruptRecord and others."""


async def read_group_records(
    admin: Admin,
    group_ids: Collection[str] | None,
    *,
    so_far: RecordedGroups | None = None,
) -> RecordedGroups:
    """Return what the topic holds of the groups, up to its high watermarks of now; None: of all.

    `so_far` is the result of an earlier reading: it goes on from there, and is returned. What could
    not be read is in its `errors`. Raises BrokerError where the topic may not be read; a cluster
    without the topic has had no group.
    """
    records = so_far or RecordedGroups(None if group_ids is None else frozenset(group_ids))
    records.errors.clear()
    try:
        described = await admin.describe_topics([OFFSETS_TOPIC])
    except BrokerError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return records
        raise

    count = len(described[OFFSETS_TOPIC].partitions)
    wanted = (
        range(count)
        if records.group_ids is None
        else sorted({partition_for(group_id, count) for group_id in records.group_ids})
    )
    before = dict(records.positions)
    ends = await _find_range(admin, wanted, records)
    for partition_id, position in before.items():
        if records.positions[partition_id] < position:
            records.forget(partition_id)
    await _read_to(admin.cluster, ends, records)

    # One who may describe the topic, and not read it, learns so here.
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for failure in records.errors.values():
        if isinstance(failure, BrokerError) and failure.code is refused:
            raise failure
    return records


async def read_partitions(
    admin: Admin, partition_ids: Collection[int], reader: PartitionReader
) -> None:
    """Read partitions of the topic up to their high watermarks of now.

    What could not be read is in the reader's `errors`.
    """
    ends = await _find_range(admin, partition_ids, reader)
    await _read_to(admin.cluster, ends, reader)


async def _find_range(
    admin: Admin, partition_ids: Collection[int], reader: PartitionReader
) -> dict[int, int]:
    """Set positions to the starts of logs where they are behind them; return the logs' ends."""
    partitions = [offsets_partition(partition_id) for partition_id in partition_ids]
    starts, ends = await asyncio.gather(
        admin.list_offsets(dict.fromkeys(partitions, EARLIEST_TIME)),
        admin.list_offsets(dict.fromkeys(partitions, LATEST_TIME)),
    )

    known = {}
    for partition in partitions:
        start, end = starts[partition], ends[partition]
        if start.error or end.error:
            failed = start if start.error else end
            reader.errors[partition.partition] = failed.failure(partition)
            continue
        position = reader.positions.get(partition.partition, 0)
        # A log that ends before the position was made again.
        if position > end.offset:
            position = 0
        reader.positions[partition.partition] = max(position, start.offset)
        known[partition.partition] = end.offset
    return known


async def _read_to(cluster: Cluster, ends: Mapping[int, int], reader: PartitionReader) -> None:
    """Read each partition up to its end, from one leader after the other if it moves."""
    left = dict(ends)

    async def ask() -> None:
        await cluster.refresh([OFFSETS_TOPIC])
        by_leader: dict[int, dict[int, int]] = defaultdict(dict)
        for partition_id, end in left.items():
            leader = cluster.view.leaders.get(offsets_partition(partition_id), -1)
            by_leader[leader][partition_id] = end

        results = await asyncio.gather(
            *(_read_from(cluster, leader, own, reader) for leader, own in by_leader.items()),
            return_exceptions=True,
        )
        for partition_id in [p for p in left if reader.positions[p] >= left[p]]:
            del left[partition_id]
        for partition_id in reader.errors:
            left.pop(partition_id, None)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    try:
        await cluster.retrying(ask, OFFSETS_TOPIC)
    except KgroupError as error:
        # Partitions of other leaders were read.
        reader.errors.update(dict.fromkeys(left, error))


async def _read_from(
    cluster: Cluster, leader: int, ends: Mapping[int, int], reader: PartitionReader
) -> None:
    """Read partitions from their leader. Raises BrokerError, ConnectionFailed."""
    if leader not in cluster.brokers:
        raise cluster.view.no_leader(offsets_partition(min(ends)))

    connection = await cluster.connection(leader)
    sizes = dict.fromkeys(ends, FETCH_BYTES)
    while left := [p for p in ends if p not in reader.errors and reader.positions[p] < ends[p]]:
        asked = {offsets_partition(p): (reader.positions[p], sizes[p]) for p in left}
        fetched = await request_records(connection, asked, max_wait_ms=MAX_WAIT_MS)
        has_progress = False
        for partition, response in fetched.items():
            if response.error_code:
                code = ErrorCode.of(response.error_code)
                raise BrokerError(code, str(partition), ApiKey.FETCH)
            has_progress |= _feed(reader, partition.partition, response.records or b"", sizes)

        # The log is shorter than it was, after an election of a leader that was behind.
        if not has_progress:
            raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, str(offsets_partition(left[0])))


def _feed(
    reader: PartitionReader, partition_id: int, batches: bytes | memoryview, sizes: dict[int, int]
) -> bool:
    """Apply what came of a partition; return whether the next fetch will ask for something else."""
    before = reader.positions[partition_id]
    try:
        reader.feed(partition_id, batches)
    except (CorruptRecord, CompressionUnavailable) as error:
        reader.errors[partition_id] = error
        return True
    if reader.positions[partition_id] > before:
        return True

    # Old brokers send a part of a batch that is larger than was asked for.
    size = sizes[partition_id]
    if not batches or size == MAX_FETCH_BYTES:
        return False
    sizes[partition_id] = min(2 * size, MAX_FETCH_BYTES)
    return True
