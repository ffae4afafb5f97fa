"""One partition's log: batches in order of offset, in segments, on one disk.

Everything here runs on one thread, the event loop's; only `Flush.run` may run beside it. An
append has been validated by its caller. The log gives it its offsets, writes it in one call
without copying its body, and only then moves the log end offset, so a reader never meets half an
append. When the disk fails under a write the file is cut back to what was whole, the log takes no
more writes (KAFKA_STORAGE_ERROR), and what it holds can still be read.

Files, their names, when a segment is rolled and when an index entry is written, are Kafka's
(kafka.log.Log), so that a JVM broker and its tools can read the directory.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

import attrs

from core_log.batch_stamp import stamp
from core_log.config import LogConfig
from core_log.deleted_files import DeletedFiles
from core_log.flush import Flush, FlushState
from core_log.leader_epochs import LeaderEpochs
from core_log.producer_snapshots import ProducerSnapshots
from core_log.producer_state import ProducerState
from core_log.replicated_run import runs
from core_log.retention import expired
from core_log.segment import Segment
from core_log.segment_list import SegmentList
from core_log.storage import BytesLike, Directory, FileRange
from core_log.time_index import TimestampOffset
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch_header import LOG_APPEND_TIME, MAGIC, BatchHeader
from protocol.topic_partition import TopicPartition

OFFSETS_TOPIC = "__consumer_offsets"
FOLLOWER_RUN_BYTES = 64 * 1024
"""Most bytes of replicated batches that share one write and one index entry."""

_log = logging.getLogger(__name__)


class Appended(NamedTuple):
    """What became of an append. `log_append_time_ms` is -1 unless the topic stamps that time."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int


