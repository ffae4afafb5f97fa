"""Ask one coordinator about its groups, or about many of them."""

import asyncio
from collections.abc import Sequence

from clients.admin.descriptions import CONSUMER_GROUP, GroupDescription, GroupListing
from clients.admin.group_responses import (
    committed_offsets,
    described_consumer_groups,
    described_groups,
    listed_groups,
)
from clients.cluster_view import BrokerEndpoint
from clients.errors import BrokerError, KgroupError
from clients.transport.connection import Connection
from offsets.requests import fetch_groups_request, fetch_offsets_request
from protocol.api_key import ApiKey
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.list_groups import ListGroupsRequest
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

SEVERAL_GROUPS = 8
"""The first version of OffsetFetch that takes several groups."""
DEAD = "Dead"

Offsets = dict[TopicPartition, OffsetAndMetadata]


async def list_groups(connection: Connection, broker: BrokerEndpoint) -> list[GroupListing]:
    """Return the groups that a broker coordinates."""
    return listed_groups(broker, await connection.call(ListGroupsRequest()))


async def describe(
    connection: Connection, broker: BrokerEndpoint, group_ids: Sequence[str]
) -> dict[str, GroupDescription | KgroupError]:
    """Return state and members of each group, or its error. An unknown group is "Dead"."""
    response = await connection.call(DescribeGroupsRequest(groups=group_ids))
    results: dict[str, GroupDescription | KgroupError] = {
        group_id: result if isinstance(result, BrokerError) else GroupDescription(broker, result)
        for group_id, result in described_groups(response).items()
    }

    # Groups of the protocol `consumer` are unknown to that request.
    unknown = [
        group_id
        for group_id, result in results.items()
        if isinstance(result, GroupDescription) and result.group.group_state == DEAD
    ]
    if unknown and ApiKey.CONSUMER_GROUP_DESCRIBE in connection.versions:
        from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest

        of_consumers = await connection.call(ConsumerGroupDescribeRequest(group_ids=unknown))
        for group_id, group in described_consumer_groups(of_consumers).items():
            results[group_id] = GroupDescription(broker, group, CONSUMER_GROUP)
    return results


async def fetch_offsets(
    connection: Connection, broker: BrokerEndpoint, group_ids: Sequence[str]
) -> dict[str, Offsets | KgroupError]:
    """Return all committed offsets of each group, or its error."""
    _, newest = connection.versions.get(ApiKey.OFFSET_FETCH, (0, 0))
    if newest >= SEVERAL_GROUPS:
        request = fetch_groups_request(group_ids)
        response = await connection.call(request, version=SEVERAL_GROUPS)
        parts = {group.group_id: group for group in response.groups}
    else:
        # One request a group, all of them on their way at once.
        responses = await asyncio.gather(
            *(connection.call(fetch_offsets_request(group_id, None)) for group_id in group_ids)
        )
        parts = dict(zip(group_ids, responses, strict=True))

    results: dict[str, Offsets | KgroupError] = {}
    for group_id, part in parts.items():
        try:
            results[group_id] = committed_offsets(group_id, None, part)
        except BrokerError as error:
            results[group_id] = error
    return results
