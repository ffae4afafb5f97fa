"""Read the timestamps of the first records that a group has not consumed: its lag in time.

A record at a committed offset may have been compacted away, or be the marker of a transaction: then
the next record that a consumer would get counts.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from itertools import islice

from clients.cluster import Cluster
from clients.cluster_view import BrokerEndpoint
from clients.errors import ClientError
from clients.fetching import FetchedPartition, Isolation, fetch_once
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import TopicPartition

FIRST_BYTES = 64 * 1024
"""Bytes that are asked for of each partition: more than most batches have."""
MAX_PARTITIONS = 500
"""Partitions in a request, at most: a response has no more than 50 MB."""
MAX_FETCHES = 10
"""Fetches for a partition, at most: a log may begin with nothing but markers."""

Offsets = Mapping[TopicPartition, int]


async def read_first_timestamps(
    cluster: Cluster, offsets: Offsets, isolation: Isolation | int = Isolation.READ_UNCOMMITTED
) -> dict[TopicPartition, int]:
    """Return the timestamp (ms) of the first record at or behind each offset.

    A partition is left out if it has no such record, or cannot be read now. All leaders are asked
    at once, each for MAX_PARTITIONS in one request while no batch is larger than FIRST_BYTES.
    """
    await cluster.refresh({partition.topic for partition in offsets})
    by_leader: dict[BrokerEndpoint, dict[TopicPartition, int]] = defaultdict(dict)
    for partition, offset in offsets.items():
        leader = cluster.brokers.get(cluster.view.leaders.get(partition, -1))
        if leader is not None:
            by_leader[leader][partition] = offset

    reads = []
    for leader, own in by_leader.items():
        rest = iter(own.items())
        while some := dict(islice(rest, MAX_PARTITIONS)):
            reads.append(_read(cluster, leader, some, isolation))
    timestamps: dict[TopicPartition, int] = {}
    for part in await asyncio.gather(*reads):
        timestamps |= part
    return timestamps


async def _read(
    cluster: Cluster, leader: BrokerEndpoint, offsets: Offsets, isolation: Isolation | int
) -> dict[TopicPartition, int]:
    """Read from one leader. What cannot be read is left out."""
    timestamps: dict[TopicPartition, int] = {}
    left = dict(offsets)
    large: dict[TopicPartition, int] = {}
    try:
        connection = await cluster.connection(leader)
        for _ in range(MAX_FETCHES):
            if not left:
                break
            asked = {partition: (offset, FIRST_BYTES) for partition, offset in left.items()}
            fetched = await fetch_once(connection, asked, max_wait_ms=0, isolation=isolation)
            left = _go_on(fetched, left, timestamps, large)

        # A broker sends a batch that is too large if nothing stands before it.
        for partition, offset in large.items():
            alone = {partition: (offset, FIRST_BYTES)}
            fetched = await fetch_once(connection, alone, max_wait_ms=0, isolation=isolation)
            _go_on(fetched, {partition: offset}, timestamps, {})
    except (ClientError, ApiError):
        pass
    return timestamps


def _go_on(
    fetched: Mapping[TopicPartition, FetchedPartition],
    asked: Offsets,
    timestamps: dict[TopicPartition, int],
    large: dict[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Note what was found; return from where to read the partitions of which nothing came."""
    left: dict[TopicPartition, int] = {}
    for partition, offset in asked.items():
        part = fetched[partition]
        if part.rows:
            _, timestamps[partition], *_ = part.rows[0]
        elif part.next_offset > offset:
            # Compaction, markers or an aborted transaction: what follows counts.
            left[partition] = part.next_offset
        elif part.error is ErrorCode.INVALID_FETCH_SIZE:
            large[partition] = offset
        elif part.error is ErrorCode.NONE and offset < part.high_watermark:
            # Behind another partition a broker sends no batch that is too large, and does not say
            # so (KIP-74).
            large[partition] = offset
    return left
