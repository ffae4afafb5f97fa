"""A partition to clean: written batch by batch, cleaned with the swaps a broker would do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
from crc32c import crc32c

from compaction.clean import clean
from compaction.job import CleaningJob, CleaningProgress, Finished, GroupCleaned, SourceSegment
from compaction.offset_map import create_offset_map
from core_log.config import LogConfig
from core_log.memory_directory import MemoryDirectory
from core_log.segments.file_name import (
    ALL_SUFFIXES,
    CLEANED,
    LOG,
    SUFFIXES,
    TRANSACTION_INDEX,
    base_offset_of,
    file_name,
)
from core_log.segments.segment import Segment
from core_log.segments.time_index import TimestampOffset
from core_log.segments.transaction_index import (
    AbortedTransaction,
    encode_transaction_index,
    read_transaction_index,
)
from core_log.storage import Directory
from protocol.records.batch import Record, decode_batch, encode_batch, read_header
from protocol.records.batch_header import CONTROL, HEADER, TRANSACTIONAL, BatchHeader
from protocol.records.entry import EntryHeader, read_entry
from protocol.records.legacy import encode_messages
from protocol.topic_partition import TopicPartition

T0 = 1_000_000_000
DAY_MS = 24 * 60 * 60 * 1000
ABORT = b"\0\0\0\0"
COMMIT = b"\0\0\0\1"
PLENTY = 1 << 20

Pair = tuple[bytes | None, bytes | None]


def room_for(keys: int) -> int:
    """Bytes of a map that has room for so many short keys."""
    return keys * (PLENTY // create_offset_map(PLENTY).capacity)


def changed(batch: bytes, **fields: int) -> bytes:
    """Change fields of a batch's header, and its checksum with them."""
    head = HEADER.pack(*read_header(batch)._replace(crc=0, **fields))
    crc = crc32c(batch[61:], crc32c(head[21:]))
    return head[:17] + crc.to_bytes(4, "big") + head[21:] + batch[61:]


