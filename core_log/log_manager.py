"""All logs of a broker, in one or more log directories.

Each directory is locked for the broker's life. What fails on one log leaves the others served:
the partition answers KAFKA_STORAGE_ERROR. A directory that cannot be read at the start, or not be
written any more, is offline with all its logs, and the others are used. A log that is not here may
be in the one that is offline, so it is made anew only where it is known to be new.

Everything is called on the event loop's thread but `make`, and `load` and `close`, which take their
time and may run in another one while nothing else is called; the checkpoint methods fsync small
files.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

import attrs

from core_log.checkpoint import HIGH_WATERMARKS
from core_log.config import LogConfig
from core_log.directory import LogDirectory
from core_log.directory_name import deleted_name, parse
from core_log.future_logs import FutureLogs
from core_log.log import Log
from core_log.log_dir import LogDir, StoredLog
from core_log.meta_properties import META_PROPERTIES, MetaProperties
from core_log.recovery.loading import truncate_damage
from core_log.recovery.recovery_pool import RecoveryDone, RecoveryJob, RecoveryPool
from core_log.storage import DISK_FULL, Directory
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import TopicPartition

PROGRESS_MS = 2000

logger = logging.getLogger(__name__)


class LogDirectoryError(Exception):
    """The log directories cannot be used as they are; the text says which and why."""


@attrs.frozen
class NewLog:
    """A log that is to be made, and where."""

    topic_partition: TopicPartition
    log_dir: LogDir
    config: LogConfig


@attrs.frozen
class Removal:
    """Files of deleted segments, by log directory, and directories of deleted logs: all are to be
    removed."""

    files: Sequence[tuple[LogDir, Sequence[tuple[Directory, str]]]]
    directories: Sequence[tuple[LogDir, str]]

    def run(self) -> None:
        """Remove them, in whatever thread; a failure is logged.

        Files go first, those of deleted logs too: on a disk that is full they make the room for
        what must be written down before a directory goes.
        """
        for log_dir, files in self.files:
            gone = [name for of_dir, name in self.directories if of_dir is log_dir]
            with _failure_logged(log_dir):
                for directory, name in files:
                    directory.remove(name)
                log_dir.sync_names()
                for name in set(gone).intersection(log_dir.directory.children() if gone else ()):
                    _empty(log_dir.directory.child(name))
                log_dir.sync_names_and_checkpoints()
                for name in gone:
                    log_dir.directory.remove_child(name)


class LogManager:
    """The logs by partition. `monotonic_ms` is the clock for intervals, `defaults` the broker's
    LogConfig.

    Recovery is work for processors, and has `recovery_threads` for each directory, which are
    processes (`recovery_pool`) where there is more than one in all; to close a log
    is to wait for its disk, so `closing_threads` may well be more.
    """

    def __init__(
        self,
        dirs: Sequence[Directory],
        defaults: LogConfig,
        monotonic_ms: Callable[[], int],
        *,
        recovery_threads: int = 1,
        closing_threads: int = 1,
    ) -> None:
        self.defaults = defaults
        self.logs: dict[TopicPartition, Log] = {}
        self.offline_dirs: dict[str, str] = {}
        self._dirs = [LogDir(directory, Lock()) for directory in dirs]
        self._monotonic_ms = monotonic_ms
        self._recovery_threads = recovery_threads
        self._closing_threads = max(recovery_threads, closing_threads)
        self._broken: dict[TopicPartition, str] = {}
        self._offline: dict[TopicPartition, str] = {}
        self._leaving: list[tuple[int, LogDir, str]] = []
        self._moving: list[tuple[LogDir, StoredLog]] = []
        self._recovering: dict[str, Callable[[], RecoveryDone | None]] = {}
        self.futures = FutureLogs(self._dirs, self.logs, self.offline_dirs, self._leave)

    def load(self, configs: Mapping[str, LogConfig] | None = None) -> None:
        """Lock the directories and open every log in them; `configs` are the topics' own.

        Raises LogDirectoryError when a directory is another process's or holds what is no log,
        or when none can be used.
        """
        self._lock()
        self._refuse_strays()
        self._load_dirs(configs or {})
        for log_dir in list(self._dirs):
            try:
                self._resume_moves(log_dir, configs or {})
            except OSError as error:
                self.take_offline(log_dir, error)
        if not self._dirs:
            raise LogDirectoryError(f"no log directory can be used: {self.offline_dirs}")

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """The log of a partition, if there is one here."""
        return self.logs.get(topic_partition)

    def by_directory(self) -> dict[str, list[Log]]:
        """The logs in each directory that is in use, by its path."""
        return {log_dir.path: list(log_dir.logs.values()) for log_dir in self._dirs}

    def suspect_dirs(self) -> list[LogDir]:
        """The directories to `probe`, in any thread; then `clear_suspicion` or `take_offline`."""
        return [log_dir for log_dir in self._dirs if log_dir.is_suspect]

    def full_dirs(self) -> list[LogDir]:
        """The directories that lack room: `probe_room`, in any thread, then `resume_writes`."""
        return [log_dir for log_dir in self._dirs if log_dir.is_full]

    def take_offline(self, log_dir: LogDir, error: OSError) -> None:
        """Serve nothing from a directory any more, and put nothing there, until the next start."""
        self._dirs.remove(log_dir)
        self.offline_dirs[log_dir.path] = str(error)
        self._leaving = [leaving for leaving in self._leaving if leaving[1] is not log_dir]
        log_dir.fail()
        for topic_partition in log_dir.logs:
            self._offline[topic_partition] = f"{log_dir.path} is offline"
            del self.logs[topic_partition]
        with contextlib.suppress(OSError):
            log_dir.directory.unlock()
        logger.error("%s is offline with %d logs: %s", log_dir.path, len(log_dir.logs), error)

    @property
    def dirs(self) -> Sequence[LogDir]:
        """The directories in use."""
        return tuple(self._dirs)

    def failure_of(self, topic_partition: TopicPartition) -> str | None:
        """Why a log that is here, or was, cannot be opened as it is."""
        log = self.logs.get(topic_partition)
        if log is not None:
            return log.failure if log.damage is not None else None
        return self._broken.get(topic_partition) or self._offline.get(topic_partition)

    def truncate_damage(self, topic_partition: TopicPartition) -> None:
        """Cut a damaged log at its damage, to be fetched again from there on.

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
        """Have a log in the place of the damaged one that it was. Raises ApiError
        KAFKA_STORAGE_ERROR."""
        log_dir = self.dir_of(log.topic_partition)
        assert log_dir is not None
        try:
            self.logs[log.topic_partition] = log_dir.add(log)
        except OSError as error:
            raise _storage_error(log.topic_partition, error) from error

    def dir_of(self, topic_partition: TopicPartition) -> LogDir | None:
        """The directory that a partition's log is in, if it is here."""
        return next((each for each in self._dirs if topic_partition in each.logs), None)

    def get_or_create(
        self, topic_partition: TopicPartition, config: LogConfig, *, is_new: bool = True
    ) -> Log:
        """The log of a partition; a new one is made where `futures` has a place for it.

        Raises ApiError KAFKA_STORAGE_ERROR, also where there is no log, the partition is not
        new and a directory is offline that may have it.
        """
        if topic_partition not in self.logs:
            log_dir = self._place(topic_partition, is_new)
            try:
                self.logs[topic_partition] = log_dir.create(
                    topic_partition, config, self._monotonic_ms
                )
            except (OSError, ValueError) as error:
                if isinstance(error, OSError):
                    log_dir.note_error(error)
                raise _storage_error(topic_partition, error) from error
        return self.logs[topic_partition]

    def plan(self, topic_partition: TopicPartition, config: LogConfig, *, is_new: bool) -> NewLog:
        """Say where a log is to be made that is not here: `make` it, and then `serve` it.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        log_dir = self._place(topic_partition, is_new)
        log_dir.reserve(topic_partition)
        return NewLog(topic_partition, log_dir, config)

    def make(self, planned: Sequence[NewLog]) -> None:
        """Make logs, and have their names safe from a power loss, in whatever thread. One that
        cannot be made is left to `get_or_create`, which says why."""
        for new in planned:
            with contextlib.suppress(ValueError), _failure_logged(new.log_dir):
                new.log_dir.make_reserved(new.topic_partition, new.config, self._monotonic_ms)
        self.sync_names()

    def serve(self, planned: Sequence[NewLog]) -> None:
        """Have the logs that were made, as far as they were and their directory is still in use."""
        for new in planned:
            log = new.log_dir.new_logs.pop(new.topic_partition)
            if log is not None and new.log_dir in self._dirs:
                with _failure_logged(new.log_dir):
                    self.logs[new.topic_partition] = new.log_dir.add(log)

    def _place(self, topic_partition: TopicPartition, is_new: bool) -> LogDir:
        self._refuse_broken(topic_partition)
        if self.offline_dirs and not (is_new and self._dirs):
            raise _storage_error(topic_partition, f"offline: {', '.join(self.offline_dirs)}")
        return self.futures.place_for(topic_partition)

    def sync_names(self) -> None:
        """Make new logs safe from a power loss, before anybody relies on them."""
        for log_dir in list(self._dirs):
            with _failure_logged(log_dir):  # `tick` tries again
                log_dir.sync_names()

    def delete(self, topic_partition: TopicPartition) -> None:
        """Forget a partition's log; its files go after file.delete.delay.ms, by `tick`.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        self.begin_deletion(topic_partition)()

    def begin_deletion(self, topic_partition: TopicPartition) -> Callable[[], None]:
        """Forget a partition's log; what is returned renames its directory, in whatever thread.

        Both raise ApiError KAFKA_STORAGE_ERROR.
        """
        self._refuse_broken(topic_partition)
        rename_future = self.futures.begin_deletion(topic_partition)
        log = self.logs.pop(topic_partition, None)
        if log is None:
            return rename_future

        log_dir = self.futures.current_dir(topic_partition)
        name = deleted_name(topic_partition, uuid.uuid4().hex)
        log_dir.remove(topic_partition, "the partition was deleted")
        self._leave(log_dir, name, log.config)

        def rename_both() -> None:
            rename_future()
            log_dir.rename_removed(log, name)

        return rename_both

    def set_target_directory(self, topic_partition: TopicPartition, path: str) -> None:
        """Call `futures.set_target_directory`. Raises KAFKA_STORAGE_ERROR for a bad log too."""
        self._refuse_broken(topic_partition)
        self.futures.set_target_directory(topic_partition, path)

    def tick(self, monotonic_ms: int) -> None:
        """Remove deleted files whose time has come, at once."""
        self.begin_tick(monotonic_ms).run()

    def begin_tick(self, monotonic_ms: int) -> Removal:
        """The deleted files whose time has come, to be removed off the loop. To be called every
        second or so; what is not removed is found again at the start."""
        due = [leaving for leaving in self._leaving if leaving[0] <= monotonic_ms]
        self._leaving = [leaving for leaving in self._leaving if leaving[0] > monotonic_ms]
        files = [(log_dir, log_dir.take_due_files(monotonic_ms)) for log_dir in self._dirs]
        return Removal(files, [(log_dir, name) for _, log_dir, name in due])

    def delete_old_segments(
        self, high_watermarks: Mapping[TopicPartition, int], now_ms: int
    ) -> int:
        """Apply retention to the logs whose high watermark is known; how many segments went."""
        gone = 0
        for topic_partition, high_watermark in high_watermarks.items():
            log = self.logs.get(topic_partition)
            if log is not None and log.guard.failure is None and not log.is_lent:
                gone += self._retain(log, high_watermark, now_ms)
        return gone

    def expire_producers(self, now_ms: int, expiration_ms: int) -> None:
        """Forget the producers that no log has heard of for so long."""
        for log in self.logs.values():
            if not log.is_lent and not log.is_held:
                log.producers.expire(now_ms, expiration_ms)

    def checkpoint_recovery_points(self) -> None:
        """Write recovery points and log start offsets; a failure is logged, and tried again."""
        for log_dir in list(self._dirs):
            with _failure_logged(log_dir):
                log_dir.checkpoint_recovery_points()

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write high watermarks; a failure is logged, and tried again with the next ones."""
        for log_dir in list(self._dirs):
            with _failure_logged(log_dir):
                log_dir.checkpoint_high_watermarks(high_watermarks)

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermarks of the last checkpoint."""
        found: dict[TopicPartition, int] = {}
        for log_dir in self._dirs:
            of_dir = log_dir.read_offsets(HIGH_WATERMARKS)
            found |= {tp: offset for tp, offset in of_dir.items() if tp in log_dir.logs}
        return found

    def read_meta_properties(self) -> dict[str, MetaProperties]:
        """What the directories, by path, say of their broker.

        Raises InconsistentMetaProperties.
        """
        texts = {each.path: each.directory.read(META_PROPERTIES) for each in self._dirs}
        return {
            path: MetaProperties.decode(text, f"{path}/{META_PROPERTIES}")
            for path, text in texts.items()
            if text is not None
        }

    def write_meta_properties(self, meta: MetaProperties) -> None:
        """Write it to each directory that does not have it. Raises OSError."""
        for log_dir in self._dirs:
            text = log_dir.directory.read(META_PROPERTIES)
            stored = None if text is None else MetaProperties.decode(text)
            wanted = meta if stored is None else attrs.evolve(meta, extra=stored.extra)
            if stored != wanted:
                log_dir.directory.write_atomic(META_PROPERTIES, wanted.encode())
                log_dir.directory.fsync_dir()

    def close(self, clean: bool = True) -> None:
        """Flush and close all logs and give the directories back.

        A directory is marked clean if all logs could be loaded and closed. Without `clean`
        nothing is closed, as after a crash.
        """
        for log_dir in self._dirs:
            is_whole = clean and self._close_logs(log_dir) and not self._broken
            with _failure_logged(log_dir):
                if is_whole:
                    log_dir.mark_clean()
                elif clean:  # what could be closed need not be read again
                    log_dir.checkpoint_recovery_points()
            log_dir.directory.unlock()
        self.logs.clear()

    def _refuse_broken(self, topic_partition: TopicPartition) -> None:
        for unusable in (self._broken, self._offline):
            if topic_partition in unusable:
                raise _storage_error(topic_partition, unusable[topic_partition])

    def _lock(self) -> None:
        paths = [log_dir.path for log_dir in self._dirs]
        if len(set(paths)) < len(paths):
            raise LogDirectoryError(f"log.dirs names a directory twice: {', '.join(paths)}")
        for log_dir in self._dirs:
            try:
                log_dir.directory.lock()
            except OSError as error:
                raise LogDirectoryError(
                    f"{log_dir.path} is locked by another broker, or cannot be locked: {error}"
                ) from error

    def _refuse_strays(self) -> None:
        """Before anything is recovered: a directory that is no partition's is not ours to judge."""
        for log_dir in self._dirs:
            try:
                with contextlib.suppress(OSError):
                    for name in log_dir.directory.children():
                        parse(name)
            except ValueError as error:
                raise LogDirectoryError(f"{log_dir.path}: {error}") from error

    def _load_dirs(self, configs: Mapping[str, LogConfig]) -> None:
        """Open the logs of all directories; those that need it are recovered meanwhile, by more
        than one process where the settings have it."""
        found = []
        for log_dir in list(self._dirs):
            try:
                found.append((log_dir, *self._look_into(log_dir)))
            except OSError as error:
                self.take_offline(log_dir, error)
        jobs = [
            job
            for _, _, stored_logs in found
            for stored in stored_logs
            if (job := _job(stored, self._config(stored, configs))) is not None
        ]
        processes = min(self._recovery_threads * len(found), len(jobs))
        pool = RecoveryPool(processes) if processes > 1 else None
        try:
            if pool is not None:
                self._recovering = {job.path: pool.begin(job) for job in jobs}
            for log_dir, started_ms, stored_logs in found:
                try:
                    self._load_dir(log_dir, started_ms, stored_logs, configs)
                except OSError as error:
                    self.take_offline(log_dir, error)
        finally:
            self._recovering = {}
            if pool is not None:
                pool.close()

    def _look_into(self, log_dir: LogDir) -> tuple[int, list[StoredLog]]:
        started_ms = self._monotonic_ms()
        stored, moving, leaving = log_dir.stored_logs()
        self._leaving += [(started_ms, log_dir, name) for name in leaving]
        self._moving += [(log_dir, each) for each in moving]
        return started_ms, stored

    def _load_dir(
        self,
        log_dir: LogDir,
        started_ms: int,
        stored: Sequence[StoredLog],
        configs: Mapping[str, LogConfig],
    ) -> None:
        reported_ms = started_ms
        how = "after a clean stop" if log_dir.is_clean else "with recovery"
        logger.info("%s: loading %d logs %s", log_dir.path, len(stored), how)
        with _mapping(self._recovery_threads) as mapped:
            loading = mapped(lambda found: self._load_log(found, configs), stored)
            for number, log in enumerate(loading, start=1):
                if log is not None:
                    self._add(log_dir, log)
                if self._monotonic_ms() - reported_ms >= PROGRESS_MS:
                    reported_ms = self._monotonic_ms()
                    logger.info("%s: %d of %d logs loaded", log_dir.path, number, len(stored))
        log_dir.clear_clean_mark()
        took_ms = self._monotonic_ms() - started_ms
        logger.info("%s: %d logs loaded in %d ms", log_dir.path, len(log_dir.logs), took_ms)

    def _config(self, stored: StoredLog, configs: Mapping[str, LogConfig]) -> LogConfig:
        return configs.get(stored.topic_partition.topic, self.defaults)

    def _recovered(self, stored: StoredLog) -> StoredLog:
        """The log once a worker has recovered it; as it is where none has."""
        result = self._recovering.get(stored.directory.path)
        done = result() if result is not None else None
        if done is None:
            return stored
        return attrs.evolve(
            stored,
            recovery_point=done.end_offset,
            log_start_offset=done.log_start_offset,
            clean_shutdown=True,
        )

    def _resume_moves(self, log_dir: LogDir, configs: Mapping[str, LogConfig]) -> None:
        def load(stored: StoredLog) -> Log:
            config = configs.get(stored.topic_partition.topic, self.defaults)
            return stored.load(config, self._monotonic_ms)

        found = [each for each in self._moving if each[0] is log_dir]
        unusable = self._broken.keys() | self._offline.keys()
        for _, stored in self.futures.resume(found, unusable, load):
            log = self._load_log(stored, configs)
            if log is not None:
                self._add(log_dir, log)

    def _leave(self, log_dir: LogDir, name: str, config: LogConfig) -> None:
        due_ms = self._monotonic_ms() + config.file_delete_delay_ms
        self._leaving.append((due_ms, log_dir, name))

    def _load_log(self, stored: StoredLog, configs: Mapping[str, LogConfig]) -> Log | None:
        config = configs.get(stored.topic_partition.topic, self.defaults)
        try:
            return self._recovered(stored).load(config, self._monotonic_ms)
        except (OSError, ValueError) as error:
            logger.error("%s cannot be loaded: %s", stored.directory.path, error)
            self._broken[stored.topic_partition] = str(error)
            return None

    def _add(self, log_dir: LogDir, log: Log) -> None:
        if log.topic_partition in self.logs:
            other = self.logs[log.topic_partition].directory.path
            raise LogDirectoryError(f"{log.topic_partition} is in {log_dir.path} and in {other}")
        self.logs[log.topic_partition] = log_dir.add(log)

    def _retain(self, log: Log, high_watermark: int, now_ms: int) -> int:
        try:
            return log.delete_old_segments(high_watermark, now_ms)
        except ApiError:  # the log has said it, and takes no more writes
            return 0

    def _close_logs(self, log_dir: LogDir) -> bool:
        with _mapping(self._closing_threads) as mapped:
            return all(list(mapped(_closed, log_dir.all_logs())))


@contextlib.contextmanager
def _mapping(threads: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """`map` in so many threads; one is the caller's own."""
    if threads == 1:
        yield map
        return
    with ThreadPoolExecutor(threads) as pool:
        yield pool.map


@contextlib.contextmanager
def _failure_logged(log_dir: LogDir) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL or not log_dir.is_reported_full:
            logger.error("%s: %s", log_dir.path, error)
        log_dir.note_error(error)


def _empty(directory: Directory) -> None:
    for name in directory.files():
        directory.remove(name)


def _job(stored: StoredLog, config: LogConfig) -> RecoveryJob | None:
    """What a worker is to do for a log on a real disk that was not closed."""
    if stored.clean_shutdown or not isinstance(stored.directory, LogDirectory):
        return None
    return RecoveryJob(
        stored.directory.path,
        stored.topic_partition,
        config,
        stored.recovery_point,
        stored.log_start_offset,
    )


def _closed(log: Log) -> bool:
    """Close a log; whether everything of it is on disk."""
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
