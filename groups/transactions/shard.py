"""The transactional ids that one partition of `__transaction_state` keeps.

Stored state changes only in `replay`. Beside it the shard keeps what is going on with an id: the
change that is being written, and the partitions whose leaders have no marker yet. That is lost with
the leader, and made again by the next one, which finds the decided transactions in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from groups.runtime.shard import NO_PRODUCER, EncodedRecord, MalformedRecord
from groups.transactions.records import (
    TransactionRecordError,
    UnknownTransactionKey,
    decode_transaction,
    decode_transaction_key,
    encode_transaction,
    encode_transaction_key,
)
from groups.transactions.state import (
    AT_REST,
    COMPLETED,
    NO_EPOCH,
    NO_PRODUCER_ID,
    Transaction,
    TransactionState,
)
from protocol.topic_partition import TopicPartition

Record = tuple[str, Transaction | None]
"""A transactional id, with its last transaction or a tombstone."""


@attrs.define(eq=False)
class LiveId:
    """The work in progress for a transactional id.

    - `pending`: the state that comes next: its record is being written, or waits for markers.
    - `fence_epoch`: an epoch above the stored one. It fences the producer although nothing is
      written yet, and the next attempt to write it raises it no further (KAFKA-9666).
    - `last_producer_id`, `last_epoch`: what the producer had before it was given what is stored. It
      may ask again with these if the response was lost (KIP-360).
    - `unwritten`: partitions that have no marker yet.
    """

    pending: TransactionState | None = None
    fence_epoch: int = NO_EPOCH
    last_producer_id: int = NO_PRODUCER_ID
    last_epoch: int = NO_EPOCH
    unwritten: set[TopicPartition] = attrs.field(factory=set)


@attrs.define(eq=False)
class TransactionShard:
    """The transactions of all its ids, by id, and what is going on with them.

    `unfinished`: ids with a transaction that is open, or is being ended.
    """

    transactions: dict[str, Transaction] = attrs.field(factory=dict)
    live: dict[str, LiveId] = attrs.field(factory=dict)
    unfinished: set[str] = attrs.field(factory=set)
    skipped: int = 0

    # ---- records

    def encode(self, records: Sequence[Record]) -> list[EncodedRecord]:
        """Encode the records of an append."""
        return [
            (encode_transaction_key(transactional_id), encode_transaction(transaction))
            for transactional_id, transaction in records
        ]

    def begin_write(self, records: Sequence[Record]) -> None:
        """Note nothing: `pending` says which ids have a record in flight."""

    def end_write(self, records: Sequence[Record]) -> None:
        """Note nothing, likewise."""

    def replay(self, records: Iterable[EncodedRecord], producer_id: int = NO_PRODUCER) -> None:
        """Apply records, as they are in the log. Raises MalformedRecord, and is then of no use."""
        try:
            for key, value in records:
                self._apply(key, value)
        except TransactionRecordError as error:
            raise MalformedRecord(str(error)) from error

    def _apply(self, key: bytes, value: bytes | None) -> None:
        try:
            transactional_id = decode_transaction_key(key)
        except UnknownTransactionKey:
            self.skipped += 1
            return

        transaction = decode_transaction(value)
        if transaction is None:
            self.transactions.pop(transactional_id, None)
            self.unfinished.discard(transactional_id)
            return

        self.transactions[transactional_id] = transaction
        if transaction.state in AT_REST:
            self.unfinished.discard(transactional_id)
        else:
            self.unfinished.add(transactional_id)

    def end_transaction(self, producer_id: int, is_committed: bool) -> None:
        """Apply a marker: nothing, for nobody writes to this topic in a transaction."""

    # ---- questions

    def live_id(self, transactional_id: str) -> LiveId:
        """Return what is going on with an id, known or new."""
        live = self.live.get(transactional_id)
        if live is None:
            live = self.live[transactional_id] = LiveId()
        return live

    def pending_of(self, transactional_id: str) -> TransactionState | None:
        """Return the state that comes next for an id; None if nothing is going on with it."""
        live = self.live.get(transactional_id)
        return None if live is None else live.pending

    def epoch_of(self, transactional_id: str, transaction: Transaction) -> int:
        """Return the epoch that the producer of an id must have."""
        live = self.live.get(transactional_id)
        return transaction.epoch if live is None else max(transaction.epoch, live.fence_epoch)

    def wants(self, transactional_id: str, producer_id: int, epoch: int) -> bool:
        """Return whether this transaction is decided, and markers of it are not written yet."""
        transaction = self.transactions.get(transactional_id)
        live = self.live.get(transactional_id)
        return (
            transaction is not None
            and live is not None
            and bool(live.unwritten)
            and (transaction.producer_id, transaction.epoch) == (producer_id, epoch)
        )

    # ---- log lines and checks

    def describe(self) -> str:
        """Describe the shard: "12 transactional ids, 2 with a transaction"."""
        described = (
            f"{len(self.transactions)} transactional ids, {len(self.unfinished)} with a transaction"
        )
        if self.skipped:
            described += f" (without {self.skipped} records of newer brokers' kinds)"
        return described

    def name(self, event: Any) -> str:
        """Name the transactional id of an event."""
        return f"transactional id {event.transactional_id}"

    def check(self, unfinished: Sequence[Sequence[Record]]) -> None:
        """Assert what must hold between two steps. `unfinished`: records of appends in flight."""
        in_flight = {transactional_id for records in unfinished for transactional_id, _ in records}
        for transactional_id in in_flight:
            assert self.live[transactional_id].pending is not None, "written, but not pending"

        for transactional_id, live in self.live.items():
            transaction = self.transactions.get(transactional_id)
            if live.unwritten:
                assert transaction is not None, "markers of nothing"
                assert live.pending is COMPLETED.get(transaction.state), "markers of no decision"
                assert live.unwritten <= transaction.partitions

        for transactional_id, transaction in self.transactions.items():
            is_open = transaction.state not in AT_REST
            assert is_open == (transactional_id in self.unfinished)
            assert is_open or not transaction.partitions, "a transaction has ended"
