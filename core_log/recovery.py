"""What a log does before it serves: finish or undo what a crash cut short, then trust nothing.

Segment replacement leaves its traces in suffixes. `.cleaned` files are unfinished copies and go;
`.deleted` files were on their way out and go; a `.swap` is a finished copy whose originals may be
partly renamed, and takes their place. Kafka never renames a swap before the originals are marked
(KAFKA-2118), so each state says which step comes next.

After an unclean stop every segment from the recovery point on is read whole, each batch held to
its checksum, and the indexes are built anew. The log is cut at the first byte that is not a good
batch, and segments behind a cut are dropped: offsets must not have holes that nobody made.
"""

from __future__ import annotations

import logging

import attrs

from core_log.batch_scan import scan, scan_checked
from core_log.config import INT_MAX, LogConfig
from core_log.index_file import CorruptIndex
from core_log.leader_epochs import LeaderEpochs
from core_log.segment import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    SUFFIXES,
    SWAP,
    TIME_INDEX,
    Segment,
    base_offset_of,
    file_name,
)
from core_log.storage import Directory
from core_log.time_index import TimestampOffset
from protocol.records.corrupt_record import CorruptRecord

_log = logging.getLogger(__name__)


@attrs.frozen
class Cut:
    """What recovery takes from a log: `size_bytes` bytes, from `offset` on, and why."""

    offset: int
    position: int
    size_bytes: int
    reason: str

    def __str__(self) -> str:
        return f"{self.size_bytes} bytes from offset {self.offset} on: {self.reason}"


@attrs.frozen
class Recovered:
    """A log's segments, the last one active, and where it ends; `cut` says what it lost."""

    segments: list[Segment]
    log_end_offset: int
    cut: Cut | None


def open_log(
    directory: Directory,
    config: LogConfig,
    epochs: LeaderEpochs,
    *,
    recovery_point: int,
    clean_shutdown: bool,
    log_start_offset: int,
    now_ms: int,
) -> Recovered:
    """Open a log's files, after recovery if it was not closed; make the first if there are none.

    The segment that holds the recovery point is checked whole, for it has an unflushed tail
    (KAFKA-1112). A log that was closed is believed if its last segment ends with a whole batch.
    Raises OSError, and ValueError for files that are no log's.
    """
    segments: list[Segment] = []
    cut = None
    bases = _tidy(directory)
    for number, base_offset in enumerate(bases):
        following = bases[number + 1 :]
        if clean_shutdown or (following and following[0] <= recovery_point):
            segments.append(_believed(directory, base_offset, config, now_ms))
            continue
        segment = Segment.open_without_indexes(directory, base_offset, now_ms)
        segments.append(segment)
        cut = _recovered(segment, following, config, epochs)
        if cut is not None:
            break
    if clean_shutdown and segments and not _ends_whole(segments[-1]):
        segments[-1].reset_indexes()
        cut = _recovered(segments[-1], [], config, epochs)
    log_end_offset = segments[-1].next_offset() if segments else 0
    if not segments or log_end_offset < log_start_offset:  # not from 0 again (KAFKA-8306)
        _drop(directory, [segment.base_offset for segment in segments])
        segments = [Segment.create(directory, log_start_offset, now_ms)]
        log_end_offset = log_start_offset
    segments[-1].activate(config)
    epochs.truncate_from_end(log_end_offset)
    epochs.truncate_from_start(max(log_start_offset, segments[0].base_offset))
    epochs.save()
    return Recovered(segments, log_end_offset, cut)


def _tidy(directory: Directory) -> list[int]:
    """Undo what a crash left half done; the base offsets of the segments there are."""
    _finish_replacements(directory)
    names = set(directory.files())
    for name in sorted(names):
        stem, dot, suffix = name.partition(".")
        if dot + suffix in (INDEX, TIME_INDEX) and stem + LOG not in names:
            _log.warning("%s/%s has no log file: removed", directory.path, name)
            directory.remove(name)
    return sorted(base_offset_of(name) for name in names if name.endswith(LOG))


def _believed(directory: Directory, base_offset: int, config: LogConfig, now_ms: int) -> Segment:
    """A segment that reached the disk whole; only its indexes may have to be made anew."""
    try:
        return Segment.load(directory, base_offset, now_ms)
    except CorruptIndex as error:
        _log.warning("%s: %s; the indexes are made anew", directory.path, error)
        segment = Segment.open_without_indexes(directory, base_offset, now_ms)
        cut = _build_indexes(segment, config)
        if cut is not None:
            _log.warning("%s: segment %d loses %s", directory.path, base_offset, cut)
            segment.log.truncate(cut.position)
        return segment


