"""One of a broker's log directories: the logs in it, its checkpoints, and its clean-stop mark.

A broker writes the mark `.kafka_cleanshutdown` last of all when it stops, and removes it when it
has loaded the logs again. Without the mark the logs are recovered from their recovery points on.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import attrs

from core_log.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    CheckpointError,
    decode_offsets,
    encode_offsets,
)
from core_log.cleaner_offsets import CleanerOffsets
from core_log.config import LogConfig
from core_log.directory_name import Kind, find_logs, parse, set_aside_name
from core_log.first_use import IN_USE_SINCE, FirstUse
from core_log.log import Log
from core_log.recovery.loading import load_log
from core_log.set_aside import SetAsideLog, is_set_aside, note_set_aside, read_if_over
from core_log.storage import DISK_FULL, INNOCENT, Directory
from protocol.errors import ApiError, ErrorCode
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
PROBE = ".probe"
"""A file that is written to find out whether the disk can be written."""
ROOM_BYTES = 4 * 2**20
"""A disk that was full must have this much room before anything else is written to it."""

COST_OF_LOSS = {
    RECOVERY_POINTS: "; after an unclean stop all logs are read whole, and a damaged one is "
    "truncated, for nothing tells what was on disk",
    LOG_START_OFFSETS: "; deleted records may be back",
    HIGH_WATERMARKS: "; all high watermarks begin at the start of their logs",
    CLEANER_OFFSETS: "; all compacted logs are cleaned from their start on",
}
"""The consequence when a checkpoint cannot be read."""

logger = logging.getLogger(__name__)


@frozen
class StoredLog:
    """A partition's directory, and its offsets in the checkpoints."""

    topic_partition: TopicPartition
    directory: Directory
    recovery_point: int = 0
    log_start_offset: int = 0
    clean_shutdown: bool = True
    was_cleaned: bool = False

    def load(self, config: LogConfig, monotonic_ms: Callable[[], int]) -> Log:
        """Open the log. Raises OSError, and ValueError for files that are no log's."""
        return load_log(
            self.directory,
            self.topic_partition,
            config.remembering(self.was_cleaned),
            recovery_point=self.recovery_point,
            clean_shutdown=self.clean_shutdown,
            monotonic_ms=monotonic_ms,
            log_start_offset=self.log_start_offset,
        )


