"""Find the batches of aborted transactions, and the markers that may go.

Data of an aborted transaction goes at once. A marker stays while data of its transaction does.
Without it readers would wait, or take aborted data as committed. So it goes in a later run than the
last of the data, and not before the tombstones of its time (`CleanedTransactions` only says that it
may). One state sees a whole run, for data and marker may lie in different segments (KAFKA-8351).
Source: KIP-98, Kafka's CleanedTransactionMetadata.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from core_log.segments.file_name import TRANSACTION_INDEX
from core_log.segments.transaction_index import AbortedTransaction, read_transaction_index
from core_log.storage import Directory
from protocol.records.batch_header import BatchHeader
from protocol.records.control_record import ABORT, COMMIT, marker_type


def aborted_transactions(
    directory: Directory, from_offset: int, end_offset: int
) -> list[AbortedTransaction]:
    """List the aborted transactions with records from `from_offset` to `end_offset`.

    They are sorted by first offset. All segments' indexes are read: an entry lies where the marker
    is, which may be beyond the cleaned segments. Raises CorruptIndex.
    """
    transactions = {
        transaction
        for name in directory.files()
        if name.endswith(TRANSACTION_INDEX)
        for transaction in read_transaction_index(directory, name)
        if transaction.last_offset >= from_offset and transaction.first_offset < end_offset
    }
    return sorted(transactions, key=lambda transaction: transaction.first_offset)


@attrs.define
class _Aborting:
    transaction: AbortedTransaction
    has_data: bool = False


class CleanedTransactions:
    """Follows one run over a log, batch by batch. Only transactional batches need be shown."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Begin a run with these aborted transactions."""
        # In reverse, so that the next one is at the end.
        self._upcoming = sorted(aborted, key=lambda transaction: transaction.first_offset)[::-1]
        self._aborting: dict[int, _Aborting] = {}
        self._committing: set[int] = set()
        self._kept: list[AbortedTransaction] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Note a transactional batch of data. Returns whether it was aborted."""
        self._begin_until(header.last_offset)
        aborting = self._aborting.get(header.producer_id)
        if aborting is None:
            self._committing.add(header.producer_id)
            return False
        # Its data goes in this run, so the marker stays for one more.
        aborting.has_data = True
        return True

    def may_discard(self, header: BatchHeader, key: bytes | None) -> bool:
        """Note a marker. Returns whether no data of its transaction is left.

        `key` is that of its record, None if it has no record left. Raises CorruptRecord for a key
        that is none.
        """
        self._begin_until(header.last_offset)
        # An earlier run has taken its record, and left the batch to its producer.
        if key is None:
            return True

        # A marker without a transaction ends one whose data is gone.
        kind = marker_type(key)
        if kind == COMMIT:
            if header.producer_id not in self._committing:
                return True
            self._committing.remove(header.producer_id)
        elif kind == ABORT:
            aborting = self._aborting.pop(header.producer_id, None)
            if aborting is None or not aborting.has_data:
                return True
            # Where a marker stays, readers need its entry.
            self._kept.append(aborting.transaction)
        return False

    def take_kept(self) -> list[AbortedTransaction]:
        """Return the transactions of the markers kept since the last call, for an index."""
        kept = self._kept
        self._kept = []
        return kept

    def _begin_until(self, offset: int) -> None:
        while self._upcoming and self._upcoming[-1].first_offset <= offset:
            transaction = self._upcoming.pop()
            self._aborting.setdefault(transaction.producer_id, _Aborting(transaction))
