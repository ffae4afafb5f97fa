"""Groups' committed offsets as a table: what they have consumed, and how far they are behind."""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pyspark.sql.datasource import DataSourceReader, InputPartition

from clients.admin.admin import Admin
from clients.admin.descriptions import ListedOffset
from clients.cluster import Cluster
from clients.first_timestamps import read_first_timestamps
from clients.groups.lag import lag_of
from protocol.errors import ErrorCode
from protocol.special_values import EARLIEST_TIME, LATEST_TIME
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from spark_connector.group_offsets_options import OffsetsOptions

GROUPS_AT_ONCE = 16
"""Groups whose offsets are asked for at the same time."""

SCHEMA = (
    "group string, topic string, partition int, offset long, leaderEpoch int, metadata string, "
    "logStartOffset long, logEndOffset long, lag long, timeLagMs long"
)

Committed = Mapping[TopicPartition, OffsetAndMetadata]
Listed = Mapping[TopicPartition, ListedOffset]


class GroupOffset(NamedTuple):
    """A row of the table, with the columns of SCHEMA.

    Null: what could not be read, or does not exist. `lag` is negative for a group that is beyond
    the end of its log. `timeLagMs` is 0 for a group that has consumed all.
    """

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int | None
    metadata: str
    log_start_offset: int | None
    log_end_offset: int | None
    lag: int | None
    time_lag_ms: int | None


class GroupOffsetsReader(DataSourceReader):
    """A reader with one task, which asks the brokers."""

    def __init__(self, options: OffsetsOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Plan one task."""
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[GroupOffset]:
        """Read all rows, sorted. Raises BrokerError, ClientError."""
        yield from asyncio.run(read_group_offsets(self._options, time.time_ns() // 1_000_000))


async def read_group_offsets(options: OffsetsOptions, now_ms: int) -> list[GroupOffset]:
    """Read the offsets of groups, and where their logs begin and end."""
    config = options.client
    async with Admin(config.cluster_settings) as admin:
        groups = options.group or [listed.group_id for listed in await admin.list_groups()]
        committed = await _read_committed(admin, groups)

        # One request to each leader for the starts, and one for the ends.
        partitions = {partition for offsets in committed.values() for partition in offsets}
        starts, ends = await asyncio.gather(
            admin.list_offsets(dict.fromkeys(partitions, EARLIEST_TIME)),
            admin.list_offsets(dict.fromkeys(partitions, LATEST_TIME), isolation=config.isolation),
        )

    first_ms = await _read_first_timestamps(options, committed) if options.time_lag else {}
    return [
        _row(group, partition, offset, starts, ends, first_ms.get(group, {}), options, now_ms)
        for group in sorted(committed)
        for partition, offset in sorted(committed[group].items())
    ]


async def _read_committed(admin: Admin, groups: Sequence[str]) -> dict[str, Committed]:
    slots = asyncio.Semaphore(GROUPS_AT_ONCE)

    async def read(group: str) -> Committed:
        async with slots:
            return await admin.group_offsets(group)

    names = list(dict.fromkeys(groups))
    return dict(zip(names, await asyncio.gather(*map(read, names)), strict=True))


async def _read_first_timestamps(
    options: OffsetsOptions, committed: Mapping[str, Committed]
) -> dict[str, Mapping[TopicPartition, int]]:
    """Return the timestamp of the first record that each group has not consumed."""
    config = options.client
    cluster = Cluster(config.bootstrap_servers, config=config)
    try:
        return {
            group: await read_first_timestamps(
                cluster, {p: offset.offset for p, offset in offsets.items()}, config.isolation
            )
            for group, offsets in committed.items()
            if offsets
        }
    finally:
        await cluster.close()


def _row(
    group: str,
    partition: TopicPartition,
    committed: OffsetAndMetadata,
    starts: Listed,
    ends: Listed,
    first_ms: Mapping[TopicPartition, int],
    options: OffsetsOptions,
    now_ms: int,
) -> GroupOffset:
    start = _offset(starts, partition)
    end = _offset(ends, partition)
    lag = lag_of(committed.offset, start, end).lag

    # A group that has consumed all is not behind, and has no next record.
    time_lag_ms = None
    if options.time_lag and lag is not None:
        timestamp_ms = first_ms.get(partition)
        if lag <= 0:
            time_lag_ms = 0
        elif timestamp_ms is not None:
            time_lag_ms = max(now_ms - timestamp_ms, 0)

    epoch = committed.leader_epoch
    return GroupOffset(
        group,
        partition.topic,
        partition.partition,
        committed.offset,
        None if epoch is None or epoch < 0 else epoch,
        committed.metadata,
        start,
        end,
        lag,
        time_lag_ms,
    )


def _offset(listed: Listed, partition: TopicPartition) -> int | None:
    found = listed.get(partition)
    return None if found is None or found.error is not ErrorCode.NONE else found.offset
