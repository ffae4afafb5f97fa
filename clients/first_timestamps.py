"""Look for the first records that a group has not consumed: their timestamps are its lag in time.

A record at a committed offset may have been compacted away, or be the marker of a transaction: then
the next record that a consumer would get counts.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping

import attrs

from clients.cluster import Cluster
from clients.cluster_view import BrokerEndpoint
from clients.errors import BrokerError, ClientError
from clients.fetch_requests import Isolation, request_records, visible_end
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.frozen import frozen
from protocol.messages.fetch import FetchResponsePartition
from protocol.records.batch_header import BatchHeader
from protocol.records.compression import CompressionUnavailable
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.entry import read_entry
from protocol.topic_partition import TopicPartition

HEADER_BYTES = 1024
"""Bytes that are asked for where a batch's header tells enough: a dozen markers have so many."""
FIRST_BYTES = 20 * 1024
"""Bytes that are asked for of each partition at first: a producer's batches have 16 KB."""
MORE_BYTES = 1 << 20
"""Bytes that are asked for where the first batch is larger."""
MAX_RESPONSE_BYTES = 48 << 20
LARGER_BYTES = (FIRST_BYTES, MORE_BYTES, MAX_RESPONSE_BYTES)
MAX_PARTITIONS = 500
"""Partitions in a request, at most."""
MAX_FETCHES = 10
"""Fetches for a partition, at most: a log may begin with nothing but markers."""

Offsets = Mapping[TopicPartition, int]


@frozen
class FirstRecords:
    """The first record behind each offset. A partition that could not be read now is in none."""

    timestamps: dict[TopicPartition, int] = attrs.field(factory=dict)
    """In ms."""
    without: set[TopicPartition] = attrs.field(factory=set)
    """Partitions that have no record behind the offset: nothing, or markers alone."""
    untimed: set[TopicPartition] = attrs.field(factory=set)
    """Partitions whose record has no timestamp, as those of the message format before 0.10, or
    was not decoded."""
    refused: set[TopicPartition] = attrs.field(factory=set)
    """Partitions that the client may not read."""


async def read_first_timestamps(
    cluster: Cluster, offsets: Offsets, isolation: Isolation | int = Isolation.READ_UNCOMMITTED
) -> dict[TopicPartition, int]:
    """Return the timestamp (ms) of the first record at or behind each offset.

    A partition is left out if it has no such record, the record has no timestamp, or it cannot be
    read now.
    """
    return (await read_first_records(cluster, offsets, isolation)).timestamps


async def read_first_records(
    cluster: Cluster, offsets: Offsets, isolation: Isolation | int = Isolation.READ_UNCOMMITTED
) -> FirstRecords:
    """Return the first record at or behind each offset.

    All leaders are asked at once, each for MAX_PARTITIONS in one request while no batch is larger
    than FIRST_BYTES.
    """
    search = _Search(cluster, isolation)
    await search.read(offsets)
    return search.result


def may_not_read(refused: Iterable[TopicPartition]) -> list[BrokerError]:
    """Return an error for each topic whose first unread records the client may not read."""
    topics = sorted({partition.topic for partition in refused})
    return [
        BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic, ApiKey.FETCH) for topic in topics
    ]


async def look_for_records(
    cluster: Cluster, offsets: Offsets, isolation: Isolation | int = Isolation.READ_UNCOMMITTED
) -> dict[TopicPartition, bool]:
    """Return whether there is a record at or behind each offset, and not markers alone.

    Mostly the header of one batch tells it, so this takes less time than timestamps, and a
    twentieth of the bytes. A partition that cannot be read now is left out.
    """
    search = _Search(cluster, isolation, needs_timestamps=False)
    await search.read(offsets)
    result = search.result
    with_records = result.timestamps.keys() | result.untimed
    return dict.fromkeys(with_records, True) | dict.fromkeys(result.without, False)


