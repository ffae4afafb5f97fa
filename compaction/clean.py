"""One cleaning of one log, from its first segment up to the first that must not be touched.

First the dirty part is read, and the newest offset of each key noted. When the map is full that is
as far as this run looks: the next one goes on there (a partial pass). Then all segments that
begin below that offset are copied, those cleaned before too, without the records of which
there is a newer one; small neighbours become one segment. A segment that came out is put into
the log by whoever owns the log, by one rename after another; here only `.cleaned` files are
written, and nothing else is changed.

Everything is a generator that stops every few megabytes, so that its driver can slow it down,
report, or give up: closing it, or any fault, removes what was written and not handed over.
Source: KIP-58 and KIP-98 as far as compaction goes, kafka.log.LogCleaner.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

import attrs

from compaction.cleaned_segment import CleanedSegment, remove_cleaned_files
from compaction.grouping import group_segments
from compaction.job import (
    CLEAN,
    INDEX,
    CleanerStatistics,
    CleaningJob,
    CleaningProgress,
    Finished,
    GroupCleaned,
    SourceSegment,
)
from compaction.map_building import MapBuilder
from compaction.offset_map import create_offset_map
from compaction.record_filter import RecordFilter
from compaction.source import read_pieces
from compaction.transactions import CleanedTransactions, aborted_transactions
from core_log.storage import Directory

Event = CleaningProgress | GroupCleaned | Finished


def clean(job: CleaningJob, directory: Directory) -> Generator[Event, None, None]:
    """Clean the log in `directory`. A GroupCleaned's files are the caller's as soon as it goes on.

    Raises CorruptRecord, CorruptIndex, CompressionUnavailable and OSError: the fault of this log.
    """
    aborted = aborted_transactions(
        directory, job.segments[0].base_offset, job.first_uncleanable_offset
    )
    newest = create_offset_map(int(job.dedupe_bytes * job.load_factor))
    first_dirty = job.first_dirty_offset
    # The map's reader sees no marker of the clean part: what ended there would seem to go on, and
    # what its producer committed since, tombstones perhaps, would hide no older value.
    ending_dirty = [each for each in aborted if each.last_offset >= first_dirty]
    mapped = MapBuilder(newest, CleanedTransactions(ending_dirty), first_dirty, first_dirty)
    yield from _build_map(job, directory, mapped)

    rules = RecordFilter(
        newest,
        first_dirty,
        mapped.end_offset - 1,
        job.producers,
        CleanedTransactions(aborted),
        job.config.max_message_bytes,
        mapped.keyless,
        unopened=mapped.unopened,
    )
    segments = [segment for segment in job.segments if segment.base_offset < mapped.end_offset]
    copying = _Copying(
        job,
        directory,
        rules,
        tombstone_horizon_ms(segments, first_dirty, job.config.delete_retention_ms),
        sum(segment.size for segment in segments),
    )
    for group in group_segments(segments, job.config):
        yield from copying.group(group)
    yield Finished(
        mapped.end_offset,
        CleanerStatistics(
            map_bytes_read=mapped.bytes_read,
            map_messages_read=mapped.messages_read,
            map_utilization=len(newest) / newest.capacity,
            bytes_read=copying.bytes_read,
            messages_read=rules.messages_read,
            bytes_written=copying.bytes_written,
            messages_written=copying.messages_written,
            invalid_messages=rules.keyless,
            outgrown_batches=rules.outgrown,
            unopened_batches=rules.kept_unopened,
            first_unopened=rules.first_unopened,
        ),
    )


def tombstone_horizon_ms(segments: Sequence[SourceSegment], first_dirty: int, delay_ms: int) -> int:
    """Segments last written to until then lose their tombstones; 0 if nothing was cleaned yet.

    By the files' age and not by the records': those may be from the future, or long ago when
    they are written (KAFKA-4529).
    """
    cleaned = [segment for segment in segments if segment.base_offset < first_dirty]
    return cleaned[-1].modified_ms - delay_ms if cleaned else 0


def _build_map(
    job: CleaningJob, directory: Directory, mapped: MapBuilder
) -> Iterator[CleaningProgress]:
    dirty = [segment for segment in job.segments if segment.end_offset > job.first_dirty_offset]
    bytes_left = sum(segment.size for segment in dirty)
    for segment in dirty:
        for piece in read_pieces(directory, segment, job.io_bytes):
            mapped.add(piece)
            bytes_left -= piece.size
            yield CleaningProgress(INDEX, len(piece.data), bytes_left)
            if mapped.is_full:
                return
        mapped.end_offset = segment.end_offset  # whatever there was for the map in the last batches


@attrs.define(eq=False)
class _Copying:
    """The second half of a run. Markers of aborted transactions are indexed with the segment that
    they stay in."""

    job: CleaningJob
    directory: Directory
    rules: RecordFilter
    horizon_ms: int
    bytes_left: int
    bytes_read: int = 0
    bytes_written: int = 0
    messages_written: int = 0

    def group(self, group: Sequence[SourceSegment]) -> Iterator[Event]:
        base_offset, config = group[0].base_offset, self.job.config
        try:
            cleaned = CleanedSegment.create(self.directory, base_offset, config)
            for segment in group:
                yield from self._segment(segment, cleaned)
            cleaned.finish(self.rules.transactions.take_kept(), group[-1].modified_ms)
            self.bytes_written += cleaned.bytes_written
            self.messages_written += cleaned.messages_written
            yield GroupCleaned(base_offset, tuple(segment.base_offset for segment in group))
        except BaseException:
            remove_cleaned_files(self.directory, base_offset)
            raise

    def _segment(
        self, segment: SourceSegment, cleaned: CleanedSegment
    ) -> Iterator[CleaningProgress]:
        self.rules.retain_tombstones = segment.modified_ms > self.horizon_ms
        is_checked = (
            segment.base_offset >= self.job.first_dirty_offset
            and segment.end_offset <= self.rules.latest_offset + 1
        )
        for piece in read_pieces(self.directory, segment, self.job.io_bytes, is_checked=is_checked):
            written = cleaned.bytes_written
            for kept in self.rules.filter(piece):
                cleaned.append(kept)
            cleaned.flush_run()
            self.bytes_read += piece.size
            self.bytes_left -= piece.size
            done = len(piece.data) + cleaned.bytes_written - written
            yield CleaningProgress(CLEAN, done, self.bytes_left)
