"""Recover logs in processes of their own: one Python process recovers one log at a time.

A worker opens a log as after an unclean stop, and closes it cleanly. The broker then loads it as
after a clean stop. A worker decides nothing: if it finds damage, or fails, or is killed, the broker
recovers the log itself, and logs what there is to log.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait

from core_log.config import LogConfig
from core_log.directory import LogDirectory
from core_log.recovery.loading import load_log
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)
# The parent of all loggers of core_log.
core_logger = logging.getLogger(__name__.removesuffix(".recovery.recovery_pool"))

LogLine = tuple[str, int, str]
"""A line of a worker's log: the logger's name, the level and the message."""


@frozen
class RecoveryJob:
    """Recover the log in the directory at `path`. The offsets are those of the checkpoints."""

    path: str
    topic_partition: TopicPartition
    config: LogConfig
    recovery_point: int
    log_start_offset: int


@frozen
class RecoveryDone:
    """A recovered and closed log, whole on disk up to `end_offset`."""

    end_offset: int
    log_start_offset: int
    lines: tuple[LogLine, ...]


class RecoveryPool:
    """The worker processes."""

    def __init__(self, processes: int) -> None:
        # Not forked: this process may have threads.
        self._pool = ProcessPoolExecutor(
            processes, multiprocessing.get_context("spawn"), initializer=_begin
        )

    def begin(self, job: RecoveryJob) -> Callable[[], RecoveryDone | None]:
        """Begin to recover a log. Returns what waits for the result.

        The result is None if the caller must recover the log; no worker touches it then.
        """
        try:
            running = self._pool.submit(recover, job)
        except BrokenProcessPool:
            # A worker has died, and the pool with it.
            return lambda: None
        return lambda: self._result(running, job)

    def close(self) -> None:
        """Wait for the workers to end."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _result(
        self, running: Future[RecoveryDone | None], job: RecoveryJob
    ) -> RecoveryDone | None:
        try:
            done = running.result()
        except BrokenProcessPool:
            self.close()  # otherwise another worker might still write to the log
            logger.warning("%s: a worker that recovers logs has died", job.path)
            return None

        # The broker logs what the worker would have logged.
        for name, level, message in done.lines if done is not None else ():
            logging.getLogger(name).log(level, "%s", message)
        return done


def recover(job: RecoveryJob) -> RecoveryDone | None:
    """Recover a log and close it, in this process. Returns None if the caller must do it."""
    lines = _Lines()
    core_logger.addHandler(lines)

    try:
        log = load_log(
            LogDirectory(job.path, create=False),
            job.topic_partition,
            job.config,
            recovery_point=job.recovery_point,
            clean_shutdown=False,
            monotonic_ms=lambda: time.monotonic_ns() // 1_000_000,
            log_start_offset=job.log_start_offset,
        )
        # The broker decides about damage, and says so in its log.
        if log.damage is not None or log.failure is not None:
            return None
        log.close()
        return RecoveryDone(log.log_end_offset, log.log_start_offset, tuple(lines.lines))
    except (OSError, ValueError):
        return None
    finally:
        core_logger.removeHandler(lines)


class _Lines(logging.Handler):
    """Collects the lines of a worker's log, for the broker to log them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[LogLine] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.name, record.levelno, record.getMessage()))


def _begin() -> None:
    """Set up a worker. Ctrl-C is for the broker, and the worker ends with the broker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Its lines go to the broker with the result, and nowhere else.
    core_logger.propagate = False
    threading.Thread(target=_end_with_broker, daemon=True).start()


def _end_with_broker() -> None:
    broker = multiprocessing.parent_process()
    assert broker is not None
    wait([broker.sentinel])
    os._exit(1)  # the next broker recovers the half done log, and must be alone
