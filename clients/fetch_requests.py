"""Send fetch requests for all who read records. What came is decoded in `clients.fetching`.

They are apart because many look at little of what came, and decoders take long to import.
"""

from collections.abc import Mapping
from enum import IntEnum
from itertools import groupby
from types import MappingProxyType

from clients.errors import BrokerError
from clients.offset_requests import CONSUMER_REPLICA_ID
from clients.transport.connection import Connection
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from protocol.topic_partition import TopicPartition


class Isolation(IntEnum):
    """The part of transactions that a fetch sees."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


def visible_end(high_watermark: int, last_stable_offset: int, isolation: Isolation | int) -> int:
    """Return the end of what a consumer can see, of what a broker tells of a partition."""
    # Brokers from before transactions have no last stable offset.
    if isolation == Isolation.READ_COMMITTED and last_stable_offset >= 0:
        return last_stable_offset
    return high_watermark


async def request_records(
    connection: Connection,
    requests: Mapping[TopicPartition, tuple[int, int]],
    *,
    max_wait_ms: int,
    min_bytes: int = 1,
    max_bytes: int = 52_428_800,
    isolation: Isolation | int = Isolation.READ_UNCOMMITTED,
    leader_epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
    last_epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
) -> dict[TopicPartition, FetchResponsePartition]:
    """Fetch from partitions of one broker, each with (offset, max bytes), in this order.

    Records stay undecoded; partitions that the response lacks are left out. `leader_epochs` has the
    epochs of the leaders that are asked, where they are known: a broker from 2.1 on that leads in
    another epoch says so. `last_epochs` has those of the records before the offsets: a broker from
    2.7 on says where its log has other records.

    Of a response without records, because the client is above its quota, there is nothing to read
    of each partition.
    """
    # Only neighbours of one topic share a list: the order of partitions is the caller's.
    request = FetchRequest(
        replica_id=CONSUMER_REPLICA_ID,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=int(isolation),
        topics=[
            FetchRequestTopic(
                topic=topic,
                partitions=[
                    FetchRequestPartition(
                        partition=partition.partition,
                        current_leader_epoch=leader_epochs.get(partition, -1),
                        fetch_offset=requests[partition][0],
                        last_fetched_epoch=last_epochs.get(partition, -1),
                        partition_max_bytes=requests[partition][1],
                    )
                    for partition in same_topic
                ],
            )
            for topic, same_topic in groupby(requests, key=lambda partition: partition.topic)
        ],
    )

    # The broker may hold the response for `max_wait_ms`, which is no sign of trouble.
    response: FetchResponse = await connection.call(
        request, timeout_ms=connection.request_timeout_ms + max_wait_ms
    )
    if response.error_code:
        raise BrokerError(ErrorCode.of(response.error_code), "fetch")

    if response.throttle_time_ms and not response.responses:
        return {partition: _nothing_of(partition) for partition in requests}

    # What was not asked for is ignored.
    return {
        partition: response_partition
        for topic in response.responses
        for response_partition in topic.partitions
        if (partition := TopicPartition(topic.topic, response_partition.partition_index))
        in requests
    }


def _nothing_of(partition: TopicPartition) -> FetchResponsePartition:
    return FetchResponsePartition(
        partition_index=partition.partition,
        error_code=ErrorCode.NONE,
        high_watermark=-1,
        records=b"",
    )