@attrs.define(eq=False)
class Partition:
    """A log of sealed segments and the open one that no cleaning touches."""

    directory: Directory = attrs.field(factory=lambda: MemoryDirectory("logs").child("t-0"))
    config: LogConfig = attrs.field(factory=LogConfig)
    next_offset: int = 0
    checkpoint: int = 0
    producers: dict[int, int] = attrs.field(factory=dict)
    _base_offset: int = 0
    _written: list[tuple[bytes, int, int]] = attrs.field(factory=list)
    _aborted: list[AbortedTransaction] = attrs.field(factory=list)
    _began: dict[int, int] = attrs.field(factory=dict)

    # Writing

    def append(self, *pairs: Pair, timestamp: int = T0, **options: Any) -> int:
        """Append one batch of format 2. Returns its last offset."""
        records = [(timestamp, key, value, ()) for key, value in pairs]
        batch = encode_batch(records, base_offset=self.next_offset, **options)
        return self.append_bytes(batch, self.next_offset + len(pairs) - 1, timestamp)

    def append_bytes(self, batch: bytes, last_offset: int, timestamp: int = T0) -> int:
        """Append a batch, or a message, that has its offsets."""
        self._written.append((batch, last_offset, timestamp))
        self.next_offset = last_offset + 1
        return last_offset

    def append_messages(self, *pairs: Pair, magic: int = 1, **options: Any) -> int:
        """Messages of an old format, or one wrapper with a `codec`."""
        time = T0 if magic else -1
        rows = [(self.next_offset + n, time, *pair, ()) for n, pair in enumerate(pairs)]
        return self.append_bytes(
            encode_messages(rows, magic, **options), self.next_offset + len(pairs) - 1, time
        )

    def append_in_transaction(self, producer_id: int, *pairs: Pair) -> int:
        """Data of an open transaction."""
        self._began.setdefault(producer_id, self.next_offset)
        batch = encode_batch(
            [(T0, key, value, ()) for key, value in pairs],
            base_offset=self.next_offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=self.next_offset,
        )
        return self.append_bytes(
            changed(batch, attributes=TRANSACTIONAL), self.next_offset + len(pairs) - 1
        )

    def end_transaction(self, producer_id: int, marker: bytes) -> int:
        """Write the marker, and the entry of an aborted one for the segment's index."""
        offset = self.next_offset
        batch = encode_batch(
            [(T0, marker, bytes(6), ())],
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
        )
        first_offset = self._began.pop(producer_id, offset)
        if marker == ABORT:
            self._aborted.append(AbortedTransaction(producer_id, first_offset, offset, offset))
        return self.append_bytes(changed(batch, attributes=TRANSACTIONAL | CONTROL), offset)

    def roll(self, modified_ms: int = T0) -> int:
        """Seal what was written since the last one as a segment; where the next one begins."""
        segment = Segment.create(self.directory, self._base_offset, T0)
        for batch, last_offset, timestamp in self._written:
            latest = TimestampOffset(timestamp, last_offset)
            segment.append([batch], last_offset, latest, self.config.index_interval_bytes)
        segment.seal()
        if self._aborted:
            name = file_name(self._base_offset, TRANSACTION_INDEX)
            data = encode_transaction_index(self._aborted)
            self.directory.open_segment(name).append([data])
        self.directory.set_modified_ms(file_name(self._base_offset, LOG), modified_ms)
        self._written, self._aborted, self._base_offset = [], [], self.next_offset
        return self.next_offset

    def write_unindexed(self) -> None:
        """Seal a segment with what no index would take."""
        file = self.directory.open_segment(file_name(self._base_offset, LOG))
        file.append([batch for batch, _, _ in self._written])
        self._written, self._base_offset = [], self.next_offset

    # Cleaning

    def job(self, dedupe_bytes: int = PLENTY, uncleanable: int | None = None) -> CleaningJob:
        """Create the job for all sealed segments below `uncleanable`."""
        bases = [base for base in self.bases() if uncleanable is None or base < uncleanable]
        ends = [*bases[1:], self._base_offset if uncleanable is None else uncleanable]
        return CleaningJob(
            topic_partition=TopicPartition("t", 0),
            segments=tuple(map(self._source, bases, ends)),
            first_dirty_offset=self.checkpoint,
            first_uncleanable_offset=ends[-1],
            config=self.config,
            producers=dict(self.producers),
            dedupe_bytes=dedupe_bytes,
            load_factor=1.0,
            io_bytes=1,
            now_ms=T0,
        )

    def _source(self, base: int, end: int) -> SourceSegment:
        size, index, time_index = (self.directory.size(file_name(base, kind)) for kind in SUFFIXES)
        modified_ms = self.directory.modified_ms(file_name(base, LOG))
        return SourceSegment(base, end, size or 0, index or 0, time_index or 0, modified_ms)

    def clean(self, dedupe_bytes: int = PLENTY, uncleanable: int | None = None) -> Finished:
        """Clean once. Each group takes the place of its segments at once, as in a broker."""
        for event in clean(self.job(dedupe_bytes, uncleanable), self.directory):
            if isinstance(event, GroupCleaned):
                self.swap(event)
            elif isinstance(event, Finished):
                self.checkpoint = event.end_offset
                return event
            else:
                assert isinstance(event, CleaningProgress)
                assert event.bytes_left >= 0
        raise AssertionError("a run that does not finish")

    def clean_all(self, dedupe_bytes: int = PLENTY) -> int:
        """Runs until all is clean; how many it took."""
        runs = 1
        while self.clean(dedupe_bytes).end_offset < self._base_offset:
            runs += 1
        return runs

    def swap(self, cleaned: GroupCleaned) -> None:
        """Put what came out in the place of what it came from."""
        for base in cleaned.replaced:
            for kind in ALL_SUFFIXES:
                self.directory.remove(file_name(base, kind))
        for kind in ALL_SUFFIXES:
            name = file_name(cleaned.base_offset, kind)
            if self.directory.size(name + CLEANED) is not None:
                self.directory.rename(name + CLEANED, name)

    # Reading

    def bases(self) -> list[int]:
        """Base offsets of the sealed segments."""
        return [base_offset_of(name) for name in self.directory.files() if name.endswith(LOG)]

    def files(self) -> dict[str, bytes | None]:
        """Read all files."""
        return {name: self.directory.read(name) for name in self.directory.files()}

    def segment(self, base: int) -> bytes:
        """The bytes of a log file."""
        return self.directory.read(file_name(base, LOG)) or b""

    def batches(self) -> Iterator[tuple[bytes, int, EntryHeader]]:
        """Every batch or message: the segment's bytes, the position, the header."""
        for base in self.bases():
            data, pos = self.segment(base), 0
            while (header := read_entry(data, pos, len(data))) is not None:
                yield data, pos, header
                pos += header.size
            assert pos == len(data)

    def headers(self) -> list[BatchHeader]:
        """Read the headers of the batches of format 2."""
        return [header for _, _, header in self.batches() if isinstance(header, BatchHeader)]

    def batch_ends(self) -> list[int]:
        """The last offset of each batch."""
        return [header.last_offset for _, _, header in self.batches()]

    def records(self) -> list[Record]:
        """Read all records that can be read, markers too."""
        return [
            record
            for data, pos, header in self.batches()
            for record in decode_batch(data, pos, header)
        ]

    def offsets(self) -> list[int]:
        """Read the offsets of all records and markers."""
        return [record.offset for record in self.records()]

    def pairs(self) -> list[Pair]:
        """Keys and values of all records and markers."""
        return [(record.key, record.value) for record in self.records()]

    def aborted(self) -> list[AbortedTransaction]:
        """Read all transaction indexes."""
        names = [name for name in self.directory.files() if name.endswith(TRANSACTION_INDEX)]
        return [entry for name in names for entry in read_transaction_index(self.directory, name)]
