"""Read ranges of partitions' logs, on an executor: without a group, with the worker's client."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from itertools import chain

import pyarrow as pa

from clients.cluster import Cluster
from clients.errors import BrokerError, ConnectionFailed, left_out
from clients.fetch_requests import request_records
from clients.offset_requests import DEBUGGING_REPLICA_ID, list_offsets_request, listed_offsets
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchResponsePartition
from protocol.special_values import EARLIEST_TIME, LATEST_TIME
from protocol.topic_partition import TopicPartition
from spark_connector.damage import skip_damage
from spark_connector.fetched_batches import decode_response
from spark_connector.log_offsets import TRUNCATION_GRACE_S, report_data_loss
from spark_connector.options import SourceOptions
from spark_connector.rows import FetchedBatches
from spark_connector.split import OffsetRange
from spark_connector.worker_client import CLIENTS, WorkerClients

_REST_MARGIN = 1.1
_REST_BYTES = 32 * 1024
"""The estimate of a range's rest is larger by these: a batch is sent whole or not at all."""


def read_ranges(
    options: SourceOptions, ranges: Sequence[OffsetRange], clients: WorkerClients = CLIENTS
) -> Iterator[pa.RecordBatch]:
    """Read all records of the ranges, one range after the other.

    A range ends at a position. Compaction and transaction markers leave holes, so there may be
    fewer records than offsets. While the caller has a batch, the next fetch is in flight. Raises
    BrokerError, ClientError, CorruptBatch, DataLoss.
    """
    # A task without ranges needs no client.
    if ranges:
        with clients.borrow(options.client) as client:
            fetches = _fetch_ranges(client.cluster, options, ranges)
            yield from chain.from_iterable(client.iterate_ahead(fetches))


async def _fetch_ranges(
    cluster: Cluster, options: SourceOptions, ranges: Sequence[OffsetRange]
) -> AsyncIterator[Sequence[pa.RecordBatch]]:
    most_bytes = options.client.max_partition_fetch_bytes
    for offset_range in ranges:
        position = offset_range.start
        max_bytes = most_bytes
        while position < offset_range.end:
            fetched = await _fetch(cluster, options, offset_range, position, max_bytes)

            # Damaged: go on behind it, if the options allow that. The next batch says where.
            if fetched is not None and fetched.damage is not None:
                if fetched.damage.next_offset is None and max_bytes < most_bytes:
                    max_bytes = most_bytes
                    continue
                position = skip_damage(offset_range.partition, fetched.damage, options.corrupt)
                continue

            # By position: a batch of markers has no record, and still moves on.
            if fetched is not None:
                yield fetched.batches
                rest = _estimate_bytes(fetched, position, offset_range.end)
                max_bytes = min(rest, most_bytes)
                position = fetched.next_offset
                continue

            # Deleted or truncated: go on behind the gap, if the options allow that.
            earliest = await _earliest(cluster, offset_range.partition)
            _report_loss(options, offset_range, position, earliest)
            position = earliest if earliest > position else offset_range.end


def _estimate_bytes(fetched: FetchedBatches, position: int, end: int) -> int:
    """Return about how many bytes lie between a fetch from `position` on and the range's end.

    A fetch that asks for more has records that nobody wants. If it turns out to be too little, one
    more fetch follows.
    """
    rest = max(end - fetched.next_offset, 0)
    return int(fetched.size / (fetched.next_offset - position) * rest * _REST_MARGIN) + _REST_BYTES


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
    cluster: Cluster,
    options: SourceOptions,
    offset_range: OffsetRange,
    position: int,
    max_bytes: int,
) -> FetchedBatches | None:
    """Fetch records, and wait for brokers that are away.

    Return None for OFFSET_OUT_OF_RANGE, and where the log goes on ending at `position`.
    """
    partition = offset_range.partition
    grace_ends_s = asyncio.get_running_loop().time() + TRUNCATION_GRACE_S

    async def ask() -> FetchedBatches | None:
        response = await _request(cluster, options, partition, position, max_bytes)

        # The caller decides what a loss means: no retry brings the records back.
        error = ErrorCode.of(response.error_code)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            return None
        if error.is_stale_metadata:
            await cluster.refresh([partition.topic])
        fetched = decode_response(
            partition, response, position, offset_range.end, options.row_columns
        )

        # A new leader may need a moment to know how far its log is committed.
        if fetched.next_offset == position and fetched.damage is None:
            is_over = asyncio.get_running_loop().time() >= grace_ends_s
            # What was planned was there: the log has lost its end, or is another topic's. No retry
            # brings it back, nor does another start of the query (fault strangers-101, was: False).
            has_ended = is_over and await _ends_before(cluster, partition, position)
            if has_ended:
                return None
            text = (
                f"{partition} has nothing at {position}, and is to be read up to {offset_range.end}"
            )
            raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, text)
        return fetched

    return await cluster.retrying(ask, f"records of {partition}", options.poll_timeout_ms)


async def _request(
    cluster: Cluster,
    options: SourceOptions,
    partition: TopicPartition,
    position: int,
    max_bytes: int,
) -> FetchResponsePartition:
    config = options.client
    leader = await cluster.leader(partition, timeout_ms=options.poll_timeout_ms)
    try:
        responses = await request_records(
            await cluster.connection(leader),
            {partition: (position, max_bytes)},
            max_wait_ms=config.fetch_max_wait_ms,
            isolation=config.isolation,
        )
    except ConnectionFailed:
        # The leader's broker is gone, and perhaps another leads by now.
        await cluster.refresh([partition.topic])
        raise

    if partition not in responses:
        raise left_out(partition)
    return responses[partition]


async def _ends_before(cluster: Cluster, partition: TopicPartition, position: int) -> bool:
    """Return whether the leader's log has nothing at `position`, committed or not."""
    await cluster.refresh([partition.topic])
    return await _ask_for_offset(cluster, partition, LATEST_TIME) <= position


async def _earliest(cluster: Cluster, partition: TopicPartition) -> int:
    ask = partial(_ask_for_offset, cluster, partition, EARLIEST_TIME)
    return await cluster.retrying(ask, f"start of {partition}")


async def _ask_for_offset(cluster: Cluster, partition: TopicPartition, time_ms: int) -> int:
    """Ask the leader for an end of its log. Raises BrokerError."""
    connection = await cluster.connection(await cluster.leader(partition))
    request = list_offsets_request({partition: time_ms}, replica_id=DEBUGGING_REPLICA_ID)
    listed = listed_offsets(await connection.call(request))[partition]
    if listed.error_code:
        raise BrokerError(ErrorCode.of(listed.error_code), str(partition))
    return listed.offset
