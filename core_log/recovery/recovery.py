"""Recover a log before it serves: finish or undo what a crash interrupted, then trust nothing.

Segment replacement leaves its traces in suffixes. `.cleaned` files are unfinished copies and are
removed. `.deleted` files were about to be removed, and are. A `.swap` is a finished copy whose
originals may be partly renamed, and takes their place. Kafka never renames a swap before the
originals are marked (KAFKA-2118), so each state shows the next step.

After an unclean stop every segment from the recovery point on is read whole, each batch is held to
its checksum, and the indexes are rebuilt. The log is good up to the first byte that is not a good
batch, or the first missing offset: offsets must not have holes that nobody made. The rest is
removed, unless it was on disk before the stop (`damage`).

A hole alone is no damage. Compaction takes the last records of a segment and leaves no trace, in
this broker, in a stock one, or in the leader that a follower fetched from, and the topic's policy
may have changed since. So what was synced has lost something only where an index names it that is
still there. A hole above the recovery point is another matter: a power loss makes those too.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import attrs

from core_log.config import INT_MAX, LogConfig
from core_log.damage import EVERYTHING, BadTail
from core_log.leader_epochs import LeaderEpochs
from core_log.segments.batch_scan import ShallowBatch, scan, scan_checked
from core_log.segments.file_name import (
    ALL_SUFFIXES,
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    base_offset_of,
    file_name,
)
from core_log.segments.index_building import Built, build_indexes
from core_log.segments.index_file import CorruptIndex
from core_log.segments.offset_index import ENTRY as OFFSET_ENTRY
from core_log.segments.segment import Segment
from core_log.segments.splitting import check_overflow
from core_log.segments.time_index import ENTRY as TIME_ENTRY
from core_log.storage import Directory
from protocol.frozen import frozen
from protocol.records.corrupt_record import CorruptRecord

logger = logging.getLogger(__name__)


@frozen
class Recovered:
    """A log's segments and its bounds.

    `torn_tail` was behind the log's end and is removed. `damage` is still there, and no segment is
    active. From the segment at `unsynced_from` on only batches are believed, and `markers_from` is
    the first of these that has transactions' markers.
    """

    segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    torn_tail: BadTail | None = None
    damage: BadTail | None = None
    unsynced_from: int = EVERYTHING
    markers_from: int = EVERYTHING


def open_log(
    directory: Directory,
    config: LogConfig,
    epochs: LeaderEpochs,
    *,
    recovery_point: int,
    clean_shutdown: bool,
    log_start_offset: int,
    monotonic_ms: int,
    check_all: bool = False,
) -> Recovered:
    """Open a log's files, after recovery if it was not closed. An empty log gets its first file.

    The segment that holds the recovery point is checked whole, for its tail may be unflushed
    (KAFKA-1112). Of segments on disk only the ends are read, unless `check_all`. A torn tail is
    removed; if more is missing, nothing is changed. Raises OSError, ValueError for files that are
    no log's, and OffsetOverflow for a segment that must be split first.
    """
    # Below `synced_end` all was on disk. From `checked_from` on nothing is believed.
    synced_end = recovery_point or EVERYTHING if clean_shutdown else recovery_point
    checked_from = EVERYTHING if clean_shutdown else recovery_point

    # Open the segments. If a closed log is longer than it was, its end is checked.
    bases, left_over = _clean_up(directory)
    epochs.truncate_from_end(checked_from)
    synced = recovery_point, synced_end
    walk = _Walk(directory, config, epochs, bases, *synced, monotonic_ms, left_over)
    tail = walk.open_all(0 if check_all else checked_from)
    if clean_shutdown and tail is None and synced_end < walk.end_offset:
        logger.warning(
            "%s: it ends at offset %d, and at %d when it was closed: it is checked from there on",
            directory.path,
            walk.end_offset,
            synced_end,
        )
        walk = _Walk(directory, config, epochs, bases, *synced, monotonic_ms, left_over)
        tail = walk.open_all(recovery_point)

    # Leave a damaged log as it is.
    if tail is not None and tail.is_damage(synced_end):
        for suffix in (INDEX, TIME_INDEX):  # the next start reads the segment whole again
            directory.remove(file_name(base_offset_of(tail.file), suffix))
        segments = walk.segments or [Segment.create(directory, log_start_offset, monotonic_ms)]
        return Recovered(segments, log_start_offset, tail.offset, damage=tail)
    _remove_left_over(directory, left_over)

    # Remove a torn tail, and open the rest again.
    unsynced_from, markers_from = walk.unsynced_from, walk.markers_from
    if tail is not None:
        remove_tail(directory, tail)
        kept_bases = _bases(directory.files())
        walk = _Walk(directory, config, epochs, kept_bases, tail.offset, EVERYTHING, monotonic_ms)
        walk.open_all(EVERYTHING)

    # Find the bounds. A log that ends below its start begins again at its start.
    if walk.end_offset == synced_end < log_start_offset:
        logger.warning(
            "%s: a start offset of %d is not believed, the log was closed at %d; deleted records "
            "may be back",
            directory.path,
            log_start_offset,
            synced_end,
        )
        log_start_offset = 0
    segments, end_offset = walk.segments, walk.end_offset
    if not segments or end_offset < log_start_offset:  # not from 0 again (KAFKA-8306)
        _delete_segments(directory, bases)
        segments = [Segment.create(directory, log_start_offset, monotonic_ms)]
        end_offset = log_start_offset
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    if epochs.entries and epochs.entries[0][1] < segments[0].base_offset:
        _log_missing(directory, epochs.entries[0][1], segments[0].base_offset, clean_shutdown)

    # Make the last segment active, and forget what was beyond the bounds.
    segments[-1].activate(config)
    if tail is not None:
        segments[-1].truncate_transactions(end_offset)
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(log_start_offset)
    if tail is not None or not clean_shutdown:
        epochs.save()
    return Recovered(
        segments, log_start_offset, end_offset, tail, None, unsynced_from, markers_from
    )


def _log_missing(
    directory: Directory, first_known: int, base_offset: int, clean_shutdown: bool
) -> None:
    """Log that the log once began with an earlier offset, by its leader epochs."""
    logger.log(
        logging.ERROR if clean_shutdown else logging.WARNING,
        "%s: offsets %d to %d are missing%s",
        directory.path,
        first_known,
        base_offset - 1,
        "" if clean_shutdown else ", unless retention removed them just before the stop",
    )


def remove_tail(directory: Directory, tail: BadTail) -> None:
    """End the log where its good part ends. Raises OSError.

    Later segments go first: if the power fails in between, the next recovery removes the rest.
    """
    base_offset = base_offset_of(tail.file)
    # The file stays if it has good batches, or if its first offset is the next one.
    is_kept = tail.position > 0 or tail.offset == base_offset
    first_deleted = base_offset + is_kept
    bases = [base for base in _bases(directory.files()) if base >= first_deleted]
    _delete_segments(directory, bases)
    if is_kept:
        file = directory.open_segment(tail.file)
        file.truncate(tail.position)
        file.fsync()


def is_named(hole: range, left_over: Collection[str], indexes: Mapping[str, bytes]) -> bool:
    """Return whether an index names an offset in a hole between segments: its batch was there.

    `left_over` are indexes without a log file, `indexes` those of the segment before the hole.
    """
    named = set(map(base_offset_of, left_over))
    for name, content in indexes.items():
        layout = OFFSET_ENTRY if name.endswith(INDEX) else TIME_ENTRY
        relative = 0 if name.endswith(INDEX) else 1
        whole = len(content) // layout.size * layout.size
        entries = layout.iter_unpack(content[:whole])
        named.update(base_offset_of(name) + entry[relative] for entry in entries)
    return any(offset in hole for offset in named)


@attrs.define(eq=False)
class _Walk:
    """Opens the segments of a log, one after the other, as far as it is good."""

    directory: Directory
    config: LogConfig
    epochs: LeaderEpochs
    bases: list[int]
    recovery_point: int
    synced_end: int
    monotonic_ms: int
    left_over: Collection[str] = ()
    """Indexes whose log file is not there."""
    traces: dict[str, bytes] = attrs.field(factory=dict)
    """The indexes of the last segment, if they were rebuilt, as they were."""
    segments: list[Segment] = attrs.field(factory=list)
    end_offset: int = 0
    unsynced_from: int = EVERYTHING
    markers_from: int = EVERYTHING

    def open_all(self, checked_from: int) -> BadTail | None:
        """Open all segments. Those with offsets from `checked_from` on are checked whole."""
        for number, base_offset in enumerate(self.bases):
            next_base = next(iter(self.bases[number + 1 :]), None)
            if number and (reason := self._misfit(base_offset)) is not None:
                return self._bad_tail(base_offset, 0, reason)

            # A segment flushed just to its end may have been closed since, with unsynced indexes.
            if checked_from == EVERYTHING or (next_base is not None and next_base < checked_from):
                built = self._load_by_indexes(base_offset, next_base)
            else:
                built = self._read_whole(base_offset, next_base)
                self._note_unsynced(base_offset, next_base, built)

            self.end_offset = built.offset
            if built.position < self.segments[-1].size:
                return self._bad_tail(base_offset, built.position, built.reason)

        # All that is there is good, but offsets are missing that were on disk.
        if self.end_offset < self.recovery_point:
            base_offset = self.bases[-1] if self.bases else 0
            position = self.segments[-1].size if self.segments else 0
            return self._bad_tail(base_offset, position, "the log was longer")
        return None

    def _note_unsynced(self, base_offset: int, next_base: int | None, built: Built) -> None:
        # A segment that ends below the recovery point was synced whole.
        if next_base is None or next_base >= self.recovery_point:
            self.unsynced_from = min(self.unsynced_from, base_offset)
            if built.has_markers:
                self.markers_from = min(self.markers_from, base_offset)

    def _misfit(self, base_offset: int) -> str | None:
        """Return why a segment that begins there cannot follow; None if it can."""
        assert base_offset >= self.end_offset
        if base_offset == self.end_offset or self.config.may_have_gaps:
            return None

        first = next(self._headers(base_offset), None)
        if first is not None and first.magic == 2 and first.base_offset < base_offset:
            return f"it begins with offset {first.base_offset}"
        # A jump is larger than a segment can be.
        is_jump = base_offset - self.end_offset > INT_MAX
        if is_jump or any(map(self._was_cleaned, self.bases)):
            return None

        is_synced = base_offset <= self.synced_end
        hole = range(self.end_offset, base_offset)
        has_traces = is_named(hole, self.left_over, self.traces)
        # Compaction makes such holes too, and another policy forgets it (fault broker-1).
        if is_synced and not has_traces:
            logger.warning(
                "%s: offsets %d to %d are not there: compaction has removed them, or a whole "
                "segment is missing",
                self.directory.path,
                self.end_offset,
                base_offset - 1,
            )
            return None
        self._keep_traces()
        return "a segment before it is missing"

    def _keep_traces(self) -> None:
        """Put the indexes back that show what the log has lost: the next start looks again."""
        for name, content in self.traces.items():
            self.directory.write_atomic(name, content)

    def _was_cleaned(self, base_offset: int) -> bool:
        """Return whether offsets are missing between its batches: the topic was once compacted.

        Messages of the old formats do not name their first offset, and seem to be cleaned.
        """
        next_offset = base_offset
        for batch in self._headers(base_offset):
            if batch.base_offset != next_offset:
                return True
            next_offset = batch.last_offset + 1
        return False

    def _headers(self, base_offset: int) -> Iterator[ShallowBatch]:
        """Yield the batches of a segment that is not open, as far as they can be read."""
        with contextlib.suppress(CorruptRecord):
            yield from scan(self.directory.open_segment(file_name(base_offset, LOG)))

    def _load_by_indexes(self, base_offset: int, next_base: int | None) -> Built:
        """Open a segment that is on disk whole, as far as its end shows.

        Its bodies are read only if its indexes must be rebuilt, or its end is not as it must be.
        """
        try:
            segment = Segment.load(self.directory, base_offset, self.monotonic_ms)
            check_overflow(segment, next_base)
            end_offset = segment.check_end()
            if next_base is not None and end_offset > next_base:
                raise CorruptRecord("the next segment has its last offsets too")
        except CorruptIndex as error:
            logger.warning("%s: %s; the indexes are rebuilt", self.directory.path, error)
            return self._read_whole(base_offset, next_base)
        except CorruptRecord:
            # Reading it whole shows where the good part ends.
            return self._read_whole(base_offset, next_base)

        self.traces = {}
        self.segments.append(segment)
        return Built(end_offset, segment.size, "")

    def _read_whole(self, base_offset: int, next_base: int | None) -> Built:
        """Read a segment whole, check each batch's checksum, and rebuild the indexes."""
        self.traces = {}
        if next_base is not None and next_base <= self.synced_end:
            names = (file_name(base_offset, suffix) for suffix in (INDEX, TIME_INDEX))
            self.traces = {name: self.directory.read(name) or b"" for name in names}

        segment = Segment.open_without_indexes(self.directory, base_offset, self.monotonic_ms)
        segment.activate(self.config)

        built = build_indexes(
            segment,
            scan_checked(segment.log),
            self.config.index_interval_bytes,
            self.epochs,
            None if self.config.may_have_gaps else self.recovery_point,
            next_base,
        )

        # After recovery the log counts as flushed, so its indexes must be on disk too.
        segment.seal()
        for file in segment.files_to_flush():
            file.fsync()
        self.segments.append(segment)
        return built

    def _bad_tail(self, base_offset: int, position: int, reason: str) -> BadTail:
        # All bytes from the bad one on, in this segment and those behind it.
        sizes = (
            self.directory.size(file_name(base, LOG)) or 0
            for base in self.bases
            if base >= base_offset
        )
        # The last offset is the highest that anything names: checkpoint, files, batches.
        return BadTail(
            file=file_name(base_offset, LOG),
            position=position,
            offset=self.end_offset,
            last_offset=max(self.recovery_point, *self.bases, self._end_behind(base_offset)) - 1,
            size_bytes=sum(sizes) - position,
            reason=reason,
        )

    def _end_behind(self, base_offset: int) -> int:
        """Return where good batches end in the last segment, if it is behind that one; 0 if not."""
        end_offset = 0
        if self.bases and self.bases[-1] > base_offset:
            with contextlib.suppress(CorruptRecord):
                file = self.directory.open_segment(file_name(self.bases[-1], LOG))
                for batch in scan_checked(file):
                    end_offset = batch.last_offset + 1
        return end_offset


