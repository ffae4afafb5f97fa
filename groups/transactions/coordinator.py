"""The transaction coordinator: it hands each request to the shard that keeps its transactional id.

The runtime (`groups.runtime`) loads shards, writes and replays. The rules are `decide`. This module
finds the partition of an id, sends the markers of decided transactions on their way, and looks from
time to time for transactions that are open for too long and for ids that have expired.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Coroutine, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import attrs

from groups.runtime.effects import RequestId
from groups.runtime.led_partition import LedPartition
from groups.runtime.partition_log import PartitionLog
from groups.runtime.runtime import CoordinatorRuntime, Pending
from groups.transactions.config import TransactionsConfig
from groups.transactions.decide import decide, needs_producer_id
from groups.transactions.events import (
    AddPartitions,
    EndTransaction,
    ExpiryCheck,
    IdsLoaded,
    InitProducer,
    Marker,
    MarkersWritten,
    SendMarkers,
    TimeoutCheck,
)
from groups.transactions.shard import TransactionShard
from groups.transactions.state import DEAD, Transaction
from offsets.topic import partition_for
from protocol.errors import ApiError, ErrorCode
from protocol.internal_topics import TRANSACTIONS_TOPIC
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

SLICE = 500
"""Ids that are looked at between two turns of the loop."""

Shard = LedPartition[TransactionShard]


@attrs.define(eq=False)
class TransactionCoordinator:
    """Transactional ids and their transactions.

    `num_partitions()` is that of the existing topic, 0 while none is known. `take_producer_id()`
    returns an id that nobody has had, None while none is at hand; `prepare_producer_ids()` has one
    at hand soon. `spawn` runs a coroutine for as long as the broker lives. `on_response` is called
    when a request that was pending got its response, `on_decided` with the markers of each
    transaction that is decided.
    """

    log: PartitionLog
    config: TransactionsConfig
    num_partitions: Callable[[], int]
    take_producer_id: Callable[[], int | None]
    now_ms: Callable[[], int]
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    prepare_producer_ids: Callable[[], object] = lambda: None
    on_response: Callable[[Pending], None] = lambda pending: None
    on_decided: Callable[[SendMarkers], None] = lambda decided: None
    runtime: CoordinatorRuntime[TransactionShard] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.runtime = CoordinatorRuntime(
            TRANSACTIONS_TOPIC,
            self.log,
            new_shard=TransactionShard,
            decide=decide,
            now_ms=self.now_ms,
            spawn=self.spawn,
            load_buffer_bytes=self.config.load_buffer_bytes,
            on_response=self.on_response,
            on_served=self._begin_serving,
            on_published=self.on_decided,
        )

    # ---- requests

    def next_request_id(self) -> RequestId:
        """Return an id for a request that is to be submitted."""
        return self.runtime.next_request_id()

    def init_producer(self, event: InitProducer) -> Pending:
        """Give a producer its id and epoch. Raises ApiError if it cannot be asked here, or now."""
        if not event.transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if not 0 < event.timeout_ms <= self.config.max_timeout_ms:
            raise ApiError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"{event.transactional_id}: {event.timeout_ms} ms, of which "
                f"transaction.max.timeout.ms allows 1 to {self.config.max_timeout_ms}",
            )

        led = self._serving(event.transactional_id)
        if needs_producer_id(led.shard, event):
            producer_id = self.take_producer_id()
            if producer_id is None:
                # Every client asks again after this error (KAFKA-14417).
                raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no producer id is at hand")
            event = attrs.evolve(event, new_producer_id=producer_id)
        return self.runtime.submit(led, event)

    def submit(self, event: AddPartitions | EndTransaction) -> Pending:
        """Decide a request of a producer. Raises ApiError if its id is not coordinated here."""
        if not event.transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        return self.runtime.submit(self._serving(event.transactional_id), event)

    def describe(self, transactional_id: str) -> Transaction:
        """Return the last transaction of an id. Raises ApiError for one that is not known here."""
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        shard = self._serving(transactional_id).shard
        transaction = shard.transactions.get(transactional_id)
        is_expiring = shard.pending_of(transactional_id) is DEAD
        if transaction is None or is_expiring:
            raise ApiError(
                ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"transactional id {transactional_id}"
            )

        # While it is being ended, partitions leave it as they get their marker.
        live = shard.live.get(transactional_id)
        if live is not None and live.unwritten:
            return attrs.evolve(transaction, partitions=frozenset(live.unwritten))
        return transaction

    def transactions(self) -> Iterator[tuple[str, Transaction]]:
        """Go through all ids coordinated here, perhaps in several turns of the loop.

        Raises ApiError while any of them is loaded.
        """
        led_partitions = self.runtime.led_partitions()
        for led in led_partitions:
            if led.refusal:
                raise ApiError(
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                    str(self.runtime.partition_of(led.partition)),
                )
        for led in led_partitions:
            # A copy: ids come and go between two turns, and so does leadership.
            if self.runtime.is_served(led):
                yield from list(led.shard.transactions.items())

    def _serving(self, transactional_id: str) -> Shard:
        # Without the topic no broker coordinates anything.
        partitions = self.num_partitions()
        if not partitions:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"transactional id {transactional_id}")
        try:
            return self.runtime.serving(partition_for(transactional_id, partitions))
        except ApiError as error:
            raise ApiError(error.code, f"transactional id {transactional_id}") from error

    # ---- markers

    def partition_of(self, transactional_id: str) -> int:
        """Return the partition of the topic that keeps an id."""
        return partition_for(transactional_id, self.num_partitions())

    def wants(self, marker: Marker) -> bool:
        """Return whether a marker is to be written still, and by this coordinator."""
        try:
            shard = self._serving(marker.transactional_id).shard
        except ApiError:
            return False
        return shard.wants(marker.transactional_id, marker.producer_id, marker.epoch)

    def note_markers(self, marker: Marker, partitions: Collection[TopicPartition]) -> None:
        """Note partitions that have a marker; after the last one its transaction is complete."""
        if self.wants(marker):
            led = self._serving(marker.transactional_id)
            event = MarkersWritten(
                marker.transactional_id, marker.producer_id, marker.epoch, partitions
            )
            self.runtime.write(led, event)

    def count_ends_to_write_again(self) -> int:
        """Return how many transactions have all markers, but no record yet that says so.

        Their record could not be written, and a timer will try again.
        """
        return sum(len(led.timers) for led in self._served())

    # ---- leadership

    @property
    def leads_any(self) -> bool:
        """Return whether any partition of the topic is led here."""
        return self.runtime.leads_any

    def on_leadership(self, leaders: Collection[int], followers: Collection[int]) -> None:
        """Load the partitions now led here, and unload those that are no longer."""
        self.runtime.on_leadership(leaders, followers)

    def _begin_serving(self, led: Shard) -> None:
        """Send the markers of transactions that an earlier coordinator decided."""
        # The first producer finds an id at hand.
        self.prepare_producer_ids()
        unfinished = sorted(led.shard.unfinished)
        if unfinished:
            events = (IdsLoaded(ids) for ids in _slices(unfinished))
            self.spawn(self.runtime.decide_in_turns(led, events))

    # ---- times

    async def abort_timed_out(self) -> None:
        """Abort the transactions that are open for longer than their producers wanted."""
        for led in self._served():
            await self.runtime.sweep(led, _timeout_checks(led.shard))

    async def expire_ids(self) -> None:
        """Remove the ids that nobody used for long. The next call finds what was not written."""
        for led in self._served():
            removed = await self.runtime.sweep(
                led, _expiry_checks(led.shard, self.config.id_expiration_ms)
            )
            if removed:
                name = self.runtime.partition_of(led.partition)
                logger.info("%s: removing %d transactional ids that have expired", name, removed)

    def _served(self) -> Iterator[Shard]:
        for led in self.runtime.led_partitions():
            if self.runtime.is_served(led):
                yield led


def _timeout_checks(shard: TransactionShard) -> Generator[TimeoutCheck, int, None]:
    for ids in _slices(sorted(shard.unfinished)):
        yield TimeoutCheck(ids)


def _expiry_checks(
    shard: TransactionShard, expiration_ms: int
) -> Generator[ExpiryCheck, int, None]:
    for ids in _slices(list(shard.transactions)):
        yield ExpiryCheck(ids, expiration_ms)


def _slices(transactional_ids: Iterable[str]) -> Iterator[Sequence[str]]:
    remaining = iter(transactional_ids)
    while taken := list(islice(remaining, SLICE)):
        yield taken
