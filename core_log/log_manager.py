"""All logs of a broker, in one or more log directories.

Each directory is locked for the broker's life. A failure of one log leaves the others served: its
partition answers KAFKA_STORAGE_ERROR. A directory that cannot be read at the start, or not be
written later, goes offline with all its logs, and the others are used. A log that is missing may be
in an offline directory, so a log is created only for a partition that is known to be new.

All methods belong to the event loop's thread, except `make`, and except `load` and `close`, which
take their time and may run in another thread while nothing else is called. The checkpoint methods
fsync small files.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Any

import attrs

from core_log.checkpoint import HIGH_WATERMARKS
from core_log.config import LogConfig
from core_log.directory import LogDirectory
from core_log.directory_name import deleted_name, parse, set_aside_name
from core_log.first_use import FirstUse
from core_log.future_logs import FutureLogs
from core_log.log import Log
from core_log.log_dir import LogDir, StoredLog
from core_log.meta_properties import META_PROPERTIES, MetaProperties
from core_log.recovery.loading import truncate_damage
from core_log.recovery.recovery_pool import RecoveryDone, RecoveryJob, RecoveryPool
from core_log.set_aside import SET_ASIDE_DAYS, SetAsideLog
from core_log.storage import DISK_FULL, Directory, StorageFile
from core_log.topic_identity_file import write_identity
from protocol.errors import ApiError, ErrorCode
from protocol.frozen import frozen
from protocol.topic_identity import TopicIdentity
from protocol.topic_partition import TopicPartition

# Least time between two lines that say how far loading is.
PROGRESS_MS = 2000
REMOVAL_RETRY_MS = 60_000
"""Time after which what could not be removed is tried again."""

logger = logging.getLogger(__name__)


class LogDirectoryError(Exception):
    """The log directories cannot be used as they are. The text says which, and why."""


@frozen
class NewLog:
    """A log that is to be created, and its directory."""

    topic_partition: TopicPartition
    log_dir: LogDir
    config: LogConfig
    identity: TopicIdentity | None = None


@frozen
class TakenOut:
    """A log that was taken out, and whose directory is to be renamed. Any thread may do that."""

    rename_directory: Callable[[], None]
    """Rename the directory. Raises ApiError KAFKA_STORAGE_ERROR."""
    log_dirs: Sequence[LogDir]
    """The directories with the log, and with the log that it moves into."""

    def sync(self) -> None:
        """Make the new name safe from a power loss. Raises ApiError KAFKA_STORAGE_ERROR.

        A directory is synced once for all logs that were renamed in it before.
        """
        for log_dir in self.log_dirs:
            log_dir.sync_names_or_fail()

    def run(self) -> None:
        """Rename the directory for good. Raises ApiError KAFKA_STORAGE_ERROR."""
        self.rename_directory()
        self.sync()


@attrs.define(eq=False)
class Removal:
    """Files of deleted segments and directories of deleted logs that are due for removal.

    What failed is there after `run`.
    """

    files: Sequence[tuple[LogDir, Sequence[tuple[Directory, str]]]]
    directories: Sequence[tuple[LogDir, str]]
    failed_files: list[tuple[LogDir, Directory, str]] = attrs.field(factory=list)
    failed_directories: list[tuple[LogDir, str]] = attrs.field(factory=list)

    def run(self) -> None:
        """Remove them, in any thread. A failure is logged, and the others go.

        The files of deleted logs go before their directories: on a full disk they make the room
        for the checkpoints that are written before a directory goes.
        """
        for log_dir, files in self.files:
            for directory, name in files:
                if not _succeeds(log_dir, partial(directory.remove, name)):
                    self.failed_files.append((log_dir, directory, name))

            names = [name for of_dir, name in self.directories if of_dir is log_dir]
            removed = set(self._remove_directories(log_dir, names))
            self.failed_directories.extend((log_dir, name) for name in names if name not in removed)

    def _remove_directories(self, log_dir: LogDir, names: Sequence[str]) -> list[str]:
        """Return those that are gone."""
        emptied: list[str] = []
        with _log_failure(log_dir):
            log_dir.sync_names()

            # Make room, write the checkpoints, and only then remove the directories. Those that
            # are gone already are left out: `child` would create them.
            there = log_dir.directory.children() if names else []
            emptied += [
                name
                for name in names
                if name not in there
                or _succeeds(log_dir, partial(_delete_files, log_dir.directory.child(name)))
            ]
            log_dir.sync_names_and_checkpoints()
            return [
                name
                for name in emptied
                if _succeeds(log_dir, partial(log_dir.directory.remove_child, name))
            ]
        return []


class LogManager:
    """The logs by partition. `monotonic_ms` is the clock for intervals.

    `defaults` is the broker's LogConfig. `unopened` are directories that could not be opened, by
    their paths: they are offline from the start. Recovery takes processors: each directory has
    `recovery_threads`, which are processes (`recovery_pool`) if there is more than one in all.
    Closing a log waits for its disk, so `closing_threads` may well be more.
    """

    def __init__(
        self,
        dirs: Sequence[Directory],
        defaults: LogConfig,
        monotonic_ms: Callable[[], int],
        *,
        recovery_threads: int = 1,
        closing_threads: int = 1,
        unopened: Mapping[str, OSError] | None = None,
    ) -> None:
        self.defaults = defaults
        self.logs: dict[TopicPartition, Log] = {}
        self.offline_dirs: dict[str, str] = {}
        for path, error in (unopened or {}).items():
            self.offline_dirs[path] = str(error)
            logger.error("%s is offline: %s", path, error)
        self._dirs = [LogDir(directory, Lock()) for directory in dirs]
        self._monotonic_ms = monotonic_ms
        self._recovery_threads = recovery_threads
        self._closing_threads = max(recovery_threads, closing_threads)

        # Partitions whose log is here and cannot be used, and why.
        self._load_failures: dict[TopicPartition, str] = {}
        self._offline_logs: dict[TopicPartition, str] = {}
        # When each directory of a deleted log is due, by the clock for intervals.
        self._deletions: list[tuple[int, LogDir, str]] = []
        self._files_left: list[tuple[int, LogDir, Directory, str]] = []
        # For `load` alone: future logs to open last, and what workers recover.
        self._stored_futures: list[tuple[LogDir, StoredLog]] = []
        self._recoveries: dict[str, Callable[[], RecoveryDone | None]] = {}
        self.futures = FutureLogs(self._dirs, self.logs, self.offline_dirs, self._delete_later)

    def load(self, configs: Mapping[str, LogConfig] | None = None) -> None:
        """Lock the directories and open every log in them. `configs` are the topics' own.

        Raises LogDirectoryError if a directory belongs to another process or holds a directory
        that is no log's, or if no directory can be used.
        """
        # Refuse what is wrong before recovery changes a file.
        self._lock_dirs()
        self._refuse_foreign_directories()
        self._load_dirs(configs or {})

        # Future logs come last: by then all current logs are known.
        for log_dir in list(self._dirs):
            with self._offline_on_failure(log_dir):
                self._resume_moves(log_dir, configs or {})

        self._check_any_left()

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """Return the log of a partition, None if it is not here."""
        return self.logs.get(topic_partition)

    def by_directory(self) -> dict[str, list[Log]]:
        """Return the logs of each directory in use, by its path."""
        return {log_dir.path: list(log_dir.logs.values()) for log_dir in self._dirs}

    # Directories

    def suspect_dirs(self) -> list[LogDir]:
        """Return the directories to `probe`, in any thread.

        Call `clear_suspicion` or `take_offline` afterwards.
        """
        return [log_dir for log_dir in self._dirs if log_dir.is_suspect]

    def full_dirs(self) -> list[LogDir]:
        """Return the directories without room, to `probe_room` and then `resume_writes`."""
        return [log_dir for log_dir in self._dirs if log_dir.is_full]

    def take_offline(self, log_dir: LogDir, error: OSError) -> None:
        """Stop using a directory and its logs until the next start."""
        self._dirs.remove(log_dir)
        self.offline_dirs[log_dir.path] = str(error)
        # The next start finds the directories of deleted logs by their names.
        self._deletions = [entry for entry in self._deletions if entry[1] is not log_dir]
        self._files_left = [entry for entry in self._files_left if entry[1] is not log_dir]

        log_dir.fail()
        for topic_partition in log_dir.logs:
            self._offline_logs[topic_partition] = f"{log_dir.path} is offline"
            del self.logs[topic_partition]

        # A disk that failed may refuse this too.
        with contextlib.suppress(OSError):
            log_dir.directory.unlock()
        logger.error("%s is offline with %d logs: %s", log_dir.path, len(log_dir.logs), error)

    @property
    def dirs(self) -> Sequence[LogDir]:
        """The directories in use."""
        return tuple(self._dirs)

    # Damaged logs

    @property
    def unusable(self) -> set[TopicPartition]:
        """The partitions whose log is here, or was, and cannot be used."""
        return {*self._load_failures, *self._offline_logs}

    def failure_of(self, topic_partition: TopicPartition) -> str | None:
        """Return why a log that is here, or was, cannot be opened as it is."""
        log = self.logs.get(topic_partition)
        if log is not None:
            return log.failure if log.damage is not None else None
        return self._load_failures.get(topic_partition) or self._offline_logs.get(topic_partition)

    def truncate_damage(self, topic_partition: TopicPartition) -> None:
        """Truncate a damaged log at its damage, to fetch the rest again.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        self.replace_damaged(self.reopen_without_damage(topic_partition))

    def reopen_without_damage(self, topic_partition: TopicPartition) -> Log:
        """Truncate a damaged log at its damage, in any thread, for `replace_damaged`.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        try:
            return truncate_damage(self.logs[topic_partition])
        except (OSError, ValueError) as error:
            raise _storage_error(topic_partition, error) from error

    def replace_damaged(self, log: Log) -> None:
        """Serve what `reopen_without_damage` returned. Raises ApiError KAFKA_STORAGE_ERROR."""
        log_dir = self.dir_of(log.topic_partition)
        assert log_dir is not None
        try:
            self.logs[log.topic_partition] = log_dir.add(log)
        except OSError as error:
            raise _storage_error(log.topic_partition, error) from error

    # New logs

    def dir_of(self, topic_partition: TopicPartition) -> LogDir | None:
        """Return the directory of a partition's log, None if it is not here."""
        return next((log_dir for log_dir in self._dirs if topic_partition in log_dir.logs), None)

    def get_or_create(
        self, topic_partition: TopicPartition, config: LogConfig, *, is_new: bool = True
    ) -> Log:
        """Return the log of a partition. A new one is created where `futures` places it.

        Raises ApiError KAFKA_STORAGE_ERROR, also if there is no log, the partition is not new and
        an offline directory may have it.
        """
        if topic_partition not in self.logs:
            log_dir = self._place(topic_partition, is_new)
            try:
                self.logs[topic_partition] = log_dir.create(
                    topic_partition, config, self._monotonic_ms
                )
            except (OSError, ValueError) as error:
                # A ValueError is about the log's files, and not about the disk.
                if isinstance(error, OSError):
                    log_dir.note_error(error)
                raise _storage_error(topic_partition, error) from error
        return self.logs[topic_partition]

    def plan(
        self,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        is_new: bool,
        identity: TopicIdentity | None = None,
    ) -> NewLog:
        """Choose a place for a new log. Then call `make`, and then `serve`.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        log_dir = self._place(topic_partition, is_new)
        log_dir.reserve(topic_partition)
        return NewLog(topic_partition, log_dir, config, identity)

    def make(self, planned: Sequence[NewLog]) -> None:
        """Create planned logs and make their names safe from a power loss, in any thread.

        A log that cannot be created is left to `get_or_create`, which says why.
        """
        for new in planned:
            with contextlib.suppress(ValueError), _log_failure(new.log_dir):
                new.log_dir.make_reserved(new.topic_partition, new.config, self._monotonic_ms)
            log = new.log_dir.new_logs[new.topic_partition]
            if log is not None and new.identity is not None:
                for written in self.write_identities([(new.log_dir, log, new.identity)]):
                    Log.note_identity(*written)
        self.sync_names()

    def write_identities(
        self, stamps: Sequence[tuple[LogDir, Log, TopicIdentity]]
    ) -> list[tuple[Log, TopicIdentity, StorageFile]]:
        """Write the identities of topics beside their logs, in any thread.

        Returns what to note in the logs (`Log.note_identity`). A failure is logged.
        """
        written = []
        for log_dir, log, identity in stamps:
            with _log_failure(log_dir):
                written.append((log, identity, write_identity(log.directory, identity)))
        return written

    def serve(self, planned: Sequence[NewLog]) -> None:
        """Serve the planned logs that were created, if their directory is still in use."""
        for new in planned:
            log = new.log_dir.new_logs.pop(new.topic_partition)
            if log is not None and new.log_dir in self._dirs:
                with _log_failure(new.log_dir):
                    self.logs[new.topic_partition] = new.log_dir.add(log)

    def _place(self, topic_partition: TopicPartition, is_new: bool) -> LogDir:
        self._check_usable(topic_partition)
        # The log may be in an offline directory: a second one would lack its records.
        if self.offline_dirs and not (is_new and self._dirs):
            raise _storage_error(topic_partition, f"offline: {', '.join(self.offline_dirs)}")
        return self.futures.place_for(topic_partition)

    def has_never_had(self, topic_partition: TopicPartition, topic: TopicIdentity) -> bool:
        """Return whether no directory can ever have had the log of a partition of this topic."""
        return not self.offline_dirs and all(
            topic_partition not in log_dir.named
            and log_dir.first_use is not None
            and log_dir.first_use.is_before(topic)
            for log_dir in self._dirs
        )

    def note_first_use(self, first_use: FirstUse) -> None:
        """Note in new directories since when they are in use, in any thread."""
        for log_dir in self.dirs:
            with _log_failure(log_dir):
                log_dir.note_first_use(first_use)

    def sync_names(self) -> None:
        """Make the names of new logs safe from a power loss, before anybody relies on them."""
        for log_dir in list(self._dirs):
            with _log_failure(log_dir):  # `tick` tries again
                log_dir.sync_names()

    # Deletion

    def delete(self, topic_partition: TopicPartition) -> None:
        """Delete a partition's log. `tick` removes its files after file.delete.delay.ms.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        self.begin_deletion(topic_partition).run()

    def begin_deletion(self, topic_partition: TopicPartition) -> TakenOut:
        """Take out a partition's log, and return what renames its directory.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        self._check_usable(topic_partition)
        # A move ends with the log that it was to replace.
        rename_future = self.futures.begin_deletion(topic_partition)
        log = self.logs.pop(topic_partition, None)
        # An earlier request may have renamed it, and its response may be lost.
        if log is None:
            return TakenOut(rename_future, self.dirs)

        # The log is gone from memory at once. Its directory gets a new name later.
        log_dir = self.futures.current_dir(topic_partition)
        name = deleted_name(topic_partition, uuid.uuid4().hex)
        log_dir.remove(topic_partition, "the partition was deleted")
        self._delete_later(log_dir, name, log.config)

        def rename_both() -> None:
            rename_future()
            log_dir.rename_removed(log, name)

        return TakenOut(rename_both, self.dirs)

    def begin_setting_aside(self, topic_partition: TopicPartition, now_ms: int) -> TakenOut:
        """Take out the log of an earlier topic, and return what gives it another name.

        It is removed in the end, if that is certain then (`SetAsideLog`). Raises ApiError
        KAFKA_STORAGE_ERROR.
        """
        self._check_usable(topic_partition)
        rename_future = self.futures.begin_deletion(topic_partition)
        log = self.logs.pop(topic_partition)
        log_dir = self.futures.current_dir(topic_partition)
        name = set_aside_name(topic_partition, uuid.uuid4().hex)
        logger.warning(
            "%s is of an earlier topic of this name: set aside as %s/%s, and removed in %d days. "
            "`kbroker dump` reads it there; if nobody needs it, remove it before",
            log,
            log_dir.path,
            name,
            SET_ASIDE_DAYS,
        )
        log_dir.remove(topic_partition, "it is of an earlier topic of this name")

        def rename_both() -> None:
            rename_future()
            log_dir.rename_set_aside(log, name, now_ms)

        return TakenOut(rename_both, self.dirs)

    def find_set_aside(self, now_ms: int) -> list[SetAsideLog]:
        """List the logs that were set aside long enough ago, in any thread."""
        due: list[SetAsideLog] = []
        for log_dir in self.dirs:
            with _log_failure(log_dir):
                due += log_dir.find_set_aside(now_ms)
        return due

    def remove_set_aside(self, removed: Sequence[SetAsideLog]) -> None:
        """Remove logs that were set aside, in any thread."""
        for log_dir in self.dirs:
            for log in removed:
                if log.path == log_dir.path:
                    with _log_failure(log_dir):
                        log_dir.remove_set_aside(log)

    def set_target_directory(self, topic_partition: TopicPartition, path: str) -> None:
        """Call `futures.set_target_directory`. Raises KAFKA_STORAGE_ERROR for a bad log too."""
        self._check_usable(topic_partition)
        self.futures.set_target_directory(topic_partition, path)

    def tick(self, monotonic_ms: int) -> None:
        """Remove the deleted files that are due, at once."""
        removal = self.begin_tick(monotonic_ms)
        removal.run()
        self.end_tick(removal, monotonic_ms)

    def begin_tick(self, monotonic_ms: int) -> Removal:
        """Take the deleted files that are due, to remove them off the loop.

        Call this every second or so. The next start finds the files that were not removed.
        """
        due = [entry for entry in self._deletions if entry[0] <= monotonic_ms]
        self._deletions = [entry for entry in self._deletions if entry[0] > monotonic_ms]
        left = [entry for entry in self._files_left if entry[0] <= monotonic_ms]
        self._files_left = [entry for entry in self._files_left if entry[0] > monotonic_ms]
        files = [
            (
                log_dir,
                log_dir.take_due_files(monotonic_ms)
                + [(directory, name) for _, of_dir, directory, name in left if of_dir is log_dir],
            )
            for log_dir in self._dirs
        ]
        return Removal(files, [(log_dir, name) for _, log_dir, name in due])

    def end_tick(self, removal: Removal, monotonic_ms: int) -> None:
        """Have what could not be removed tried again in a while."""
        due_ms = monotonic_ms + REMOVAL_RETRY_MS
        # Or it stays until the next start (fault strangers-116).
        self._deletions += [(due_ms, *failed) for failed in removal.failed_directories]
        self._files_left += [(due_ms, *failed) for failed in removal.failed_files]

    # Retention and producers

    def delete_old_segments(
        self, high_watermarks: Mapping[TopicPartition, int], now_ms: int
    ) -> int:
        """Apply retention to the logs with a known high watermark.

        Returns how many segments went.
        """
        deleted = 0
        for topic_partition, high_watermark in high_watermarks.items():
            log = self.logs.get(topic_partition)
            # A full log is retained too, for that makes room.
            if log is not None and log.guard.failure is None and not log.is_lent:
                deleted += self._retain(log, high_watermark, now_ms)
        return deleted

    def expire_producers(self, now_ms: int, expiration_ms: int) -> Iterator[None]:
        """Forget the producers that wrote to no log for `expiration_ms`, in steps of one producer.

        The loop may go on with the logs in between.
        """
        for log in list(self.logs.values()):
            for _ in log.producers.expire(now_ms, expiration_ms):
                yield
                # A thread may be reading the producers of these.
                if log.is_lent or log.is_held:
                    break

    # Checkpoints and meta.properties

    def checkpoint_recovery_points(self) -> None:
        """Write recovery points and log start offsets. A failure is logged and tried again."""
        for log_dir in list(self._dirs):
            with _log_failure(log_dir):
                log_dir.checkpoint_recovery_points()

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write high watermarks. A failure is logged and tried again with the next ones."""
        for log_dir in list(self._dirs):
            with _log_failure(log_dir):
                log_dir.checkpoint_high_watermarks(high_watermarks)

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """Read the high watermarks of the last checkpoint."""
        high_watermarks: dict[TopicPartition, int] = {}
        for log_dir in list(self._dirs):
            offsets: dict[TopicPartition, int] = {}
            # One bad disk keeps no broker from starting (fault broker-2).
            with self._offline_on_failure(log_dir):
                offsets = log_dir.read_offsets(HIGH_WATERMARKS)
            high_watermarks |= {
                topic_partition: offset
                for topic_partition, offset in offsets.items()
                if topic_partition in log_dir.logs
            }
        return high_watermarks

    def read_meta_properties(self) -> dict[str, MetaProperties]:
        """Read the meta.properties of the directories that have one, by path.

        A directory that cannot be read goes offline. Raises InconsistentMetaProperties.
        """
        texts: dict[str, bytes | None] = {}
        for log_dir in list(self._dirs):
            # One bad disk keeps no broker from starting (fault broker-2).
            with self._offline_on_failure(log_dir):
                texts[log_dir.path] = log_dir.directory.read(META_PROPERTIES)
        return {
            path: MetaProperties.decode(text, f"{path}/{META_PROPERTIES}")
            for path, text in texts.items()
            if text is not None
        }

    def write_meta_properties(self, meta: MetaProperties) -> None:
        """Write `meta` to each directory that does not have it.

        A directory that cannot be written goes offline. Raises LogDirectoryError if none is left.
        """
        for log_dir in list(self._dirs):
            # One bad disk keeps no broker from starting (fault broker-2).
            with self._offline_on_failure(log_dir):
                _write_meta_properties(log_dir.directory, meta)
        self._check_any_left()

    # The end

    def close(self, clean: bool = True) -> None:
        """Flush and close all logs, and unlock the directories.

        A directory is marked clean if all logs could be loaded and closed. Without `clean`
        nothing is closed, as after a crash.
        """
        for log_dir in self._dirs:
            is_whole = clean and self._close_logs(log_dir) and not self._load_failures
            with _log_failure(log_dir):
                if is_whole:
                    log_dir.mark_clean()
                elif clean:  # the closed logs need not be read again
                    log_dir.checkpoint_recovery_points()
            log_dir.directory.unlock()
        self.logs.clear()

    # Checks and loading

    def _check_any_left(self) -> None:
        if not self._dirs:
            raise LogDirectoryError(f"no log directory can be used: {self.offline_dirs}")

    @contextlib.contextmanager
    def _offline_on_failure(self, log_dir: LogDir) -> Iterator[None]:
        """Take a directory offline if the block raises OSError."""
        try:
            yield
        except OSError as error:
            self.take_offline(log_dir, error)

    def _check_usable(self, topic_partition: TopicPartition) -> None:
        for unusable in (self._load_failures, self._offline_logs):
            if topic_partition in unusable:
                raise _storage_error(topic_partition, unusable[topic_partition])

    def _lock_dirs(self) -> None:
        paths = [log_dir.path for log_dir in self._dirs]
        # Otherwise the second lock would fail, and blame another broker.
        if len(set(paths)) < len(paths):
            raise LogDirectoryError(f"log.dirs names a directory twice: {', '.join(paths)}")

        for log_dir in list(self._dirs):
            # One bad disk keeps no broker from starting (fault broker-2).
            with self._offline_on_failure(log_dir):
                try:
                    log_dir.directory.lock()
                except BlockingIOError as error:
                    why = f"{log_dir.path} is locked by another broker: {error}"
                    raise LogDirectoryError(why) from error

    def _refuse_foreign_directories(self) -> None:
        """Raise LogDirectoryError for a directory that is no partition's, before recovery."""
        for log_dir in self._dirs:
            try:
                # A directory that cannot be read goes offline when its logs are listed.
                with contextlib.suppress(OSError):
                    for name in log_dir.directory.children():
                        parse(name)
            except ValueError as error:
                raise LogDirectoryError(f"{log_dir.path}: {error}") from error

    def _load_dirs(self, configs: Mapping[str, LogConfig]) -> None:
        """Open the logs of all directories.

        Logs that need recovery are recovered meanwhile, in processes if the settings ask for
        more than one.
        """
        # List the logs of each directory first.
        contents = []
        for log_dir in list(self._dirs):
            with self._offline_on_failure(log_dir):
                contents.append((log_dir, *self._list_logs(log_dir)))

        # Begin all recoveries before the first log is opened.
        jobs = [
            job
            for _, _, stored_logs in contents
            for stored in stored_logs
            if (job := _recovery_job(stored, self._config(stored, configs))) is not None
        ]
        # One worker would be no faster than this process.
        processes = min(self._recovery_threads * len(contents), len(jobs))
        pool = RecoveryPool(processes) if processes > 1 else None
        try:
            if pool is not None:
                self._recoveries = {job.path: pool.begin(job) for job in jobs}
            for log_dir, started_ms, stored_logs in contents:
                with self._offline_on_failure(log_dir):
                    self._load_dir(log_dir, started_ms, stored_logs, configs)
        finally:
            self._recoveries = {}
            if pool is not None:
                pool.close()

    def _list_logs(self, log_dir: LogDir) -> tuple[int, list[StoredLog]]:
        started_ms = self._monotonic_ms()
        stored_logs, stored_futures, deleted_names = log_dir.stored_logs()
        self._deletions += [(started_ms, log_dir, name) for name in deleted_names]
        self._stored_futures += [(log_dir, stored) for stored in stored_futures]
        return started_ms, stored_logs

    def _load_dir(
        self,
        log_dir: LogDir,
        started_ms: int,
        stored_logs: Sequence[StoredLog],
        configs: Mapping[str, LogConfig],
    ) -> None:
        reported_ms = started_ms
        how = "after a clean stop" if log_dir.is_clean else "with recovery"
        logger.info("%s: loading %d logs %s", log_dir.path, len(stored_logs), how)

        # Open the logs, and tell every few seconds how far that is.
        with _map_in_threads(self._recovery_threads) as mapped:
            loading = mapped(lambda stored: self._load_log(stored, configs), stored_logs)
            for number, log in enumerate(loading, start=1):
                if log is not None:
                    self._add_log(log_dir, log)
                if self._monotonic_ms() - reported_ms >= PROGRESS_MS:
                    reported_ms = self._monotonic_ms()
                    logger.info("%s: %d of %d logs loaded", log_dir.path, number, len(stored_logs))

        log_dir.clear_clean_mark()
        took_ms = self._monotonic_ms() - started_ms
        logger.info("%s: %d logs loaded in %d ms", log_dir.path, len(log_dir.logs), took_ms)

    def _config(self, stored: StoredLog, configs: Mapping[str, LogConfig]) -> LogConfig:
        config = configs.get(stored.topic_partition.topic, self.defaults)
        return config.remembering(stored.was_cleaned)

    def _wait_for_recovery(self, stored: StoredLog) -> StoredLog:
        """Return the log as a worker recovered it, or `stored` itself if none did."""
        result = self._recoveries.get(stored.directory.path)
        done = result() if result is not None else None
        if done is None:
            return stored
        # The worker has closed it, so it loads as after a clean stop.
        return attrs.evolve(
            stored,
            recovery_point=done.end_offset,
            log_start_offset=done.log_start_offset,
            clean_shutdown=True,
        )

    def _resume_moves(self, log_dir: LogDir, configs: Mapping[str, LogConfig]) -> None:
        def load(stored: StoredLog) -> Log:
            config = self._config(stored, configs)
            return stored.load(config, self._monotonic_ms)

        stored_futures = [entry for entry in self._stored_futures if entry[0] is log_dir]
        # The log of these may be repaired: a copy must not take its name.
        unusable = self._load_failures.keys() | self._offline_logs.keys()
        for _, stored in self.futures.resume(stored_futures, unusable, load):
            log = self._load_log(stored, configs)
            if log is not None:
                self._add_log(log_dir, log)

    def _delete_later(self, log_dir: LogDir, name: str, config: LogConfig) -> None:
        due_ms = self._monotonic_ms() + config.file_delete_delay_ms
        self._deletions.append((due_ms, log_dir, name))

    def _load_log(self, stored: StoredLog, configs: Mapping[str, LogConfig]) -> Log | None:
        config = self._config(stored, configs)
        try:
            return self._wait_for_recovery(stored).load(config, self._monotonic_ms)
        except (OSError, ValueError) as error:
            logger.error("%s cannot be loaded: %s", stored.directory.path, error)
            self._load_failures[stored.topic_partition] = str(error)
            return None

    def _add_log(self, log_dir: LogDir, log: Log) -> None:
        tp = log.topic_partition
        other = self.logs.get(tp)
        if other is None:
            self.logs[tp] = log_dir.add(log)
            return

        # Its topic was deleted, and another one made, while a disk was away
        # (fault core-R1, was: None).
        earlier = _earlier_of(other, log)
        # Nobody can tell which of the two has the newer records.
        if earlier is None:
            raise LogDirectoryError(
                f"{tp} is in two directories, perhaps since one was away while the other one got a "
                f"replica: {_place_of(other)}; {_place_of(log)}. Move the folder of the older one "
                "out of there, and start again"
            )

        if earlier is log:
            self._set_aside_at_start(log_dir, log)
            return
        other_dir = self.futures.current_dir(tp)
        other_dir.remove(tp, "it is of an earlier topic of this name")
        del self.logs[tp]
        with self._offline_on_failure(other_dir):
            self._set_aside_at_start(other_dir, other)
        self.logs[tp] = log_dir.add(log)

    def _set_aside_at_start(self, log_dir: LogDir, log: Log) -> None:
        """Give the log of an earlier topic, which is not served, another name. Raises OSError."""
        log_dir.unopened.pop(log.topic_partition, None)
        log_dir.set_aside_unserved(log)

    def _retain(self, log: Log, high_watermark: int, now_ms: int) -> int:
        try:
            return log.delete_old_segments(high_watermark, now_ms)
        except ApiError:  # the log has reported it, and takes no more writes
            return 0

    def _close_logs(self, log_dir: LogDir) -> bool:
        with _map_in_threads(self._closing_threads) as mapped:
            # The list closes every log, even after one that failed.
            return all(list(mapped(_close_log, log_dir.all_logs())))