def _clean_up(directory: Directory) -> tuple[list[int], list[str]]:
    """Undo what a crash left half done.

    Returns the base offsets of the segments, and the indexes that have no log file.
    """
    _finish_replacements(directory)

    names = set(directory.files())
    left_over = []
    for name in sorted(names):
        stem, dot, suffix = name.partition(".")
        if dot + suffix in (INDEX, TIME_INDEX, TRANSACTION_INDEX) and stem + LOG not in names:
            left_over.append(name)
    return _bases(names), left_over


def _remove_left_over(directory: Directory, names: Sequence[str]) -> None:
    """Remove the indexes of a log that is not damaged: without a log file they are of no use."""
    for name in names:
        logger.warning("%s/%s has no log file: removed", directory.path, name)
        directory.remove(name)


def _bases(names: Iterable[str]) -> list[int]:
    return sorted(base_offset_of(name) for name in names if name.endswith(LOG))


def _delete_segments(directory: Directory, bases: list[int]) -> None:
    """Remove segments, the last one first."""
    for base_offset in reversed(bases):
        for suffix in ALL_SUFFIXES:
            directory.remove(file_name(base_offset, suffix))
    if bases:
        directory.fsync_dir()


def _finish_replacements(directory: Directory) -> None:
    """Finish segment replacements that a crash interrupted, or undo them."""
    names = [name for name in directory.files() if name.endswith((DELETED, CLEANED, SWAP))]
    if not names:
        return

    # Remove unfinished copies. A swap of a pass that has unfinished ones is one of them.
    unfinished = [base_offset_of(name) for name in names if name.endswith(LOG + CLEANED)]
    for name in names:
        if name.endswith((DELETED, CLEANED)) or (
            name.endswith(SWAP) and unfinished and base_offset_of(name) >= min(unfinished)
        ):
            directory.remove(name)

    # What is left are finished copies.
    for name in directory.files():
        if name.endswith(LOG + SWAP):
            _complete_swap(directory, base_offset_of(name))

    # Only the transaction index of a swap is kept: the others are rebuilt.
    for name in directory.files():
        if name.endswith(TRANSACTION_INDEX + SWAP):  # renamed last
            directory.rename(name, name.removesuffix(SWAP))
        elif name.endswith(SWAP):
            directory.remove(name)


