"""Events that a member writes to `__group_events`, where that topic is.

Our brokers make the topic for the groups that they coordinate. Of groups in ZooKeeper they know
nothing: a member writes those events. Events are for people, and losing one fails nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable

import attrs

from clients.cluster import Cluster
from clients.errors import ClientError
from groups.group_event import GroupEvent
from offsets.topic import partition_for
from protocol.errors import ApiError, ErrorCode
from protocol.internal_topics import EVENTS_TOPIC
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from protocol.records.batch import encode_batch
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

MAX_QUEUED = 100
"""Events that wait to be sent; those beyond are dropped."""
SEND_TIMEOUT_S = 10.0
LEADER_ONLY = 1


@attrs.define(eq=False)
class GroupEventSender:
    """The events of one member. `open_cluster` opens connections that may write the topic."""

    open_cluster: Callable[[], Cluster]
    _queue: asyncio.Queue[GroupEvent] = attrs.field(factory=lambda: asyncio.Queue(MAX_QUEUED))

    def add(self, event: GroupEvent) -> None:
        """Queue an event."""
        if not self._queue.full():
            self._queue.put_nowait(event)

    async def run(self) -> None:
        """Send what is queued, for as long as the member lives."""
        while True:
            event = await self._queue.get()
            # Rebalances are rare: no connection is kept for them.
            cluster = self.open_cluster()
            try:
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await _send(cluster, event)
            except (ClientError, ApiError, TimeoutError) as error:
                logger.info("group %s: an event is not written: %s", event.group, error)
            finally:
                await cluster.close()


async def _send(cluster: Cluster, event: GroupEvent) -> None:
    """Send one event, if the topic is there. Raises ClientError, ApiError."""
    await cluster.refresh([EVENTS_TOPIC])
    partitions = cluster.view.topics.get(EVENTS_TOPIC)
    if not partitions:
        return

    partition = TopicPartition(EVENTS_TOPIC, partition_for(event.group, len(partitions)))
    body = json.dumps(event.as_json(), separators=(",", ":")).encode()
    batch = encode_batch([(event.ended_ms, event.group.encode(), body, ())])
    request = ProduceRequest(
        acks=LEADER_ONLY,
        timeout_ms=int(SEND_TIMEOUT_S * 1000),
        topic_data=[
            ProduceRequestTopic(
                name=EVENTS_TOPIC,
                partition_data=[ProduceRequestPartition(index=partition.partition, records=batch)],
            )
        ],
    )
    leader = await cluster.leader(partition)
    connection = await cluster.connection(leader)
    response: ProduceResponse = await connection.call(request)
    code = ErrorCode.of(response.responses[0].partition_responses[0].error_code)
    if code is not ErrorCode.NONE:
        raise ApiError(code, str(partition))