@contextlib.contextmanager
def _map_in_threads(threads: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """Provide a `map` over so many threads. One thread is the caller's own."""
    if threads == 1:
        yield map
        return
    with ThreadPoolExecutor(threads) as pool:
        yield pool.map


def _succeeds(log_dir: LogDir, work: Callable[[], None]) -> bool:
    """Do it, and return True unless it fails, which is logged."""
    with _log_failure(log_dir):
        work()
        return True
    return False


@contextlib.contextmanager
def _log_failure(log_dir: LogDir) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # `report_full` has said it once for all logs.
        if error.errno not in DISK_FULL or not log_dir.is_reported_full:
            logger.error("%s: %s", log_dir.path, error)
        log_dir.note_error(error)


def _write_meta_properties(directory: Directory, meta: MetaProperties) -> None:
    """Write a directory's meta.properties, unless it is there. Raises OSError."""
    text = directory.read(META_PROPERTIES)
    stored = None if text is None else MetaProperties.decode(text)
    # Lines that another version of Kafka added stay.
    wanted = meta if stored is None else attrs.evolve(meta, extra=stored.extra)

    if stored != wanted:
        directory.write_atomic(META_PROPERTIES, wanted.encode())
        directory.fsync_dir()


def _delete_files(directory: Directory) -> None:
    for name in directory.files():
        directory.remove(name)


def _recovery_job(stored: StoredLog, config: LogConfig) -> RecoveryJob | None:
    """Return a worker's job for a log on a real disk that was not closed."""
    if stored.clean_shutdown or not isinstance(stored.directory, LogDirectory):
        return None
    return RecoveryJob(
        stored.directory.path,
        stored.topic_partition,
        config,
        stored.recovery_point,
        stored.log_start_offset,
    )


def _place_of(log: Log) -> str:
    """Say where a log is, and how far it reaches, for who has to choose between two."""
    epoch = log.leader_epochs.latest_epoch
    return f"{log.directory.path} ends at offset {log.log_end_offset} of leader epoch {epoch}"


def _earlier_of(one: Log, other: Log) -> Log | None:
    """Return which of two logs of a name is of the earlier topic; None where nobody can tell."""
    if one.identity is None or other.identity is None:
        return None
    if not one.identity.is_surely_another(other.identity):
        return None
    return min(one, other, key=_creation)


def _creation(log: Log) -> int:
    assert log.identity is not None
    return log.identity.topic_czxid


def _close_log(log: Log) -> bool:
    """Close a log. Returns whether all of it is on disk."""
    if log.guard.failure is not None:
        return False
    try:
        log.close()
    except OSError as error:
        log.guard.fail(error)
        return False
    return True


def _storage_error(topic_partition: TopicPartition, reason: object) -> ApiError:
    return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition}: {reason}")
