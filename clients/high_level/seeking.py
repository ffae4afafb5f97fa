"""Places in a partition that an application may seek: an offset, an end, or a time."""

from __future__ import annotations

from clients.cluster import Cluster
from clients.errors import BrokerError, left_out
from clients.fetch_requests import Isolation
from clients.offset_requests import list_offsets_request, listed_offsets
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.special_values import EARLIEST_TIME, LATEST_TIME, MAX_LONG
from protocol.topic_partition import TopicPartition


@frozen
class Timestamp:
    """The first message with this time, in ms since 1970, or a later one; else the end."""

    ms: int


Place = int | Timestamp
"""An offset, EARLIEST_TIME, LATEST_TIME, or a Timestamp."""


async def resolve(
    cluster: Cluster, partition: TopicPartition, place: Place, isolation: Isolation
) -> int:
    """Return the offset of a place. Raises ValueError, BrokerError, ClientError."""
    if isinstance(place, Timestamp):
        if not 0 <= place.ms <= MAX_LONG:
            raise ValueError(f"{place.ms} is no time since 1970")
        offset = await _ask(cluster, partition, place.ms, isolation)
        return offset if offset >= 0 else await _ask(cluster, partition, LATEST_TIME, isolation)
    if not isinstance(place, int):
        raise TypeError(f"{place!r} is no offset, EARLIEST_TIME, LATEST_TIME or Timestamp(ms)")
    if place in (EARLIEST_TIME, LATEST_TIME):
        return await _ask(cluster, partition, place, isolation)
    # A larger one would be in each fetch and commit of the member, none of which could be sent.
    if not 0 <= place <= MAX_LONG:
        raise ValueError(f"{partition}: there is no offset {place}")
    return place


async def _ask(cluster: Cluster, partition: TopicPartition, time: int, isolation: Isolation) -> int:
    """Return the leader's answer; -1: there is no such message."""

    async def ask() -> int:
        leader = await cluster.leader(partition)
        connection = await cluster.connection(leader, "offsets")
        request = list_offsets_request({partition: time}, isolation=isolation)
        response = listed_offsets(await connection.call(request)).get(partition)
        if response is None:
            raise left_out(str(partition))
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            raise BrokerError(code, str(partition), ApiKey.LIST_OFFSETS)
        return response.offset

    return await cluster.retrying(ask, f"offset of {partition}")