@attrs.define(eq=False)
class _Search:
    """Looks for first records, and notes them in `result`."""

    cluster: Cluster
    isolation: Isolation | int
    needs_timestamps: bool = True
    """False: whether there are records is enough."""
    result: FirstRecords = attrs.field(factory=FirstRecords)

    async def read(self, offsets: Offsets) -> None:
        """Read from all leaders at once. What cannot be read is left out."""
        topics = {partition.topic for partition in offsets}
        # To read metadata again that was just read would have to wait.
        if not self.cluster.is_just_read(topics):
            await self.cluster.refresh(topics)
        by_leader: dict[BrokerEndpoint, dict[TopicPartition, int]] = defaultdict(dict)
        for partition, offset in offsets.items():
            leader = self.cluster.brokers.get(self.cluster.view.leaders.get(partition, -1))
            if leader is not None:
                by_leader[leader][partition] = offset

        await asyncio.gather(*(self._read_from(leader, own) for leader, own in by_leader.items()))

    async def _read_from(self, leader: BrokerEndpoint, offsets: dict[TopicPartition, int]) -> None:
        left = dict(offsets)
        at_first = FIRST_BYTES if self.needs_timestamps else HEADER_BYTES
        sizes = dict.fromkeys(offsets, at_first)
        try:
            connection = await self.cluster.connection(leader)
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
                        isolation=self.isolation,
                    )
                    for partition, response in fetched.items():
                        next_offset = self._look_into(partition, asked[partition], response)
                        if next_offset is None:
                            continue
                        if next_offset == asked[partition]:
                            sizes[partition] = next(
                                (size for size in LARGER_BYTES if size > sizes[partition]),
                                MAX_RESPONSE_BYTES,
                            )
                        left[partition] = next_offset
        except (ClientError, ApiError):
            pass

    def _look_into(
        self, partition: TopicPartition, offset: int, response: FetchResponsePartition
    ) -> int | None:
        """Note the first record that came; return where to read on if there may be one behind.

        That is the same offset where the batch there is larger than was asked for.
        """
        if response.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self.result.refused.add(partition)
        if response.error_code != ErrorCode.NONE:
            return None
        end = visible_end(response.high_watermark, response.last_stable_offset, self.isolation)
        # A client above its quota is told nothing, which is no end of the log (fault tool-F5).
        if end < 0:
            return None
        if not self.needs_timestamps and self._has_records(response, offset, end):
            self.result.untimed.add(partition)
            return None

        # Decoders take long to import, and a short table does without them.
        from clients.fetching import VisibleBatches
        from protocol.records.batch import decode_rows

        batches = VisibleBatches.of(response, offset)
        try:
            for pos, header in batches:
                for offset_here, timestamp_ms, *_ in decode_rows(response.records, pos, header):
                    if offset_here >= offset:
                        self._note(partition, timestamp_ms)
                        return None
        except (CorruptRecord, CompressionUnavailable):
            return None

        # Compaction, markers or an aborted transaction: what follows counts.
        if batches.next_offset < end:
            return batches.next_offset
        self.result.without.add(partition)
        return None

    def _has_records(self, response: FetchResponsePartition, offset: int, end: int) -> bool:
        """Return True if the first bytes tell that there are visible records from `offset` on."""
        # Brokers send no part of a batch. A marker would have been sent, so what is there has
        # records, which are visible unless their transaction was aborted.
        if not response.records and offset < end and self.isolation == Isolation.READ_UNCOMMITTED:
            return True
        return _begins_with_records(response, offset)

    def _note(self, partition: TopicPartition, timestamp_ms: int) -> None:
        # -1 says that there is no time; as a time to look up it would mean the log's end
        # (fault tool-F1).
        if timestamp_ms < 0:
            self.result.untimed.add(partition)
            return
        self.result.timestamps[partition] = timestamp_ms


def _begins_with_records(response: FetchResponsePartition, offset: int) -> bool:
    """Return True if the first header, unchecked, is that of visible records from `offset` on."""
    if response.aborted_transactions:
        return False
    fetched = response.records or b""
    try:
        header = read_entry(fetched, 0, len(fetched))
    except CorruptRecord:
        return False
    if header is None or header.is_control or header.last_offset < offset:
        return False

    # A message is there, and so is the last one in a wrapper.
    if not isinstance(header, BatchHeader):
        return True

    # Compaction may have left only records before the offset, or none.
    is_complete = header.count == header.last_offset_delta + 1
    return is_complete or (header.count > 0 and header.base_offset >= offset)
