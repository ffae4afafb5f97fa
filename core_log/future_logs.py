"""Replicas on their way to another log directory of the same broker (KIP-113).

A move fills a log of its own, the *future* log, while the partition goes on with its current one.
When the future log has all of it, it takes the current one's place:

    1  the file `copy-complete` is written in the future log's directory
    2  topic-partition            →  topic-partition.id-delete
    3  topic-partition.id-future  →  topic-partition

Each step is on disk before the next. Up to 2 the current log counts, and a broker that was killed
resumes the move; between 2 and 3 no directory bears the partition's own name, and the mark says at
the next start that the future log is whole and is to have it. So there are never two logs of one
partition. (Kafka renames the future log first, and refuses to start on the two that it may find.)

A future log without the mark, whose current log is gone with its disk, may lack anything: it is
not taken for the partition's log, and a new one is made in its place.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

import attrs

from core_log.config import LogConfig
from core_log.directory_name import MAX_NAME_BYTES, deleted_name, future_name
from core_log.log import Log
from core_log.log_dir import LogDir, StoredLog
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import TopicPartition

COPY_COMPLETE = "copy-complete"
"""The mark of a future log that lacks nothing. Kafka ignores files of this name."""

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class Promotion:
    """A future log takes the current one's place on disk, which is called `name` then."""

    topic_partition: TopicPartition
    current: Log
    future: Log
    source: LogDir
    target: LogDir
    name: str = attrs.field(init=False)

    @name.default
    def _new_name(self) -> str:
        return deleted_name(self.topic_partition, uuid.uuid4().hex)

    def run(self) -> None:
        """Do it, in whatever thread. Raises OSError: then nothing has changed, or the current log
        has failed too."""
        current, future = self.current, self.future
        _prepare(future, current)
        future.directory.write_atomic(COPY_COMPLETE, b"")
        try:
            future.directory.fsync_dir()
            self.target.directory.fsync_dir()
            current.directory.rename_to(self.name)
            self.source.directory.fsync_dir()
            future.directory.rename_to(str(self.topic_partition))
        except OSError:
            self._undo()
            raise
        try:
            self.target.directory.fsync_dir()
            future.directory.remove(COPY_COMPLETE)
        except OSError as error:  # the mark stays, by which the log is found
            self.target.note_error(error)

    def _undo(self) -> None:
        current, own_name = self.current, str(self.topic_partition)
        try:
            if current.directory.name != own_name:
                current.directory.rename_to(own_name)
                current.directory.fsync_dir()
            remove_complete_mark(self.future)
        except OSError as error:
            current.guard.fail(error)


