"""One partition's log: batches in order of offset, in segments, on one disk.

Everything here runs on one thread, the event loop's, or, while `is_lent`, on the one it was lent
to. Beside it may run what has a `run` of its own: `Flush` and `Retention`. An
append has been validated by its caller. The log gives it its offsets, writes it in one call
without copying its body, and only then moves the log end offset, so a reader never meets half an
append. When the disk fails under a write the file is cut back to what was whole (`guard`).

Files, their names, when a segment is rolled and when an index entry is written, are Kafka's
(kafka.log.Log), so that a JVM broker and its tools can read the directory.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial

import attrs

from core_log.appending.appended import LogAppendInfo
from core_log.appending.batch_stamp import stamp
from core_log.appending.replicated_run import split_into_runs
from core_log.config import INT_MAX, LogConfig
from core_log.flush import Flush
from core_log.guard import Guard
from core_log.leader_epochs import LeaderEpochs
from core_log.producers.producer_history import ProducerHistory
from core_log.producers.producer_snapshots import snapshot_name
from core_log.producers.producer_state import ProducerState
from core_log.recovery.damage import BadTail
from core_log.retention import count_expired
from core_log.segments.index_file import CorruptIndex
from core_log.segments.replacement import Replacement
from core_log.segments.retained import Retention
from core_log.segments.segment import BadIndex, Segment
from core_log.segments.segment_list import SegmentList, find_record, is_cheap_to_read
from core_log.segments.time_index import TimestampOffset
from core_log.segments.transaction_index import AbortedTransaction
from core_log.storage import BytesLike, Directory, FileRange, StorageFile, sync
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch_header import LOG_APPEND_TIME, MAGIC, BatchHeader
from protocol.topic_partition import TopicPartition

WRITE_BACK_BYTES = 4 * 2**20
"""What is appended to a segment is brought to the disk in pieces of this size: a system that let
gigabytes gather would make an append wait for them."""
OFFSETS_TOPIC = "__consumer_offsets"

logger = logging.getLogger(__name__)

InThread = Callable[[Callable[[], TimestampOffset | None]], Awaitable[TimestampOffset | None]]
"""Has something done while the event loop goes on."""


WriteBack = Callable[[StorageFile, int, int], None]
"""Has bytes of a file (start and size) brought to the disk while appends go on."""


class AppendLater(Exception):
    """A segment has to be synced before `rest` is appended, which is not for the event loop, or
    the log takes nothing for the moment: to be tried again after a flush (`LogWork.flush`)."""

    def __init__(self, rest: memoryview | None = None) -> None:
        super().__init__("the log has to be flushed first")
        self.rest = memoryview(b"") if rest is None else rest


@attrs.define(eq=False, repr=False)
class Log:
    """The log of one partition. Offsets below `log_start_offset` are gone, or as good as gone.

    `now_ms` is the wall clock, by which records and their retention go. Intervals go by
    `monotonic_ms`: flush.ms, file.delete.delay.ms, the age of segments without timestamps.
    """

    directory: Directory
    topic_partition: TopicPartition
    config: LogConfig
    segments: SegmentList
    leader_epochs: LeaderEpochs
    log_start_offset: int
    guard: Guard
    history: ProducerHistory
    monotonic_ms: Callable[[], int]
    damage: BadTail | None = None
    before_truncation: Callable[[int], None] = lambda offset: None
    is_lent: bool = False
    is_held: bool = False
    """Nothing is appended by the event loop, which goes on to read."""
    write_back: WriteBack = lambda file, start, size: None
    """Tells the disk to begin with these bytes of the active segment."""
    _is_closing: bool = False
    _written_back: int = 0
    """Up to where that was done."""
    _bad_indexes: dict[Segment, None] = attrs.field(factory=dict)

    def __repr__(self) -> str:
        failure = f", failed: {self.failure}" if self.failure else ""
        offsets = f"{self.log_start_offset} to {self.log_end_offset}"
        return f"Log({self.topic_partition}, {offsets}{failure})"

    @property
    def failure(self) -> str | None:
        """Why it takes no writes, for good or for a lack of room; None while it does."""
        return self.guard.refusal

    @property
    def producers(self) -> ProducerState:
        """Who has written to it, as far as that is remembered."""
        return self.history.state

    @property
    def log_end_offset(self) -> int:
        """The offset the next batch gets."""
        return self.segments.end_offset

    @property
    def recovery_point(self) -> int:
        """The first offset that is not known to be on disk."""
        return self.segments.flushes.recovery_point

    @property
    def truncations(self) -> int:
        """How often the log was cut: what was decided of it before is decided anew."""
        return self.segments.flushes.truncations

    @property
    def durable_end_offset(self) -> int:
        """What may be counted as kept: flush.messages allows for some that are not on disk."""
        return self.segments.flushes.durable_end_offset(self.config, self.log_end_offset)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    # Writing

    def append(
        self,
        batch: BytesLike,
        header: BatchHeader,
        *,
        leader_epoch: int,
        now_ms: int,
        max_timestamp: int,
        may_sync: bool = True,
    ) -> LogAppendInfo:
        """Write one batch as the leader: it gets the next offsets and the leader's epoch.

        `header` is the batch's, `max_timestamp` the true latest timestamp of its records. What
        its producer wrote before is not appended again. Raises ApiError RECORD_LIST_TOO_LARGE,
        KAFKA_STORAGE_ERROR and those of `ProducerState.check`, and, without `may_sync`,
        AppendLater, with nothing appended.
        """
        self.check_fits(header.size)
        if header.producer_id >= 0:
            epoch_only = self.topic_partition.topic == OFFSETS_TOPIC
            found = self.producers.check(header, epoch_only=epoch_only)
            if found is not None:
                return LogAppendInfo(
                    found.base_offset, found.last_offset, found.timestamp, self.log_start_offset
                )
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        attributes, log_append_time_ms = header.attributes, -1
        if self.config.message_timestamp_type == "LogAppendTime":
            attributes |= LOG_APPEND_TIME
            max_timestamp = log_append_time_ms = now_ms
        buffers = stamp(batch, header, base_offset, leader_epoch, attributes, max_timestamp)
        latest = TimestampOffset(max_timestamp, last_offset)
        try:
            self._write(buffers, base_offset, last_offset, latest, may_sync)
        except OSError as error:
            raise self.guard.refuse(error) from error
        self._note_epoch(leader_epoch, base_offset)
        if header.producer_id >= 0:
            self.producers.update(header, last_offset, max_timestamp, now_ms)
        return LogAppendInfo(base_offset, last_offset, log_append_time_ms, self.log_start_offset)

    def check_fits(self, size: int) -> None:
        """Hold what a producer sent to segment.bytes.

        Raises ApiError KAFKA_STORAGE_ERROR and RECORD_LIST_TOO_LARGE.
        """
        self.guard.check()
        if size > self.config.segment_bytes:
            why = f"{size} bytes do not fit segment.bytes {self.config.segment_bytes}"
            raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, why)

    def begin_epoch(self, epoch: int) -> None:
        """A leader begins to write in `epoch`."""
        self._note_epoch(epoch, self.log_end_offset)

    def append_follower(self, batches: BytesLike, *, now_ms: int, may_sync: bool = True) -> int:
        """Write batches as the leader has them, offsets, epochs and all; the new log end offset.

        A partial batch at the end is left out. A batch larger than segment.bytes, which may have
        been lowered since it was written, gets a segment of its own. Raises CorruptRecord,
        UnexpectedAppendOffset or, without `may_sync`, AppendLater (what was whole before it is
        appended), and ApiError KAFKA_STORAGE_ERROR.
        """
        records, done_bytes = memoryview(batches), 0
        for run in split_into_runs(records, self.log_end_offset, self.config.segment_bytes):
            self.guard.check()
            bounds = run.first_offset, run.last_offset
            try:
                self._write([run.records], *bounds, run.latest, may_sync)
            except AppendLater as later:
                later.rest = records[done_bytes:]
                raise
            except OSError as error:
                raise self.guard.refuse(error) from error
            for header in run.headers:
                self._note_epoch(header.partition_leader_epoch, header.base_offset)
            self.history.replay(run.produced, now_ms)
            done_bytes += len(run.records)
        return self.log_end_offset

    def roll(self, monotonic_ms: int) -> None:
        """Begin a new segment at the log's end; an active segment with nothing in it stays.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        self.guard.check()
        try:
            self._roll(self.log_end_offset, monotonic_ms)
        except OSError as error:
            raise self.guard.refuse(error) from error

    def lower_recovery_point(self, offset: int) -> None:
        """Take nothing from `offset` on for flushed: the log is about to be truncated there."""
        if offset < self.log_end_offset:
            self.segments.flushes.truncate(offset)

    def truncate_to(self, offset: int) -> bool:
        """End the log at `offset`, or where the batch begins that holds it; whether anything went.

        Damage met there goes too: the log ends with the last good batch below it, and what is
        missing then the leader has.

        Kafka ends it at `offset` in any case: what is appended next then stands behind a hole, or
        is the whole batch again and refused. An epoch that begins there goes, though nothing was
        written in it: a follower that kept it would ask about it for ever.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        assert offset >= 0
        self.guard.check()
        if offset < self.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        with self.guard:
            if offset >= self.log_end_offset:
                self.leader_epochs.truncate_from_end(offset)
                return False
            offset = self.segments.end_below(offset)
            try:
                self.lower_checkpoints(offset)
            except OSError as error:  # nothing is cut yet
                raise self.guard.refuse(error) from error
            self.segments.truncate_to(offset, self.config, self.monotonic_ms())
            self.log_start_offset = min(self.log_start_offset, offset)
            self.leader_epochs.truncate_from_end(offset)
            self.directory.fsync_dir()
            self.history.truncate_to(offset)
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the next batch has `offset`. Raises ApiError KAFKA_STORAGE_ERROR."""
        self.guard.check()
        with self.guard:
            self.lower_checkpoints(min(offset, self.segments.first.base_offset))
            self.segments.drop_all(self.config, self.monotonic_ms())
            self.leader_epochs.clear()
            self.segments.begin(offset, self.config, self.monotonic_ms())
            self.log_start_offset = offset
            self.segments.end_at(offset)
            self.history.clear(offset)

    def update_config(self, config: LogConfig) -> None:
        """Go by other settings from now on.

        Messages of the older formats tell no epochs. A follower would keep the last one it was
        told, and cut off all that came since (KAFKA-7897): below format 2 there are none.
        """
        self.config = config
        if config.magic < MAGIC:
            self.leader_epochs.clear()

    # Reading

    def read(
        self, offset: int, max_bytes: int, end_offset: int, min_one: bool = True
    ) -> FileRange | None:
        """Bytes that start with the batch of `offset`, or the next one there is; None for none.

        Nothing at or above `end_offset` is in them. They end with a segment, and may end within
        a batch, which readers skip. A first batch larger than `max_bytes` comes whole with
        `min_one`, and not at all without (KIP-74). Raises ApiError OFFSET_OUT_OF_RANGE,
        CORRUPT_MESSAGE where there should be a batch and is none, KAFKA_STORAGE_ERROR, and
        REPLICA_NOT_AVAILABLE until the next flush has made a bad index anew.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is not in {self}")
        if offset >= end_offset:
            return None
        end_offset = min(end_offset, self.log_end_offset)
        with self.guard.reading:
            try:
                return self.segments.read(offset, max_bytes, end_offset, min_one)
            except BadIndex as bad:
                raise self._put_off(bad) from bad

    def aborted_transactions(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """What a reader of committed data must leave out of what is between these offsets.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        with self.guard.reading:
            try:
                return self.segments.aborted_transactions(
                    offset, min(end_offset, self.log_end_offset)
                )
            except CorruptIndex as error:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self}: {error}") from error

    def bytes_between(self, offset: int, end_offset: int, enough: int = INT_MAX) -> int:
        """Bytes a reader at `offset` would find below `end_offset`, over all segments; where there
        are `enough`, not all are counted. Raises ApiError as `read`."""
        start = max(offset, self.log_start_offset)
        try:
            return self.segments.bytes_between(start, end_offset, enough)
        except BadIndex as bad:
            raise self._put_off(bad) from bad

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record that is not earlier than `timestamp` in ms.

        Raises ApiError CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR and REPLICA_NOT_AVAILABLE as `read`.
        """
        start = self.log_start_offset
        with self.guard.reading:
            for batch in self._batches_at_or_after(timestamp, start):
                found = find_record(batch, timestamp, start)
                if found is not None:
                    return found
        return None

    async def offset_for_timestamp_in_thread(
        self, timestamp: int, in_thread: InThread
    ) -> tuple[int, int] | None:
        """The same, with batches read and decompressed where `in_thread` does it."""
        start = self.log_start_offset
        with self.guard.reading:
            for batch in self._batches_at_or_after(timestamp, start):
                found = await in_thread(partial(find_record, batch, timestamp, start))
                if found is not None:
                    return found
        return None

    def is_time_lookup_cheap(self, timestamp: int) -> bool:
        """Whether the batch that holds the time is small and not compressed. Raises ApiError."""
        with self.guard.reading:
            batches = self._batches_at_or_after(timestamp, self.log_start_offset)
            batch = next(batches, None)
            return batch is None or is_cheap_to_read(batch)

    def _batches_at_or_after(self, timestamp: int, start: int) -> Iterator[FileRange]:
        try:
            yield from self.segments.batches_at_or_after(timestamp, start)
        except BadIndex as bad:
            raise self._put_off(bad) from bad

    def _put_off(self, bad: BadIndex) -> ApiError:
        """Have the next flush make a bad index anew; the exception to answer with until then."""
        self._bad_indexes[bad.segment] = None
        return ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{self}: {bad}")

    def offsets_before(self, time_ms: int, max_num: int, now_ms: int) -> list[int]:
        """Start offsets of segments last written by `time_ms`, newest first (ListOffsets v0)."""
        return self.segments.last_written_by(time_ms, self.log_start_offset, now_ms)[:max_num]

    # Flushing

    def is_flush_due(self, monotonic_ms: int) -> bool:
        """Whether flush.messages, flush.ms or a rolled segment asks for a flush now, or epochs
        that are no longer true stand on disk, or an index is to be made anew."""
        if self.failure is not None:
            return False
        bounds = self.segments.active.base_offset, self.log_end_offset
        is_due = self.segments.flushes.is_due(self.config, *bounds, monotonic_ms)
        is_waited_for = self._is_closing and not self.is_synced
        is_stale = self.leader_epochs.is_file_stale or bool(self._bad_indexes)
        return is_due or is_waited_for or is_stale

    @property
    def is_synced(self) -> bool:
        """Whether another segment may begin, and the active one end, as far as the disk goes."""
        is_on_disk = not self.config.hides_holes or self.recovery_point >= self.log_end_offset
        return is_on_disk and self.segments.flushes.names_are_safe

    def begin_flush(self) -> Flush:
        """Everything that is not on disk yet, to be run off the loop. Raises OSError."""
        files = self.segments.files_to_flush(self.segments.flushes.first_offset())
        files += self.history.snapshots.unflushed_files()
        return self.segments.flushes.begin(
            files, self.leader_epochs, self.directory, self.log_end_offset, [*self._bad_indexes]
        )

    def end_flush(self, flush: Flush) -> None:
        """Move the recovery point after `flush.run`; after an OSError of the three,
        `fail_flush`."""
        self.segments.flushes.finish(flush)
        for segment in flush.bad_indexes:
            self._bad_indexes.pop(segment, None)
        self.history.snapshots.flushed(flush.files)
        reread_from = self.segments.reread_from(self.recovery_point)
        needless = self.history.snapshots.forget_before(reread_from)
        self.segments.delete_later(map(snapshot_name, needless), due_ms=0)

    def fail_flush(self, error: OSError) -> ApiError:
        """Have all that is not on disk wait for the next flush, if there can be one; the exception
        to answer with."""
        self.segments.flushes.fail()
        return self.guard.refuse(error)

    # Retention, cleaning and the end

    def increment_log_start_offset(self, offset: int) -> bool:
        """Give up what is below `offset` (DeleteRecords); segments go with the next retention.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        if offset <= self.log_start_offset:
            return False
        assert offset <= self.log_end_offset
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        return True

    def delete_old_segments(self, high_watermark: int, now_ms: int) -> int:
        """Apply retention at once; how many segments went. Raises ApiError KAFKA_STORAGE_ERROR."""
        with self.guard:
            retention = self.begin_retention(high_watermark, now_ms)
            if retention is None:
                return 0
            retention.run()
            self.end_retention(retention)
        return len(retention.segments)

    def begin_retention(
        self, high_watermark: int, now_ms: int, *, may_sync: bool = True
    ) -> Retention | None:
        """Let go of the segments that retention does not keep; `run` of what is returned does the
        rest, off the loop. A log that is full may do so too, but keeps the active segment while
        there is no room for another one.

        Raises ApiError KAFKA_STORAGE_ERROR and, without `may_sync`, AppendLater where the active
        segment is to go too, and has to be synced first.
        """
        self.guard.check_failure()
        ages = self.segments.ages()
        going, why = count_expired(ages, self.config, self.log_start_offset, high_watermark, now_ms)
        if going == len(self.segments) and self.guard.is_full:
            going -= 1
        elif going == len(self.segments):
            if not may_sync and not self.is_synced:
                raise AppendLater
            try:
                self._roll(self.log_end_offset, self.monotonic_ms())
            except OSError as error:
                self.guard.refuse(error)
                self.guard.check_failure()
                going -= 1
        if not going:
            return None

        gone = self.segments.remove_first(going)
        start_offset = self.segments.first.base_offset
        self.increment_log_start_offset(start_offset)
        logger.info("%s: %d segments deleted: %s", self.topic_partition, going, why)
        return Retention(
            self.directory,
            gone,
            self.history.snapshots.forget_before(start_offset),
            self.leader_epochs,
            self.segments.flushes.name_changes,
        )

    def end_retention(self, retention: Retention) -> None:
        """Take note that `retention.run` has ended; after an OSError of it, `fail`."""
        flushes = self.segments.flushes
        flushes.safe_names = max(flushes.safe_names, retention.name_changes)
        flushes.name_changes += 1
        due_ms = self.monotonic_ms() + self.config.file_delete_delay_ms
        self.segments.delete_later(retention.renamed, due_ms)

    def replace_segments(
        self, base_offset: int, replaced: Sequence[int], *, truncations: int
    ) -> bool:
        """Put the `.cleaned` copy of `base_offset` in the place of the segments it was made from,
        which began at `replaced`; `truncations` was read then. False: they are not of this log
        any more. Raises CorruptIndex and ApiError KAFKA_STORAGE_ERROR.
        """
        assert base_offset == replaced[0]
        replacement = self.begin_replacement(replaced, truncations=truncations)
        if replacement is None:
            return False
        with self.guard:
            replacement.hold()
            replacement.run()
        self.end_replacement(replacement)
        return True

    def begin_replacement(self, replaced: Sequence[int], *, truncations: int) -> Replacement | None:
        """The same, to be held and run off the loop; None: they are not of this log any more."""
        if truncations != self.truncations or self.failure is not None:
            return None
        return self.segments.begin_replacement(replaced, self.monotonic_ms())

    def end_replacement(self, replacement: Replacement) -> None:
        """Take note that `replacement.run` has ended; after an OSError of it, `fail`."""
        due_ms = self.monotonic_ms() + self.config.file_delete_delay_ms
        self.segments.end_replacement(replacement, due_ms)

    def tick(self, monotonic_ms: int) -> None:
        """Remove the files whose file.delete.delay.ms is over."""
        for name in self.take_due_files(monotonic_ms):
            self.directory.remove(name)

    def take_due_files(self, monotonic_ms: int) -> list[str]:
        """The files whose file.delete.delay.ms is over, to be removed in whatever thread."""
        return self.segments.take_due(monotonic_ms)

    def close(self) -> None:
        """Flush and close: the indexes are cut to their entries. Raises OSError.

        A log that failed is left as it is, to be recovered at the next start; one that is full may
        yet find the little room that this takes.
        """
        if self.guard.failure is None:
            self.segments.active.seal()
            self.history.snapshot(self.log_end_offset)
            self.segments.flushes.name_changes += 1
            flush = self.begin_flush()
            flush.run()
            self.end_flush(flush)
            self.guard.failure = "closed"

    def _rolls(self, size: int, last_offset: int, latest: TimestampOffset) -> bool:
        """Whether a new segment begins before so much is appended."""
        return self.segments.active.should_roll(
            self.config, size, last_offset, latest.timestamp, self.monotonic_ms
        )

    def _note_epoch(self, epoch: int, start_offset: int) -> None:
        if epoch > self.leader_epochs.latest_epoch and self.config.magic == MAGIC:
            self.leader_epochs.assign(epoch, start_offset)

    def _write(
        self,
        buffers: Sequence[BytesLike],
        first_offset: int,
        last_offset: int,
        latest: TimestampOffset,
        may_sync: bool,
    ) -> None:
        """Write batches to the active segment, or a new one, and move the log's end.

        A segment that has to be synced before the next one begins takes nothing more until that is
        done, or it would never be: something would always have come since.
        """
        if (self.is_held or self.segments.active.bad_index is not None) and not may_sync:
            raise AppendLater
        size, interval_bytes = sum(map(len, buffers)), self.config.index_interval_bytes
        if self._is_closing or self._rolls(size, last_offset, latest):
            if not may_sync and not self.is_synced:
                self._is_closing = True
                raise AppendLater
            self._roll(first_offset, self.monotonic_ms())
        active = self.segments.active
        active.append(buffers, last_offset, latest, interval_bytes)
        if active.size - self._written_back >= WRITE_BACK_BYTES:
            self.write_back(active.log, self._written_back, active.size - self._written_back)
            self._written_back = active.size
        self.segments.flushes.note_append(self.log_end_offset, size, self.monotonic_ms)
        self.segments.end_offset = last_offset + 1

    def _roll(self, base_offset: int, monotonic_ms: int) -> None:
        """Begin a segment, unless the active one begins at `base_offset` already."""
        self._is_closing, self._written_back = False, 0
        active = self.segments.active
        if active.base_offset >= base_offset:
            return
        try:
            active.seal()
            if self.config.hides_holes and self.recovery_point < self.log_end_offset:
                sync(active.log)
            self.history.snapshot(base_offset)
            self.segments.begin(base_offset, self.config, monotonic_ms)
        except OSError:
            with self.guard:  # or it could be written to no more
                active.activate(self.config)
            raise

    def lower_checkpoints(self, offset: int) -> None:
        """Have no checkpoint say that there is more, before anything is cut."""
        self._written_back = 0
        self.segments.flushes.truncate(offset)
        self.before_truncation(offset)
