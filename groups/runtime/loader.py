"""Loading a partition of an internal topic: record batches in, replayed records out.

The caller reads the log in order and feeds it here. `feed` is a generator that stops after every
slice of work, so that an event loop can serve others in between.

Nearly all batches are plain and hold one append each. These are read many at once. Others are read
batch by batch: compressed batches, transactional batches, messages from before 0.11, and corrupt
ones, so that the error names the offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from groups.runtime.shard import NO_PRODUCER, MalformedRecord, Shard
from protocol.records.batch import CorruptRecord, decode_rows
from protocol.records.compression import CompressionUnavailable
from protocol.records.control_record import COMMIT, marker_type
from protocol.records.entry import EntryHeader, read_entry
from protocol.records.key_values import read_key_values
from protocol.topic_partition import TopicPartition

SLICE_RECORDS = 2000
"""Records replayed between two stops: some 4 ms."""
BATCH_RECORDS = 8
"""Cost of reading a batch by itself, in records."""


class LoadError(Exception):
    """The partition cannot be read to its end; the text names partition, offset and reason."""


@attrs.define(eq=False)
class Loader:
    """One pass over one partition. Reading continues at `next_offset`."""

    topic_partition: TopicPartition
    shard: Shard
    next_offset: int
    records: int = 0
    _since_stop: int = 0

    def feed(self, chunk: bytes) -> Iterator[None]:
        """Replay the batches of `chunk`. The first is whole, the last may be incomplete.

        Raises LoadError at a record that is corrupt, or of an unknown version.
        """
        pos = 0
        is_plain = True
        while True:
            # The usual case: many batches at once.
            plain = read_key_values(chunk, pos, SLICE_RECORDS) if is_plain else None
            try:
                if plain is not None:
                    yield from self._replay_plain(plain.keys, plain.values)
                    pos, self.next_offset = plain.end, plain.next_offset
                    continue
            except MalformedRecord:
                is_plain = False  # reading one by one names the record

            # Anything else: one batch.
            header = self._read_header(chunk, pos)
            if header is None:
                # The next chunk begins with this batch.
                return
            self._replay_batch(chunk, pos, header)
            if self._since_stop >= SLICE_RECORDS:
                self._since_stop = 0
                yield

            pos += header.size
            self.next_offset = header.next_offset

    def _replay_plain(
        self, keys: Sequence[bytes], values: Sequence[bytes | None]
    ) -> Iterator[None]:
        for start in range(0, len(keys), SLICE_RECORDS):
            part = slice(start, start + SLICE_RECORDS)
            self.shard.replay(zip(keys[part], values[part], strict=True))
            yield
        self.records += len(keys)

    def _read_header(self, chunk: bytes, pos: int) -> EntryHeader | None:
        """Read the header at `pos`; None if that batch is incomplete, and not the first."""
        try:
            header = read_entry(chunk, pos, len(chunk))
        except CorruptRecord as error:
            raise self._error(self.next_offset, error) from error
        # A log returns a first batch whole; asked again, it would return the same bytes.
        if header is None and pos == 0:
            raise self._error(self.next_offset, f"{len(chunk)} bytes hold no whole batch")
        return header

    def _replay_batch(self, chunk: bytes, pos: int, header: EntryHeader) -> None:
        """Replay one batch. A LoadError names the offset of the record that cannot be read."""
        try:
            rows = decode_rows(chunk, pos, header)
        except (CorruptRecord, CompressionUnavailable) as error:
            raise self._error(self.next_offset, error) from error

        self._since_stop += BATCH_RECORDS + len(rows)
        if header.is_control:
            if rows:  # compaction may have left the batch and taken the marker
                offset, _, key, *_ = rows[0]
                self._end_transaction(header.producer_id, offset, key)
            return

        # An idempotent producer has an id too, and its records count at once.
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
        for offset, _, key, value, _ in rows:
            if key is None:
                raise self._error(offset, "a record without a key")
            try:
                self.shard.replay([(key, value)], producer_id)
            except MalformedRecord as error:
                raise self._error(offset, error) from error
        self.records += len(rows)

    def _end_transaction(self, producer_id: int, offset: int, key: bytes | None) -> None:
        try:
            kind = marker_type(key or b"")
        except CorruptRecord as error:
            raise self._error(offset, error) from error
        self.shard.end_transaction(producer_id, kind == COMMIT)

    def _error(self, offset: int, reason: object) -> LoadError:
        return LoadError(f"{self.topic_partition} at offset {offset}: {reason}")
