"""Read one range of a partition's log, on an executor: without a group, over its own connection."""

import asyncio
from collections.abc import Iterator

import pyarrow as pa

from clients.cluster import Cluster
from clients.errors import BrokerError, ConnectionFailed
from clients.fetching import FetchedPartition, fetch_once
from clients.offset_requests import list_offsets_request, listed_offsets
from protocol.errors import ErrorCode
from protocol.special_values import EARLIEST_TIME
from protocol.topic_partition import TopicPartition
from spark_connector.log_offsets import report_data_loss
from spark_connector.options import ReaderConfig, SourceOptions
from spark_connector.rows import record_batches
from spark_connector.split import OffsetRange


def read_range(options: SourceOptions, offset_range: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Read all records of a range.

    The range ends at a position. Compaction and transaction markers leave holes, so there may be
    fewer records than offsets. Raises BrokerError, ClientError, DataLoss.
    """
    config = options.client
    cluster = Cluster(config.bootstrap_servers, config=config)

    # One event loop for the range: the connection stays open between two fetches.
    with asyncio.Runner() as runner:
        try:
            position = offset_range.start
            while position < offset_range.end:
                fetched = runner.run(_fetch(cluster, config, offset_range, position))

                # Deleted or truncated: go on behind the gap, if the options allow that.
                if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                    earliest = runner.run(_earliest(cluster, offset_range.partition))
                    _report_loss(options, offset_range, position, earliest)
                    position = earliest if earliest > position else offset_range.end
                    continue

                # The last batch may go beyond the range.
                records = fetched.records
                if records and records[-1].offset >= offset_range.end:
                    records = [record for record in records if record.offset < offset_range.end]
                yield from record_batches(
                    offset_range.partition,
                    records,
                    fetched.timestamp_type,
                    include_headers=options.include_headers,
                )
                # By position: a batch of markers has no record, and still moves on.
                position = fetched.next_offset
        finally:
            runner.run(cluster.close())


def _report_loss(
    options: SourceOptions, offset_range: OffsetRange, position: int, earliest: int
) -> None:
    if earliest > position:
        loss = f"{offset_range.partition}: offsets {position} to {earliest - 1} have been deleted"
    else:
        loss = (
            f"{offset_range.partition}: offset {position} is behind the log's end; it was truncated"
        )
    report_data_loss(loss, fail=options.fail_on_data_loss)


async def _fetch(
    cluster: Cluster, config: ReaderConfig, offset_range: OffsetRange, position: int
) -> FetchedPartition:
    """Fetch records, or OFFSET_OUT_OF_RANGE. Retry everything else until the timeout."""
    partition = offset_range.partition

    async def ask() -> FetchedPartition:
        leader = await cluster.leader(partition)
        try:
            fetched = await fetch_once(
                await cluster.connection(leader),
                {partition: (position, config.max_partition_fetch_bytes)},
                max_wait_ms=config.fetch_max_wait_ms,
                isolation=config.isolation,
            )
        except ConnectionFailed:
            # The leader's broker is gone, and perhaps another leads by now.
            await cluster.refresh([partition.topic])
            raise

        result = fetched[partition]
        # The caller decides what a loss means: no retry brings the records back.
        if result.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            return result
        if result.error.is_stale_metadata:
            await cluster.refresh([partition.topic])
        result.raise_for_error()

        # A new leader may need a moment to know how far its log is committed.
        if result.next_offset == position:
            text = (
                f"{partition} has nothing at {position}, and is to be read up to {offset_range.end}"
            )
            raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, text)
        return result

    return await cluster.retrying(ask, f"records of {partition}")


async def _earliest(cluster: Cluster, partition: TopicPartition) -> int:
    async def ask() -> int:
        connection = await cluster.connection(await cluster.leader(partition))
        response = await connection.call(list_offsets_request({partition: EARLIEST_TIME}))
        listed = listed_offsets(response)[partition]
        if listed.error_code:
            raise BrokerError(ErrorCode.of(listed.error_code), str(partition))
        return listed.offset

    return await cluster.retrying(ask, f"start of {partition}")
