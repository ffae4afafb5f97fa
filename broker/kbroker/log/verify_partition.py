"""Look at all there is of one partition's log: segments, indexes, epochs, snapshots.

Every batch is held to its checksum and every record inside to its batch. A broker looks at less:
after a crash it reads what is above the recovery point, and believes the rest
(core_log.recovery.recovery). So a fault is named together with what a broker that starts now would
make of it.

The log may be in use: what is appended meanwhile is not looked at, and files that go are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import cast

import attrs

from broker.kbroker.log.entries import Entry, entries, is_room
from broker.kbroker.log.faults import Fault, Found, Outcome, Verified, unreadable
from broker.kbroker.log.indexes import (
    OFFSET_LAYOUT,
    TIME_LAYOUT,
    aborted_transactions,
    check_offset_index,
    check_time_index,
    judged_positions,
    judged_times,
    offset_entries,
    time_entries,
)
from broker.kbroker.log.read_only_directory import ReadOnlyDirectory, ReadOnlyFile
from broker.kbroker.log.records import check_records
from core_log.checkpoint import LEADER_EPOCHS, CheckpointError, decode_epochs
from core_log.config import INT_MAX
from core_log.producers.producer_snapshots import SNAPSHOT, decode
from core_log.recovery.damage import EVERYTHING
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
from protocol.records.batch_header import BatchHeader
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.legacy import MessageHeader
from protocol.topic_partition import TopicPartition

"""The type in the key of a marker that aborts, behind its version."""
TAIL_READS = 3
"""How often a log's end is read again that may be growing."""


@attrs.frozen
class Marks:
    """What is known of a partition from outside of its directory.

    `recovery_point`: what is below was synced. `is_clean`: the broker was stopped in good order.
    """

    recovery_point: int = 0
    is_clean: bool = False
    is_compacted: bool = False

    @property
    def synced_end(self) -> int:
        """Where what was synced ends; it is all, in a log that was closed without telling where."""
        return self.recovery_point or EVERYTHING if self.is_clean else self.recovery_point

    def reads_whole(self, following: int | None) -> bool:
        """Whether a broker that starts reads a segment; `following` is the next one's base."""
        return not self.is_clean and (following is None or following >= self.recovery_point)


@attrs.frozen
class Damage:
    """Batches that are lost, from `position` on.

    `last_offset`, inclusive, is None where it cannot be known.
    """

    what: str
    position: int
    first_offset: int
    last_offset: int | None


