"""Replicas on their way to another log directory of the same broker (KIP-113).

A move fills a log of its own, the *future* log, while the partition goes on with its current one.
When the future log has all of it, it takes the current one's place:

    1  the file `copy-complete` is written in the future log's directory
    2  topic-partition            →  topic-partition.id-delete
    3  topic-partition.id-future  →  topic-partition

Each step is on disk before the next. Until step 2 the current log counts, and a broker that was
killed resumes the move. Between 2 and 3 no directory bears the partition's own name. The mark tells
the next start that the future log is whole and gets that name. So there are never two logs of one
partition. (Kafka renames the future log first, and refuses to start on the two that it may find.)

A future log without the mark, whose current log is gone with its disk, may lack anything. It does
not become the partition's log: a new one is created in its place.
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
from core_log.open_files import OPEN_FILES
from core_log.topic_identity_file import write_identity
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import TopicPartition

COPY_COMPLETE = "copy-complete"
"""The mark of a future log that lacks nothing. Kafka ignores files of this name."""
MOST_PREFERRED = 50_000
"""Logs that do not exist yet for which a directory is kept: those that were named last."""

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class Promotion:
    """Puts a future log in the current one's place on disk, and names the latter `name`."""

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
        """Rename both logs, in any thread.

        Raises OSError: then nothing has changed, or the current log has failed too.
        """
        current, future = self.current, self.future
        _complete(future, current)

        # Steps 1 to 3 of the module's head. Until the last rename an error undoes them.
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
        except OSError as error:  # the mark stays, and the next start finds the log by it
            self.target.note_error(error)

    def _undo(self) -> None:
        current = self.current
        own_name = str(self.topic_partition)
        try:
            with OPEN_FILES.must_end():
                if current.directory.name != own_name:
                    current.directory.rename_to(own_name)
                    current.directory.fsync_dir()
                remove_complete_mark(self.future)
        except OSError as error:
            # Nobody can say by which name the next start will find it.
            current.guard.fail(error)


