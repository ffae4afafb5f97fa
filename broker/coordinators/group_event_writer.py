"""Write rebalances to `__group_events`, from a queue and a loop of their own.

Events are for people. Losing some never fails a group: the queue has a bound, beyond which the
oldest go, and what cannot be sent for a minute is dropped. Both are counted. A batch goes to the
leader of its partition with acks=1, by the connections between brokers. One that the leader finds
too large is halved; an event that is too large by itself is dropped at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from broker.cluster.metadata_cache import MetadataCache
from broker.coordinators.broker_connection import BrokerConnections
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
from protocol.records.batch import HEADER_BYTES, encode_batch
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

MAX_QUEUED = 10_000
"""Events that wait to be sent; beyond it the oldest is dropped."""
MAX_AGE_S = 60.0
"""An event that cannot be sent for so long is dropped."""
BATCH_EVENTS = 200
"""Events that are sent at once, if they are not too large."""
RECORD_OVERHEAD = 32
"""More than the size of the lengths, deltas and attributes beside an event's key and body."""
SLICE_MEMBERS = 200
"""Members of groups whose rebalances are described between two turns of the loop."""
EVENT_MEMBERS = 10
"""What an event costs beside its members, in members."""
RETRY_S = 1.0
TIMEOUT_MS = 10_000
LEADER_ONLY = 1
NONE = ErrorCode.NONE
TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
"""Beyond max.message.bytes, or segment.bytes. It stays refused unless it is made smaller."""


CreateTopic = Callable[[str, int, int, Mapping[str, str]], object]
"""Name, partitions, replication factor, settings. Returns at once; raises ApiError."""


@attrs.define(eq=False)
class _Event:
    """A rebalance in the queue; `body` once it is described."""

    rebalanced: Rebalanced
    queued_s: float
    body: bytes = b""

    @property
    def key(self) -> bytes:
        """Return the key of its record."""
        return self.rebalanced.group_id.encode()


_Batch = list[_Event]
"""Events of one partition that are sent together."""


