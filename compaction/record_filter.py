"""Decide which records of a piece of a log stay (Kafka's RecordFilter and cleaner rules). Pure.

A record stays if it is its key's newest, and always behind the end of the offset map. If a newest
record is a tombstone, it goes when tombstones of its segment's age do. A record without a key goes
at once. Aborted data goes; for markers see transactions.py. A batch without records goes, unless it
is the last that its producer wrote. Then a header stays, or the producer would be unknown when it
comes back. That is decided by offset, for sequence numbers come again (KAFKA-8335).

A batch that cannot be opened stays as it is. Its keys may be any, so from there on tombstones stay
too: without them old values of its keys could be seen again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import compress as chosen
from itertools import pairwise
from operator import ge
from typing import Final, NamedTuple

import attrs

from compaction.job import NO_DATA, NONE_UNOPENED
from compaction.keys import Keys
from compaction.offset_map import OffsetMap
from compaction.rewriting import empty_batch, keep_records
from compaction.source import OLD, Batches, Piece, Records, marker_key, open_batches, read_messages
from compaction.transactions import CleanedTransactions
from core_log.storage import BytesLike
from protocol.bounds import MAX_DECOMPRESSED_BYTES
from protocol.records.batch_header import CONTROL, TRANSACTIONAL
from protocol.records.compression import Codec
from protocol.records.legacy import (
    CREATE_TIME,
    MessageHeader,
    encode_messages,
    has_one_magic,
    read_message_header,
)
from protocol.records.spans import NO_KEY, Spans

_EXAMINE: Final = 0
_KEEP: Final = 1
_DISCARD: Final = 2
_MESSAGE: Final = 3
"""The fates of a batch."""


class KeptBatch(NamedTuple):
    """A batch for the cleaned segment, and the facts about it that the indexes need."""

    data: BytesLike
    last_offset: int
    max_timestamp: int
    records: int


@attrs.define
class RecordFilter:
    """The rules of one run.

    `newest` knows all records from `first_dirty_offset` to `latest_offset`, inclusive, that are
    worth knowing. In that part the offsets of those that stay are enough, and no key is looked up.
    `retain_tombstones` is the segment's, and counts for markers too.
    """

    newest: OffsetMap
    first_dirty_offset: int
    latest_offset: int
    producers: Mapping[int, int]
    transactions: CleanedTransactions
    max_message_bytes: int
    mapped_keyless: int = 0
    """Records without a key in that part, which are to be counted."""
    unopened: Set[int] = frozenset()
    """First offsets of the batches in that part that cannot be opened."""
    retain_tombstones: bool = True
    messages_read: int = 0
    keyless: int = 0
    outgrown: int = 0
    """Batches that grew too large when the rest of them was compressed again."""
    kept_unopened: int = 0
    first_unopened: int = NONE_UNOPENED
    """Number of batches that cannot be opened, and the first offset of the first of them."""
    _newest_offsets: Sequence[int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._newest_offsets = self.newest.offsets()

    def filter(self, piece: Piece) -> Iterator[KeptBatch]:
        """Yield the batches that stay of a piece, in order.

        Raises CorruptRecord and CompressionUnavailable.
        """
        # Decide the fates of whole batches first: most need not be opened.
        batches = piece.batches
        fates = bytes(len(batches.starts))
        examined: Sequence[int] = range(len(fates))
        if not batches.are_plain:
            fates = bytes([self._fate(piece, row, kind) for row, kind in enumerate(batches.kinds)])
            examined = [row for row, fate in enumerate(fates) if fate == _EXAMINE]
        # In the dirty part the map knows each record, unless one has no key.
        if not self.mapped_keyless and batches.first_offsets[0] >= self.first_dirty_offset:
            fates = self._decide_by_offsets(batches, fates)
            examined = [row for row, fate in enumerate(fates) if fate == _EXAMINE]

        # Then go through them, and open those whose records must be examined.
        judged = self._examine(piece, examined)
        for row, fate in enumerate(fates):
            if fate == _EXAMINE:
                fate = _KEEP
                # A batch that cannot be opened is not judged, and stays.
                if judgement := next(judged):
                    records, first, keep = judgement
                    left = keep.count(1)
                    # Some records go: the batch is written again without them.
                    if 0 < left < len(keep):
                        data, max_timestamp = keep_records(piece, row, records, first, keep, left)
                        self._measure(data, piece, row)
                        yield KeptBatch(data, batches.last_offsets[row], max_timestamp, left)
                        continue
                    fate = _KEEP if left else _DISCARD

            if fate == _KEEP:
                yield KeptBatch(
                    _bytes_of(piece, row),
                    batches.last_offsets[row],
                    batches.max_timestamps[row],
                    batches.counts[row],
                )
            elif fate == _MESSAGE:
                yield from self._message(piece, row)
            # The batch goes. If it is its producer's last one, its header stays.
            elif batches.producer_ids[row] >= 0 and self._is_last_of_producer(piece, row):
                header = piece.header(row)
                yield KeptBatch(empty_batch(header), header.last_offset, header.max_timestamp, 0)

    def _decide_by_offsets(self, batches: Batches, fates: bytes) -> bytes:
        """Decide the fates of batches in the map of which all stays, or nothing.

        Their offsets are enough: they are not even decompressed.
        """
        newest = self._newest_offsets
        decided = bytearray(fates)
        for row, fate in enumerate(fates):
            # A batch that reaches beyond the map has records of which it knows nothing.
            if fate != _EXAMINE or batches.last_offsets[row] > self.latest_offset:
                continue
            # Nor is it known which of an unopened batch are newest.
            if batches.first_offsets[row] in self.unopened:
                continue

            # Count its offsets that are the newest of a key.
            low = bisect_left(newest, batches.first_offsets[row])
            left = bisect_right(newest, batches.last_offsets[row], low) - low
            if left == 0:
                decided[row] = _DISCARD
            elif left == batches.counts[row] and self._tombstones_stay:
                decided[row] = _KEEP
            else:
                continue
            self.messages_read += batches.counts[row]
        return bytes(decided)

    def _examine(
        self, piece: Piece, rows: Sequence[int]
    ) -> Iterator[tuple[Records, int, bytes] | None]:
        """Yield for each batch its records, the row of its first one, and which of them stay.

        For a batch that cannot be opened None is yielded.
        """
        # An old message that cannot be opened counts for the batches behind it, so these must not
        # be judged before it.
        stretches = [[row] for row in rows] if OLD in piece.batches.kinds else [rows]
        for stretch in stretches:
            for opened, records in open_batches(piece, stretch):
                if records is None:
                    self._note_unopened(piece, opened[0])
                    yield None
                    continue

                keep = self._keep_records(piece, opened, records)
                self.messages_read += len(keep)
                for first, end in pairwise(records.firsts):
                    yield records, first, keep[first:end]

    def _keep_records(self, piece: Piece, rows: Sequence[int], records: Records) -> bytes:
        spans = records.spans
        is_mapped = piece.batches.first_offsets[rows[0]] >= self.first_dirty_offset
        # In the dirty part the newest offsets are enough: no key is looked up.
        if is_mapped and not spans.keyless:
            return self._keep_mapped(spans)
        return self._keep(records.keys, spans.offsets, spans.tombstones, spans.keyless)

    def _note_unopened(self, piece: Piece, row: int) -> None:
        # The log names the first one only.
        if not self.kept_unopened:
            self.first_unopened = piece.batches.first_offsets[row]
        self.kept_unopened += 1

    @property
    def _tombstones_stay(self) -> bool:
        return self.retain_tombstones or self.kept_unopened > 0

    def _fate(self, piece: Piece, row: int, kind: int) -> int:
        """Decide whether a batch stays as it is, goes whole, or depends on its records."""
        # An old message is opened in any case.
        if kind == OLD:
            return _MESSAGE
        # A marker goes after its data, with the tombstones of its time.
        if kind & CONTROL:
            header = piece.header(row)
            self.messages_read += header.count
            may_go = self.transactions.may_discard(header, marker_key(piece, row))
            return _DISCARD if may_go and not self.retain_tombstones else _KEEP
        # Aborted data goes at once.
        if kind & TRANSACTIONAL and self.transactions.is_aborted(piece.header(row)):
            return _DISCARD
        return _EXAMINE

    def _keep_mapped(self, spans: Spans) -> bytes:
        """Do as `_keep`, for records with keys that are in the map or lie behind it."""
        offsets, latest = spans.offsets, self.latest_offset
        if not offsets:
            return b""
        newest, low, high = self._newest_offsets, offsets[0], offsets[-1]
        # The newest offsets in this stretch stay.
        stay = set(newest[bisect_left(newest, low) : bisect_right(newest, high)])
        # Behind the map's end nothing is known, so all stay.
        if high > latest:
            stay.update(offsets[bisect_right(offsets, latest) :])
        # Tombstones that have been seen for long enough go.
        if not self._tombstones_stay:
            tombstone_offsets = chosen(offsets, spans.tombstones)
            stay.difference_update(offset for offset in tombstone_offsets if offset <= latest)
        return bytes(map(stay.__contains__, offsets))

    def _keep(
        self, keys: Keys, offsets: Sequence[int], tombstones: Sequence[int], keyless: int
    ) -> bytes:
        """Return a byte for each record, 1 if it stays. `keyless` of them have no key."""
        newest, latest = self.newest.newest(keys), self.latest_offset
        # Mostly the offset decides alone.
        if not keyless and (self._tombstones_stay or not any(tombstones)):
            return bytes(map(ge, offsets, newest))

        # A record goes as a tombstone that is due, or for its lack of a key.
        is_deleted = [False] * len(keys) if self._tombstones_stay else list(tombstones)
        for row, end in enumerate(keys.ends):
            if end == NO_KEY:
                is_deleted[row] = True
                self.keyless += offsets[row] <= latest
        return bytes(
            [
                (offset >= newest_offset and not deleted) or offset > latest
                for offset, newest_offset, deleted in zip(offsets, newest, is_deleted, strict=True)
            ]
        )

    def _message(self, piece: Piece, row: int) -> Iterator[KeptBatch]:
        header = piece.message_header(row)
        messages = read_messages(piece, row)
        if messages is None:
            self._note_unopened(piece, row)
            yield KeptBatch(_bytes_of(piece, row), header.offset, header.timestamp, 1)
            return

        keys = [message[2] for message in messages]
        keep = self._keep(
            Keys.of(keys),
            [message[0] for message in messages],
            [message[3] is None for message in messages],
            keys.count(None),
        )
        self.messages_read += len(messages)

        left = list(chosen(messages, keep))
        # A wrapper with messages of several formats is written again in its own (KAFKA-4298).
        if len(left) == len(messages) and _is_uniform(piece, row, header):
            yield KeptBatch(_bytes_of(piece, row), header.offset, header.timestamp, len(left))
        elif left:
            data = encode_messages(
                left,
                header.magic,
                codec=header.codec,
                # Format 0 has none, which reads as -1.
                timestamp_type=max(header.timestamp_type, CREATE_TIME),
            )
            self._measure(data, piece, row)
            yield KeptBatch(data, left[-1][0], read_message_header(data).timestamp, len(left))

    def _measure(self, rewritten: bytes, piece: Piece, row: int) -> None:
        before = piece.batches.ends[row] - piece.batches.starts[row]
        self.outgrown += len(rewritten) > max(before, self.max_message_bytes)

    def _is_last_of_producer(self, piece: Piece, row: int) -> bool:
        batches = piece.batches
        last_offset = self.producers.get(batches.producer_ids[row])
        # Only markers are left of this producer, and keep it known.
        if last_offset == NO_DATA:
            return bool(batches.kinds[row] & CONTROL)
        return last_offset == batches.last_offsets[row]


def _bytes_of(piece: Piece, row: int) -> memoryview:
    return memoryview(piece.data)[piece.batches.starts[row] : piece.batches.ends[row]]


def _is_uniform(piece: Piece, row: int, header: MessageHeader) -> bool:
    return header.codec is Codec.NONE or has_one_magic(
        piece.data, piece.batches.starts[row], header, max_decompressed=MAX_DECOMPRESSED_BYTES
    )