@attrs.define(eq=False)
class PartitionCheck:
    """One partition; `name` is its directory's, below the one that is verified ("" if it is that).

    `log_end_offset` is what the good part of the log comes to, when all was looked at.
    """

    directory: ReadOnlyDirectory
    name: str
    partition: TopicPartition | None
    marks: Marks
    log_end_offset: int = 0
    segments: int = 0
    _has_gaps: bool = False
    _missing: list[Fault] = attrs.field(factory=list)

    def run(self) -> Iterator[Found]:
        """All faults, and what was looked at."""
        epochs = self.directory.read(LEADER_EPOCHS)  # before the log, which may go on meanwhile
        files = self.directory.files()
        bases = []
        for file in files:
            if file.endswith(LOG):
                try:
                    bases.append(base_offset_of(file))
                except ValueError as error:
                    yield self.fault(file, str(error), Outcome.OFF_LINE)
        bases.sort()
        self.log_end_offset = bases[0] if bases else 0
        for base_offset, following in pairwise((*bases, None)):
            assert base_offset is not None
            try:
                yield from self._segment(base_offset, following)
            except FileNotFoundError:  # retention or the cleaner took it
                self.log_end_offset = max(self.log_end_offset, following or 0)
            except OSError as error:
                self.log_end_offset = max(
                    self.log_end_offset, following or self.marks.recovery_point
                )
                name = file_name(base_offset, LOG)
                path = f"{self.name}/{name}" if self.name else name
                yield unreadable(self.partition, path, error)
        if not self._has_gaps:  # the log was never compacted
            yield from self._missing
        yield from self._without_logs(files)
        for file in files:
            if file.endswith(SNAPSHOT):
                yield from self._snapshot(file)
        yield from self._epochs(epochs, bases)

    def fault(
        self,
        file: str,
        what: str,
        outcome: Outcome,
        position: int | None = None,
        lost: tuple[int, int | None] | None = None,
    ) -> Fault:
        """One of a file of this partition; `lost` are the first and the last offset."""
        first, last = lost or (None, None)
        path = f"{self.name}/{file}" if self.name else file
        return Fault(self.partition, path, what, outcome, position, first, last)

    # Segments

    def _lost(self, offset: int) -> Outcome:
        """What becomes of a log when a broker finds that it lacks something from `offset` on."""
        return Outcome.OFF_LINE if offset < self.marks.synced_end else Outcome.CUT

    def _segment(self, base_offset: int, following: int | None) -> Iterator[Found]:
        self.segments += 1
        name = file_name(base_offset, LOG)
        is_read = self.marks.reads_whole(following) or not self._is_believed(base_offset, following)
        indexes = list(self._indexes(base_offset))
        aborted = list(self._aborted(base_offset))
        log = self.directory.open(name)
        if log.size > INT_MAX:
            yield self.fault(name, f"{log.size} bytes, more than {INT_MAX}", Outcome.OFF_LINE)
        self._note_missing(name, base_offset)
        is_good = True
        for found in self._batches(log, base_offset, following):
            if isinstance(found, Damage):
                is_good = False
                outcome = self._lost(found.first_offset) if is_read else Outcome.UNNOTICED
                lost = found.first_offset, found.last_offset
                yield self.fault(name, found.what, outcome, found.position, lost)
            else:
                is_good = is_good and not isinstance(found, Fault)
                yield found
        for index in indexes:
            if isinstance(index, Fault):
                yield index
            elif is_good:
                yield from self._judged(index, base_offset, is_read)
        yield from self._judged_aborted(base_offset, aborted, is_good)

    def _note_missing(self, name: str, base_offset: int) -> None:
        """Offsets between two segments are missing only if compaction did not take them."""
        end = self.log_end_offset
        if end < base_offset <= end + INT_MAX and not self.marks.is_compacted:
            what = "a segment before it is missing"
            lost = end, base_offset - 1
            self._missing.append(self.fault(name, what, self._lost(end), None, lost))

    def _batches(
        self, log: ReadOnlyFile, base_offset: int, following: int | None
    ) -> Iterator[Found | Damage]:
        name = file_name(base_offset, LOG)
        position, expected, reason = 0, base_offset, "the file ends within a batch"
        for _ in range(TAIL_READS):
            try:
                for entry in entries(log, position):
                    yield Verified(len(entry.data))
                    yield from self._entry(name, entry, expected, base_offset, following)
                    position = entry.end_position
                    end = entry.header.last_offset + 1
                    if self._reaches_over(entry.header, expected):
                        end -= entry.header.base_offset - expected
                    expected = max(expected, end)
            except CorruptRecord as error:
                reason = str(error)
            if position == log.size or following is not None:
                break
            size, log = log.size, self.directory.open(name)  # it may have been in the making
            if log.size == size:
                break
        self.log_end_offset = max(self.log_end_offset, expected)
        left = log.size - position
        if left and not (following is None and is_room(log, position)):
            last = None if following is None else following - 1
            self.log_end_offset = max(self.log_end_offset, following or 0)
            yield Damage(f"{left} bytes are no batches: {reason}", position, expected, last)

    def _entry(
        self, name: str, entry: Entry, expected: int, base_offset: int, following: int | None
    ) -> Iterator[Fault | Damage]:
        header, position = entry.header, entry.position
        first, last = header.base_offset, header.last_offset
        if isinstance(header, MessageHeader):  # which does not tell where it begins
            first = min(expected, last)
        reaches_over = self._reaches_over(header, expected)
        self._has_gaps = self._has_gaps or (header.base_offset > expected and not reaches_over)
        if entry.fault is not None:
            yield Damage(entry.fault, position, first, last)
        elif reaches_over:
            end = self.marks.synced_end
            what = f"offset {first} comes after {expected - 1}, though the log ended at {end}"
            yield Damage(what, position, expected, end - 1)
        elif header.base_offset < expected:
            what = f"offset {header.base_offset} comes after {expected - 1}"
            yield Damage(what, position, expected, max(expected, last))
        elif following is not None and last >= following:
            yield Damage(f"offset {last} belongs into the next segment", position, first, last)
        elif last - base_offset > INT_MAX:
            what = f"offset {last} is too far from {base_offset} to be indexed"
            yield self.fault(name, what, Outcome.SPLIT, position)
        else:
            try:
                check_records(entry)
            except CorruptRecord as error:  # no broker looks inside as it starts
                what = f"inside of the batch: {error}"
                yield self.fault(name, what, Outcome.UNNOTICED, position, (first, last))

    def _reaches_over(self, header: BatchHeader | MessageHeader, expected: int) -> bool:
        """Whether a batch begins so far behind the one before it that the log's end, where it was
        once, would be in the gap: its offset is wrong, which no checksum covers."""
        return (
            isinstance(header, BatchHeader)
            and not self.marks.is_compacted
            and expected < self.marks.synced_end <= header.base_offset
        )

    def _is_believed(self, base_offset: int, following: int | None) -> bool:
        """Whether a broker that starts looks at the ends of a segment alone: asked of the code that
        it does so with. Raises FileNotFoundError."""
        try:
            segment = Segment.load(cast(Directory, self.directory), base_offset, 0)
            check_overflow(segment, following)
            end_offset = segment.check_end()
        except (ValueError, OffsetOverflow):  # CorruptIndex and CorruptRecord are ValueErrors
            return False
        return following is None or end_offset <= following

    # Files beside them

    def _indexes(self, base_offset: int) -> Iterator[Fault | str]:
        """The indexes that can be read, by their names, and what is wrong with the others."""
        for suffix, check in ((INDEX, check_offset_index), (TIME_INDEX, check_time_index)):
            name = file_name(base_offset, suffix)
            try:
                check(self.directory.open(name), base_offset)
            except FileNotFoundError:
                if self.directory.size(file_name(base_offset, LOG)) is not None:
                    yield self.fault(name, "is missing", Outcome.REBUILT)
            except CorruptIndex as error:
                yield self.fault(name, str(error), Outcome.REBUILT)
            else:
                yield name

    def _judged(self, name: str, base_offset: int, is_read: bool) -> Iterator[Fault]:
        """The entries of an index against the log; only the first that lies is named."""
        outcome = Outcome.REBUILT if is_read else Outcome.UNNOTICED
        index = self.directory.open(name)
        if name.endswith(TIME_INDEX):
            times = time_entries(index, base_offset)
            for slot, time in enumerate(judged_times(times, self._log(base_offset), base_offset)):
                if not time.is_true:
                    what = f"entry {time.entry.timestamp}, {time.entry.offset} is not the log's"
                    yield self.fault(name, what, outcome, slot * TIME_LAYOUT.size)
                    return
            return
        positions = offset_entries(index, base_offset)
        for slot, position in enumerate(judged_positions(positions, self._log(base_offset))):
            if position.log_offset is not None:
                offset, at = position.entry
                what = f"entry {offset}, position {at} is not the log's"
                yield self.fault(name, what, outcome, slot * OFFSET_LAYOUT.size)
                return

    def _log(self, base_offset: int) -> ReadOnlyFile:
        return self.directory.open(file_name(base_offset, LOG))

    def _aborted(self, base_offset: int) -> Iterator[AbortedTransaction | Fault]:
        """The aborted transactions of a segment, and why there are no more that can be read."""
        name = file_name(base_offset, TRANSACTION_INDEX)
        try:
            file = self.directory.open(name)
            yield from aborted_transactions(file)
        except FileNotFoundError:
            return
        except CorruptIndex as error:
            yield self.fault(name, str(error), Outcome.REBUILT)
        else:
            if file.size % transaction_index.ENTRY.size:
                what = f"its {file.size} bytes are no multiple of {transaction_index.ENTRY.size}"
                yield self.fault(name, what, Outcome.REBUILT)

    def _judged_aborted(
        self, base_offset: int, found: list[AbortedTransaction | Fault], is_good: bool
    ) -> Iterator[Fault]:
        """Those of a segment whose log has just been looked at, in their order."""
        name = file_name(base_offset, TRANSACTION_INDEX)
        before = base_offset - 1
        for each in found:
            if isinstance(each, Fault):
                yield each
                return
            if each.last_offset <= before:
                what = f"last offset {each.last_offset} comes after {before}"
                yield self.fault(name, what, Outcome.REBUILT)
                return
            if is_good and each.last_offset >= self.log_end_offset:
                what = f"last offset {each.last_offset} is behind the segment's end"
                yield self.fault(name, what, Outcome.REBUILT)
                return
            before = each.last_offset

    def _without_logs(self, files: list[str]) -> Iterator[Fault]:
        """Indexes of segments that are not there."""
        for name in files:
            stem, dot, suffix = name.partition(".")
            if dot + suffix not in (INDEX, TIME_INDEX, TRANSACTION_INDEX) or stem + LOG in files:
                continue
            if self.directory.size(name) is not None:  # or it has just been taken away
                yield self.fault(name, "there is no log to it", Outcome.REMOVED)

    def _epochs(self, text: bytes | None, bases: list[int]) -> Iterator[Fault]:
        try:
            epochs = decode_epochs(text)
        except CheckpointError as error:
            yield self.fault(LEADER_EPOCHS, str(error), Outcome.IGNORED)
            return
        for (epoch, start), (next_epoch, next_start) in pairwise(epochs):
            if next_epoch <= epoch or next_start < start:
                what = f"{next_epoch} from {next_start} comes after {epoch} from {start}"
                yield self.fault(LEADER_EPOCHS, what, Outcome.UNNOTICED)
        if self.marks.is_clean and epochs and bases and epochs[0][1] < bases[0]:
            lost = epochs[0][1], bases[0] - 1
            what = "the first segment is missing"
            yield self.fault(LEADER_EPOCHS, what, Outcome.UNNOTICED, None, lost)
        if epochs and epochs[-1][1] > self.log_end_offset:
            what = f"epoch {epochs[-1][0]} begins at {epochs[-1][1]}, behind the log's end"
            yield self.fault(LEADER_EPOCHS, what, Outcome.CUT)

    def _snapshot(self, name: str) -> Iterator[Fault]:
        try:
            offset = base_offset_of(name)
            decode(self.directory.read(name) or b"")
        except ValueError as error:  # CorruptSnapshot is one
            if self.directory.size(name) is not None:
                yield self.fault(name, str(error), Outcome.REMOVED)
            return
        if offset > self.log_end_offset:
            what = f"is of offset {offset}, behind the log's end, {self.log_end_offset}"
            yield self.fault(name, what, Outcome.REMOVED)