@attrs.define(eq=False)
class LogDir:
    """A log directory and the logs that were opened in it.

    `one_writer` lets any thread write checkpoints of recovery points. `new_logs` are not served
    yet; a new log is None until it is created.
    """

    directory: Directory
    _one_writer: AbstractContextManager[Any] = attrs.field(factory=nullcontext)
    logs: dict[TopicPartition, Log] = attrs.field(factory=dict)
    futures: dict[TopicPartition, Log] = attrs.field(factory=dict)
    new_logs: dict[TopicPartition, Log | None] = attrs.field(factory=dict)
    unopened: dict[TopicPartition, StoredLog] = attrs.field(factory=dict)
    is_clean: bool = False
    first_use: FirstUse | None = None
    named: set[TopicPartition] = attrs.field(factory=set)
    """The logs that the last run has named, and that were not deleted since."""
    # What the disk has refused: with an error of its own, or for a lack of room.
    error: OSError | None = None
    lack_of_room: OSError | None = None
    is_reported_full: bool = False
    cleaned: CleanerOffsets = attrs.field(init=False)
    # The recovery points as they were last written.
    _recovery_points: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    # What a power loss could still undo: names of logs, and their checkpoints.
    _names_due: bool = False
    _checkpoints_due: bool = False

    @cleaned.default
    def _nothing_cleaned(self) -> CleanerOffsets:
        return CleanerOffsets(self.directory, self._one_writer)

    @property
    def path(self) -> str:
        """Path of the directory."""
        return self.directory.path

    @property
    def is_suspect(self) -> bool:
        """True after an error that may be the disk's, and not one log's."""
        return self.error is not None or any(log.guard.suspects_disk for log in self.all_logs())

    # Errors and lack of room

    def note_error(self, error: OSError) -> None:
        """Note that an operation on the directory has failed."""
        if error.errno in DISK_FULL:
            self.lack_of_room = error
        elif error.errno not in INNOCENT:
            self.error = error

    def probe(self) -> None:
        """Write to the disk, in any thread. Raises OSError if it cannot be written.

        A full disk can be written, and so can one that could not be tried for a lack of
        resources.
        """
        try:
            self.directory.write_atomic(PROBE, b"")
            self.directory.remove(PROBE)
            self.directory.fsync_dir()
        except OSError as error:
            if error.errno not in INNOCENT:
                raise

    @property
    def is_full(self) -> bool:
        """True if the last write found no room."""
        return self.lack_of_room is not None or any(log.guard.is_full for log in self.all_logs())

    def report_full(self) -> None:
        """Log once that the directory is full."""
        if not self.is_reported_full:
            self.is_reported_full = True
            logger.error(
                "%s is full: logs that found no room for an append take none until there is room "
                "for %d more MiB; they can be read, and retention and deletion go on",
                self.path,
                ROOM_BYTES // 2**20,
            )

    def probe_room(self) -> None:
        """Write and remove a file of ROOM_BYTES, in any thread.

        Raises OSError, one of DISK_FULL while there is too little room.
        """
        # A leftover would take up room itself.
        self.directory.remove(PROBE)
        try:
            file = self.directory.open_segment(PROBE)
            file.append([bytes(ROOM_BYTES)])
            # Some file systems notice a lack of room only here.
            file.fsync()
        finally:
            self.directory.remove(PROBE)

    def resume_writes(self) -> None:
        """Take writes again: there is room for all that was refused for a lack of it."""
        self.lack_of_room = None
        refused = [log for log in self.all_logs() if log.guard.is_full]
        for log in refused:
            log.guard.clear_lack_of_room()
        logger.info("%s has room again: %d logs take writes", self.path, len(refused))
        self.is_reported_full = False

    def clear_suspicion(self) -> None:
        """Note that the disk was not at fault."""
        self.error = None
        for log in self.all_logs():
            log.guard.suspects_disk = False

    def fail(self) -> None:
        """Take no more writes to any log in the directory."""
        # A log that failed before keeps its own reason.
        for log in self.all_logs():
            log.guard.failure = log.guard.failure or f"{self.path} is offline"

    # The start

    def stored_logs(self) -> tuple[list[StoredLog], list[StoredLog], list[str]]:
        """List the partitions, the partitions that were being moved here, and deleted directories.

        Raises DirectoryNameError for a directory that is none of these.
        """
        # Read what the last run has left, for each log's recovery.
        self.is_clean = self.directory.read(CLEAN_SHUTDOWN) is not None
        self._recovery_points = recovery_points = self.read_offsets(RECOVERY_POINTS)
        self.named = set(recovery_points)
        self.first_use = FirstUse.decode(self.directory.read(IN_USE_SINCE))
        log_start_offsets = self.read_offsets(LOG_START_OFFSETS)
        self.cleaned.load(self.read_offsets(CLEANER_OFFSETS))

        # Sort the partitions' directories by their kind.
        stored_logs: dict[Kind, list[StoredLog]] = {Kind.CURRENT: [], Kind.FUTURE: []}
        deleted_names = []
        for name in self.directory.children():
            topic_partition, kind = parse(name)
            # A topic may have the name of a log that is set aside (fault core-R1).
            if kind is Kind.SET_ASIDE and not is_set_aside(self.directory.child(name)):
                kind = Kind.CURRENT
            if kind is Kind.DELETED:
                deleted_names.append(name)
            # A log of an earlier topic is not opened.
            elif kind in stored_logs:
                # The gaps that compaction made outlive its policy (fault broker-1, was: False).
                was_cleaned = self.cleaned.get(topic_partition) is not None
                stored = StoredLog(
                    topic_partition,
                    self.directory.child(name),
                    recovery_points.get(topic_partition, 0),
                    log_start_offsets.get(topic_partition, 0),
                    self.is_clean,
                    was_cleaned,
                )
                stored_logs[kind].append(stored)

        current = stored_logs[Kind.CURRENT]
        # A checkpoint that is written before all are open keeps what it said of them.
        self.unopened = {stored.topic_partition: stored for stored in current}
        return current, stored_logs[Kind.FUTURE], deleted_names

    def note_first_use(self, first_use: FirstUse) -> None:
        """Note since when the directory is in use, unless it has that. Raises OSError."""
        if self.first_use is None:
            self.directory.write_atomic(IN_USE_SINCE, first_use.encode())
            self.directory.fsync_dir()
            self.first_use = first_use

    def clear_clean_mark(self) -> None:
        """Remove the mark: the logs are open, and from now on a crash is a crash."""
        if self.is_clean:
            self.directory.remove(CLEAN_SHUTDOWN)
            self.directory.fsync_dir()

    # Logs that come and go

    def add(self, log: Log) -> Log:
        """Serve a log from now on. Raises OSError."""
        topic_partition = log.topic_partition
        # A log that lost its end is not clean beyond it (KAFKA-3330).
        self.cleaned.lower(topic_partition, log.log_end_offset)
        log.before_truncation = partial(self._lower_checkpoints, topic_partition)
        self.logs[topic_partition] = log
        self.unopened.pop(topic_partition, None)
        return log

    def _lower_checkpoints(self, topic_partition: TopicPartition, offset: int) -> None:
        """Lower the checkpoints of a log that is about to be truncated at `offset`.

        After a power loss no checkpoint may count the bytes that are written after the truncation
        as flushed or cleaned. Raises OSError.
        """
        lowered = self.cleaned.lower(topic_partition, offset)
        with self._one_writer:  # a checkpoint that is being written may have the old offset
            is_beyond = self._recovery_points.get(topic_partition, 0) > offset
        if is_beyond:
            self.checkpoint_recovery_points()
            lowered = True
        # A power loss must not bring back the file with the higher offset.
        if lowered:
            self.directory.fsync_dir()

    def create(
        self, topic_partition: TopicPartition, config: LogConfig, monotonic_ms: Callable[[], int]
    ) -> Log:
        """Create a new log and serve it. Raises OSError.

        `sync_names` makes it safe from a power loss. That matters even for a log without records:
        an in-sync replica without a log counts as one whose disk was lost.
        """
        self.reserve(topic_partition)
        try:
            self.make_reserved(topic_partition, config, monotonic_ms)
        finally:
            log = self.new_logs.pop(topic_partition)
        assert log is not None
        return self.add(log)

    def reserve(self, topic_partition: TopicPartition) -> None:
        """Announce a log that is to be created here."""
        self.new_logs[topic_partition] = None

    def make_reserved(
        self, topic_partition: TopicPartition, config: LogConfig, monotonic_ms: Callable[[], int]
    ) -> None:
        """Create a reserved log, in any thread. Raises OSError."""
        # A deleted log of the same name may be in the checkpoints.
        self._forget_deleted()
        name = str(topic_partition)
        log = StoredLog(topic_partition, self.directory.child(name)).load(config, monotonic_ms)
        # An earlier topic's could not be set aside, for the disk was full: its records would be
        # served as the new topic's (fault strangers-3).
        if log.log_end_offset > 0:
            self.set_aside_unserved(log)
            log = StoredLog(topic_partition, self.directory.child(name)).load(config, monotonic_ms)
        self.new_logs[topic_partition] = log
        self._names_due = True

    def set_aside_unserved(self, log: Log) -> None:
        """Give the directory of a log that is not served another name, in any thread.

        Raises OSError.
        """
        name = set_aside_name(log.topic_partition, uuid.uuid4().hex)
        logger.warning(
            "%s in %s is of an earlier topic of this name: set aside as %s", log, self.path, name
        )
        note_set_aside(log.directory, log.topic_partition.topic, None)
        log.directory.rename_to(name)
        self.directory.fsync_dir()

    def create_future(
        self,
        topic_partition: TopicPartition,
        name: str,
        config: LogConfig,
        monotonic_ms: Callable[[], int],
    ) -> Log:
        """Create the log that a partition is moved into. Raises OSError."""
        self._forget_deleted()
        stored = StoredLog(topic_partition, self.directory.child(name))
        log = self.add_future(stored.load(config, monotonic_ms))
        self._names_due = True
        return log

    def add_future(self, log: Log) -> Log:
        """Keep a log that a partition is moved into."""
        log.before_truncation = partial(self._lower_checkpoints, log.topic_partition)
        self.futures[log.topic_partition] = log
        return log

    def promote_future(self, topic_partition: TopicPartition) -> Log:
        """Serve the future log of a partition as its own."""
        return self.add(self.futures.pop(topic_partition))

    def remove_future(self, topic_partition: TopicPartition) -> None:
        """Take out a future log. The caller renames its directory."""
        # Whoever still fills it gets this error.
        self.futures.pop(topic_partition).guard.failure = "the replica is not moved any more"
        self._names_due = self._checkpoints_due = True

    def remove(self, topic_partition: TopicPartition, why: str) -> Log:
        """Take out a log. The caller renames its directory.

        The checkpoints must not name it when a log of its name is created again: `tick` and
        `make_reserved` see to that.
        """
        log = self.logs.pop(topic_partition)
        self.named.discard(topic_partition)
        log.guard.failure = why
        self.cleaned.delete(topic_partition)
        self._names_due = self._checkpoints_due = True
        return log

    def rename_removed(self, log: Log, new_name: str) -> None:
        """Rename the directory of a log that was taken out, in any thread.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        try:
            log.directory.rename_to(new_name)
        except OSError as error:
            self.note_error(error)
            why = f"{log.topic_partition}: {self.path}: {error}"
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, why) from error
        self._names_due = True

    def rename_set_aside(self, log: Log, new_name: str, now_ms: int) -> None:
        """Rename the directory of a log of an earlier topic, and note the time, in any thread.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        try:
            note_set_aside(log.directory, log.topic_partition.topic, now_ms)
        except OSError as error:
            self.note_error(error)
            why = f"{log.topic_partition}: {self.path}: {error}"
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, why) from error
        self.rename_removed(log, new_name)

    def find_set_aside(self, now_ms: int) -> list[SetAsideLog]:
        """List what was set aside SET_ASIDE_MS ago, in any thread. Raises OSError."""
        due = []
        for name, partition, kind in find_logs(self.directory.children()):
            if kind is Kind.SET_ASIDE:
                log = read_if_over(self.directory.child(name), self.path, partition, now_ms)
                due += [] if log is None else [log]
        return due

    def remove_set_aside(self, log: SetAsideLog) -> None:
        """Remove a log that was set aside, in any thread. Raises OSError."""
        self.directory.remove_child(log.name)
        logger.info("%s/%s, of an earlier topic, is removed", self.path, log.name)

    def sync_names(self) -> None:
        """Make the names of logs safe from a power loss, in any thread. Raises OSError."""
        if self._names_due:
            # Before the sync: a name that changes during it needs another one.
            self._names_due = False
            try:
                self.directory.fsync_dir()
            except OSError:
                self._names_due = True
                raise

    def sync_names_or_fail(self) -> None:
        """Make the names of logs safe, in any thread. Raises ApiError KAFKA_STORAGE_ERROR."""
        try:
            self.sync_names()
        except OSError as error:
            self.note_error(error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path}: {error}") from error

    def take_due_files(self, monotonic_ms: int) -> list[tuple[Directory, str]]:
        """Take the files of deleted segments that are due, to be removed in any thread."""
        return [
            (log.directory, name)
            for log in self.logs.values()
            if not log.is_lent
            for name in log.take_due_files(monotonic_ms)
        ]

    def sync_names_and_checkpoints(self) -> None:
        """Make created and deleted logs safe from a power loss, in any thread. Raises OSError."""
        self.sync_names()
        self._forget_deleted()
        self.cleaned.save()

    def _forget_deleted(self) -> None:
        """Take deleted logs out of the checkpoints, safe from a power loss."""
        if self._checkpoints_due:
            # Before the writes: a log that is deleted during them needs others.
            self._checkpoints_due = False
            try:
                self.checkpoint_recovery_points()
                self.cleaned.keep_only(self.logs)
                self.cleaned.save()
                self.directory.fsync_dir()
            except OSError:
                self._checkpoints_due = True
                raise

    # Checkpoints

    def checkpoint_recovery_points(self) -> None:
        """Write recovery points and log start offsets. Raises OSError.

        Unlike Kafka we also write a start offset that is a segment's first one: a power loss may
        bring back the segments before it.
        """
        with self._one_writer:  # or an older recovery point could come after a newer one
            # Logs that are not opened yet keep what the last checkpoint said.
            logs = {**self.futures, **self.logs}
            all_logs: dict[TopicPartition, Log | StoredLog] = {**self.unopened, **logs}
            starts = {tp: log.log_start_offset for tp, log in all_logs.items()}
            recovery_points = {tp: log.recovery_point for tp, log in all_logs.items()}

            self._write_offsets(LOG_START_OFFSETS, {tp: o for tp, o in starts.items() if o})
            self._write_offsets(RECOVERY_POINTS, recovery_points)
            # After the write: if it fails, the file has the points of the last one.
            self._recovery_points = recovery_points

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write the high watermarks of the partitions in this directory, if there are any."""
        written = {tp: offset for tp, offset in high_watermarks.items() if tp in self.logs}
        # A future log has the watermark of the current one, as far as it is filled.
        for topic_partition, log in dict(self.futures).items():
            high_watermark = high_watermarks.get(topic_partition, 0)
            written[topic_partition] = min(high_watermark, log.log_end_offset)
        # As in Kafka, a directory without logs keeps its file.
        if written:
            self._write_offsets(HIGH_WATERMARKS, written)

    def read_offsets(self, name: str) -> dict[TopicPartition, int]:
        """Read a checkpoint. One that cannot be read counts as empty (KAFKA-1758)."""
        try:
            return decode_offsets(self.directory.read(name))
        except CheckpointError as error:
            cost = COST_OF_LOSS.get(name, "")
            logger.warning("%s/%s is ignored: %s%s", self.path, name, error, cost)
            return {}

    def mark_clean(self) -> None:
        """Mark that every log here was closed, last of all. Raises OSError."""
        self.checkpoint_recovery_points()
        # The mark vouches for the checkpoints, so it comes after them.
        self.directory.write_atomic(CLEAN_SHUTDOWN, b"")
        self.directory.fsync_dir()

    def all_logs(self) -> list[Log]:
        """Return all logs in the directory, served or not."""
        new_logs = [log for log in list(self.new_logs.values()) if log is not None]
        return [*self.logs.values(), *self.futures.values(), *new_logs]

    def _write_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.directory.write_atomic(name, encode_offsets(offsets))
