"""Loading a partition of `__consumer_offsets`: record batches in, `replay` of each record out.

Whoever loads reads the log in order and feeds it here. `feed` is a generator that stops after
every slice of work, so that an event loop can serve others in between.

Offsets committed inside a transaction (KIP-98) are held back until the marker that ends it: this
broker writes none, but the log may have been written by one that does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import attrs

from offsets.records import Key, RecordError, Value, decode_key, decode_value
from offsets.topic import offsets_partition
from protocol.records.batch import (
    HEADER_BYTES,
    BatchHeader,
    CorruptRecord,
    Record,
    decode_batch,
    read_header,
)

SLICE_RECORDS = 1000
"""Records replayed between two stops: some 4 ms."""

_COMMIT_MARKER = 1
_MARKER_KEY = struct.Struct(">hh")


class LoadError(Exception):
    """The partition cannot be read to its end; the text names partition, offset and reason."""


@attrs.define(eq=False)
class Loader:
    """One pass over one partition, from `next_offset`, which then says where reading goes on."""

    partition: int
    replay: Callable[[Key, Value | None], None]
    next_offset: int
    records: int = 0
    _open_transactions: dict[int, list[Record]] = attrs.field(factory=dict)

    def feed(self, chunk: bytes) -> Iterator[None]:
        """Replay the batches of `chunk`, of which the first is whole and the last may be cut.

        Raises LoadError at what is corrupt or of an unknown version.
        """
        pos = 0
        while len(chunk) - pos >= HEADER_BYTES:
            try:
                header = read_header(chunk, pos)
                if pos and header.size > len(chunk) - pos:
                    return
                records = decode_batch(chunk, pos, header)
            except CorruptRecord as error:
                raise self._error(self.next_offset, error) from error
            for start in range(0, len(records), SLICE_RECORDS):
                self._take(header, records[start : start + SLICE_RECORDS])
                yield
            pos += header.size
            self.next_offset = header.next_offset
        if pos == 0:
            raise self._error(self.next_offset, f"{len(chunk)} bytes hold no batch")

    def _take(self, header: BatchHeader, records: list[Record]) -> None:
        if header.is_control:
            held = self._open_transactions.pop(header.producer_id, [])
            if self._is_commit(records[0]):
                self._replay(held)
        elif header.is_transactional:
            self._open_transactions.setdefault(header.producer_id, []).extend(records)
        else:
            self._replay(records)

    def _replay(self, records: list[Record]) -> None:
        replay = self.replay
        for record in records:
            try:
                key = decode_key(record.key)
                value = decode_value(key, record.value)
            except RecordError as error:
                raise self._error(record.offset, error) from error
            replay(key, value)
        self.records += len(records)

    def _is_commit(self, marker: Record) -> bool:
        if marker.key is None or len(marker.key) < _MARKER_KEY.size:
            raise self._error(marker.offset, "a transaction marker without its type")
        _, kind = _MARKER_KEY.unpack_from(marker.key)
        return bool(kind == _COMMIT_MARKER)

    def _error(self, offset: int, reason: object) -> LoadError:
        return LoadError(f"{offsets_partition(self.partition)} at offset {offset}: {reason}")
