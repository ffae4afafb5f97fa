"""Recovers logs in processes of their own: Python recovers one at a time in each process.

A worker opens a log as a broker does that was not stopped in good order, and closes it as one that
is: what is left to the broker is to load it as after a clean stop. A worker decides nothing. Where
it finds damage, or fails, or is killed, the log is recovered by the broker itself, which says what
there is to be said.
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

import attrs

from core_log.config import LogConfig
from core_log.directory import LogDirectory
from core_log.recovery.loading import load_log
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

LogLine = tuple[str, int, str]
"""A line of a worker's log: the core_logger's name, the level and the message."""


@attrs.frozen
class RecoveryJob:
    """Recover the log in the directory at `path`, of which the checkpoints say these offsets."""

    path: str
    topic_partition: TopicPartition
    config: LogConfig
    recovery_point: int
    log_start_offset: int


@attrs.frozen
class RecoveryDone:
    """A log is on disk whole up to `end_offset`, and closed."""

    end_offset: int
    log_start_offset: int
    lines: tuple[LogLine, ...]


class RecoveryPool:
    """Worker processes, as many as are wanted at once."""

    def __init__(self, processes: int) -> None:
        self._pool = ProcessPoolExecutor(
            processes, multiprocessing.get_context("spawn"), initializer=_begin
        )

    def begin(self, job: RecoveryJob) -> Callable[[], RecoveryDone | None]:
        """Have a log recovered; what is returned waits for that. None: it is left to the caller,
        and no worker touches it any more."""
        try:
            running = self._pool.submit(recover, job)
        except BrokenProcessPool:
            return lambda: None
        return lambda: self._result(running, job)

    def close(self) -> None:
        """Return when there are no workers any more."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _result(
        self, running: Future[RecoveryDone | None], job: RecoveryJob
    ) -> RecoveryDone | None:
        try:
            done = running.result()
        except BrokenProcessPool:
            self.close()  # or another worker might still write to a log that is recovered here
            logger.warning("%s: a worker that recovers logs has died", job.path)
            return None
        for name, level, message in done.lines if done is not None else ():
            logging.getLogger(name).log(level, "%s", message)
        return done


def recover(job: RecoveryJob) -> RecoveryDone | None:
    """Recover a log and close it, in this process; None where the caller has to see to it."""
    lines = _Lines()
    core_logger = logging.getLogger("core_log")
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
    """A worker begins: Ctrl-C is for the broker, and without a broker there is nothing to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger("core_log").propagate = False
    threading.Thread(target=_end_with_broker, daemon=True).start()


def _end_with_broker() -> None:
    broker = multiprocessing.parent_process()
    assert broker is not None
    wait([broker.sentinel])
    os._exit(1)  # the next broker recovers what is half done, and must be alone
