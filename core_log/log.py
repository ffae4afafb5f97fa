"""One partition's log: batches in order of offset, in segments, on one disk.

A log belongs to one thread: the event loop's or, while `is_lent`, the one that it was lent to. Only
work with a `run` of its own, such as `Flush` and `Retention`, may run beside that thread. The
caller of an append has validated the batches. The log gives them their offsets, writes them in one
call without copying their bodies, and only then moves the log end offset, so a reader never meets
half an append. When a write fails, the file is truncated to what was whole (`guard`).

Files, their names, when a segment is rolled and when an index entry is written, are Kafka's
(kafka.log.Log), so that a JVM broker and its tools can read the directory.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial

import attrs

from core_log.appending.appended import LogAppendInfo
from core_log.appending.batch_stamp import stamp
from core_log.appending.replicated_run import split_into_runs
from core_log.appending.validator import ValidBatch
from core_log.config import INT_MAX, LogConfig
from core_log.damage import BadTail
from core_log.flush import Flush
from core_log.guard import Guard
from core_log.leader_epochs import LeaderEpochs
from core_log.open_files import OPEN_FILES
from core_log.producers.producer_history import ProducerHistory
from core_log.producers.producer_snapshots import snapshot_name
from core_log.producers.producer_state import ProducerState
from core_log.producers.transactions import EndOfTransaction, decode_end
from core_log.retention import SegmentAge, count_expired
from core_log.segment_deletion import Retention
from core_log.segments.index_file import CorruptIndex
from core_log.segments.replacement import Replacement
from core_log.segments.segment import BadIndex, Segment
from core_log.segments.segment_list import (
    LongLookUp,
    SegmentList,
    find_first_record,
    find_record,
    is_cheap_to_read,
)
from core_log.segments.time_index import TimestampOffset
from core_log.segments.transaction_index import AbortedTransaction
from core_log.storage import BytesLike, Directory, FileRange, StorageFile, sync
from protocol.errors import ApiError, ErrorCode
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.records.batch_header import LOG_APPEND_TIME, MAGIC, BatchHeader
from protocol.records.legacy import NO_TIMESTAMP
from protocol.topic_identity import TopicIdentity
from protocol.topic_partition import TopicPartition

WRITE_BACK_BYTES = 4 * 2**20
"""The disk is told to begin with a segment's bytes in pieces of this size. Otherwise the system
gathers gigabytes, and an append waits for them."""

WALKED_AT_ONCE = 100
"""Batches that a look-up of a time may pass on the event loop: those between two entries of an
index, where times grow with the offsets."""

logger = logging.getLogger(__name__)

InThread = Callable[[Callable[[], TimestampOffset | None]], Awaitable[TimestampOffset | None]]
"""Runs a function in a thread while the event loop goes on."""


WriteBack = Callable[[StorageFile, int, int], None]
"""Tells the disk to begin with bytes of a file (start and size) while appends go on."""


class AppendLater(Exception):
    """The log cannot append `rest` now: try again after a flush (`LogWork.flush`).

    Either a segment must be synced first, which is no work for the event loop, or the log is held.
    """

    def __init__(self, rest: memoryview | None = None) -> None:
        super().__init__("the log has to be flushed first")
        self.rest = memoryview(b"") if rest is None else rest


@attrs.define(eq=False, repr=False)
class Log:
    """The log of one partition. Readers see no offset below `log_start_offset`.

    `now_ms` is the wall clock: timestamps of records and retention go by it. Intervals go by
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
    identity: TopicIdentity | None = None
    """The identity of its topic, as it stands beside the log."""
    _unsynced_identity: StorageFile | None = None
    """The file with the identity, until a flush has synced it."""
    before_truncation: Callable[[int], None] = lambda offset: None
    is_lent: bool = False
    is_held: bool = False
    """The event loop may read the log, but not append to it."""
    write_back: WriteBack = lambda file, start, size: None
    """Tells the disk to begin with bytes of the active segment."""
    # True while the full active segment waits for a flush, and takes nothing more.
    _is_closing: bool = False
    _written_back: int = 0
    """Position in the active segment up to which `write_back` was called."""
    # Segments with an index for the next flush to rebuild, in order, each once.
    _bad_indexes: dict[Segment, None] = attrs.field(factory=dict)

    def __repr__(self) -> str:
        failure = f", failed: {self.failure}" if self.failure else ""
        offsets = f"{self.log_start_offset} to {self.log_end_offset}"
        return f"Log({self.topic_partition}, {offsets}{failure})"

    @property
    def failure(self) -> str | None:
        """Why the log takes no writes, for good or for a lack of room; None while it does."""
        return self.guard.refusal

    @property
    def producers(self) -> ProducerState:
        """The producers that this log remembers."""
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
        """Number of truncations so far. Work that was planned at another count is obsolete."""
        return self.segments.flushes.truncations

    @property
    def durable_end_offset(self) -> int:
        """End of what counts as durable, exclusive. flush.messages allows for some not on disk."""
        segments = self.segments
        return segments.flushes.durable_end_offset(self.config, segments.end_offset)

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

        `header` is the batch's, `max_timestamp` the true latest timestamp of its records. A batch
        that repeats one of its producer's is not written again: the result names the first one.
        Raises ApiError RECORD_LIST_TOO_LARGE, KAFKA_STORAGE_ERROR and those of
        `ProducerState.check` and `check_marker`, and, without `may_sync`, AppendLater, with nothing
        appended.
        """
        self.check_fits(header.size)

        # A batch that is sent again is answered as it was the first time.
        end: EndOfTransaction | None = None
        if header.producer_id >= 0 and header.is_control:
            end = decode_end(batch)
            self.producers.check_marker(header, end.coordinator_epoch)
        elif header.producer_id >= 0:
            # Coordinators write to this topic for producers, without sequence numbers.
            epoch_only = self.topic_partition.topic == OFFSETS_TOPIC
            duplicate = self.producers.check(header, epoch_only=epoch_only)
            if duplicate is not None:
                return LogAppendInfo(
                    duplicate.base_offset,
                    duplicate.last_offset,
                    duplicate.timestamp,
                    self.log_start_offset,
                )

        # Stamp the header with what the leader decides.
        base_offset = self.segments.end_offset
        last_offset = base_offset + header.last_offset_delta
        attributes, max_timestamp, log_append_time_ms = self._decide_times(
            header.attributes, max_timestamp, now_ms
        )
        buffers = stamp(batch, header, base_offset, leader_epoch, attributes, max_timestamp)
        latest = TimestampOffset(max_timestamp, last_offset)

        try:
            self._write(buffers, header.size, base_offset, last_offset, latest, may_sync)
        except OSError as error:
            raise self.guard.refuse(error) from error

        # Noted once the batch is in the log: a failed write leaves no trace (KAFKA-6683).
        self._note_epoch(leader_epoch, base_offset)
        if end is not None:
            marker = header._replace(base_offset=base_offset, max_timestamp=max_timestamp)
            self.history.note_marker(marker, end, now_ms)
        elif header.producer_id >= 0:
            self.producers.update(header, last_offset, max_timestamp, now_ms)
        return LogAppendInfo(base_offset, last_offset, log_append_time_ms, self.log_start_offset)

    def append_run(
        self, batches: Sequence[ValidBatch], *, leader_epoch: int, now_ms: int
    ) -> list[LogAppendInfo]:
        """Write batches without producers as the leader, in one call and with one index entry.

        All of them are appended or, with the errors of `append`, none.
        """
        size = sum(batch.header.size for batch in batches)
        self.check_fits(size)

        first_offset = base_offset = self.segments.end_offset
        latest = TimestampOffset(NO_TIMESTAMP, first_offset)
        buffers: list[BytesLike] = []
        appended = []
        for data, header, max_timestamp in batches:
            attributes, max_timestamp, log_append_time_ms = self._decide_times(
                header.attributes, max_timestamp, now_ms
            )
            buffers += stamp(data, header, base_offset, leader_epoch, attributes, max_timestamp)

            last_offset = base_offset + header.last_offset_delta
            if max_timestamp > latest.timestamp:
                latest = TimestampOffset(max_timestamp, last_offset)
            appended.append(
                LogAppendInfo(base_offset, last_offset, log_append_time_ms, self.log_start_offset)
            )
            base_offset = last_offset + 1

        try:
            self._write(buffers, size, first_offset, base_offset - 1, latest, may_sync=False)
        except OSError as error:
            raise self.guard.refuse(error) from error
        self._note_epoch(leader_epoch, first_offset)
        return appended

    def _decide_times(
        self, attributes: int, max_timestamp: int, now_ms: int
    ) -> tuple[int, int, int]:
        """Return attributes, latest timestamp and time of the append, as the topic wants them."""
        if self.config.message_timestamp_type == "LogAppendTime":
            return attributes | LOG_APPEND_TIME, now_ms, now_ms
        return attributes, max_timestamp, -1

    def check_fits(self, size: int) -> None:
        """Check the size of a produced batch against segment.bytes.

        Raises ApiError KAFKA_STORAGE_ERROR and RECORD_LIST_TOO_LARGE.
        """
        self.guard.check()
        if size > self.config.segment_bytes:
            why = f"{size} bytes do not fit segment.bytes {self.config.segment_bytes}"
            raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, why)

    def begin_epoch(self, epoch: int) -> None:
        """Note that a leader begins to write in `epoch`."""
        self._note_epoch(epoch, self.log_end_offset)

    def append_follower(self, batches: BytesLike, *, now_ms: int, may_sync: bool = True) -> int:
        """Write batches as the leader has them, with their offsets and epochs.

        Returns the new log end offset. A partial batch at the end is left out. A batch may be
        larger than segment.bytes, which may have been lowered since it was written: it gets a
        segment of its own. Raises CorruptRecord, UnexpectedAppendOffset, ApiError
        KAFKA_STORAGE_ERROR and, without `may_sync`, AppendLater after the runs before it.
        """
        records = memoryview(batches)
        done_bytes = 0
        for run in split_into_runs(records, self.log_end_offset, self.config.segment_bytes):
            self.guard.check()

            bounds = run.first_offset, run.last_offset
            try:
                self._write([run.records], len(run.records), *bounds, run.latest, may_sync)
            except AppendLater as later:
                # The caller appends the rest after a flush.
                later.rest = records[done_bytes:]
                raise
            except OSError as error:
                raise self.guard.refuse(error) from error

            # The leader's epochs and producers follow what is in the log.
            for header in run.headers:
                self._note_epoch(header.partition_leader_epoch, header.base_offset)
            self.history.replay(run.produced, now_ms, run.batch_of)
            done_bytes += len(run.records)
        return self.log_end_offset

    def roll(self, monotonic_ms: int) -> None:
        """Begin a new segment at the log's end. An empty active segment stays.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        self.guard.check()
        try:
            self._roll(self.log_end_offset, monotonic_ms)
        except OSError as error:
            raise self.guard.refuse(error) from error

    def lower_recovery_point(self, offset: int) -> None:
        """Count nothing from `offset` on as flushed: the log is about to be truncated there."""
        if offset < self.log_end_offset:
            self.segments.flushes.truncate(offset)

    def truncate_to(self, offset: int) -> bool:
        """End the log before the batch that holds `offset`. Returns whether anything was removed.

        The log ends with the last good batch below `offset`: damage before that is removed too,
        and the leader has what is missing then. An epoch that begins at the new end is deleted,
        even if nothing was written in it: a follower that kept it would ask about it forever.

        Kafka always ends the log at `offset`. The next append then leaves a hole, or sends the
        whole batch again and is refused. Raises ApiError KAFKA_STORAGE_ERROR.
        """
        assert offset >= 0
        self.guard.check()

        # All segments go: the log starts again at `offset`.
        if offset < self.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return True

        with self.guard, OPEN_FILES.must_end():
            # There is nothing to remove but an epoch without records.
            if offset >= self.log_end_offset:
                self.leader_epochs.truncate_from_end(offset)
                return False

            # Checkpoints first: none may lie above the new end after a power loss.
            try:
                offset = self.segments.end_below(offset)
                self.lower_checkpoints(offset)
            except OSError as error:  # nothing is truncated yet
                raise self.guard.refuse(error) from error
            self.segments.truncate_to(offset, self.config, self.monotonic_ms())
            self.log_start_offset = min(self.log_start_offset, offset)
            self.leader_epochs.truncate_from_end(offset)
            # Names that were removed must not come back beside later batches.
            self.directory.fsync_dir()
            self.history.truncate_to(offset)

        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Delete all segments; the next batch has `offset`. Raises ApiError KAFKA_STORAGE_ERROR."""
        self.guard.check()
        with self.guard, OPEN_FILES.must_end():
            # All bytes go, and the next ones begin at `offset`, which may be lower.
            try:
                self.lower_checkpoints(min(offset, self.segments.first.base_offset))
            except OSError as error:  # nothing is removed yet
                raise self.guard.refuse(error) from error
            self.segments.remove_all(self.config, self.monotonic_ms())
            self.leader_epochs.clear()

            self.segments.begin(offset, self.config, self.monotonic_ms())
            self.log_start_offset = offset
            self.segments.end_at(offset)
            self.history.clear(offset)

    def update_config(self, config: LogConfig) -> None:
        """Replace the settings; they count from now on.

        Messages of the older formats carry no epochs. A follower would keep the last epoch that it
        knew, and truncate everything since (KAFKA-7897), so below format 2 there are none.
        """
        # The gaps that compaction made outlive the policy.
        was_cleaned = self.config.was_cleaned or (self.config.compacts and not config.compacts)
        # Without the note a power loss would take the end of a segment unseen (fault broker-1).
        config = config.remembering(was_cleaned)

        self.config = config
        if config.magic < MAGIC:
            self.leader_epochs.clear()

    # Reading

    def read(
        self, offset: int, max_bytes: int, end_offset: int, min_one: bool = True
    ) -> FileRange | None:
        """Return the bytes from the batch of `offset`, or the next one, on; None if there are none.

        They stay below `end_offset` and within one segment, and may end within a batch, which
        readers skip. If the first batch is larger than `max_bytes`, it is returned whole with
        `min_one` and not at all without (KIP-74). Raises ApiError OFFSET_OUT_OF_RANGE,
        CORRUPT_MESSAGE where a batch should be and is not, KAFKA_STORAGE_ERROR, and
        REPLICA_NOT_AVAILABLE until the next flush has rebuilt a bad index.
        """
        # The log's end is in range: a consumer there waits for the next record.
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is not in {self}")
        if offset >= end_offset:
            return None

        end_offset = min(end_offset, self.log_end_offset)
        with self.guard.reading:
            try:
                return self.segments.read(offset, max_bytes, end_offset, min_one)
            except BadIndex as bad:
                raise self._postpone_rebuild(bad) from bad

    def aborted_transactions(
        self, offset: int, end_offset: int, data: FileRange | None = None
    ) -> list[AbortedTransaction]:
        """Return the aborted transactions with records between these offsets.

        With `data`, the bytes that were read from `offset` on, those that begin behind it are left
        out, but for a few. A reader of committed data leaves out the transactions' records. Raises
        ApiError KAFKA_STORAGE_ERROR.
        """
        with self.guard.reading:
            if data is not None:
                end_offset = min(end_offset, self.segments.offset_behind(offset, data))
            try:
                return self.segments.aborted_transactions(
                    offset, min(end_offset, self.log_end_offset)
                )
            except CorruptIndex as error:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self}: {error}") from error

    def bytes_between(self, offset: int, end_offset: int, enough: int = INT_MAX) -> int:
        """Count the bytes from `offset` up to `end_offset`, over all segments.

        The count may stop once it has reached `enough`. Raises ApiError as `read`.
        """
        start = max(offset, self.log_start_offset)
        try:
            return self.segments.bytes_between(start, end_offset, enough)
        except BadIndex as bad:
            raise self._postpone_rebuild(bad) from bad

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Find the first record that is not earlier than `timestamp`: (timestamp in ms, offset).

        Raises ApiError CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR and REPLICA_NOT_AVAILABLE as `read`.
        """
        start = self.log_start_offset
        with self.guard.reading:
            for batch in self._batches_at_or_after(timestamp, start):
                record = find_record(batch, timestamp, start)
                if record is not None:
                    return record
        return None

    def offset_for_timestamp_at_once(self, timestamp: int) -> tuple[int, int] | None:
        """Do the same if it takes few reads, all of them small. Raises LongLookUp if not."""
        start = self.log_start_offset
        with self.guard.reading:
            for batch in self._batches_at_or_after(timestamp, start, WALKED_AT_ONCE):
                if not is_cheap_to_read(batch):
                    raise LongLookUp
                record = find_record(batch, timestamp, start)
                if record is not None:
                    return record
        return None

    async def offset_for_timestamp_in_thread(
        self, timestamp: int, in_thread: InThread
    ) -> tuple[int, int] | None:
        """Do the same, but walk, read and decompress batches in a thread, by `in_thread`.

        Segments may come and go meanwhile. What was there at the beginning is searched, as far as
        it still is when its turn comes.
        """
        start, end_offset = self.log_start_offset, self.log_end_offset
        while start < end_offset and not self.is_lent:
            with self.guard.reading:
                # Only what is in the log now has indexes under its name.
                try:
                    place = self.segments.first_at_or_after(timestamp, start)
                except BadIndex as bad:
                    raise self._postpone_rebuild(bad) from bad
                if place is None:
                    return None
                file, position, next_start = place
                search = partial(find_first_record, file, position, timestamp, start)
                record = await in_thread(search)

            # Retention may have removed it.
            if record is not None and record.offset >= self.log_start_offset:
                return record
            start = max(self.log_start_offset, next_start)
        return None

    def _batches_at_or_after(
        self, timestamp: int, start: int, most_walked: int | None = None
    ) -> Iterator[FileRange]:
        try:
            yield from self.segments.batches_at_or_after(timestamp, start, most_walked)
        except BadIndex as bad:
            raise self._postpone_rebuild(bad) from bad

    def _postpone_rebuild(self, bad: BadIndex) -> ApiError:
        """Leave a bad index to the next flush. Returns the error for readers until then."""
        self._bad_indexes[bad.segment] = None
        return ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{self}: {bad}")

    def offsets_before(self, time_ms: int, max_num: int, now_ms: int) -> list[int]:
        """List the start offsets of segments last written by `time_ms`, newest first.

        ListOffsets v0 asks for them, `max_num` at most. Raises ApiError KAFKA_STORAGE_ERROR.
        """
        with self.guard.reading:
            written = self.segments.last_written_by(time_ms, self.log_start_offset, now_ms)
        return written[:max_num]

    # Flushing

    def is_flush_due(self, monotonic_ms: int) -> bool:
        """True if a flush should begin now.

        Reasons are flush.messages, flush.ms, a rolled segment, a stale file of leader epochs, and
        an index that has to be rebuilt.
        """
        # A flush would fail again, until there is room or a new start.
        if self.failure is not None:
            return False

        segments = self.segments
        return (
            segments.flushes.is_due(
                self.config, segments.active.base_offset, segments.end_offset, monotonic_ms
            )
            or (self._is_closing and not self.is_synced)
            or self.leader_epochs.is_file_stale
            or bool(self._bad_indexes)
        )

    @property
    def is_synced(self) -> bool:
        """True if the disk holds all that it must before another segment begins."""
        is_on_disk = not self.config.hides_holes or self.recovery_point >= self.log_end_offset
        return is_on_disk and self.segments.flushes.names_are_safe

    def begin_flush(self) -> Flush:
        """Begin a flush of everything that is not on disk, to run off the loop. Raises OSError."""
        files = self.segments.files_to_flush(self.segments.flushes.first_offset())
        # What outlives a power loss must be known as this topic's (fault core-R1).
        files += [] if self._unsynced_identity is None else [self._unsynced_identity]
        return self.segments.flushes.begin(
            files,
            self.leader_epochs,
            self.directory,
            self.log_end_offset,
            [*self._bad_indexes],
            self.history.snapshots.unflushed,
        )

    def end_flush(self, flush: Flush) -> None:
        """Move the recovery point after `flush.run`. After an OSError call `fail_flush` instead."""
        self.segments.flushes.finish(flush)
        for segment in flush.bad_indexes:
            self._bad_indexes.pop(segment, None)
        needless = self.history.note_flushed(flush.snapshots)
        if self._unsynced_identity in flush.files:
            self._unsynced_identity = None

        # Recovery reads no further back from now on, so older snapshots can go.
        reread_from = self.segments.reread_from(self.recovery_point)
        needless += self.history.snapshots.take_before(reread_from)
        self.segments.delete_later(map(snapshot_name, needless), due_ms=0)

    def fail_flush(self, error: OSError) -> ApiError:
        """Leave all that is not on disk to the next flush. Returns the error to answer with."""
        self.segments.flushes.fail()
        return self.guard.refuse(error)

    def note_identity(self, identity: TopicIdentity, file: StorageFile) -> None:
        """Note the identity that was written beside the log, for the next flush to sync."""
        self.identity = identity
        self._unsynced_identity = file
        self.segments.flushes.name_changes += 1

    # Retention, cleaning and the end

    def increment_log_start_offset(self, offset: int) -> bool:
        """Delete the records below `offset` (DeleteRecords). Segments go with the next retention.

        Returns whether the start moved. Raises ApiError KAFKA_STORAGE_ERROR.
        """
        if offset <= self.log_start_offset:
            return False
        assert offset <= self.log_end_offset
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        return True

    def delete_old_segments(self, high_watermark: int, now_ms: int) -> int:
        """Apply retention at once. Returns how many segments went.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        with self.guard:
            retention = self.begin_retention(high_watermark, now_ms)
            if retention is None:
                return 0
            count = len(retention.segments)
            retention.run()
            self.end_retention(retention)
        return count

    def begin_retention(
        self, high_watermark: int, now_ms: int, *, may_sync: bool = True
    ) -> Retention | None:
        """Take out the segments that retention does not keep; `run` of the result marks the files.

        A full log may do so too, but keeps the active segment while a new one finds no room.
        Raises ApiError KAFKA_STORAGE_ERROR. If the active segment goes too, it must be on disk
        first: without `may_sync` AppendLater is raised then.
        """
        self.guard.check_failure()
        # The file may be gone whose time tells the age. Without the guard no other log of the
        # broker was retained, or cleaned, any more (fault strangers-99, was: self.segments.ages()).
        ages = self._read_ages()

        # Count what goes. If the active segment does, another one begins first.
        count, why = count_expired(ages, self.config, self.log_start_offset, high_watermark, now_ms)
        if count == len(self.segments) and self.guard.is_full:
            count -= 1
        elif count == len(self.segments):
            if not may_sync and not self.is_synced:
                raise AppendLater
            try:
                self._roll(self.log_end_offset, self.monotonic_ms())
            except OSError as error:
                # For a lack of room the others go all the same, and make some.
                self.guard.refuse(error)
                self.guard.check_failure()
                count -= 1
        if not count:
            return None

        # The log goes on without them.
        removed = self.segments.remove_first(count)
        start_offset = self.segments.first.base_offset
        self.increment_log_start_offset(start_offset)
        logger.info("%s: %d segments deleted: %s", self.topic_partition, count, why)
        return Retention(
            self.directory,
            deque(removed),
            self.history.snapshots.take_before(start_offset),
            self.leader_epochs,
            self.segments.flushes.name_changes,
        )

    def _read_ages(self) -> list[SegmentAge]:
        with self.guard.reading:
            return self.segments.ages()

    def end_retention(self, retention: Retention) -> None:
        """Note that `retention.run` has ended. After an OSError call `guard.fail` instead."""
        # `run` has synced the changes before it. Its own renames are new ones.
        flushes = self.segments.flushes
        flushes.safe_names = max(flushes.safe_names, retention.name_changes)
        flushes.name_changes += 1

        due_ms = self.monotonic_ms() + self.config.file_delete_delay_ms
        self.segments.delete_later(retention.renamed, due_ms)

    def replace_segments(
        self, base_offset: int, replaced: Sequence[int], *, truncations: int
    ) -> bool:
        """Put the `.cleaned` copy of `base_offset` in the place of the segments it was made from.

        Those began at `replaced`, and `truncations` was read then. Returns False if the log no
        longer has them. Raises CorruptIndex and ApiError KAFKA_STORAGE_ERROR.
        """
        assert base_offset == replaced[0]
        replacement = self.begin_replacement(replaced, truncations=truncations)
        if replacement is None:
            return False

        with self.guard.reading:
            replacement.hold()
        with self.guard:
            replacement.run()
        self.end_replacement(replacement)
        return True

    def begin_replacement(self, replaced: Sequence[int], *, truncations: int) -> Replacement | None:
        """Begin to replace segments, to hold and run off the loop; None if the log lacks them."""
        # Where the log was truncated, other records may have the same offsets.
        if truncations != self.truncations or self.failure is not None:
            return None
        return self.segments.begin_replacement(replaced, self.monotonic_ms())

    def end_replacement(self, replacement: Replacement) -> None:
        """Note that `replacement.run` has ended. After an OSError call `guard.fail` instead."""
        due_ms = self.monotonic_ms() + self.config.file_delete_delay_ms
        self.segments.end_replacement(replacement, due_ms)

    def tick(self, monotonic_ms: int) -> None:
        """Remove the files whose file.delete.delay.ms is over."""
        for name in self.take_due_files(monotonic_ms):
            self.directory.remove(name)

    def take_due_files(self, monotonic_ms: int) -> list[str]:
        """Take the files whose file.delete.delay.ms is over, to be removed in any thread."""
        return self.segments.take_due(monotonic_ms)

    def close(self) -> None:
        """Flush and close. The indexes are truncated to their entries. Raises OSError.

        A log that failed is left as it is, for recovery at the next start. A full log may still
        find the little room that closing takes.
        """
        if self.guard.failure is None:
            # The snapshot spares the next start from reading the log for its producers.
            self.segments.active.seal()
            self.history.snapshot(self.log_end_offset)
            # The snapshot is a new name: the flush must sync the directory too.
            self.segments.flushes.name_changes += 1
            flush = self.begin_flush()
            flush.run()
            self.end_flush(flush)
            assert self.recovery_point == self.log_end_offset
            self.guard.failure = "closed"

    def _note_epoch(self, epoch: int, start_offset: int) -> None:
        # Batches before format 2 carry no epoch (KAFKA-7897).
        if epoch > self.leader_epochs.latest_epoch and self.config.magic == MAGIC:
            self.leader_epochs.assign(epoch, start_offset)

    def _write(
        self,
        buffers: Sequence[BytesLike],
        size: int,
        first_offset: int,
        last_offset: int,
        latest: TimestampOffset,
        may_sync: bool,
    ) -> None:
        """Write batches, `size` bytes, to the active segment or a new one, and move the log's end.

        A segment that must be synced before the next one begins takes nothing more until then.
        Otherwise the sync would never end, for more bytes would always have come.
        """
        # A held log takes nothing, nor does a segment whose index waits for its rebuild.
        segments, config = self.segments, self.config
        active = segments.active
        if (self.is_held or active.bad_index is not None) and not may_sync:
            raise AppendLater

        # Begin a new segment if this one is full.
        if self._is_closing or active.should_roll(
            config, size, last_offset, latest.timestamp, self.monotonic_ms
        ):
            if not may_sync and not self.is_synced:
                self._is_closing = True
                raise AppendLater
            base_offset, end_offset = first_offset, self.log_end_offset
            is_indexable = last_offset - end_offset <= INT_MAX
            # A gap that a leader's log has is within the segment, not before it, where recovery
            # would take it for the end that a power loss took (fault broker-1).
            base_offset = end_offset if is_indexable else first_offset
            self._roll(base_offset, self.monotonic_ms())
            active = segments.active

        active.append(buffers, last_offset, latest, config.index_interval_bytes)

        # Tell the disk to begin, from time to time.
        to_write_back = active.log.size - self._written_back
        if to_write_back >= WRITE_BACK_BYTES:
            self.write_back(active.log, self._written_back, to_write_back)
            self._written_back = active.log.size

        segments.flushes.note_append(segments.end_offset, size, self.monotonic_ms)
        # Readers see the batches from here on.
        segments.end_offset = last_offset + 1

    def _roll(self, base_offset: int, monotonic_ms: int) -> None:
        """Begin a segment, unless the active one begins at `base_offset` already."""
        self._is_closing = False
        self._written_back = 0
        active = self.segments.active
        if active.base_offset >= base_offset:
            return

        try:
            active.seal()
            # Recovery could not see that a power loss took the end of this segment.
            if self.config.hides_holes and self.recovery_point < self.log_end_offset:
                sync(active.log)
            # A later start replays producers from here on only.
            self.history.snapshot(base_offset)
            self.segments.begin(base_offset, self.config, monotonic_ms)
        except OSError:
            # Otherwise the active segment could not be written to again.
            with self.guard, OPEN_FILES.must_end():
                active.activate(self.config)
            raise

    def lower_checkpoints(self, offset: int) -> None:
        """Lower all checkpoints to `offset`, before anything is truncated. Raises OSError."""
        self._written_back = 0
        self.segments.flushes.truncate(offset)
        self.before_truncation(offset)
