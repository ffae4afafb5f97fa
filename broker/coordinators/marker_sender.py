"""Have the markers of decided transactions written by the leaders of their partitions (KIP-98).

A marker waits in the queue of each broker that leads one of its partitions. A broker is sent one
request at a time, of `MOST_WRITTEN` markers at most: one that takes longer than a request may is
sent again for ever, and each marker of it is written again.

A partition whose leader is not known, or did not write the marker, is placed again after a pause,
for as long as the coordinator wants the marker: it no longer does when another broker coordinates
the transactional id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, Protocol

import attrs

from broker.coordinators.broker_connection import BrokerConnections
from clients.transport.connection import ConnectionFailed
from groups.transactions.events import Marker, SendMarkers
from protocol.errors import ErrorCode, KgroupError
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.topic_partition import TopicPartition, by_topic

logger = logging.getLogger(__name__)

RETRY_S = 0.1
"""Least pause before partitions are placed again."""
PLACED_A_SECOND = 10_000
"""Most markers that are placed again in a second, counted for each partition."""
LONGEST_RETRY_S = 2.0
"""Longest pause, however many wait."""
NO_LEADER = -1
MOST_WRITTEN = 1000
"""Markers of a request, each of them counted for each partition: some 0.1 s of a broker's time."""
PLACED_A_TURN = 500
"""Markers that find their leaders in one turn of the loop, counted so."""

