"""Verify one partition's log: segments, indexes, leader epochs, producer snapshots.

Every batch is checked against its checksum, and every record against its batch. A starting broker
checks less: after a crash it reads the log above the recovery point and trusts the rest
(core_log.recovery.recovery). So each fault has an outcome: what a broker would do that starts now.

The log may be in use. Later appends are not verified, and files deleted meanwhile are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import cast

import attrs

from broker.kbroker.log.entries import LogEntry, is_preallocated, read_entries
from broker.kbroker.log.faults import Fault, Finding, Outcome, VerifiedBytes, unreadable_file
from broker.kbroker.log.indexes import (
    OFFSET_LAYOUT,
    TIME_LAYOUT,
    check_offset_index,
    check_positions,
    check_time_index,
    check_times,
    read_aborted_transactions,
    read_offset_entries,
    read_time_entries,
)
from broker.kbroker.log.read_only_directory import ReadOnlyDirectory, ReadOnlyFile
from broker.kbroker.log.records import check_records
from core_log.checkpoint import LEADER_EPOCHS, CheckpointError, decode_epochs
from core_log.config import INT_MAX
from core_log.damage import EVERYTHING
from core_log.producers.producer_snapshots import SNAPSHOT, decode
from core_log.recovery.recovery import is_named
from core_log.segments import transaction_index
from core_log.segments.file_name import (
    INDEX,
    LOG,
    TIME_INDEX,
    TRANSACTION_INDEX,
    base_offset_of,
    file_name,
)
from core_log.segments.index_file import CorruptIndex
from core_log.segments.segment import Segment
from core_log.segments.splitting import OffsetOverflow, check_overflow
from core_log.segments.transaction_index import AbortedTransaction
from core_log.storage import Directory
from protocol.frozen import frozen
from protocol.records.batch import decode_batch
from protocol.records.batch_header import BatchHeader
from protocol.records.control_record import ABORT, marker_type
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.legacy import MessageHeader
from protocol.topic_partition import TopicPartition

TAIL_READS = 3
"""Attempts to read the end of a log that may be growing."""


@frozen
class Marks:
    """Facts about a partition that its log directory stores outside the partition's own.

    `recovery_point`: the log was synced up to this offset. `is_clean`: the broker was shut down
    cleanly. `is_compacted`: the log may have gaps.
    """

    recovery_point: int = 0
    is_clean: bool = False
    is_compacted: bool = False

    @property
    def synced_end(self) -> int:
        """The offset up to which the log was synced; all of it, if closed without a checkpoint."""
        return self.recovery_point or EVERYTHING if self.is_clean else self.recovery_point

    def is_read_whole(self, next_base: int | None) -> bool:
        """True if a starting broker reads a whole segment; `next_base` begins the next one."""
        return not self.is_clean and (next_base is None or next_base >= self.recovery_point)


@frozen
class Damage:
    """Batches that are lost, from `position` on.

    `last_offset`, inclusive, is None if it is unknown.
    """

    description: str
    position: int
    first_offset: int
    last_offset: int | None


@attrs.define(eq=False)
class PartitionCheck:
    """The check of one partition.

    `name` is the partition's directory below the verified one; "" if they are the same.
    `log_end_offset` is final when `run` is done: the end of the part of the log that is whole.
    """

    directory: ReadOnlyDirectory
    name: str
    partition: TopicPartition | None
    marks: Marks
    log_end_offset: int = 0
    segments: int = 0
    _has_gaps: bool = False
    _missing: list[Fault] = attrs.field(factory=list)
    _open: dict[int, int] = attrs.field(factory=dict)
    """The first offset of each producer's open transaction, as far as the log has it."""
    _aborted: list[AbortedTransaction] = attrs.field(factory=list)
    """The transactions that the present segment says were aborted."""

    def run(self) -> Iterator[Finding]:
        """Yield all faults, and the bytes that were verified."""
        # The epochs first: a log that grows meanwhile must not be behind them.
        epochs = self.directory.read(LEADER_EPOCHS)
        files = self.directory.files()

        bases = []
        for file in files:
            if file.endswith(LOG):
                try:
                    bases.append(base_offset_of(file))
                except ValueError as error:
                    yield self.make_fault(file, str(error), Outcome.OFF_LINE)
        bases.sort()

        # Segments in order; the end offset moves over those that cannot be read.
        self.log_end_offset = bases[0] if bases else 0
        for base_offset, next_base in pairwise((*bases, None)):
            assert base_offset is not None
            try:
                yield from self._check_segment(base_offset, next_base)
            except FileNotFoundError:  # deleted by retention or the cleaner
                self.log_end_offset = max(self.log_end_offset, next_base or 0)
            except OSError as error:
                self.log_end_offset = max(
                    self.log_end_offset, next_base or self.marks.recovery_point
                )
                name = file_name(base_offset, LOG)
                path = f"{self.name}/{name}" if self.name else name
                yield unreadable_file(self.partition, path, error)

        # A log with gaps inside segments is compacted: between segments they are no loss either.
        if not self._has_gaps:
            yield from self._missing

        # The other files last: they are compared with the end of the log.
        yield from self._find_orphans(files)
        for file in files:
            if file.endswith(SNAPSHOT):
                yield from self._check_snapshot(file)
        yield from self._check_epochs(epochs, bases)

    def make_fault(
        self,
        file: str,
        description: str,
        outcome: Outcome,
        position: int | None = None,
        lost: tuple[int, int | None] | None = None,
    ) -> Fault:
        """Make a fault of a file of this partition; `lost`: first and last lost offset."""
        first, last = lost or (None, None)
        path = f"{self.name}/{file}" if self.name else file
        return Fault(self.partition, path, description, outcome, position, first, last)

    # --- segments ---------------------------------------------------------------------------------

    def _outcome_of_loss(self, offset: int) -> Outcome:
        """Return what a starting broker does if it finds records lost from `offset` on."""
        return Outcome.OFF_LINE if offset < self.marks.synced_end else Outcome.CUT

    def _check_segment(self, base_offset: int, next_base: int | None) -> Iterator[Finding]:
        self.segments += 1
        name = file_name(base_offset, LOG)
        is_read = self.marks.is_read_whole(next_base) or not self._is_trusted(
            base_offset, next_base
        )

        # The indexes before the log: entries that are written meanwhile would be ahead of it.
        indexes = list(self._check_indexes(base_offset))
        aborted = list(self._read_aborted(base_offset))

        # The log.
        self._aborted = []
        log = self.directory.open(name)

        # A position in an index is a signed number of 32 bits.
        if log.size > INT_MAX:
            yield self.make_fault(name, f"{log.size} bytes, more than {INT_MAX}", Outcome.OFF_LINE)
        self._note_missing(name, base_offset)
        is_whole = True
        for finding in self._check_batches(log, base_offset, next_base):
            if isinstance(finding, Damage):
                # Damage in a segment that a start does not read stays there.
                is_whole = False
                outcome = (
                    self._outcome_of_loss(finding.first_offset) if is_read else Outcome.UNNOTICED
                )
                lost = finding.first_offset, finding.last_offset
                yield self.make_fault(name, finding.description, outcome, finding.position, lost)
            else:
                is_whole = is_whole and not isinstance(finding, Fault)
                yield finding

        # The indexes against a log that is whole.
        for index in indexes:
            if isinstance(index, Fault):
                yield index
            elif is_whole:
                yield from self._compare_index(index, base_offset, is_read)
        faults = list(self._compare_aborted(base_offset, aborted, is_whole))
        yield from faults or self._find_unlisted(base_offset, is_read)

    def _note_missing(self, name: str, base_offset: int) -> None:
        """Note a gap before a segment; `run` reports it unless the log proves to be compacted."""
        end = self.log_end_offset

        # A larger jump is no lost segment: none spans more than INT_MAX offsets.
        if end < base_offset <= end + INT_MAX and not self.marks.is_compacted:
            description = "a segment before it is missing"
            outcome = self._outcome_of_loss(end)
            # What compaction may have done puts no log off-line (fault broker-1).
            if self._may_be_cleaned(end, base_offset):
                outcome = Outcome.UNNOTICED
            lost = end, base_offset - 1
            self._missing.append(self.make_fault(name, description, outcome, None, lost))

    def _may_be_cleaned(self, end: int, base_offset: int) -> bool:
        """Return whether a starting broker takes a hole between segments for compaction's."""
        if base_offset > self.marks.synced_end:
            return False
        files = self.directory.files()
        own_log = file_name(base_offset, LOG)
        before = max(name for name in files if name.endswith(LOG) and name < own_log)
        names = [before.removesuffix(LOG) + suffix for suffix in (INDEX, TIME_INDEX)]
        indexes = {name: self.directory.read(name) or b"" for name in names}
        return not is_named(range(end, base_offset), _list_orphans(files), indexes)

    def _check_batches(
        self, log: ReadOnlyFile, base_offset: int, next_base: int | None
    ) -> Iterator[Finding | Damage]:
        name = file_name(base_offset, LOG)
        position = 0
        expected = base_offset
        reason = "the file ends within a batch"

        for _ in range(TAIL_READS):
            try:
                for entry in read_entries(log, position):
                    yield VerifiedBytes(len(entry.data))
                    yield from self._check_entry(name, entry, expected, base_offset, next_base)
                    position = entry.end_position
                    end = entry.header.last_offset + 1

                    # Its base offset is wrong, but not the number of its offsets.
                    if self._skips_synced_end(entry.header, expected):
                        end -= entry.header.base_offset - expected
                    expected = max(expected, end)
            except CorruptRecord as error:
                reason = str(error)
            if position == log.size or next_base is not None:
                break

            # The active segment may have been read in the middle of an append.
            size = log.size
            log = self.directory.open(name)
            if log.size == size:
                break

        self.log_end_offset = max(self.log_end_offset, expected)

        # Bytes behind the last batch: damage, or space that the active segment preallocates.
        left = log.size - position
        if left and not (next_base is None and is_preallocated(log, position)):
            last = None if next_base is None else next_base - 1
            self.log_end_offset = max(self.log_end_offset, next_base or 0)
            yield Damage(f"{left} bytes are no batches: {reason}", position, expected, last)

    def _check_entry(
        self, name: str, entry: LogEntry, expected: int, base_offset: int, next_base: int | None
    ) -> Iterator[Fault | Damage]:
        header = entry.header
        position = entry.position
        first = header.base_offset
        last = header.last_offset
        if isinstance(header, MessageHeader):  # its offset is the last one, if it is compressed
            first = min(expected, last)

        skips_end = self._skips_synced_end(header, expected)

        # A gap within a segment: compaction removed records there.
        self._has_gaps = self._has_gaps or (header.base_offset > expected and not skips_end)

        # One defect an entry, the gravest first.
        if entry.fault is not None:
            yield Damage(entry.fault, position, first, last)
        elif skips_end:
            end = self.marks.synced_end
            description = f"offset {first} comes after {expected - 1}, but the log ended at {end}"
            yield Damage(description, position, expected, end - 1)
        elif header.base_offset < expected:
            description = f"offset {header.base_offset} comes after {expected - 1}"
            yield Damage(description, position, expected, max(expected, last))
        elif next_base is not None and last >= next_base:
            yield Damage(f"offset {last} belongs to the next segment", position, first, last)
        elif last - base_offset > INT_MAX:
            # An offset in an index has 32 bits and counts from the segment's base.
            description = f"offset {last} is too far from {base_offset} to be indexed"
            yield self.make_fault(name, description, Outcome.SPLIT, position)
        else:
            try:
                check_records(entry)
                self._follow_transaction(entry)
            except CorruptRecord as error:  # a starting broker does not read records
                description = f"inside the batch: {error}"
                yield self.make_fault(name, description, Outcome.UNNOTICED, position, (first, last))

    def _follow_transaction(self, entry: LogEntry) -> None:
        """Note where transactions begin and are aborted. Raises CorruptRecord."""
        header = entry.header
        if not header.is_transactional:
            return
        if not header.is_control:
            self._open.setdefault(header.producer_id, header.base_offset)
            return

        (marker,) = decode_batch(entry.data, 0, header)[:1] or (None,)
        first_offset = self._open.pop(header.producer_id, None)
        # Compaction removes the records of an aborted transaction before its marker.
        if marker is None or first_offset is None:
            return
        if marker_type(marker.key or b"") == ABORT:
            self._aborted.append(
                AbortedTransaction(header.producer_id, first_offset, header.last_offset, -1)
            )

    def _skips_synced_end(self, header: BatchHeader | MessageHeader, expected: int) -> bool:
        """True if the gap before a batch would contain the synced end of the log.

        Then the batch's base offset is wrong; no checksum covers it.
        """
        return (
            isinstance(header, BatchHeader)
            and not self.marks.is_compacted
            and expected < self.marks.synced_end <= header.base_offset
        )

    def _is_trusted(self, base_offset: int, next_base: int | None) -> bool:
        """True if a starting broker trusts a segment after a look at its ends.

        The answer comes from the broker's own code. Raises FileNotFoundError.
        """
        try:
            segment = Segment.load(cast(Directory, self.directory), base_offset, 0)
            check_overflow(segment, next_base)
            end_offset = segment.check_end()
        except (ValueError, OffsetOverflow):  # CorruptIndex and CorruptRecord are ValueErrors
            return False
        return next_base is None or end_offset <= next_base

    # --- files beside segments --------------------------------------------------------------------

    def _check_indexes(self, base_offset: int) -> Iterator[Fault | str]:
        """Yield the names of the indexes that can be read, and a fault for each other."""
        for suffix, check in ((INDEX, check_offset_index), (TIME_INDEX, check_time_index)):
            name = file_name(base_offset, suffix)
            try:
                check(self.directory.open(name), base_offset)
            except FileNotFoundError:
                if self.directory.size(file_name(base_offset, LOG)) is not None:
                    yield self.make_fault(name, "is missing", Outcome.REBUILT)
            except CorruptIndex as error:
                yield self.make_fault(name, str(error), Outcome.REBUILT)
            else:
                yield name

    def _compare_index(self, name: str, base_offset: int, is_read: bool) -> Iterator[Fault]:
        """Compare an index with the log; yield its first wrong entry."""
        # A start that reads a segment builds its indexes; it believes the others.
        outcome = Outcome.REBUILT if is_read else Outcome.UNNOTICED
        index = self.directory.open(name)

        if name.endswith(TIME_INDEX):
            times = read_time_entries(index, base_offset)
            log = self._open_log(base_offset)
            for slot, time in enumerate(check_times(times, log, base_offset)):
                if not time.is_correct:
                    timestamp, offset = time.entry
                    description = f"entry {timestamp}, {offset} does not match the log"
                    yield self.make_fault(name, description, outcome, slot * TIME_LAYOUT.size)
                    return
            return

        positions = read_offset_entries(index, base_offset)
        log = self._open_log(base_offset)
        for slot, position in enumerate(check_positions(positions, log)):
            if position.log_offset is not None:
                offset, at = position.entry
                description = f"entry {offset}, position {at} does not match the log"
                yield self.make_fault(name, description, outcome, slot * OFFSET_LAYOUT.size)
                return

    def _open_log(self, base_offset: int) -> ReadOnlyFile:
        return self.directory.open(file_name(base_offset, LOG))

    def _read_aborted(self, base_offset: int) -> Iterator[AbortedTransaction | Fault]:
        """Yield a segment's aborted transactions, and the fault that ends them, if any."""
        name = file_name(base_offset, TRANSACTION_INDEX)
        try:
            file = self.directory.open(name)
            yield from read_aborted_transactions(file)
        except FileNotFoundError:
            return
        except CorruptIndex as error:
            yield self.make_fault(name, str(error), Outcome.REBUILT)
        else:
            # A torn entry at the end.
            entry_bytes = transaction_index.ENTRY.size
            if file.size % entry_bytes:
                description = f"its size of {file.size} bytes is not a multiple of {entry_bytes}"
                yield self.make_fault(name, description, Outcome.REBUILT)

    def _compare_aborted(
        self, base_offset: int, entries: list[AbortedTransaction | Fault], is_whole: bool
    ) -> Iterator[Fault]:
        """Check the order of a segment's aborted transactions; yield the first fault.

        The segment's log has just been checked: `log_end_offset` is the segment's end.
        """
        name = file_name(base_offset, TRANSACTION_INDEX)
        previous = base_offset - 1

        for entry in entries:
            if isinstance(entry, Fault):
                yield entry
                return
            if entry.last_offset <= previous:
                description = f"last offset {entry.last_offset} comes after {previous}"
                yield self.make_fault(name, description, Outcome.REBUILT)
                return

            # Where a damaged segment should end is unknown.
            if is_whole and entry.last_offset >= self.log_end_offset:
                description = f"last offset {entry.last_offset} is behind the segment's end"
                yield self.make_fault(name, description, Outcome.REBUILT)
                return
            previous = entry.last_offset

    def _find_unlisted(self, base_offset: int, is_read: bool) -> Iterator[Fault]:
        """Yield a fault if the segment aborts transactions that its index does not have."""
        if not self._aborted:
            return
        # Once more: a log that grows has entries now that it had not before.
        listed = {
            (entry.producer_id, entry.last_offset)
            for entry in self._read_aborted(base_offset)
            if isinstance(entry, AbortedTransaction)
        }
        # Readers of committed data get them, and nothing tells (fault strangers-56, was: []).
        missing = [
            transaction
            for transaction in self._aborted
            if (transaction.producer_id, transaction.last_offset) not in listed
        ]
        if missing:
            first = missing[0]
            description = (
                f"has no entry of {len(missing)} aborted transactions, the first of them of "
                f"producer {first.producer_id} from offset {first.first_offset} on: their records "
                "are served as committed"
            )
            outcome = Outcome.REBUILT if is_read else Outcome.UNNOTICED
            yield self.make_fault(file_name(base_offset, TRANSACTION_INDEX), description, outcome)

    def _find_orphans(self, files: list[str]) -> Iterator[Fault]:
        """Yield a fault for each index of a segment that does not exist."""
        for name in _list_orphans(files):
            if self.directory.size(name) is not None:  # not deleted meanwhile
                yield self.make_fault(name, "there is no log for it", Outcome.REMOVED)

    def _check_epochs(self, text: bytes | None, bases: list[int]) -> Iterator[Fault]:
        try:
            epochs = decode_epochs(text)
        except CheckpointError as error:
            yield self.make_fault(LEADER_EPOCHS, str(error), Outcome.IGNORED)
            return

        # Epochs and their start offsets grow.
        for (epoch, start), (next_epoch, next_start) in pairwise(epochs):
            if next_epoch <= epoch or next_start < start:
                description = f"{next_epoch} from {next_start} comes after {epoch} from {start}"
                yield self.make_fault(LEADER_EPOCHS, description, Outcome.UNNOTICED)

        # The first one begins with the log, and the last one within it.
        if self.marks.is_clean and epochs and bases and epochs[0][1] < bases[0]:
            lost = epochs[0][1], bases[0] - 1
            description = "the first segment is missing"
            yield self.make_fault(LEADER_EPOCHS, description, Outcome.UNNOTICED, None, lost)
        if epochs and epochs[-1][1] > self.log_end_offset:
            description = f"epoch {epochs[-1][0]} begins at {epochs[-1][1]}, behind the log's end"
            yield self.make_fault(LEADER_EPOCHS, description, Outcome.CUT)

    def _check_snapshot(self, name: str) -> Iterator[Fault]:
        try:
            offset = base_offset_of(name)
            decode(self.directory.read(name) or b"")
        except ValueError as error:  # CorruptSnapshot is one
            if self.directory.size(name) is not None:
                yield self.make_fault(name, str(error), Outcome.REMOVED)
            return

        # A snapshot behind the end covers records that are lost.
        if offset > self.log_end_offset:
            description = f"has offset {offset}, behind the log's end at {self.log_end_offset}"
            yield self.make_fault(name, description, Outcome.REMOVED)


def _list_orphans(files: Collection[str]) -> list[str]:
    """List the indexes of segments that do not exist."""
    kinds = (INDEX, TIME_INDEX, TRANSACTION_INDEX)
    parts = [(name, *name.partition(".")) for name in files]
    return [
        name
        for name, stem, dot, suffix in parts
        if dot + suffix in kinds and stem + LOG not in files
    ]