@attrs.define(eq=False)
class FutureLogs:
    """Those of a broker. `dirs`, `current` and `offline` are its log manager's own: the directories
    in use, the partitions' current logs, and why each other directory is not in use.

    `leave(log_dir, name, config)` hears of directories that are to be removed after a while.
    `preferred` is where partitions that have no log here are to have theirs.
    """

    dirs: list[LogDir]
    current: dict[TopicPartition, Log]
    offline: Mapping[str, str]
    leave: Callable[[LogDir, str, LogConfig], None]
    preferred: dict[TopicPartition, LogDir] = attrs.field(factory=dict)

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """The future log of a partition, if it has one."""
        log_dir = self._dir_of(topic_partition)
        return None if log_dir is None else log_dir.futures[topic_partition]

    def by_directory(self) -> dict[str, list[Log]]:
        """The future logs in each directory that is in use, by its path."""
        return {log_dir.path: list(log_dir.futures.values()) for log_dir in self.dirs}

    def path_of(self, topic_partition: TopicPartition) -> str | None:
        """The path of the directory that a partition is moved to."""
        log_dir = self._dir_of(topic_partition)
        return None if log_dir is None else log_dir.path

    def current_dir(self, topic_partition: TopicPartition) -> LogDir:
        """The directory that a partition's current log is in; there is one."""
        return next(each for each in self.dirs if topic_partition in each.logs)

    # ---- changes

    def set_target_directory(self, topic_partition: TopicPartition, path: str) -> None:
        """Have the partition's log in the directory at `path`: give up a move to elsewhere, and
        remember the directory for a log that is made later.

        Raises ApiError LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR for a directory that is offline, and
        INVALID_TOPIC_EXCEPTION for a name that is too long for a future log's.
        """
        if len(future_name(topic_partition, uuid.uuid4().hex).encode()) > MAX_NAME_BYTES:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic_partition} is too long")
        log_dir = self._dir_at(path)
        self.preferred.pop(topic_partition, None)
        if self.path_of(topic_partition) not in (None, path):
            self.delete(topic_partition)
        if topic_partition not in log_dir.logs and topic_partition not in log_dir.futures:
            self.preferred[topic_partition] = log_dir

    def create(
        self, topic_partition: TopicPartition, config: LogConfig, monotonic_ms: Callable[[], int]
    ) -> Log | None:
        """Begin the move that `set_target_directory` asked for. Returns None if there is none.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        log_dir = self.preferred.pop(topic_partition, None)
        if log_dir is None:
            return None
        name = future_name(topic_partition, uuid.uuid4().hex)
        try:
            return log_dir.create_future(topic_partition, name, config, monotonic_ms)
        except (OSError, ValueError) as error:
            raise _storage_error(topic_partition, log_dir, error) from error

    def delete(self, topic_partition: TopicPartition) -> None:
        """Give up a move: the future log goes. Nothing happens if there is none.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        self.begin_deletion(topic_partition)()

    def begin_deletion(self, topic_partition: TopicPartition) -> Callable[[], None]:
        """Forget a future log; what is returned renames its directory, in whatever thread, and
        raises ApiError KAFKA_STORAGE_ERROR."""
        log_dir = self._dir_of(topic_partition)
        if log_dir is None:
            return _nothing
        name, log = deleted_name(topic_partition, uuid.uuid4().hex), self.get(topic_partition)
        assert log is not None
        log_dir.remove_future(topic_partition)
        self.leave(log_dir, name, log.config)
        return partial(log_dir.rename_removed, log, name)

    def place_for(self, topic_partition: TopicPartition) -> LogDir:
        """The directory for a log that is to be made: where it was directed to, where a move that
        has lost its source was going, or the one with the fewest logs.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        bound_for = self._dir_of(topic_partition)
        if bound_for is not None:
            logger.warning("%s: what was moved to %s is lost", topic_partition, bound_for.path)
            self.delete(topic_partition)
        chosen = self.preferred.pop(topic_partition, None) or bound_for
        if chosen is not None and chosen in self.dirs:
            return chosen
        return min(self.dirs, key=lambda candidate: len(candidate.logs) + len(candidate.new_logs))

    def checkpoint(
        self, topic_partition: TopicPartition, high_watermarks: Mapping[TopicPartition, int]
    ) -> None:
        """Remember, where the future log is, how far it is flushed and committed. Fsyncs small
        files, in whatever thread; raises OSError."""
        log_dir = self._dir_of(topic_partition)
        if log_dir is not None:
            log_dir.checkpoint_recovery_points()
            log_dir.checkpoint_high_watermarks(high_watermarks)

    def replace_current(self, topic_partition: TopicPartition) -> Log:
        """Put the future log in the current one's place at once. Raises as `Promotion.run`."""
        promotion = self.begin_promotion(topic_partition)
        promotion.run()
        return self.end_promotion(promotion)

    def begin_promotion(self, topic_partition: TopicPartition) -> Promotion:
        """Begin to put the future log, which has all that the current one has, in its place.

        Until `end_promotion`, or a failure of `run`, nothing is appended to either and neither is
        given up.
        """
        current, target = self.current[topic_partition], self._dir_of(topic_partition)
        source = self.current_dir(topic_partition)
        assert target is not None
        future = target.futures[topic_partition]
        assert future.failure is None
        assert future.log_end_offset == current.log_end_offset
        return Promotion(topic_partition, current, future, source, target)

    def end_promotion(self, promotion: Promotion) -> Log:
        """Have the log that `promotion.run` has put in the current one's place; the new log.

        The current log goes, after file.delete.delay.ms for those who read it still.
        """
        tp, current, future = promotion.topic_partition, promotion.current, promotion.future
        source, target = promotion.source, promotion.target
        future.history.state = current.producers
        _tell_epochs(future, current)  # a leader may have been elected meanwhile
        future.increment_log_start_offset(min(current.log_start_offset, future.log_end_offset))
        target.cleaned.delete(tp)  # of another time, when it was there
        source.cleaned.move(tp, target.cleaned)
        source.remove(tp, "the replica was moved")
        self.leave(source, promotion.name, current.config)
        self.current[tp] = target.promote_future(tp)
        logger.info("%s was moved from %s to %s", future, source.path, target.path)
        return future

    # ---- the start

    def resume(
        self,
        found: Iterable[tuple[LogDir, StoredLog]],
        unusable: Collection[TopicPartition],
        load: Callable[[StoredLog], Log],
    ) -> list[tuple[LogDir, StoredLog]]:
        """Open the future logs that were found at a start, or give them up; those that got the
        partition's name and are to be opened as its log. `unusable` partitions have a log that
        cannot be opened.

        A future log that cannot be opened is nobody's loss. Raises OSError.
        """
        promoted = []
        for log_dir, stored in found:
            tp = stored.topic_partition
            is_alone = tp not in self.current and tp not in unusable
            if is_alone and stored.directory.size(COPY_COMPLETE) is not None:
                stored.directory.rename_to(str(tp))
                log_dir.directory.fsync_dir()
                stored.directory.remove(COPY_COMPLETE)
                logger.warning("%s: its move to %s is completed", tp, log_dir.path)
                promoted.append((log_dir, stored))
                unusable = {*unusable, tp}
                continue
            try:
                if tp in log_dir.logs or self.get(tp) is not None:
                    raise ValueError("the partition is there, or on its way to elsewhere")
                future = load(stored)
                if future.damage is not None:
                    raise ValueError(f"it is damaged: {future.damage}")
                remove_complete_mark(future)
                log_dir.add_future(future)
                logger.info("%s is being moved to %s", future, log_dir.path)
            except (OSError, ValueError) as error:
                logger.warning("%s is given up: %s", stored.directory.path, error)
                stored.directory.rename_to(name := deleted_name(tp, uuid.uuid4().hex))
                self.leave(log_dir, name, LogConfig(file_delete_delay_ms=0))
        return promoted

    def _dir_of(self, topic_partition: TopicPartition) -> LogDir | None:
        return next((each for each in self.dirs if topic_partition in each.futures), None)

    def _dir_at(self, path: str) -> LogDir:
        if path in self.offline:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline")
        found = next((each for each in self.dirs if each.path == path), None)
        if found is None:
            raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not among log.dirs")
        return found


