"""Read the timestamps of the first records that a group has not consumed: its lag in time.

A record at a committed offset may have been compacted away, or be the marker of a transaction: then
the next record that a consumer would get counts.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping

import attrs

from clients.cluster import Cluster
from clients.cluster_view import BrokerEndpoint
from clients.errors import ClientError
from clients.fetching import Isolation, VisibleBatches, request_records
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import FetchResponsePartition
from protocol.records.batch import decode_rows
from protocol.records.compression import CompressionUnavailable
from protocol.records.corrupt_record import CorruptRecord
from protocol.topic_partition import TopicPartition

FIRST_BYTES = 20 * 1024
"""Bytes that are asked for of each partition at first: a producer's batches have 16 KB."""
MORE_BYTES = 1 << 20
"""Bytes that are asked for where the first batch is larger."""
MAX_RESPONSE_BYTES = 48 << 20
MAX_PARTITIONS = 500
"""Partitions in a request, at most."""
MAX_FETCHES = 10
"""Fetches for a partition, at most: a log may begin with nothing but markers."""

Offsets = Mapping[TopicPartition, int]


@attrs.frozen
class FirstRecords:
    """The first record behind each offset. A partition that could not be read is in neither."""

    timestamps: dict[TopicPartition, int] = attrs.field(factory=dict)
    """In ms."""
    without: set[TopicPartition] = attrs.field(factory=set)
    """Partitions that have no record behind the offset: nothing, or markers alone."""


async def read_first_timestamps(
    cluster: Cluster, offsets: Offsets, isolation: Isolation | int = Isolation.READ_UNCOMMITTED
) -> dict[TopicPartition, int]:
    """Return the timestamp (ms) of the first record at or behind each offset.

    A partition is left out if it has no such record, or cannot be read now.
    """
    return (await read_first_records(cluster, offsets, isolation)).timestamps


async def read_first_records(
    cluster: Cluster, offsets: Offsets, isolation: Isolation | int = Isolation.READ_UNCOMMITTED
) -> FirstRecords:
    """Return the first record at or behind each offset.

    All leaders are asked at once, each for MAX_PARTITIONS in one request while no batch is larger
    than FIRST_BYTES.
    """
    topics = {partition.topic for partition in offsets}
    # To read metadata again that was just read would have to wait.
    if not cluster.is_just_read(topics):
        await cluster.refresh(topics)
    by_leader: dict[BrokerEndpoint, dict[TopicPartition, int]] = defaultdict(dict)
    for partition, offset in offsets.items():
        leader = cluster.brokers.get(cluster.view.leaders.get(partition, -1))
        if leader is not None:
            by_leader[leader][partition] = offset

    records = FirstRecords()
    await asyncio.gather(
        *(_read(cluster, leader, own, isolation, records) for leader, own in by_leader.items())
    )
    return records


async def _read(
    cluster: Cluster,
    leader: BrokerEndpoint,
    offsets: Offsets,
    isolation: Isolation | int,
    records: FirstRecords,
) -> None:
    """Read from one leader. What cannot be read is left out."""
    left = dict(offsets)
    sizes = dict.fromkeys(offsets, FIRST_BYTES)
    try:
        connection = await cluster.connection(leader)
        for _ in range(MAX_FETCHES):
            # Larger batches are asked for with fewer partitions in a request, at last alone.
            rest = sorted(left, key=lambda partition: sizes[partition])
            left, asked = {}, left
            while rest:
                count = max(1, min(MAX_PARTITIONS, MAX_RESPONSE_BYTES // sizes[rest[-1]]))
                some, rest = rest[-count:], rest[:-count]
                fetched = await request_records(
                    connection,
                    {partition: (asked[partition], sizes[partition]) for partition in some},
                    max_wait_ms=0,
                    isolation=isolation,
                )
                for partition, response in fetched.items():
                    next_offset = _read_first(partition, asked[partition], response, records)
                    if next_offset is None:
                        continue
                    if next_offset == asked[partition]:
                        sizes[partition] = (
                            MORE_BYTES if sizes[partition] < MORE_BYTES else MAX_RESPONSE_BYTES
                        )
                    left[partition] = next_offset
    except (ClientError, ApiError):
        pass


def _read_first(
    partition: TopicPartition, offset: int, response: FetchResponsePartition, records: FirstRecords
) -> int | None:
    """Note the first record that came; return where to read on if there may be one behind.

    That is the same offset where the batch there is larger than was asked for.
    """
    if response.error_code != ErrorCode.NONE:
        return None
    batches = VisibleBatches.of(response, offset)
    try:
        for pos, header in batches:
            for row in decode_rows(response.records, pos, header):
                if row[0] >= offset:
                    records.timestamps[partition] = row[1]
                    return None
    except (CorruptRecord, CompressionUnavailable):
        return None

    # Compaction, markers or an aborted transaction: what follows counts.
    if batches.next_offset < response.high_watermark:
        return batches.next_offset
    records.without.add(partition)
    return None
