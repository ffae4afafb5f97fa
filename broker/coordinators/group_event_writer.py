"""Write rebalances to `__group_events`, from a queue and a loop of their own.

Events are for people. Losing some never fails a group: the queue has a bound, beyond which the
oldest go, and what cannot be sent for a minute is dropped. Both are counted. A batch goes to the
leader of its partition with acks=1, by the connections between brokers.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import attrs

from broker.cluster.metadata_cache import MetadataCache
from broker.settings.config import BrokerConfig
from clients.transport.connection import ConnectionFailed
from groups.coordinator.membership.history import Rebalanced
from groups.coordinator.rebalance_events import RebalanceEvents
from offsets.topic import partition_for
from protocol.errors import ApiError, ErrorCode, KgroupError
from protocol.internal_topics import EVENTS_TOPIC
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from protocol.metrics import Metrics
from protocol.records.batch import encode_batch
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

MAX_QUEUED = 10_000
"""Events that wait to be sent; beyond it the oldest is dropped."""
MAX_AGE_S = 60.0
"""An event that cannot be sent for so long is dropped."""
BATCH_EVENTS = 200
"""Events that are sent at once."""
SLICE_EVENTS = 20
"""Events that are described between two turns of the loop."""
RETRY_S = 1.0
TIMEOUT_MS = 10_000
LEADER_ONLY = 1


class BrokerConnection(Protocol):
    """What is used of `clients.transport.connection.Connection`."""

    @property
    def closed(self) -> bool:
        """Return whether it can no longer send."""

    async def call(self, request: Any) -> Any:
        """Send a request and return its response. Raises ConnectionFailed."""


CreateTopic = Callable[[str, int, int, Mapping[str, str]], object]
"""Name, partitions, replication factor, settings. Returns at once; raises ApiError."""


@attrs.define(eq=False)
class _Event:
    """A rebalance in the queue; `body` once it is described."""

    rebalanced: Rebalanced
    queued_s: float
    body: bytes = b""


@attrs.define(eq=False)
class GroupEventWriter:
    """The queue of one broker.

    `connect(broker_id)` returns a connection over which internal topics may be written.
    """

    config: BrokerConfig
    cache: MetadataCache
    create_topic: CreateTopic
    connect: Callable[[int], Awaitable[BrokerConnection]]
    now_ms: Callable[[], int]
    metrics: Metrics
    _queue: deque[_Event] = attrs.field(factory=deque)
    _wanted: asyncio.Event = attrs.field(factory=asyncio.Event)
    _events: RebalanceEvents = attrs.field(init=False)
    _connections: dict[int, BrokerConnection] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self._events = RebalanceEvents(self.cache.partition_count)

    def add(self, rebalanced: Rebalanced) -> None:
        """Queue an event, and say in the log what became of the group."""
        _log(rebalanced)
        if not self.config.groups.events_enable:
            return
        self._queue.append(_Event(rebalanced, _now_s()))
        if len(self._queue) > MAX_QUEUED:
            self._queue.popleft()
            self._count_dropped(1)
        self._wanted.set()

    async def run(self) -> None:
        """Send what is queued, for as long as the broker lives."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while self._queue:
                if not await self._send_some():
                    await asyncio.sleep(RETRY_S)
                    self._drop_old()

    async def _send_some(self) -> bool:
        """Send the oldest events; return whether all of them were written."""
        partitions = self.cache.partition_count(EVENTS_TOPIC)
        if not partitions:
            self._create()
            return False

        # They stay in the queue until they are written.
        events = [self._queue[at] for at in range(min(BATCH_EVENTS, len(self._queue)))]
        await self._describe(events)
        by_leader: dict[int, dict[int, list[_Event]]] = {}
        for event in events:
            partition = partition_for(event.rebalanced.group_id, partitions)
            leader = self._leader(partition)
            by_leader.setdefault(leader, {}).setdefault(partition, []).append(event)

        written: set[int] = set()
        for leader, by_partition in by_leader.items():
            written |= await self._send(leader, by_partition)
        kept = [event for event in self._queue if id(event) not in written]
        self._queue = deque(kept)
        self.metrics.counter("group_events_written_total").add(len(written))
        return len(written) == len(events)

    def _create(self) -> None:
        """Create the topic: as many partitions and replicas as `__consumer_offsets` has."""
        offsets = self.config.offsets
        properties = {
            "cleanup.policy": "delete",
            "retention.ms": str(self.config.groups.events_retention_ms),
        }
        try:
            self.create_topic(
                EVENTS_TOPIC,
                offsets.topic_num_partitions,
                offsets.topic_replication_factor,
                properties,
            )
        except ApiError as error:
            logger.debug("%s cannot be created: %s", EVENTS_TOPIC, error)

    async def _describe(self, events: Sequence[_Event]) -> None:
        """Make the bodies, a slice at a time: a large group has a large assignment."""
        for at, event in enumerate(events):
            if not event.body:
                described = self._events.describe(event.rebalanced)
                event.body = json.dumps(described, separators=(",", ":")).encode()
            if at % SLICE_EVENTS == SLICE_EVENTS - 1:
                await asyncio.sleep(0)

    def _leader(self, partition: int) -> int:
        state = self.cache.partition_state(TopicPartition(EVENTS_TOPIC, partition))
        return -1 if state is None else state.leader

    async def _send(self, leader: int, by_partition: Mapping[int, Sequence[_Event]]) -> set[int]:
        """Send to one leader; return the ids of the events that it has written."""
        request = ProduceRequest(
            acks=LEADER_ONLY,
            timeout_ms=TIMEOUT_MS,
            topic_data=[
                ProduceRequestTopic(
                    name=EVENTS_TOPIC,
                    partition_data=[
                        ProduceRequestPartition(index=partition, records=self._encode(events))
                        for partition, events in by_partition.items()
                    ],
                )
            ],
        )
        try:
            connection = await self._connection(leader)
            response: ProduceResponse = await connection.call(request)
        except (ConnectionFailed, KgroupError) as error:
            logger.debug("%s: broker %d: %s", EVENTS_TOPIC, leader, error)
            self._connections.pop(leader, None)
            return set()

        written: set[int] = set()
        for topic in response.responses:
            for result in topic.partition_responses:
                code = ErrorCode.of(result.error_code)
                if code is ErrorCode.NONE:
                    written |= {id(event) for event in by_partition[result.index]}
                else:
                    logger.debug("%s-%d: %s", EVENTS_TOPIC, result.index, code.name)
        return written

    def _encode(self, events: Sequence[_Event]) -> bytes:
        return encode_batch(
            [
                (event.rebalanced.ended_ms, event.rebalanced.group_id.encode(), event.body, ())
                for event in events
            ]
        )

    async def _connection(self, leader: int) -> BrokerConnection:
        connection = self._connections.get(leader)
        if connection is None or connection.closed:
            connection = self._connections[leader] = await self.connect(leader)
        return connection

    def _drop_old(self) -> None:
        oldest_s = _now_s() - MAX_AGE_S
        dropped = 0
        while self._queue and self._queue[0].queued_s < oldest_s:
            self._queue.popleft()
            dropped += 1
        if dropped:
            logger.warning("%s: %d events are dropped, none can be written", EVENTS_TOPIC, dropped)
            self._count_dropped(dropped)

    def _count_dropped(self, number: int) -> None:
        self.metrics.counter("group_events_dropped_total").add(number)


def _log(rebalanced: Rebalanced) -> None:
    trigger = rebalanced.trigger
    outcome = "was assigned" if rebalanced.is_assigned else "ended unassigned"
    logger.info(
        "group %s: generation %d with %d members %s, %d ms after %s of member %s: %s",
        rebalanced.group_id,
        rebalanced.generation_after,
        len(rebalanced.after),
        outcome,
        rebalanced.ended_ms - rebalanced.started_ms,
        trigger.cause.value,
        trigger.member_id or "-",
        trigger.reason or "no reason was sent",
    )


def _now_s() -> float:
    return asyncio.get_running_loop().time()