def _nothing() -> None:
    """There is nothing to rename."""


def remove_complete_mark(future: Log) -> None:
    """What is appended to it, or cut from it, makes a future log incomplete. Raises OSError."""
    if future.directory.size(COPY_COMPLETE) is not None:
        future.directory.remove(COPY_COMPLETE)
        future.directory.fsync_dir()


def _prepare(future: Log, current: Log) -> None:
    """Give it what a log knows and its batches do not tell, or tell no more: the epochs of leaders
    that wrote nothing, producers of whom nothing is left. All of it is on disk then."""
    _tell_epochs(future, current)
    future.history.snapshots.take(future.log_end_offset, current.producers.producers)
    try:
        flush = future.begin_flush()
        flush.run()
        future.end_flush(flush)
    except OSError as error:
        future.fail_flush(error)
        raise


def _tell_epochs(future: Log, current: Log) -> None:
    for epoch, start_offset in current.leader_epochs.entries:
        if epoch > future.leader_epochs.latest_epoch:
            future.leader_epochs.assign(epoch, start_offset)


def _storage_error(topic_partition: TopicPartition, log_dir: LogDir, error: Exception) -> ApiError:
    if isinstance(error, OSError):
        log_dir.note_error(error)
    return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition}: {log_dir.path}: {error}")