def _complete_swap(directory: Directory, base_offset: int) -> None:
    """Put a finished copy in the place of the segments whose offsets it covers.

    Its indexes are rebuilt: an index with the plain name may be the original's, whose log file was
    marked just before the crash.
    """
    swap_name = file_name(base_offset, LOG + SWAP)
    end_offset = _end_offset(directory, swap_name)
    logs = [base_offset_of(name) for name in directory.files() if name.endswith(LOG)]
    below = max((base for base in logs if base < base_offset), default=base_offset)

    # Remove the originals: the segments that the copy covers, or the one that was split.
    for replaced in logs:
        is_split = replaced == below and _end_offset(directory, file_name(below, LOG)) > base_offset
        if is_split or base_offset < replaced < end_offset:
            for suffix in ALL_SUFFIXES:
                directory.remove(file_name(replaced, suffix))
    # Give the copy its name.
    for suffix in (INDEX, TIME_INDEX, TRANSACTION_INDEX):
        directory.remove(file_name(base_offset, suffix))
    directory.rename(swap_name, file_name(base_offset, LOG))
    logger.warning("%s: segment %d takes the place of its originals", directory.path, base_offset)


def _end_offset(directory: Directory, name: str) -> int:
    end_offset = 0
    for batch in scan(directory.open_segment(name)):
        end_offset = batch.last_offset + 1
    return end_offset
