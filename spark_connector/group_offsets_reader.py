"""Groups' committed offsets as a table: what they have consumed, and how far they are behind."""

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pyspark.sql.datasource import DataSourceReader, InputPartition

from clients.admin.admin import Admin
from clients.admin.descriptions import ListedOffset
from clients.errors import KgroupError
from clients.first_timestamps import read_first_timestamps
from clients.groups.group_facts import LogOffsets
from clients.groups.lag import lag_of, next_offset, time_lag_of
from clients.groups.marker_tails import MarkerTails
from clients.groups.partition_rounds import partition_rounds
from protocol.special_values import EARLIEST_TIME, LATEST_TIME
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from spark_connector.client_options import impatient
from spark_connector.group_offsets_options import OffsetsOptions

logger = logging.getLogger(__name__)

CALL_TIMEOUT_MS = 10_000
"""Bound on the time for which one call waits for a leader or a coordinator that is away."""

SCHEMA = (
    "group string, topic string, partition int, offset long, leaderEpoch int, metadata string, "
    "logStartOffset long, logEndOffset long, lag long, timeLagMs long, error string"
)

Committed = Mapping[TopicPartition, OffsetAndMetadata]
FirstTimes = dict[tuple[TopicPartition, int], int]
"""(partition, offset) -> timestamp of the first record from there on."""


class GroupOffset(NamedTuple):
    """A row of the table, with the columns of SCHEMA.

    Null: what could not be read, or does not exist. `error` says why a partition's log could not be
    read; in a row without a topic, why the group's offsets could not; without a group, which broker
    did not tell of its groups. `lag` is negative for a group that is beyond the end of its log.
    `timeLagMs` is 0 for a group that has consumed all, and null for one whose next record is dated
    in the future.
    """

    group: str | None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    leader_epoch: int | None = None
    metadata: str | None = None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    lag: int | None = None
    time_lag_ms: int | None = None
    error: str | None = None


class GroupOffsetsReader(DataSourceReader):
    """A reader with one task, which asks the brokers."""

    def __init__(self, options: OffsetsOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Plan one task."""
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[GroupOffset]:
        """Read all rows, sorted. Raises BrokerError, ClientError if no group could be read."""
        yield from asyncio.run(read_group_offsets(self._options, time.time_ns() // 1_000_000))


async def read_group_offsets(options: OffsetsOptions, now_ms: int) -> list[GroupOffset]:
    """Read the offsets of groups, and where their logs begin and end.

    What cannot be read has its error in a row. Raises BrokerError, ClientError if nothing can.
    """
    config = options.client
    async with Admin(impatient(config.cluster_settings, CALL_TIMEOUT_MS)) as admin:
        groups, failed = list(options.group), dict[tuple[str, str | None], KgroupError]()
        if not groups:
            listed = await admin.groups_of_each_broker()
            for broker, result in listed.items():
                if isinstance(result, KgroupError):
                    failed[f"broker {broker.node_id}", None] = result
                else:
                    groups += [group.group_id for group in result]

        results = await admin.offsets_of_each_group(groups)
        committed: dict[str, Committed] = {}
        for group, offsets in results.items():
            if isinstance(offsets, KgroupError):
                failed[f"group {group}", group] = offsets
            else:
                committed[group] = offsets
        # No row would say that nothing is known.
        if failed and not committed:
            raise next(iter(failed.values()))

        logs, errors = await _read_logs(admin, committed, config.isolation)
        first_ms = (
            await _read_first_timestamps(admin, committed, logs, config.isolation)
            if options.time_lag
            else None
        )

    rows = [
        _row(group, partition, offset, logs[partition], first_ms, now_ms, errors.get(partition))
        for group in sorted(committed)
        for partition, offset in sorted(committed[group].items())
    ]
    for (what, _), error in failed.items():
        logger.warning("%s could not be read: %s", what, error)
    return rows + [
        GroupOffset(group, error=str(error) if group is not None else f"{what}: {error}")
        for (what, group), error in failed.items()
    ]


async def _read_logs(
    admin: Admin, committed: Mapping[str, Committed], isolation: int
) -> tuple[dict[TopicPartition, LogOffsets], dict[TopicPartition, str]]:
    """Return the logs of all partitions, and the errors of those that could not be read.

    Each leader gets one request for the starts and one for the ends. Where a lag is small, another
    tells whether there are records, or markers alone.
    """
    offsets = [(p, offset.offset) for own in committed.values() for p, offset in own.items()]
    partitions = {partition for partition, _ in offsets}
    # A topic that is unknown was deleted, and nobody waits for it.
    try:
        starts, ends = await asyncio.gather(
            *(
                admin.list_offsets(
                    dict.fromkeys(partitions, time_ms), isolation=level, waits_for_topics=False
                )
                for time_ms, level in ((EARLIEST_TIME, 0), (LATEST_TIME, isolation))
            )
        )
    except KgroupError as error:
        return dict.fromkeys(partitions, LogOffsets()), dict.fromkeys(partitions, str(error))

    logs = {p: LogOffsets(_offset(starts[p]), _offset(ends[p])) for p in partitions}
    errors = {p: code.name for p in partitions if (code := starts[p].error or ends[p].error)}
    return await MarkerTails(isolation).look(admin.cluster, logs, offsets), errors


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
        try:
            found = await read_first_timestamps(admin.cluster, asked, isolation)
        except KgroupError as error:
            logger.warning("logs could not be read, so lags in time are missing: %s", error)
            break
        first_ms |= {(partition, asked[partition]): ms for partition, ms in found.items()}
    return first_ms


def _row(
    group: str,
    partition: TopicPartition,
    committed: OffsetAndMetadata,
    log: LogOffsets,
    first_ms: FirstTimes | None,
    now_ms: int,
    error: str | None,
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
        error,
    )


def _offset(listed: ListedOffset) -> int | None:
    return None if listed.error else listed.offset
