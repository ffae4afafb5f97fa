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
class Recovered:
    """A log's segments, the last one active, and where it ends; `cut` says what it lost."""

    segments: list[Segment]
    log_end_offset: int
    cut: Cut | None


@attrs.frozen
class Cut:
    """Bytes that recovery took from a log: from `offset` on, `size_bytes` of them, and why."""

    offset: int
    size_bytes: int
    reason: str


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

    A log that was closed is believed if its last segment ends with a whole batch. Raises OSError,
    and ValueError for files that are no log's.
    """
    segments = load_segments(directory, config, now_ms)
    cut = None
    if not clean_shutdown:
        segments, cut = recover(segments, recovery_point, config, epochs)
    elif segments and not _ends_whole(segments[-1]):
        segments, cut = recover(segments, segments[-1].base_offset, config, epochs)
    log_end_offset = segments[-1].next_offset() if segments else 0
    if not segments or log_end_offset < log_start_offset:  # not from 0 again (KAFKA-8306)
        drop(segments)
        segments = [Segment.create(directory, log_start_offset, now_ms)]
        log_end_offset = log_start_offset
    segments[-1].activate(config)
    epochs.truncate_from_end(log_end_offset)
    epochs.truncate_from_start(max(log_start_offset, segments[0].base_offset))
    return Recovered(segments, log_end_offset, cut)


def load_segments(directory: Directory, config: LogConfig, now_ms: int) -> list[Segment]:
    """Open the segments a log has, in order of offset, after tidying what a crash left.

    A segment without a good index is read whole to build one; a batch that is corrupt there cuts
    the segment, as in `recover`. Raises OSError.
    """
    _finish_replacements(directory, now_ms)
    names = set(directory.files())
    for name in sorted(names):
        stem, dot, suffix = name.partition(".")
        if dot + suffix in (INDEX, TIME_INDEX) and stem + LOG not in names:
            _log.warning("%s/%s has no log file: removed", directory.path, name)
            directory.remove(name)
    return [
        _load_segment(directory, base_offset_of(name), config, now_ms)
        for name in sorted(names)
        if name.endswith(LOG)
    ]


def recover(
    segments: list[Segment], recovery_point: int, config: LogConfig, epochs: LeaderEpochs
) -> tuple[list[Segment], Cut | None]:
    """Check all that may not have reached the disk; the segments that remain, and what was cut.

    The segment that holds the recovery point is checked whole, for it has an unflushed tail
    (KAFKA-1112). What remains is flushed.
    """
    for number, segment in enumerate(segments):
        following = segments[number + 1 :]
        if following and following[0].base_offset <= recovery_point:
            continue
        cut = rebuild(segment, config, epochs)
        for file in segment.files_to_flush():
            file.fsync()
        if cut is not None:
            dropped = sum(later.size for later in following)
            drop(following)
            return segments[: number + 1], attrs.evolve(cut, size_bytes=cut.size_bytes + dropped)
    return segments, None


def rebuild(segment: Segment, config: LogConfig, epochs: LeaderEpochs | None = None) -> Cut | None:
    """Read a segment's batches, make its indexes from them, and cut it where they end.

    The leader epochs of the batches are added to `epochs`. The segment is sealed afterwards.
    """
    segment.reset_indexes()
    segment.activate(config)
    end_position, next_offset, indexed_position = 0, segment.base_offset, 0
    reason = "the file ends within a batch"
    try:
        for batch in scan_checked(segment.log):
            if batch.last_offset < next_offset or batch.base_offset < segment.base_offset:
                raise CorruptRecord(f"offset {batch.base_offset} comes after {next_offset - 1}")
            if batch.last_offset - segment.base_offset > INT_MAX:
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
    cut_bytes = segment.log.size - end_position
    segment.log.truncate(end_position)
    segment.seal()
    return Cut(next_offset, cut_bytes, reason) if cut_bytes else None


def drop(segments: list[Segment]) -> None:
    """Remove segments' files at once: nobody reads them yet."""
    for segment in segments:
        for name in segment.rename_files(DELETED):
            segment.directory.remove(name)


def _ends_whole(segment: Segment) -> bool:
    try:
        segment.next_offset()
    except CorruptRecord:
        return False
    return True


def _load_segment(
    directory: Directory, base_offset: int, config: LogConfig, now_ms: int
) -> Segment:
    try:
        return Segment.load(directory, base_offset, now_ms)
    except CorruptIndex as error:
        _log.warning("%s: %s; the indexes are built anew", directory.path, error)
        segment = Segment.open_without_indexes(directory, base_offset, now_ms)
        cut = rebuild(segment, config)
        if cut is not None:
            _log.warning("%s: segment %d loses %s", directory.path, base_offset, cut)
        return segment


def _finish_replacements(directory: Directory, now_ms: int) -> None:
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