def _recovered(
    segment: Segment, following: list[int], config: LogConfig, epochs: LeaderEpochs
) -> Cut | None:
    """Check a segment without indexes whole and flush it; what went, with what follows it.

    What follows goes first: if the power fails in between, the next recovery cuts again.
    """
    cut = _build_indexes(segment, config, epochs)
    if cut is not None:
        dropped_bytes = _drop(segment.directory, following)
        segment.log.truncate(cut.position)
        cut = attrs.evolve(cut, size_bytes=cut.size_bytes + dropped_bytes)
    for file in segment.files_to_flush():
        file.fsync()
    return cut


def _build_indexes(
    segment: Segment, config: LogConfig, epochs: LeaderEpochs | None = None
) -> Cut | None:
    """Read all batches, make the indexes from them, and say where the good ones end.

    Leader epochs that `epochs` does not have are added to it. The segment is sealed afterwards.
    """
    segment.activate(config)
    end_position, next_offset, indexed_position = 0, segment.base_offset, 0
    reason = "the file ends within a batch"
    try:
        for batch in scan_checked(segment.log):
            if batch.base_offset < next_offset:
                raise CorruptRecord(f"offset {batch.base_offset} comes after {next_offset - 1}")
            if not 0 <= batch.last_offset - segment.base_offset <= INT_MAX:
                raise CorruptRecord(f"offset {batch.last_offset} is too far from the base")
            if batch.max_timestamp > segment.latest.timestamp:
                segment.latest = TimestampOffset(batch.max_timestamp, batch.last_offset)
            if batch.position - indexed_position > config.index_interval_bytes:
                segment.add_index_entry(batch.last_offset, batch.position)
                indexed_position = batch.position
            if epochs is not None and batch.leader_epoch > epochs.latest_epoch:
                epochs.assign(batch.leader_epoch, batch.base_offset)
            end_position, next_offset = batch.end_position, batch.last_offset + 1
    except CorruptRecord as error:
        reason = str(error)
    segment.seal()
    lost_bytes = segment.size - end_position
    return Cut(next_offset, end_position, lost_bytes, reason) if lost_bytes else None


def _drop(directory: Directory, bases: list[int]) -> int:
    """Remove segments, the last one first; the bytes of batches they had."""
    dropped_bytes = 0
    for base_offset in reversed(bases):
        dropped_bytes += directory.size(file_name(base_offset, LOG)) or 0
        for suffix in SUFFIXES:
            directory.remove(file_name(base_offset, suffix))
    if bases:
        directory.fsync_dir()
    return dropped_bytes


def _ends_whole(segment: Segment) -> bool:
    try:
        segment.next_offset()
    except CorruptRecord:
        return False
    return True


def _finish_replacements(directory: Directory) -> None:
    """Bring segment replacements that a crash interrupted to their end, or undo them."""
    names = directory.files()
    unfinished = [base_offset_of(name) for name in names if name.endswith(LOG + CLEANED)]
    for name in names:
        if name.endswith((DELETED, CLEANED)) or (
            name.endswith(SWAP) and unfinished and base_offset_of(name) >= min(unfinished)
        ):
            directory.remove(name)
    for name in directory.files():
        if name.endswith(LOG + SWAP):
            _complete_swap(directory, base_offset_of(name))
    for name in directory.files():
        if name.endswith(SWAP):
            directory.remove(name)


def _complete_swap(directory: Directory, base_offset: int) -> None:
    """Put a finished copy in the place of the segments whose offsets it covers."""
    swap_name = file_name(base_offset, LOG + SWAP)
    end_offset = base_offset
    for batch in scan(directory.open_segment(swap_name)):
        end_offset = batch.last_offset + 1
    logs = [base_offset_of(name) for name in directory.files() if name.endswith(LOG)]
    for replaced in logs:
        if replaced == base_offset or base_offset < replaced < end_offset:
            for suffix in SUFFIXES:
                directory.remove(file_name(replaced, suffix))
    directory.rename(swap_name, file_name(base_offset, LOG))
    _log.warning("%s: segment %d takes the place of its originals", directory.path, base_offset)