@attrs.define(eq=False)
class FutureLogs:
    """The future logs of a broker.

    `dirs`, `current` and `offline` belong to the log manager: the directories in use, the current
    logs, and why each other directory is not in use. `preferred` are the directories for logs that
    are not here yet. `delete_later(log_dir, name, config)` removes a directory after a while.
    """

    dirs: list[LogDir]
    current: dict[TopicPartition, Log]
    offline: Mapping[str, str]
    delete_later: Callable[[LogDir, str, LogConfig], None]
    preferred: dict[TopicPartition, LogDir] = attrs.field(factory=dict)

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """Return the future log of a partition, None if it has none."""
        log_dir = self._dir_of(topic_partition)
        return None if log_dir is None else log_dir.futures[topic_partition]

    def by_directory(self) -> dict[str, list[Log]]:
        """Return the future logs of each directory in use, by its path."""
        return {log_dir.path: list(log_dir.futures.values()) for log_dir in self.dirs}

    def path_of(self, topic_partition: TopicPartition) -> str | None:
        """Return the path of the directory that a partition is moved to, None if it is not."""
        log_dir = self._dir_of(topic_partition)
        return None if log_dir is None else log_dir.path

    def current_dir(self, topic_partition: TopicPartition) -> LogDir:
        """Return the directory of a partition's current log, which must exist."""
        return next(log_dir for log_dir in self.dirs if topic_partition in log_dir.logs)

    # Changes

    def set_target_directory(self, topic_partition: TopicPartition, path: str) -> None:
        """Choose the directory at `path` for a partition's log.

        A move to elsewhere is given up, and a log that is created later is placed there. Raises
        ApiError LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR for an offline directory, and
        INVALID_TOPIC_EXCEPTION if the future log's name would be too long.
        """
        # All ids are of one length, so any of them tells.
        if len(future_name(topic_partition, uuid.uuid4().hex).encode()) > MAX_NAME_BYTES:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic_partition} is too long")

        log_dir = self._dir_at(path)
        self.preferred.pop(topic_partition, None)
        # A move to another directory ends here.
        if self.path_of(topic_partition) not in (None, path):
            self.delete(topic_partition)

        # Remember the directory, unless the log is there or on its way.
        if topic_partition not in log_dir.logs and topic_partition not in log_dir.futures:
            self.preferred[topic_partition] = log_dir
            # Nobody may ever create them (fault strangers-18).
            if len(self.preferred) > MOST_PREFERRED:
                del self.preferred[next(iter(self.preferred))]

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
        """Delete the future log of a partition, if there is one: the move is given up.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        self.begin_deletion(topic_partition)()

    def begin_deletion(self, topic_partition: TopicPartition) -> Callable[[], None]:
        """Take out a future log. Returns what renames its directory, in any thread.

        That raises ApiError KAFKA_STORAGE_ERROR.
        """
        log_dir = self._dir_of(topic_partition)
        if log_dir is None:
            return _rename_nothing

        name = deleted_name(topic_partition, uuid.uuid4().hex)
        log = self.get(topic_partition)
        assert log is not None
        log_dir.remove_future(topic_partition)
        self.delete_later(log_dir, name, log.config)
        return partial(log_dir.rename_removed, log, name)

    def place_for(self, topic_partition: TopicPartition) -> LogDir:
        """Choose the directory for a new log.

        This is the one that was set, or the target of a move whose source is lost, or the one with
        the fewest logs. Raises ApiError KAFKA_STORAGE_ERROR.
        """
        move_target = self._dir_of(topic_partition)
        # The copy may lack anything, so it is given up for a new log.
        if move_target is not None:
            logger.warning(
                "%s: the log that moved to %s is lost", topic_partition, move_target.path
            )
            self.delete(topic_partition)

        chosen = self.preferred.pop(topic_partition, None) or move_target
        # It may have gone offline since it was chosen.
        if chosen is not None and chosen in self.dirs:
            return chosen
        return min(self.dirs, key=lambda candidate: len(candidate.logs) + len(candidate.new_logs))

    def checkpoint(
        self, topic_partition: TopicPartition, high_watermarks: Mapping[TopicPartition, int]
    ) -> None:
        """Write the checkpoints of the directory with the future log: recovery point and such.

        This fsyncs small files, in any thread. Raises OSError.
        """
        log_dir = self._dir_of(topic_partition)
        if log_dir is not None:
            log_dir.checkpoint_recovery_points()
            log_dir.checkpoint_high_watermarks(high_watermarks)

    def replace_current(self, topic_partition: TopicPartition) -> Log:
        """Put the future log in the current one's place, at once. Raises as `Promotion.run`."""
        promotion = self.begin_promotion(topic_partition)
        promotion.run()
        return self.end_promotion(promotion)

    def begin_promotion(self, topic_partition: TopicPartition) -> Promotion:
        """Begin to put the future log, which has all of the current one, in its place.

        Until `end_promotion`, or a failure of `run`, the caller appends to neither and deletes
        neither.
        """
        current = self.current[topic_partition]
        source = self.current_dir(topic_partition)
        target = self._dir_of(topic_partition)
        assert target is not None
        future = target.futures[topic_partition]

        # The caller has copied the rest: both logs end alike.
        assert future.failure is None
        assert future.log_end_offset == current.log_end_offset
        return Promotion(topic_partition, current, future, source, target)

    def end_promotion(self, promotion: Promotion) -> Log:
        """Serve the log that `promotion.run` has put in the current one's place.

        The old log's files stay for file.delete.delay.ms, for those who still read them.
        """
        tp = promotion.topic_partition
        current, future = promotion.current, promotion.future
        source, target = promotion.source, promotion.target

        # Bring over what changed in memory during the move: a leader may have been elected.
        future.history.state = current.producers
        _copy_epochs(future, current)
        future.increment_log_start_offset(min(current.log_start_offset, future.log_end_offset))
        future.update_config(future.config.remembering(current.config.was_cleaned))
        target.cleaned.delete(tp)  # from an earlier time, when the log was there
        source.cleaned.move(tp, target.cleaned)

        # Swap the logs.
        source.remove(tp, "the replica was moved")
        self.delete_later(source, promotion.name, current.config)
        self.current[tp] = target.promote_future(tp)
        logger.info("%s was moved from %s to %s", future, source.path, target.path)
        return future

    # The start

    def resume(
        self,
        stored_futures: Iterable[tuple[LogDir, StoredLog]],
        unusable: Collection[TopicPartition],
        load: Callable[[StoredLog], Log],
    ) -> list[tuple[LogDir, StoredLog]]:
        """Open the future logs that a start found, or give them up.

        Returns those that took the partition's name: they are to be opened as its log. `unusable`
        partitions have a log that cannot be opened. A future log that cannot be opened is deleted,
        for nothing is lost with it. Raises OSError.
        """
        promoted = []
        for log_dir, stored in stored_futures:
            tp = stored.topic_partition
            is_alone = tp not in self.current and tp not in unusable

            # A power loss between steps 2 and 3: do step 3.
            if is_alone and stored.directory.size(COPY_COMPLETE) is not None:
                stored.directory.rename_to(str(tp))
                log_dir.directory.fsync_dir()
                stored.directory.remove(COPY_COMPLETE)
                logger.warning("%s: its move to %s is completed", tp, log_dir.path)
                promoted.append((log_dir, stored))
                unusable = {*unusable, tp}
                continue

            # Otherwise the move goes on, or is given up.
            try:
                if tp in log_dir.logs or self.get(tp) is not None:
                    raise ValueError("the partition is here, or moves to another directory")
                future = load(stored)
                if future.damage is not None:
                    raise ValueError(f"it is damaged: {future.damage}")
                remove_complete_mark(future)
                log_dir.add_future(future)
                logger.info("%s is being moved to %s", future, log_dir.path)

            except (OSError, ValueError) as error:
                logger.warning("%s is given up: %s", stored.directory.path, error)
                name = deleted_name(tp, uuid.uuid4().hex)
                stored.directory.rename_to(name)
                self.delete_later(log_dir, name, LogConfig(file_delete_delay_ms=0))
        return promoted

    def _dir_of(self, topic_partition: TopicPartition) -> LogDir | None:
        return next((log_dir for log_dir in self.dirs if topic_partition in log_dir.futures), None)

    def _dir_at(self, path: str) -> LogDir:
        if path in self.offline:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline")
        log_dir = next((log_dir for log_dir in self.dirs if log_dir.path == path), None)
        if log_dir is None:
            raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not among log.dirs")
        return log_dir


