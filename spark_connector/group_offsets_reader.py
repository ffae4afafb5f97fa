"""Groups' committed offsets as a table: what they have consumed, and how far they are behind."""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pyspark.sql.datasource import DataSourceReader, InputPartition

from clients.admin.admin import Admin
from clients.admin.descriptions import ListedOffset
from clients.first_timestamps import read_first_timestamps
from clients.groups.group_facts import LogOffsets
from clients.groups.lag import lag_of, next_offset, time_lag_of
from clients.groups.marker_tails import MarkerTails
from clients.groups.partition_rounds import partition_rounds
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
FirstTimes = dict[tuple[TopicPartition, int], int]
"""(partition, offset) -> timestamp of the first record from there on."""
Listed = Mapping[TopicPartition, ListedOffset]


class GroupOffset(NamedTuple):
    """A row of the table, with the columns of SCHEMA.

    Null: what could not be read, or does not exist. `lag` is negative for a group that is beyond
    the end of its log. `timeLagMs` is 0 for a group that has consumed all, and null for one whose
    next record is dated in the future.
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

        logs = await _read_logs(admin, committed, config.isolation)
        first_ms = (
            await _read_first_timestamps(admin, committed, logs, config.isolation)
            if options.time_lag
            else None
        )

    return [
        _row(group, partition, offset, logs[partition], first_ms, now_ms)
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


async def _read_logs(
    admin: Admin, committed: Mapping[str, Committed], isolation: int
) -> dict[TopicPartition, LogOffsets]:
    """Return the logs of all partitions: one request to each leader for the starts, one for ends.

    Where a lag is small, another tells whether there are records, or markers alone.
    """
    offsets = [(p, offset.offset) for own in committed.values() for p, offset in own.items()]
    partitions = {partition for partition, _ in offsets}
    starts, ends = await asyncio.gather(
        admin.list_offsets(dict.fromkeys(partitions, EARLIEST_TIME)),
        admin.list_offsets(dict.fromkeys(partitions, LATEST_TIME), isolation=isolation),
    )
    logs = {
        partition: LogOffsets(_offset(starts, partition), _offset(ends, partition))
        for partition in partitions
    }
    return await MarkerTails(isolation).look(admin.cluster, logs, offsets)


async def _read_first_timestamps(
    admin: Admin,
    committed: Mapping[str, Committed],
    logs: Mapping[TopicPartition, LogOffsets],
    isolation: int,
) -> FirstTimes:
    """Return the timestamps of the first records that groups have not consumed."""
    places = [
        (partition, start)
        for own in committed.values()
        for partition, offset in own.items()
        if lag_of(offset.offset, logs[partition]).behind_if_assigned
        and (start := next_offset(offset.offset, logs[partition])) is not None
    ]
    first_ms: FirstTimes = {}
    for asked in partition_rounds(places):
        found = await read_first_timestamps(admin.cluster, asked, isolation)
        first_ms |= {(partition, asked[partition]): ms for partition, ms in found.items()}
    return first_ms


def _row(
    group: str,
    partition: TopicPartition,
    committed: OffsetAndMetadata,
    log: LogOffsets,
    first_ms: FirstTimes | None,
    now_ms: int,
) -> GroupOffset:
    lag = lag_of(committed.offset, log)
    time_lag_ms = None
    if first_ms is not None:
        start = next_offset(committed.offset, log)
        next_ms = None if start is None else first_ms.get((partition, start))
        time_lag_ms = time_lag_of(lag, next_ms, now_ms)

    epoch = committed.leader_epoch
    return GroupOffset(
        group,
        partition.topic,
        partition.partition,
        committed.offset,
        None if epoch is None or epoch < 0 else epoch,
        committed.metadata,
        log.start,
        log.end,
        lag.lag,
        time_lag_ms,
    )


def _offset(listed: Listed, partition: TopicPartition) -> int | None:
    found = listed.get(partition)
    return None if found is None or found.error is not ErrorCode.NONE else found.offset
