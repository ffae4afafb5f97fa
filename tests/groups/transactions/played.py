"""A shard of transactional ids whose appends end as the test says, without a log or a runtime."""

from __future__ import annotations

from collections import deque
from typing import Any

import attrs

from groups.runtime.effects import Append, Effect, Publish, Reply, SetTimer
from groups.transactions.decide import decide, needs_producer_id
from groups.transactions.events import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    Marker,
    MarkersWritten,
    SendMarkers,
)
from groups.transactions.shard import TransactionShard
from groups.transactions.state import Transaction
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition

START_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
NAME = "payments"
HELD = "held"


def part(number: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, number)


@attrs.define(eq=False)
class Played:
    """`appends` says how the next appends end: with an error, or HELD; without an entry well."""

    shard: TransactionShard = attrs.field(factory=TransactionShard)
    now_ms: int = START_MS
    appends: deque[Any] = attrs.field(factory=deque, converter=deque)
    held: deque[Append] = attrs.field(factory=deque)
    written: list[tuple[str, Transaction | None]] = attrs.field(factory=list)
    sent: list[SendMarkers] = attrs.field(factory=list)
    timers: list[Any] = attrs.field(factory=list)
    replies: dict[int, Any] = attrs.field(factory=dict)
    next_id: int = 0
    next_producer_id: int = 4000

    # ---- requests

    def init(
        self, producer_id: int = -1, epoch: int = -1, name: str = NAME, timeout_ms: int = TIMEOUT_MS
    ) -> Any:
        """Return (error, producer id, epoch), or None while the append is held."""
        event = InitProducer(self._request_id(), name, timeout_ms, producer_id, epoch)
        if needs_producer_id(self.shard, event):
            event = attrs.evolve(event, new_producer_id=self.next_producer_id)
            self.next_producer_id += 1
        given = self._ask(event)
        return given and (given.error, given.producer_id, given.epoch)

    def add(self, producer_id: int, epoch: int, *numbers: int, name: str = NAME) -> Any:
        """Return the error of adding partitions of the topic t."""
        partitions = frozenset(map(part, numbers))
        done = self._ask(AddPartitions(self._request_id(), name, producer_id, epoch, partitions))
        return done and done.error

    def end(self, producer_id: int, epoch: int, is_commit: bool = True, name: str = NAME) -> Any:
        """Return the error of a commit or an abort."""
        done = self._ask(EndTransaction(self._request_id(), name, producer_id, epoch, is_commit))
        return done and done.error

    def _request_id(self) -> int:
        self.next_id += 1
        return self.next_id

    def _ask(self, event: Any) -> Any:
        self.decide(event)
        return self.replies.get(event.request_id)

    # ---- the runtime

    def decide(self, event: Any) -> None:
        """Decide an event and all that follows from it."""
        self._perform(decide(self.shard, event, self.now_ms))
        self.shard.check([append.records for append in self.held])

    def _perform(self, effects: Any) -> None:
        for effect in effects:
            self._perform_one(effect)

    def _perform_one(self, effect: Effect) -> None:
        if isinstance(effect, Reply):
            self.replies.setdefault(effect.request_id, effect.response)
        elif isinstance(effect, Publish):
            self.sent.append(effect.value)
        elif isinstance(effect, SetTimer):
            self.timers.append(effect.event)
        else:
            outcome = self.appends.popleft() if self.appends else ErrorCode.NONE
            if outcome is HELD:
                self.held.append(effect)
            else:
                self.end_append(effect, outcome)

    def end_append(self, append: Append, error: ErrorCode = ErrorCode.NONE) -> None:
        """End an append as the runtime does."""
        if error in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
            self.written += append.records
            self.shard.replay(self.shard.encode(append.records))
        self._perform(decide(self.shard, attrs.evolve(append.then, error=error), self.now_ms))

    def release(self) -> None:
        """End the oldest append that is held, well."""
        self.end_append(self.held.popleft())

    def write_markers(self, *numbers: int) -> None:
        """Note markers of the last transaction that was decided; of all its partitions if none."""
        marker, partitions = self.sent[-1].marker, self.sent[-1].partitions
        written = [part(number) for number in numbers] or list(partitions)
        self.note(marker, written)

    def note(self, marker: Marker, written: list[TopicPartition]) -> None:
        """Note markers."""
        self.decide(
            MarkersWritten(marker.transactional_id, marker.producer_id, marker.epoch, written)
        )

    # ---- what is stored

    @property
    def stored(self) -> Transaction:
        """The transaction of NAME."""
        return self.shard.transactions[NAME]

    def begun(self, *numbers: int) -> tuple[int, int]:
        """Begin a transaction with some partitions; return its producer id and epoch."""
        _, producer_id, epoch = self.init()
        assert self.add(producer_id, epoch, *numbers) == ErrorCode.NONE
        return producer_id, epoch

    def reloaded(self) -> Played:
        """Return the same ids as another coordinator loads them."""
        other = Played(now_ms=self.now_ms, next_producer_id=self.next_producer_id)
        other.shard.replay(self.shard.encode(self.written))
        return other
