"""One cleaning of one log, from its first segment up to the first that must not be touched.

First the dirty part is read, and the newest offset of each key noted. A run ends where the map is
full, and the next one goes on there (a partial pass). Then all segments that begin below that
offset are copied, those cleaned before too, without the records that have a newer one. Small
neighbours become one segment. The log's owner puts a cleaned segment into the log, by one rename
after another. This module only writes `.cleaned` files, and changes nothing else.

Everything is a generator that stops every few megabytes, so that its driver can slow it down,
report, or give up. Closing it, or any error, removes the files that were written and not handed
over. Source: KIP-58 and KIP-98 as far as compaction goes, kafka.log.LogCleaner.
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
    """Clean the log in `directory`. The files of a GroupCleaned then belong to the caller.

    Raises CorruptRecord, CorruptIndex, CompressionUnavailable and OSError, for this log alone.
    """
    # Read the dirty part into the map.
    aborted = aborted_transactions(
        directory, job.segments[0].base_offset, job.first_uncleanable_offset
    )
    newest = create_offset_map(int(job.dedupe_bytes * job.load_factor))
    first_dirty = job.first_dirty_offset

    # The map's reader sees no marker of the clean part. A transaction that ended there would seem
    # to go on, and what its producer committed since would hide no older value.
    ending_dirty = [
        transaction for transaction in aborted if transaction.last_offset >= first_dirty
    ]
    builder = MapBuilder(newest, CleanedTransactions(ending_dirty), first_dirty, first_dirty)
    yield from _build_map(job, directory, builder)

    # Copy the records that stay.
    rules = RecordFilter(
        newest,
        first_dirty,
        builder.end_offset - 1,
        job.producers,
        CleanedTransactions(aborted),
        job.config.max_message_bytes,
        builder.keyless,
        unopened=builder.unopened,
    )
    segments = [segment for segment in job.segments if segment.base_offset < builder.end_offset]
    copying = _Copying(
        job,
        directory,
        rules,
        tombstone_horizon_ms(segments, first_dirty, job.config.delete_retention_ms),
        sum(segment.size for segment in segments),
    )
    for group in group_segments(segments, job.config):
        yield from copying.copy_group(group)

    yield Finished(
        builder.end_offset,
        CleanerStatistics(
            map_bytes_read=builder.bytes_read,
            map_messages_read=builder.messages_read,
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
    """Return the time until which the last write of a segment makes its tombstones go.

    It is 0 if nothing was cleaned yet. The age of files counts, and not that of records, which may
    be from the future, or long ago when they are written (KAFKA-4529).
    """
    cleaned = [segment for segment in segments if segment.base_offset < first_dirty]
    return cleaned[-1].modified_ms - delay_ms if cleaned else 0


def _build_map(
    job: CleaningJob, directory: Directory, builder: MapBuilder
) -> Iterator[CleaningProgress]:
    dirty = [segment for segment in job.segments if segment.end_offset > job.first_dirty_offset]
    bytes_left = sum(segment.size for segment in dirty)
    for segment in dirty:
        for piece in read_pieces(directory, segment, job.io_bytes):
            builder.add(piece)
            bytes_left -= piece.size
            yield CleaningProgress(INDEX, len(piece.data), bytes_left)
            # The rest is left to the next pass.
            if builder.is_full:
                return
        # The last batches may have had nothing for the map.
        builder.end_offset = segment.end_offset


@attrs.define(eq=False)
class _Copying:
    """The second half of a run: copies groups of segments.

    The markers of aborted transactions are indexed with the segment that they stay in.
    """

    job: CleaningJob
    directory: Directory
    rules: RecordFilter
    horizon_ms: int
    bytes_left: int
    bytes_read: int = 0
    bytes_written: int = 0
    messages_written: int = 0

    def copy_group(self, group: Sequence[SourceSegment]) -> Iterator[Event]:
        base_offset, config = group[0].base_offset, self.job.config
        try:
            cleaned = CleanedSegment.create(self.directory, base_offset, config)
            for segment in group:
                yield from self._copy_segment(segment, cleaned)

            cleaned.finish(self.rules.transactions.take_kept(), group[-1].modified_ms)
            self.bytes_written += cleaned.bytes_written
            self.messages_written += cleaned.messages_written
            # The files are whole and on disk: their owner may put them into the log.
            yield GroupCleaned(base_offset, tuple(segment.base_offset for segment in group))
        except BaseException:
            # Closing the generator raises here too.
            remove_cleaned_files(self.directory, base_offset)
            raise

    def _copy_segment(
        self, segment: SourceSegment, cleaned: CleanedSegment
    ) -> Iterator[CleaningProgress]:
        self.rules.retain_tombstones = segment.modified_ms > self.horizon_ms
        # The first half has checked whatever it has read.
        is_checked = (
            segment.base_offset >= self.job.first_dirty_offset
            and segment.end_offset <= self.rules.latest_offset + 1
        )

        for piece in read_pieces(self.directory, segment, self.job.io_bytes, is_checked=is_checked):
            written_before = cleaned.bytes_written
            for kept in self.rules.filter(piece):
                cleaned.append(kept)
            cleaned.flush_run()
            self.bytes_read += piece.size
            self.bytes_left -= piece.size
            done = len(piece.data) + cleaned.bytes_written - written_before
            yield CleaningProgress(CLEAN, done, self.bytes_left)