@attrs.define(eq=False, repr=False)
class Log:
    """The log of one partition. Offsets below `log_start_offset` are gone, or as good as gone."""

    directory: Directory
    topic_partition: TopicPartition
    config: LogConfig
    segments: SegmentList
    leader_epochs: LeaderEpochs
    snapshots: ProducerSnapshots
    log_start_offset: int
    _flushes: FlushState
    _deleted_files: DeletedFiles
    _now_ms: int
    producers: ProducerState = attrs.field(factory=ProducerState)
    failure: str | None = None

    def __repr__(self) -> str:
        failure = f", failed: {self.failure}" if self.failure else ""
        offsets = f"{self.log_start_offset} to {self.log_end_offset}"
        return f"Log({self.topic_partition}, {offsets}{failure})"

    @property
    def log_end_offset(self) -> int:
        """The offset the next batch gets."""
        return self.segments.end_offset

    @property
    def recovery_point(self) -> int:
        """The first offset that is not known to be on disk."""
        return self._flushes.recovery_point

    @property
    def settled_end(self) -> int:
        """The end of what may be counted as kept: flush.messages allows fewer than that many
        messages that are not on disk."""
        unflushed = self.log_end_offset - self.recovery_point
        return (
            self.log_end_offset if unflushed < self.config.flush_messages else self.recovery_point
        )

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
    ) -> Appended:
        """Write one batch as the leader: it gets the next offsets and the leader's epoch.

        `header` is the batch's, `max_timestamp` the true latest timestamp of its records. What
        its producer wrote before is not appended again. Raises ApiError RECORD_LIST_TOO_LARGE,
        KAFKA_STORAGE_ERROR and those of `ProducerState.check`, with nothing appended.
        """
        self._check_writable(header.size)
        if header.producer_id >= 0:
            epoch_only = self.topic_partition.topic == OFFSETS_TOPIC
            found = self.producers.check(header, epoch_only=epoch_only)
            if found is not None:
                return Appended(
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
            self._note_epoch(leader_epoch, base_offset)
            self._write(buffers, base_offset, last_offset, latest, now_ms)
        except OSError as error:
            raise self.fail(error) from error
        if header.producer_id >= 0:
            self.producers.update(header, last_offset, max_timestamp, now_ms)
        return Appended(base_offset, last_offset, log_append_time_ms, self.log_start_offset)

    def append_follower(self, batches: BytesLike, *, now_ms: int) -> int:
        """Write batches as the leader has them, offsets, epochs and all; the new log end offset.

        A partial batch at the end is left out. Raises CorruptRecord or UnexpectedAppendOffset
        (what was whole before it is appended), and ApiError KAFKA_STORAGE_ERROR.
        """
        run_bytes = min(FOLLOWER_RUN_BYTES, self.config.segment_bytes)
        for run in runs(memoryview(batches), self.log_end_offset, run_bytes):
            self._check_writable(len(run.records))
            try:
                for header in run.headers:
                    self._note_epoch(header.partition_leader_epoch, header.base_offset)
                self._write([run.records], run.first_offset, run.last_offset, run.latest, now_ms)
            except OSError as error:
                raise self.fail(error) from error
            for header in run.headers:
                if isinstance(header, BatchHeader) and header.producer_id >= 0:
                    self.producers.update(header, header.last_offset, header.max_timestamp, now_ms)
        return self.log_end_offset

    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log's end; an active segment with nothing in it stays.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        self._check_writable(0)
        try:
            self._roll(self.log_end_offset, now_ms)
        except OSError as error:
            raise self.fail(error) from error

    def truncate_to(self, offset: int) -> bool:
        """End the log at `offset`, with the whole batch that holds it; whether anything went.

        An epoch that begins there goes, though nothing was written in it: a follower that kept
        it would ask about it for ever. Raises ApiError KAFKA_STORAGE_ERROR.
        """
        assert offset >= 0
        self._check_writable(0)
        if offset < self.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        try:
            if offset >= self.log_end_offset:
                self.leader_epochs.truncate_from_end(offset)
                return False
            keep = self.segments.floor(offset) + 1
            if keep < len(self.segments):
                self._discard(self.segments.keep(0, keep))
                self.segments.active.activate(self.config)
            self.segments.active.truncate_to(offset, self._now_ms)
            self._end_at(offset)
            self.leader_epochs.truncate_from_end(offset)
            self.reload_producers(replay=bool(self.producers.producers))
        except OSError as error:
            raise self.fail(error) from error
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the next batch has `offset`. Raises ApiError KAFKA_STORAGE_ERROR."""
        self._check_writable(0)
        try:
            self._discard(self.segments.keep(len(self.segments)))
            self._begin_segment(offset, self._now_ms)
            self.log_start_offset = offset
            self._end_at(offset)
            self.leader_epochs.clear()
            self.producers = ProducerState()
            self.snapshots.clear(offset)
        except OSError as error:
            raise self.fail(error) from error

    def reload_producers(self, *, replay: bool = True) -> None:
        """Find the producers by a snapshot and, with `replay`, in what was written since.

        Raises OSError.
        """
        found = self.snapshots.newest(self.segments.first.base_offset, self.log_end_offset)
        self.producers = ProducerState(found)
        if replay and self.snapshots.covered < self.log_end_offset:
            for header in self.segments.produced_from(self.snapshots.covered):
                self.producers.update(header, header.last_offset, header.max_timestamp)

    def update_config(self, config: LogConfig) -> None:
        """Go by other settings from now on."""
        self.config = config

    def begin_epoch(self, epoch: int) -> None:
        """A leader begins to write in `epoch`. Raises ApiError KAFKA_STORAGE_ERROR.

        Messages of older formats will not tell of it, so it is written down at once.
        """
        try:
            self.leader_epochs.assign(epoch, self.log_end_offset)
            if self.config.magic < MAGIC:
                self.leader_epochs.save()
        except OSError as error:
            raise self.fail(error) from error

    # Reading

    def read(
        self, offset: int, max_bytes: int, end_offset: int, min_one: bool = True
    ) -> FileRange | None:
        """Bytes that start with the batch of `offset`, or the next one there is; None for none.

        Nothing at or above `end_offset` is in them. They end with a segment, and may end within
        a batch, which readers skip. A first batch larger than `max_bytes` comes whole with
        `min_one`, and not at all without (KIP-74). Raises ApiError OFFSET_OUT_OF_RANGE.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} has {self.log_start_offset} to {self.log_end_offset}, "
                f"not {offset}",
            )
        if offset >= end_offset:
            return None
        return self.segments.read(offset, max_bytes, min(end_offset, self.log_end_offset), min_one)

    def bytes_between(self, offset: int, end_offset: int) -> int:
        """Bytes a reader at `offset` would find below `end_offset`, over all segments."""
        end_offset = min(end_offset, self.log_end_offset)
        if offset >= end_offset:
            return 0
        return self.segments.bytes_between(max(offset, self.log_start_offset), end_offset)

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record that is not earlier than `timestamp` in ms."""
        return self.segments.first_at_or_after(timestamp, self.log_start_offset)

    def offsets_before(self, time_ms: int, max_num: int, now_ms: int) -> list[int]:
        """Start offsets of segments last written by `time_ms`, newest first (ListOffsets v0).

        Time -1 (latest) begins with the log end offset, -2 (earliest) is the log start alone.
        """
        return self.segments.last_written_by(time_ms, self.log_start_offset, now_ms)[:max_num]

    # Flushing

    def flush_due(self, now_ms: int) -> bool:
        """Whether flush.messages, flush.ms or a rolled segment asks for a flush now."""
        active_base = self.segments.active.base_offset
        return self.failure is None and self._flushes.due(
            self.config, active_base, self.log_end_offset, now_ms
        )

    def begin_flush(self) -> Flush:
        """Everything that is not on disk yet, to be run off the loop."""
        first = max(self._flushes.first_offset(), self.segments.first.base_offset)
        unflushed = self.segments.segments[self.segments.floor(first) :]
        files = [file for segment in unflushed for file in segment.files_to_flush()]
        files += self.snapshots.to_flush()
        return self._flushes.begin(files, self.directory, self.log_end_offset)

    def end_flush(self, flush: Flush) -> None:
        """Move the recovery point after `flush.run` came back; after an OSError of either call
        `fail`."""
        self.leader_epochs.save()
        self._flushes.ended(flush)
        self.snapshots.remove_before(self.segments.reread_from(self.recovery_point))

    # Retention and the end

    def increment_log_start_offset(self, offset: int) -> bool:
        """Give up what is below `offset` (DeleteRecords); segments go with the next retention.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        if offset <= self.log_start_offset:
            return False
        assert offset <= self.log_end_offset
        self.log_start_offset = offset
        try:
            self.leader_epochs.truncate_from_start(offset)
        except OSError as error:
            raise self.fail(error) from error
        return True

    def delete_old_segments(self, high_watermark: int, now_ms: int) -> int:
        """Apply retention; how many segments went. Raises ApiError KAFKA_STORAGE_ERROR."""
        self._check_writable(0)
        going, why = expired(
            self.segments.ages(),
            self.config,
            log_start_offset=self.log_start_offset,
            high_watermark=high_watermark,
            now_ms=now_ms,
        )
        if not going:
            return 0
        self._now_ms = now_ms
        try:
            if going == len(self.segments):
                self._roll(self.log_end_offset, now_ms)
            self._discard(self.segments.keep(going))
            self.snapshots.remove_before(self.segments.first.base_offset)
            self.increment_log_start_offset(self.segments.first.base_offset)
        except OSError as error:
            raise self.fail(error) from error
        _log.info("%s: %d segments deleted: %s", self.topic_partition, going, why)
        return going

    def tick(self, now_ms: int) -> None:
        """Remove the files whose file.delete.delay.ms is over."""
        self._deleted_files.remove_due(now_ms)

    def close(self) -> None:
        """Flush and close: the indexes are cut to their entries. Raises OSError.

        A log that failed is left as it is, to be recovered at the next start.
        """
        if self.failure is None:
            self.segments.active.seal()
            self.snapshots.take(self.log_end_offset, self.producers.producers)
            self._flushes.names_changed = True
            flush = self.begin_flush()
            flush.run()
            self.end_flush(flush)
            self.failure = "closed"

    def fail(self, error: OSError | str) -> ApiError:
        """Take no more writes because of `error`; the exception to answer with."""
        if self.failure is None:
            _log.error("%s takes no more writes: %s", self.topic_partition, error)
            self.failure = str(error)
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {self.failure}")

    def _check_writable(self, size: int) -> None:
        if self.failure is not None:
            raise self.fail(self.failure)
        if size > self.config.segment_bytes:
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{size} bytes do not fit segment.bytes {self.config.segment_bytes}",
            )

    def _note_epoch(self, epoch: int, start_offset: int) -> None:
        if epoch > self.leader_epochs.latest_epoch:
            self.leader_epochs.assign(epoch, start_offset)

    def _write(
        self,
        buffers: Sequence[BytesLike],
        first_offset: int,
        last_offset: int,
        latest: TimestampOffset,
        now_ms: int,
    ) -> None:
        """Write batches to the active segment, or a new one, and move the log's end."""
        size = sum(map(len, buffers))
        active = self.segments.active
        if active.should_roll(self.config, size, last_offset, latest.timestamp, now_ms):
            active = self._roll(first_offset, now_ms)
        active.append(buffers, last_offset, latest, self.config.index_interval_bytes)
        self._flushes.appended(self.log_end_offset, now_ms)
        self.segments.end_offset = last_offset + 1
        self._now_ms = now_ms

    def _roll(self, base_offset: int, now_ms: int) -> Segment:
        """The new active segment, or the one there is if it begins at `base_offset` already."""
        if self.segments.active.base_offset < base_offset:
            self.segments.active.seal()
            self.snapshots.take(base_offset, self.producers.producers)
            self._begin_segment(base_offset, now_ms)
        return self.segments.active

    def _begin_segment(self, base_offset: int, now_ms: int) -> None:
        segment = Segment.create(self.directory, base_offset, now_ms)
        segment.activate(self.config)
        self.segments.add(segment)
        self._flushes.names_changed = True

    def _end_at(self, offset: int) -> None:
        self.segments.end_at(offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self._flushes.truncated(offset)

    def _discard(self, segments: list[Segment]) -> None:
        """Mark files as deleted; `tick` removes them when readers have had their time."""
        self._deleted_files.mark(segments, self._now_ms + self.config.file_delete_delay_ms)