def _rename_nothing() -> None:
    """Do nothing: there is no future log."""


def remove_complete_mark(future: Log) -> None:
    """Remove the mark before a future log is appended to or truncated. Raises OSError."""
    # Otherwise the next start would take an unfinished log for the partition's.
    if future.directory.size(COPY_COMPLETE) is not None:
        future.directory.remove(COPY_COMPLETE)
        future.directory.fsync_dir()


def _complete(future: Log, current: Log) -> None:
    """Copy what the batches do not tell, and flush: epochs without batches, and all producers."""
    _copy_epochs(future, current)
    if current.identity is not None:
        future.note_identity(current.identity, write_identity(future.directory, current.identity))
    future.history.snapshots.take(future.log_end_offset, current.producers.producers)
    try:
        flush = future.begin_flush()
        flush.run()
        future.end_flush(flush)
    except OSError as error:
        future.fail_flush(error)
        raise


def _copy_epochs(future: Log, current: Log) -> None:
    for epoch, start_offset in current.leader_epochs.entries:
        if epoch > future.leader_epochs.latest_epoch:
            future.leader_epochs.assign(epoch, start_offset)


def _storage_error(topic_partition: TopicPartition, log_dir: LogDir, error: Exception) -> ApiError:
    if isinstance(error, OSError):
        log_dir.note_error(error)
    return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition}: {log_dir.path}: {error}")
