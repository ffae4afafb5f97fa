"""The work of a broker on its logs, recorded with the facts that must be kept.

A Story drives a LogManager as the broker does: it appends, flushes when that is due, truncates,
retains and checkpoints, and notes of each step what may be on the disk from then on, and what has
to be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import attrs

from compaction.clean import clean
from compaction.job import CleaningJob, Finished, GroupCleaned, SourceSegment
from core_log.config import LogConfig
from core_log.flush import Flush
from core_log.log import Log
from core_log.log_manager import LogManager
from core_log.meta_properties import MetaProperties
from protocol.records.batch import decode_records, encode_batch, read_header
from protocol.records.compression import Codec
from protocol.records.legacy import encode_messages
from protocol.records.record_run import Row
from protocol.topic_partition import TopicPartition
from tests.crash.checks import batches_of
from tests.crash.history import (
    Acknowledged,
    Appended,
    Compacted,
    Deleted,
    Done,
    Emptied,
    Gone,
    History,
    Made,
    Making,
    Raised,
    StartKept,
    Synced,
    Truncated,
)
from tests.crash.recording import ROOT, Disk, Sync

FLIGHTS = TopicPartition("flights", 0)
T0 = 1_000_000
TICK_MS = 1000
META = MetaProperties(3, "cluster")
SMALL = {
    "segment_bytes": 300,
    "segment_index_bytes": 48,
    "index_interval_bytes": 100,
    "retention_ms": -1,
    "file_delete_delay_ms": 5000,
}


@attrs.define(eq=False)
class Story:
    """A broker's logs on a recorded disk, and the history of each partition."""

    config: LogConfig
    now_ms: int = T0
    disk: Disk = attrs.field(init=False)
    manager: LogManager = attrs.field(init=False)
    histories: dict[TopicPartition, History] = attrs.field(factory=dict)
    clock: list[tuple[int, int]] = attrs.field(factory=list)
    high_watermarks: dict[TopicPartition, set[int]] = attrs.field(factory=dict)
    meta_at: int | None = None
    producers: Counter[int] = attrs.field(factory=Counter)

    def __attrs_post_init__(self) -> None:
        self.disk = Disk(lambda: self.now_ms)
        self.clock.append((0, self.now_ms))
        self.start()

    @classmethod
    def of(cls, **settings: Any) -> Story:
        """Begin a story with other settings than the small ones."""
        return cls(LogConfig(**{**SMALL, **settings}))

    @property
    def at(self) -> int:
        """Number of operations on the disk so far."""
        return len(self.disk.operations)

    @property
    def root_syncs(self) -> list[int]:
        """Numbers of operations after which the root was synced."""
        return [
            number
            for number, operation in enumerate(self.disk.operations, start=1)
            if operation == Sync(ROOT)
        ]

    def log(self, tp: TopicPartition = FLIGHTS) -> Log:
        """Return a partition's log, which is created if there is none."""
        if self.manager.get(tp) is None:
            self.note(tp).note(Making(self.at))
            self.manager.get_or_create(tp, self.config)
            self.manager.sync_names()
            self.note(tp).note(Made(self.at))
        return self.manager.logs[tp]

    def note(self, tp: TopicPartition = FLIGHTS) -> History:
        """Return the history in which to note a partition's events."""
        return self.histories.setdefault(tp, History())

    # ---- the broker

    def start(self) -> None:
        """Load what is there, as at the start of a broker."""
        self.manager = LogManager([self.disk.root], self.config, lambda: self.now_ms)
        self.manager.load()

    def stop(self) -> None:
        """Stop cleanly, which flushes and checkpoints everything."""
        logs = dict(self.manager.logs)
        self.manager.close()
        for tp, log in logs.items():
            self._kept(tp, log.log_end_offset, self.note(tp).line)
            self.note(tp).note(StartKept(self.at - 1, log.log_start_offset))

    def write_meta_properties(self) -> None:
        """Say whose directory it is."""
        self.manager.write_meta_properties(META)
        self.meta_at = self.at

    def wait(self, wait_ms: int = TICK_MS) -> None:
        """Let time pass; what is due is flushed, as often as the broker looks."""
        for _ in range(wait_ms // TICK_MS):
            self.now_ms += TICK_MS
            self.clock.append((self.at, self.now_ms))
            for tp in list(self.manager.logs):
                self._flush_if_due(tp)

    def tick(self) -> None:
        """Do what the broker does every second."""
        self.manager.tick(self.now_ms)
        for tp, history in self.histories.items():
            if self.manager.get(tp) is None:
                history.note(Gone(self.at))

    def checkpoint(self) -> None:
        """Write down how far logs are flushed and where they start."""
        starts = {tp: log.log_start_offset for tp, log in self.manager.logs.items()}
        self.manager.checkpoint_recovery_points()
        for tp, start in starts.items():
            self.note(tp).note(StartKept(self.at, start))

    def checkpoint_high_watermark(self, high_watermark: int, tp: TopicPartition = FLIGHTS) -> None:
        """Write down a high watermark."""
        self.high_watermarks.setdefault(tp, {0}).add(high_watermark)
        self.manager.checkpoint_high_watermarks({tp: high_watermark})

    # ---- writing

    def append(
        self,
        count: int = 1,
        *,
        tp: TopicPartition = FLIGHTS,
        epoch: int = 0,
        producer: int = -1,
        records: int = 1,
        timestamp: int | None = None,
        codec: Codec = Codec.NONE,
        key: bytes | None = None,
        value: bytes | None = b"...",
        flush: bool = True,
    ) -> None:
        """Batches as a leader appends them, of `records` records each."""
        for _ in range(count):
            time = self.now_ms if timestamp is None else timestamp
            rows = [(time + number, key, value, ()) for number in range(records)]
            batch = encode_batch(
                rows,
                codec=codec,
                producer_id=producer,
                producer_epoch=min(producer, 0),
                base_sequence=self.producers[producer] if producer >= 0 else -1,
            )
            self.producers[producer] += records
            write = partial(
                Log.append,
                batch=batch,
                header=read_header(batch),
                leader_epoch=epoch,
                now_ms=self.now_ms,
                max_timestamp=time + records - 1,
            )
            self._append(tp, write, flush)

    def append_messages(
        self, count: int = 1, *, magic: int, codec: Codec = Codec.NONE, tp: TopicPartition = FLIGHTS
    ) -> None:
        """Messages of an older format, in one write; in one wrapper with a `codec`."""
        first = self.log(tp).log_end_offset
        rows: list[Row] = [
            (offset, self.now_ms + offset, None, b"%d" % offset, ())
            for offset in range(first, first + count)
        ]
        data = encode_messages(rows, magic, codec=codec)
        self._append(tp, lambda log: log.append_follower(data, now_ms=self.now_ms))

    def replicate(self, other: Log, tp: TopicPartition = FLIGHTS) -> None:
        """Copy all that another log has behind ours, in one write."""
        data = b"".join(
            batch.data
            for segment in other.segments
            for batch in batches_of(segment)
            if batch.base_offset >= self.log(tp).log_end_offset
        )
        self._append(tp, lambda log: log.append_follower(data, now_ms=self.now_ms))

    def follow(self, *makers: Callable[[int], bytes], tp: TopicPartition = FLIGHTS) -> None:
        """What its leader has next, each made for its offset, in one write each."""
        for maker in makers:
            data = maker(self.log(tp).log_end_offset)
            self._append(tp, partial(Log.append_follower, batches=data, now_ms=self.now_ms))

    def _append(self, tp: TopicPartition, write: Callable[[Log], Any], flush: bool = True) -> None:
        log, begun = self.log(tp), self.at
        end_offset = log.log_end_offset
        write(log)
        for segment in log.segments:
            for batch in batches_of(segment):
                if batch.base_offset >= end_offset:
                    appended = attrs.evolve(batch, appended_ms=self.now_ms)
                    self.note(tp).note(Appended(begun, appended))
        self.note(tp).note(Done(self.at))
        self._told(tp)
        if flush:
            self._flush_if_due(tp)

    def _flush_if_due(self, tp: TopicPartition) -> None:
        while self.log(tp).is_flush_due(self.now_ms):
            self.flush(tp)

    def flush(self, tp: TopicPartition = FLIGHTS) -> None:
        """Flush, with nothing else going on."""
        self.end_flush(*self.begin_flush(tp))

    def begin_flush(self, tp: TopicPartition = FLIGHTS) -> tuple[TopicPartition, Flush, int]:
        """The first part of a flush; the other is to be done later."""
        return tp, self.log(tp).begin_flush(), self.note(tp).line

    def end_flush(self, tp: TopicPartition, flush: Flush, line: int) -> None:
        """The other part."""
        flush.run()
        self._kept(tp, flush.end_offset, line)
        self.log(tp).end_flush(flush)
        self._told(tp)

    def _kept(self, tp: TopicPartition, end_offset: int, line: int) -> None:
        self.note(tp).note(Synced(self.at, end_offset, line))

    def _told(self, tp: TopicPartition) -> None:
        self.note(tp).note(Acknowledged(self.at, self.log(tp).durable_end_offset))

    def begin_epoch(self, epoch: int, tp: TopicPartition = FLIGHTS) -> None:
        """This broker leads now."""
        self.log(tp).begin_epoch(epoch)

    def roll(self, tp: TopicPartition = FLIGHTS) -> None:
        """Begin a segment."""
        self.log(tp).roll(self.now_ms)

    # ---- giving up

    def truncate_to(self, offset: int, tp: TopicPartition = FLIGHTS) -> None:
        """Cut the log's end off."""
        self.note(tp).note(Truncated(self.at, offset))
        self.log(tp).truncate_to(offset)
        self.note(tp).note(Done(self.at))

    def truncate_fully(self, offset: int, tp: TopicPartition = FLIGHTS) -> None:
        """Give all up and go on at `offset`."""
        self.note(tp).note(Emptied(self.at, offset))
        self.log(tp).truncate_fully_and_start_at(offset)
        self.note(tp).note(Done(self.at))

    def give_up_below(self, offset: int, tp: TopicPartition = FLIGHTS) -> None:
        """DeleteRecords."""
        self.note(tp).note(Raised(self.at, offset))
        self.log(tp).increment_log_start_offset(offset)

    def retain(self, tp: TopicPartition = FLIGHTS) -> int:
        """Apply retention; how many segments went."""
        begun, log = self.at, self.log(tp)
        gone = log.delete_old_segments(log.log_end_offset, self.now_ms)
        self.note(tp).note(Raised(begun, log.log_start_offset))
        return gone

    def set(self, tp: TopicPartition = FLIGHTS, **settings: Any) -> None:
        """Change settings of a topic."""
        self.log(tp).update_config(attrs.evolve(self.log(tp).config, **settings))

    def delete(self, tp: TopicPartition = FLIGHTS) -> None:
        """Delete the partition."""
        self.note(tp).note(Deleted(self.at))
        self.manager.delete(tp)

    # ---- compaction

    def compact(
        self, tp: TopicPartition = FLIGHTS, beside: Callable[[], None] | None = None
    ) -> int:
        """Clean all segments but the active one; how many copies took others' place. `beside` is
        done before each of them does."""
        log, replaced = self.log(tp), 0
        log.segments.flushes.make_names_safe(log.directory)
        before, truncations = newest_of(log), log.truncations
        log_dir = self.manager.dir_of(tp)
        assert log_dir is not None
        for event in clean(self._cleaning_job(log, log_dir.cleaned.get(tp) or 0), log.directory):
            if isinstance(event, GroupCleaned):
                if beside is not None:
                    beside()
                    before = newest_of(log)
                begun = self.at
                assert log.replace_segments(
                    event.base_offset, event.replaced, truncations=truncations
                )
                batches = [batch for segment in log.segments for batch in batches_of(segment)]
                self.note(tp).note(Compacted(begun, tuple(batches)))
                self.note(tp).note(Done(self.at))
                replaced += 1
            elif isinstance(event, Finished):
                log_dir.cleaned.save_offset(tp, event.end_offset)
        assert newest_of(log) == before
        return replaced

    def _cleaning_job(self, log: Log, first_dirty_offset: int) -> CleaningJob:
        segments = list(log.segments)
        return CleaningJob(
            log.topic_partition,
            tuple(
                SourceSegment(
                    segment.base_offset,
                    following.base_offset,
                    segment.size,
                    segment.offset_index.file.length,
                    segment.time_index.file.length,
                    segment.modified_ms,
                )
                for segment, following in pairwise(segments)
            ),
            first_dirty_offset,
            segments[-1].base_offset,
            log.config,
            {},
            1 << 20,
            0.9,
            4096,
            self.now_ms,
        )


def newest_of(log: Log) -> dict[bytes | None, bytes | None]:
    """The newest value of each key."""
    return {
        record.key: record.value
        for segment in log.segments
        for batch in batches_of(segment)
        for record in decode_records(batch.data)
    }