DONE = frozenset(
    {
        ErrorCode.NONE,
        # Nothing transactional can be there.
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""The partition has a later epoch of the producer, or of its coordinator."""


class MarkerCoordinator(Protocol):
    """The coordinator that decided the transactions."""

    def wants(self, marker: Marker) -> bool:
        """Return whether a marker is to be written still, and by this coordinator."""

    def note_markers(self, marker: Marker, partitions: Collection[TopicPartition]) -> None:
        """Note partitions that have the marker."""


Queue = dict[Marker, dict[TopicPartition, None]]
"""Markers, with the partitions that are to get them, in order."""


@attrs.define(eq=False)
class MarkerSender:
    """The queues of one broker's coordinator.

    `leader_of(partition)` returns the id of its leader, NO_LEADER while there is none, and None
    once the partition is deleted. `epoch_of(marker)` is the epoch of the transaction's coordinator.
    Markers may be written over `connections`.
    """

    leader_of: Callable[[TopicPartition], int | None]
    epoch_of: Callable[[Marker], int]
    connections: BrokerConnections
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    coordinator: MarkerCoordinator = attrs.field(init=False)
    _queues: dict[int, Queue] = attrs.field(factory=dict)
    """Broker id -> what it is to be sent. A broker without a sending task has no queue."""
    _unplaced: Queue = attrs.field(factory=dict)
    _unplaced_since_s: float = 0.0

    def send(self, decided: SendMarkers) -> None:
        """Send the markers of a decided transaction; the coordinator hears of each later."""
        marker, partitions = decided.marker, dict.fromkeys(sorted(decided.partitions))
        # Not at once: the coordinator is within a step.
        asyncio.get_running_loop().call_soon(self._place, self._wanted_of({marker: partitions}))

    def count_unplaced(self) -> int:
        """Return how many markers wait for a leader."""
        return len(self._unplaced)

    def _wanted_of(self, queue: Queue) -> Iterator[tuple[Marker, TopicPartition]]:
        """Yield what is still wanted of a queue."""
        for marker, partitions in queue.items():
            if self.coordinator.wants(marker):
                for partition in partitions:
                    yield marker, partition

    def _place(self, wanted: Iterator[tuple[Marker, TopicPartition]]) -> None:
        """Queue markers for the leaders, some in this turn of the loop and the others later."""
        deleted: Queue = {}
        count = 0
        for marker, partition in islice(wanted, PLACED_A_TURN):
            count += 1
            leader = self.leader_of(partition)
            if leader is None:
                deleted.setdefault(marker, {})[partition] = None
            elif leader == NO_LEADER:
                self._place_later(marker, [partition])
            else:
                self._enqueue(leader, marker, partition)

        for marker, partitions in deleted.items():
            self.coordinator.note_markers(marker, partitions)
        if count == PLACED_A_TURN:
            asyncio.get_running_loop().call_soon(self._place, wanted)

    def _place_later(self, marker: Marker, partitions: Iterable[TopicPartition]) -> None:
        if not self._unplaced:
            loop = asyncio.get_running_loop()
            self._unplaced_since_s = loop.time()
            loop.call_later(RETRY_S, self._place_again)
        self._unplaced.setdefault(marker, {}).update(dict.fromkeys(partitions))

    def _place_again(self) -> None:
        loop = asyncio.get_running_loop()
        count = sum(map(len, self._unplaced.values()))
        due_s = self._unplaced_since_s + min(count / PLACED_A_SECOND, LONGEST_RETRY_S)
        # A broker may be away for hours, and very many wait for it (fault groups-S3, was: True).
        is_due = loop.time() >= due_s
        if not is_due:
            loop.call_at(due_s, self._place_again)
            return

        unplaced = self._unplaced
        self._unplaced = {}
        self._place(self._wanted_of(unplaced))

    def _enqueue(self, broker_id: int, marker: Marker, partition: TopicPartition) -> None:
        queue = self._queues.get(broker_id)
        if queue is None:
            queue = self._queues[broker_id] = {}
            self.spawn(self._send_queue(broker_id))
        queue.setdefault(marker, {})[partition] = None

    async def _send_queue(self, broker_id: int) -> None:
        """Send all that is queued for a broker, and what is queued meanwhile."""
        try:
            while queued := self._queues[broker_id]:
                self._queues[broker_id] = {}
                await self._send_pieces(broker_id, self._pieces_of(queued))
        finally:
            # Nothing is left, or the broker stops.
            del self._queues[broker_id]

    def _pieces_of(self, queue: Queue) -> Iterator[Queue]:
        """Cut what is still wanted of a queue into requests."""
        wanted = self._wanted_of(queue)
        while True:
            # All at once takes longer than a request may (fault strangers-47, was: list(wanted)).
            some = list(islice(wanted, MOST_WRITTEN))
            if not some:
                return
            piece: Queue = {}
            for marker, partition in some:
                piece.setdefault(marker, {})[partition] = None
            yield piece

    async def _send_pieces(self, broker_id: int, pieces: Iterator[Queue]) -> None:
        for piece in pieces:
            if await self._is_sent(broker_id, piece):
                continue

            # The broker may be away for long, and lead nothing then.
            for left in chain([piece], pieces):
                for marker, partitions in left.items():
                    self._place_later(marker, partitions)
                await asyncio.sleep(0)

    async def _is_sent(self, broker_id: int, queue: Queue) -> bool:
        """Send a request; return whether it had a response."""
        try:
            await self._send(broker_id, queue)
        except (ConnectionFailed, KgroupError) as error:
            # Whether they are written is not known: a marker may be written twice.
            logger.info("broker %d takes no markers now: %s", broker_id, error)
        except Exception:
            logger.exception("sending markers to broker %d failed", broker_id)
        else:
            return True

        self.connections.drop(broker_id)
        return False

    async def _send(self, broker_id: int, queue: Queue) -> None:
        markers = list(queue)
        request = WriteTxnMarkersRequest(
            markers=[_render(marker, queue[marker], self.epoch_of(marker)) for marker in markers]
        )
        connection = await self.connections.get(broker_id)
        response: WriteTxnMarkersResponse = await connection.call(request)

        errors = _errors_of(response)
        for marker in markers:
            codes = errors.get(marker.producer_id, {})
            self._take_results(broker_id, marker, queue[marker], codes)

    def _take_results(
        self,
        broker_id: int,
        marker: Marker,
        partitions: Iterable[TopicPartition],
        codes: Mapping[TopicPartition, ErrorCode],
    ) -> None:
        written: list[TopicPartition] = []
        left: list[TopicPartition] = []
        for partition in partitions:
            code = codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code in DONE:
                written.append(partition)
            elif code in FENCED:
                logger.warning(
                    "transactional id %s: broker %d does not write the marker of producer %d "
                    "epoch %d to %s: %s",
                    marker.transactional_id,
                    broker_id,
                    marker.producer_id,
                    marker.epoch,
                    partition,
                    code.name,
                )
                # No marker of this epoch will ever be taken there: the id would be in this
                # transaction for good (fault strangers-51).
                if code is ErrorCode.INVALID_PRODUCER_EPOCH:
                    written.append(partition)
            else:
                left.append(partition)

        if left:
            self._place_later(marker, left)
        if written:
            self.coordinator.note_markers(marker, written)


def _render(
    marker: Marker, partitions: Iterable[TopicPartition], coordinator_epoch: int
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.epoch,
        transaction_result=marker.is_commit,
        topics=[
            WritableTxnMarkerTopic(
                name=topic, partition_indexes=[number for _, number in same_topic]
            )
            for topic, same_topic in by_topic(partitions)
        ],
        coordinator_epoch=coordinator_epoch,
    )


def _errors_of(
    response: WriteTxnMarkersResponse,
) -> dict[int, dict[TopicPartition, ErrorCode]]:
    """Return the error of each partition, by producer id: a producer has one marker at a time."""
    return {
        marker.producer_id: {
            TopicPartition(topic.name, partition.partition_index): ErrorCode.of(
                partition.error_code
            )
            for topic in marker.topics
            for partition in topic.partitions
        }
        for marker in response.markers
    }
