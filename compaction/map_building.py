"""Put the dirty part of a log into the offset map, piece by piece (Kafka's buildOffsetMap). Pure.

Aborted data does not count: the newest records of its keys are older ones. Nor does a batch that
cannot be opened: its keys are unknown.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import attrs

from compaction.keys import Keys
from compaction.offset_map import OffsetMap
from compaction.source import OLD, Piece, marker_key, open_batches, read_messages
from compaction.transactions import CleanedTransactions
from protocol.records.batch_header import CONTROL, TRANSACTIONAL
from protocol.records.spans import NO_KEY


@attrs.define
class MapBuilder:
    """Builds a map of all records from `first_dirty_offset` to `end_offset` that need be in it.

    The end moves here when the map is full, and otherwise by the caller at a segment's end.
    """

    newest: OffsetMap
    transactions: CleanedTransactions
    first_dirty_offset: int
    end_offset: int
    is_full: bool = False
    bytes_read: int = 0
    messages_read: int = 0
    keyless: int = 0
    unopened: set[int] = attrs.field(factory=set)
    """First offsets of the batches that cannot be opened."""

    def add(self, piece: Piece) -> None:
        """Add a piece, from its first dirty record on and until the map is full.

        Raises CorruptRecord and CompressionUnavailable.
        """
        self.bytes_read += piece.size
        batches = piece.batches
        # The first piece may begin in the clean part.
        first = bisect_left(batches.last_offsets, self.first_dirty_offset)
        rows: Sequence[int] = range(first, len(batches.starts))
        if not batches.are_plain:
            rows = self._rest_to_map(piece, rows)
        self._add_batches(piece, rows)

    def _rest_to_map(self, piece: Piece, rows: Sequence[int]) -> list[int]:
        """Note markers, leave out aborted data, and add all up to the last old message."""
        data_rows: list[int] = []
        for row in rows:
            kind = piece.batches.kinds[row]
            if kind == OLD:
                # In order of offsets, for of two equal keys the later one counts.
                self._add_batches(piece, data_rows)
                data_rows = []
                self._add_messages(piece, row)
            elif kind & CONTROL:
                # The map needs markers only to know where transactions end.
                self.transactions.may_discard(piece.header(row), marker_key(piece, row))
            elif not (kind & TRANSACTIONAL and self.transactions.is_aborted(piece.header(row))):
                data_rows.append(row)
        return data_rows

    def _add_batches(self, piece: Piece, rows: Sequence[int]) -> None:
        for opened, records in open_batches(piece, rows):
            if records is None:
                self.unopened.add(piece.batches.first_offsets[opened[0]])
                continue

            self.keyless += records.spans.keyless
            self._add_records(records.keys, records.spans.offsets, keyless=records.spans.keyless)
            if self.is_full:
                break

    def _add_messages(self, piece: Piece, row: int) -> None:
        messages = read_messages(piece, row)
        if messages is None:
            self.unopened.add(piece.batches.first_offsets[row])
            return

        keys = Keys.of([message[2] for message in messages])
        self._add_records(keys, [message[0] for message in messages])

    def _add_records(self, keys: Keys, offsets: Sequence[int], keyless: int | None = None) -> None:
        if self.is_full or not offsets:
            return

        # Leave out records without a key, and those of the clean part.
        if keyless != 0 or offsets[0] < self.first_dirty_offset:
            rows = [
                row
                for row, (end, offset) in enumerate(zip(keys.ends, offsets, strict=True))
                if end != NO_KEY and offset >= self.first_dirty_offset
            ]
            keys = keys.select(rows)
            offsets = [offsets[row] for row in rows]

        added = self.newest.add(keys, offsets)
        self.messages_read += added
        # A full map ends the pass before the first record without room.
        if added < len(keys):
            self.is_full = True
            self.end_offset = offsets[added]
