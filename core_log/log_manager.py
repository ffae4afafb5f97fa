"""All logs of a broker, in one or more log directories.

Each directory is locked for the broker's life. What fails on one log leaves the others served:
the partition answers KAFKA_STORAGE_ERROR. A directory that cannot be read at the start is offline
and the others are used.

Everything is called on the event loop's thread but `load` and `close`, which take their time and
may run in another one while nothing else is called; the checkpoint methods fsync small files.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from core_log.checkpoint import HIGH_WATERMARKS
from core_log.config import LogConfig
from core_log.directory_name import deleted_name
from core_log.log import Log
from core_log.log_dir import LogDir, StoredLog
from core_log.meta_properties import META_PROPERTIES, MetaProperties
from core_log.storage import Directory
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import TopicPartition

PROGRESS_MS = 2000

_log = logging.getLogger(__name__)


class LogDirectoryError(Exception):
    """The log directories cannot be used as they are; the text says which and why."""


class LogManager:
    """The logs by partition. `now_ms` is the wall clock, `defaults` the broker's LogConfig."""

    def __init__(
        self,
        dirs: Sequence[Directory],
        defaults: LogConfig,
        now_ms: Callable[[], int],
        *,
        recovery_threads: int = 1,
    ) -> None:
        self.defaults = defaults
        self.logs: dict[TopicPartition, Log] = {}
        self.offline_dirs: dict[str, str] = {}
        self._dirs = [LogDir(directory) for directory in dirs]
        self._now_ms = now_ms
        self._recovery_threads = recovery_threads
        self._broken: dict[TopicPartition, str] = {}
        self._leaving: list[tuple[int, LogDir, str]] = []

    def load(self, configs: Mapping[str, LogConfig] | None = None) -> None:
        """Lock the directories and open every log in them; `configs` are the topics' own.

        Raises LogDirectoryError when a directory is another process's or holds what is no log,
        or when none can be used.
        """
        self._lock()
        for log_dir in list(self._dirs):
            try:
                self._load_dir(log_dir, configs or {})
            except OSError as error:
                _log.error("%s is offline: %s", log_dir.path, error)
                self.offline_dirs[log_dir.path] = str(error)
                self._dirs.remove(log_dir)
                for topic_partition in log_dir.logs:
                    self._broken[topic_partition] = f"{log_dir.path} is offline"
                    del self.logs[topic_partition]
        if not self._dirs:
            raise LogDirectoryError(f"no log directory can be used: {self.offline_dirs}")

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """The log of a partition, if there is one here."""
        return self.logs.get(topic_partition)

    def by_directory(self) -> dict[str, list[Log]]:
        """The logs in each directory that is in use, by its path."""
        return {log_dir.path: list(log_dir.logs.values()) for log_dir in self._dirs}

    def get_or_create(self, topic_partition: TopicPartition, config: LogConfig) -> Log:
        """The log of a partition; a new one is made in the directory with the fewest logs.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        if topic_partition not in self.logs:
            if topic_partition in self._broken:
                raise _storage_error(topic_partition, self._broken[topic_partition])
            log_dir = min(self._dirs, key=lambda candidate: len(candidate.logs))
            try:
                self.logs[topic_partition] = log_dir.add(topic_partition, config, self._now_ms())
            except (OSError, ValueError) as error:
                raise _storage_error(topic_partition, error) from error
        return self.logs[topic_partition]

    def sync_names(self) -> None:
        """Make new logs safe from a power loss, before anybody relies on them."""
        for log_dir in self._dirs:
            with _failure_logged(log_dir):  # `tick` tries again
                log_dir.sync_names()

    def delete(self, topic_partition: TopicPartition) -> None:
        """Forget a partition's log; its files go after file.delete.delay.ms, by `tick`.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        log = self.logs.pop(topic_partition, None)
        if log is None:
            return
        log_dir = next(candidate for candidate in self._dirs if topic_partition in candidate.logs)
        name = deleted_name(topic_partition, uuid.uuid4().hex)
        try:
            log_dir.take_away(topic_partition, name)
        except OSError as error:
            raise _storage_error(topic_partition, error) from error
        self._leaving.append((self._now_ms() + log.config.file_delete_delay_ms, log_dir, name))

    def tick(self, now_ms: int) -> None:
        """Remove deleted files whose time has come. To be called every second or so."""
        for log_dir in self._dirs:
            with _failure_logged(log_dir):
                log_dir.tick(now_ms)
        due = [leaving for leaving in self._leaving if leaving[0] <= now_ms]
        self._leaving = [leaving for leaving in self._leaving if leaving[0] > now_ms]
        for _, log_dir, name in due:  # what fails is found again, and tried again, at the start
            with _failure_logged(log_dir):
                log_dir.directory.remove_child(name)

    def delete_old_segments(
        self, high_watermarks: Mapping[TopicPartition, int], now_ms: int
    ) -> int:
        """Apply retention to the logs whose high watermark is known; how many segments went."""
        gone = 0
        for topic_partition, high_watermark in high_watermarks.items():
            log = self.logs.get(topic_partition)
            if log is not None and log.failure is None:
                gone += self._retain(log, high_watermark, now_ms)
        return gone

    def expire_producers(self, now_ms: int, expiration_ms: int) -> None:
        """Forget the producers that no log has heard of for so long."""
        for log in self.logs.values():
            log.producers.expire(now_ms, expiration_ms)

    def checkpoint_recovery_points(self) -> None:
        """Write recovery points and log start offsets; a failure is logged, and tried again."""
        for log_dir in self._dirs:
            with _failure_logged(log_dir):
                log_dir.checkpoint_recovery_points()

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write high watermarks; a failure is logged, and tried again with the next ones."""
        for log_dir in self._dirs:
            with _failure_logged(log_dir):
                log_dir.checkpoint_high_watermarks(high_watermarks)

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermarks of the last checkpoint."""
        found: dict[TopicPartition, int] = {}
        for log_dir in self._dirs:
            found |= log_dir.read_offsets(HIGH_WATERMARKS)
        return found

    def stored_meta_properties(self) -> dict[str, MetaProperties]:
        """What the directories, by path, say of their broker.

        Raises InconsistentMetaProperties.
        """
        texts = {each.path: each.directory.read(META_PROPERTIES) for each in self._dirs}
        return {
            path: MetaProperties.decode(text) for path, text in texts.items() if text is not None
        }

    def store_meta_properties(self, meta: MetaProperties) -> None:
        """Write it to each directory that does not have it. Raises OSError."""
        for log_dir in self._dirs:
            text = log_dir.directory.read(META_PROPERTIES)
            if text is None or MetaProperties.decode(text) != meta:
                log_dir.directory.write_atomic(META_PROPERTIES, meta.encode())
                log_dir.directory.fsync_dir()

    def close(self, clean: bool = True) -> None:
        """Flush and close all logs and give the directories back.

        A directory is marked clean if all logs could be loaded and closed. Without `clean`
        nothing is closed, as after a crash.
        """
        for log_dir in self._dirs:
            if clean and self._close_logs(log_dir) and not self._broken:
                with _failure_logged(log_dir):
                    log_dir.mark_clean()
            log_dir.directory.unlock()
        self.logs.clear()

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

    def _load_dir(self, log_dir: LogDir, configs: Mapping[str, LogConfig]) -> None:
        started_ms = reported_ms = self._now_ms()
        try:
            stored, leaving = log_dir.stored_logs()
        except ValueError as error:
            raise LogDirectoryError(f"{log_dir.path}: {error}") from error
        self._leaving += [(started_ms, log_dir, name) for name in leaving]
        how = "after a clean stop" if log_dir.is_clean else "with recovery"
        _log.info("%s: loading %d logs %s", log_dir.path, len(stored), how)
        with _mapping(self._recovery_threads) as mapped:
            loading = mapped(lambda found: self._load_log(found, configs), stored)
            for number, log in enumerate(loading, start=1):
                if log is not None:
                    self._add(log_dir, log)
                if self._now_ms() - reported_ms >= PROGRESS_MS:
                    reported_ms = self._now_ms()
                    _log.info("%s: %d of %d logs loaded", log_dir.path, number, len(stored))
        log_dir.clear_clean_mark()
        took_ms = self._now_ms() - started_ms
        _log.info("%s: %d logs loaded in %d ms", log_dir.path, len(log_dir.logs), took_ms)

    def _load_log(self, stored: StoredLog, configs: Mapping[str, LogConfig]) -> Log | None:
        config = configs.get(stored.topic_partition.topic, self.defaults)
        try:
            return stored.load(config, self._now_ms())
        except (OSError, ValueError) as error:
            _log.error("%s cannot be loaded: %s", stored.directory.path, error)
            self._broken[stored.topic_partition] = str(error)
            return None

    def _add(self, log_dir: LogDir, log: Log) -> None:
        if log.topic_partition in self.logs:
            other = self.logs[log.topic_partition].directory.path
            raise LogDirectoryError(f"{log.topic_partition} is in {log_dir.path} and in {other}")
        self.logs[log.topic_partition] = log_dir.logs[log.topic_partition] = log

    def _retain(self, log: Log, high_watermark: int, now_ms: int) -> int:
        try:
            return log.delete_old_segments(high_watermark, now_ms)
        except ApiError:  # the log has said it, and takes no more writes
            return 0

    def _close_logs(self, log_dir: LogDir) -> bool:
        with _mapping(self._recovery_threads) as mapped:
            return all(list(mapped(_closed, log_dir.logs.values())))


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
        _log.error("%s: %s", log_dir.path, error)


def _closed(log: Log) -> bool:
    """Close a log; whether everything of it is on disk."""
    if log.failure is not None:
        return False
    try:
        log.close()
    except OSError as error:
        log.fail(error)
        return False
    return True


def _storage_error(topic_partition: TopicPartition, reason: object) -> ApiError:
    return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition}: {reason}")
