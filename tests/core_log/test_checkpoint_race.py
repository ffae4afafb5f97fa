"""A checkpoint is written by one thread while another one truncates a log."""

from __future__ import annotations

import threading
import time
from typing import Any

import attrs

from core_log.checkpoint import RECOVERY_POINTS
from core_log.config import LogConfig
from core_log.log import Log
from core_log.log_manager import LogManager
from core_log.memory_directory import MemoryDirectory
from protocol.topic_partition import TopicPartition
from tests.core_log.conftest import T0, Writer

TP, OTHER = TopicPartition("flights", 0), TopicPartition("flights", 1)
DEADLINE_S = 20
UNHINDERED_S = 0.3
"""Long enough for a truncation that nothing holds up."""


@attrs.define(eq=False)
class SlowLog:
    """Another log of the directory: while its recovery point is read, `log` is truncated."""

    log: Log
    end: int
    log_start_offset: int = 0
    thread: threading.Thread | None = None

    @property
    def recovery_point(self) -> int:
        self.thread = threading.Thread(target=self.log.truncate_to, args=(self.end,))
        self.thread.start()
        deadline = time.monotonic() + DEADLINE_S
        while self.log.recovery_point > self.end and time.monotonic() < deadline:
            self.thread.join(0.001)
        self.thread.join(UNHINDERED_S)
        return 0


def test_no_checkpoint_says_that_there_is_more_than_a_truncation_left() -> None:
    config = LogConfig()
    manager = LogManager([MemoryDirectory()], config, lambda: T0)
    manager.load()
    writer = Writer(manager.get_or_create(TP, config))
    writer.append_many(10)
    flush = writer.log.begin_flush()
    flush.run()
    writer.log.end_flush(flush)
    (log_dir,) = manager.dirs
    slow: Any = SlowLog(writer.log, 4)
    log_dir.logs[OTHER] = slow

    log_dir.checkpoint_recovery_points()
    del log_dir.logs[OTHER]
    slow.thread.join(DEADLINE_S)

    assert writer.log.log_end_offset == 4
    assert log_dir.read_offsets(RECOVERY_POINTS)[TP] <= 4