@attrs.define(eq=False)
class GroupEventWriter:
    """The queue of one broker.

    Internal topics may be written over `connections`.
    `max_batch_bytes()` is the topic's max.message.bytes as far as this broker knows.
    """

    config: BrokerConfig
    cache: MetadataCache
    create_topic: CreateTopic
    connections: BrokerConnections
    max_batch_bytes: Callable[[], int]
    now_ms: Callable[[], int]
    metrics: Metrics
    # A set in order, the oldest first.
    _queue: OrderedDict[_Event, None] = attrs.field(factory=OrderedDict)
    _wanted: asyncio.Event = attrs.field(factory=asyncio.Event)
    _events: RebalanceEvents = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._events = RebalanceEvents(self.cache.partition_count)

    def add(self, rebalanced: Rebalanced) -> None:
        """Queue an event, and say in the log what became of the group."""
        _log(rebalanced)
        if not self.config.groups.events_enable:
            return
        self._queue[_Event(rebalanced, _now_s())] = None
        if len(self._queue) > MAX_QUEUED:
            self._queue.popitem(last=False)
            self._count_dropped(1)
        self._wanted.set()

    async def run(self) -> None:
        """Send what is queued, for as long as the broker lives."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while self._queue:
                if not await self._send_queued():
                    await asyncio.sleep(RETRY_S)
                    self._drop_old()

    async def _send_queued(self) -> bool:
        """Send what is queued, the oldest first; return whether nothing of it has to wait.

        A partition that takes nothing now is left out from then on: the events of others do not
        wait for its events.
        """
        partitions = self.cache.partition_count(EVENTS_TOPIC)
        if not partitions:
            self._create()
            return False

        # They stay in the queue until they are written.
        queued = list(self._queue)
        held: set[int] = set()
        for start in range(0, len(queued), BATCH_EVENTS):
            by_partition: dict[int, list[_Event]] = {}
            for event in queued[start : start + BATCH_EVENTS]:
                partition = partition_for(event.rebalanced.group_id, partitions)
                if partition not in held:
                    by_partition.setdefault(partition, []).append(event)
            await self._describe([event for events in by_partition.values() for event in events])
            held |= await self._send(by_partition)
            # Others take their turn, also where nothing was to be sent.
            await asyncio.sleep(0)
        return not held

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
        described = 0
        for event in events:
            if not event.body:
                fields = self._events.describe(event.rebalanced)
                event.body = json.dumps(fields, separators=(",", ":")).encode()
                described += EVENT_MEMBERS + len(event.rebalanced.after)
            if described >= SLICE_MEMBERS:
                described = 0
                await asyncio.sleep(0)

    def _leader(self, partition: int) -> int:
        state = self.cache.partition_state(TopicPartition(EVENTS_TOPIC, partition))
        return -1 if state is None else state.leader

    async def _send(self, by_partition: Mapping[int, Sequence[_Event]]) -> set[int]:
        """Send to all leaders, a batch of each partition at a time.

        Return the partitions that take nothing now.
        """
        max_bytes = self.max_batch_bytes()
        batches = {
            partition: deque(_pack(events, max_bytes)) for partition, events in by_partition.items()
        }
        held: set[int] = set()
        while waiting := [partition for partition, rest in batches.items() if rest]:
            by_leader: dict[int, list[int]] = {}
            for partition in waiting:
                by_leader.setdefault(self._leader(partition), []).append(partition)

            for leader, partitions in by_leader.items():
                errors = await self._produce(leader, {p: batches[p][0] for p in partitions})
                held |= {p for p, error in errors.items() if error not in (NONE, *TOO_LARGE)}
                for partition in partitions:
                    if partition in held:
                        batches[partition].clear()
                    else:
                        self._end(batches[partition], errors[partition])
        return held

    def _end(self, batches: deque[_Batch], error: ErrorCode) -> None:
        """Take the first batch, which is written or too large; put its halves in its place."""
        batch = batches.popleft()
        if error is NONE:
            self.metrics.counter("group_events_written_total").add(self._take(batch))
        elif len(batch) > 1:
            half = len(batch) // 2
            batches.extendleft([batch[half:], batch[:half]])
        else:
            # It never fits: do not try for a minute.
            logger.warning(
                "%s: an event of group %s is dropped, its %d bytes are more than the topic takes",
                EVENTS_TOPIC,
                batch[0].rebalanced.group_id,
                len(batch[0].body),
            )
            self._count_dropped(self._take(batch))

    def _take(self, events: Sequence[_Event]) -> int:
        """Remove events from the queue; return how many of them were still there."""
        before = len(self._queue)
        for event in events:
            self._queue.pop(event, None)
        return before - len(self._queue)

    async def _produce(self, leader: int, batches: Mapping[int, _Batch]) -> dict[int, ErrorCode]:
        """Send a batch to each partition; return their errors.

        If the leader cannot be reached they are those of all partitions that it leads.
        """
        request = ProduceRequest(
            acks=LEADER_ONLY,
            timeout_ms=TIMEOUT_MS,
            topic_data=[
                ProduceRequestTopic(
                    name=EVENTS_TOPIC,
                    partition_data=[
                        ProduceRequestPartition(index=partition, records=_encode(batch))
                        for partition, batch in batches.items()
                    ],
                )
            ],
        )
        try:
            connection = await self.connections.get(leader)
            response: ProduceResponse = await connection.call(request)
        except (ConnectionFailed, KgroupError) as error:
            logger.debug("%s: broker %d: %s", EVENTS_TOPIC, leader, error)
            self.connections.drop(leader)
            states = self.cache.partitions(EVENTS_TOPIC)
            led = [state.partition_index for state in states if state.leader == leader]
            return dict.fromkeys([*batches, *led], ErrorCode.NETWORK_EXCEPTION)

        # A partition without a response is asked again.
        errors = dict.fromkeys(batches, ErrorCode.UNKNOWN_SERVER_ERROR)
        for topic in response.responses:
            for result in topic.partition_responses:
                errors[result.index] = ErrorCode.of(result.error_code)
                logger.debug("%s-%d: %s", EVENTS_TOPIC, result.index, errors[result.index].name)
        return errors

    def _drop_old(self) -> None:
        oldest_s = _now_s() - MAX_AGE_S
        dropped = 0
        while self._queue and next(iter(self._queue)).queued_s < oldest_s:
            self._queue.popitem(last=False)
            dropped += 1
        if dropped:
            logger.warning(
                "%s: %d events are dropped, they could not be written for %d s",
                EVENTS_TOPIC,
                dropped,
                MAX_AGE_S,
            )
            self._count_dropped(dropped)

    def _count_dropped(self, number: int) -> None:
        self.metrics.counter("group_events_dropped_total").add(number)


def _pack(events: Iterable[_Event], max_bytes: int) -> list[_Batch]:
    """Put events into batches of `max_bytes`, in order; one that is larger goes alone."""
    batches: list[_Batch] = []
    room = 0
    for event in events:
        size = len(event.key) + len(event.body) + RECORD_OVERHEAD
        if not batches or size > room:
            batches.append([])
            room = max_bytes - HEADER_BYTES
        batches[-1].append(event)
        room -= size
    return batches


def _encode(batch: _Batch) -> bytes:
    return encode_batch([(event.rebalanced.ended_ms, event.key, event.body, ()) for event in batch])


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
