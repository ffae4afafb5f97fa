"""Loading a partition of `__consumer_offsets`: record batches in, `replay` of their records out.

Whoever loads reads the log in order and feeds it here. `feed` is a generator that stops after
every slice of work, so that an event loop can serve others in between.

Nearly all there is are plain batches of one commit each, which are read many at once and neither
named nor decoded. What that cannot read is read batch by batch: compressed batches, messages of
before 0.11, and what is corrupt, which then is named.

Offsets committed inside a transaction (KIP-98) are held back until the marker that ends it: this
broker writes none, but the log may have been written by one that does. They count as of where they
were written, so what was committed plainly behind them stays (KAFKA-5247).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs

from offsets.committed import EncodedRecord
from offsets.records import RecordError, decode_key, decode_value
from offsets.topic import offsets_partition
from protocol.records.batch import CorruptRecord, decode_rows
from protocol.records.compression import CompressionUnavailable
from protocol.records.entry import EntryHeader, read_entry
from protocol.records.key_values import read_key_values

SLICE_RECORDS = 2000
"""Records replayed between two stops: some 4 ms."""
BATCH_RECORDS = 8
"""What reading a batch by itself costs, in records."""

_COMMIT_MARKER = 1
_MARKER_KEY = struct.Struct(">hh")


class LoadError(Exception):
    """The partition cannot be read to its end; the text names partition, offset and reason."""


@attrs.define(eq=False)
class Loader:
    """One pass over one partition, from `next_offset`, which then says where reading goes on."""

    partition: int
    replay: Callable[[Iterable[EncodedRecord]], object]
    next_offset: int
    records: int = 0
    _open_transactions: dict[int, dict[bytes, bytes | None]] = attrs.field(factory=dict)
    _since_stop: int = 0

    def feed(self, chunk: bytes) -> Iterator[None]:
        """Replay the batches of `chunk`, of which the first is whole and the last may be cut.

        Raises LoadError at what is corrupt or of an unknown version.
        """
        pos = 0
        is_plain = True
        while True:
            taken = read_key_values(chunk, pos, SLICE_RECORDS) if is_plain else None
            try:
                if taken is not None:
                    yield from self._replay_plain(taken.keys, taken.values)
                    pos, self.next_offset = taken.end, taken.next_offset
                    continue
            except RecordError:
                is_plain = False  # and which record it is, reading one by one will tell
            header = self._header(chunk, pos)
            if header is None:
                return
            self._replay_one(chunk, pos, header)
            if self._since_stop >= SLICE_RECORDS:
                self._since_stop = 0
                yield
            pos, self.next_offset = pos + header.size, header.next_offset

    def _replay_plain(
        self, keys: Sequence[bytes], values: Sequence[bytes | None]
    ) -> Iterator[None]:
        for start in range(0, len(keys), SLICE_RECORDS):
            part = slice(start, start + SLICE_RECORDS)
            self.replay(zip(keys[part], values[part], strict=True))
            self._outdate(keys[part], values[part])
            yield
        self.records += len(keys)

    def _header(self, chunk: bytes, pos: int) -> EntryHeader | None:
        """Of the batch at `pos`; None at the end of what is whole, which is not the beginning."""
        try:
            header = read_entry(chunk, pos, len(chunk))
        except CorruptRecord as error:
            raise self._error(self.next_offset, error) from error
        if header is None and pos == 0:
            raise self._error(self.next_offset, f"{len(chunk)} bytes hold no whole batch")
        return header

    def _replay_one(self, chunk: bytes, pos: int, header: EntryHeader) -> None:
        """Read one batch in full, and name what is wrong with it."""
        try:
            rows = decode_rows(chunk, pos, header)
        except (CorruptRecord, CompressionUnavailable) as error:
            raise self._error(self.next_offset, error) from error
        self._since_stop += BATCH_RECORDS + len(rows)
        if header.is_control:
            if rows:  # compaction may have left the batch and taken the marker
                held = self._open_transactions.pop(header.producer_id, {})
                if self._is_commit(rows[0][0], rows[0][2]):
                    self.replay(held.items())
            return
        records = [(self._checked(*row[:4]), row[3]) for row in rows]
        if header.is_transactional:
            self._open_transactions.setdefault(header.producer_id, {}).update(records)
        else:
            self.replay(records)
            self._outdate([key for key, _ in records], [value for _, value in records])
        self.records += len(records)

    def _checked(
        self, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None
    ) -> bytes:
        """The key of a record that can be read."""
        try:
            decode_value(decode_key(key), value)
        except RecordError as error:
            raise self._error(offset, error) from error
        assert key is not None
        return key

    def _outdate(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """What open transactions hold is older than these."""
        for held in self._open_transactions.values():
            for key, value in zip(keys, values, strict=True):
                if value is not None:
                    held.pop(key, None)

    def _is_commit(self, offset: int, key: bytes | None) -> bool:
        if key is None or len(key) < _MARKER_KEY.size:
            raise self._error(offset, "a transaction marker without its type")
        _, kind = _MARKER_KEY.unpack_from(key)
        return bool(kind == _COMMIT_MARKER)

    def _error(self, offset: int, reason: object) -> LoadError:
        return LoadError(f"{offsets_partition(self.partition)} at offset {offset}: {reason}")
