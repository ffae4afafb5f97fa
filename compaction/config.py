"""The settings of the cleaner, under Kafka's names. All but log.cleaner.enable change at run time.

The topic-level settings (`min.cleanable.dirty.ratio`, `delete.retention.ms`, the two compaction
lags) are in `core_log.config`, with the broker's defaults for them.
"""

from __future__ import annotations

import sys

from protocol.frozen import frozen
from protocol.settings import SettingError, between, ge, gt, int64, setting

LEAST_DEDUPE_BYTES = 2**20
"""Each thread needs more. With less a cleaner would read a log again for every few keys."""


@frozen
class CleanerConfig:
    """The settings for all threads. A thread is a worker process, and cleans a log at a time."""

    enable: bool = setting("log.cleaner.enable", True)
    threads: int = setting("log.cleaner.threads", 1, validator=ge(1))
    dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size",
        128 * 2**20,
        validator=int64(1),
        doc="Bytes for the newest offset of each key, for all logs that are cleaned at once.",
    )
    io_buffer_size: int = setting("log.cleaner.io.buffer.size", 512 * 2**10, validator=ge(0))
    io_buffer_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor",
        0.9,
        validator=between(0.01, 1),
        doc="Share of the dedupe buffer that is used.",
    )
    io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second", sys.float_info.max, validator=gt(0)
    )
    backoff_ms: int = setting(
        "log.cleaner.backoff.ms",
        15_000,
        validator=int64(0),
        doc="Time between two checks of all logs for dirty ones.",
    )

    @property
    def dedupe_bytes(self) -> int:
        """A thread's share of the dedupe buffer."""
        return self.dedupe_buffer_size // self.threads

    @property
    def io_bytes(self) -> int:
        """Bytes that a thread reads at once. As in Kafka another buffer is for writing."""
        return max(1, self.io_buffer_size // self.threads // 2)

    @property
    def bytes_per_second(self) -> float:
        """A thread's share of the bytes that may be read and written."""
        return self.io_max_bytes_per_second / self.threads


def refuse_impossible(config: CleanerConfig) -> None:
    """Raise SettingError for values that contradict each other."""
    if config.dedupe_bytes <= LEAST_DEDUPE_BYTES:
        raise SettingError(
            "log.cleaner.dedupe.buffer.size",
            f"{config.dedupe_buffer_size} is not more than 1 MiB for each of log.cleaner.threads, "
            f"{config.threads}",
        )


def refuse_leap(before: CleanerConfig, after: CleanerConfig) -> None:
    """Raise SettingError if the number of threads more than halves or more than doubles."""
    if not before.threads / 2 <= after.threads <= before.threads * 2:
        is_fewer = after.threads < before.threads
        leap = "reduced to less than half" if is_fewer else "increased to more than double"
        raise SettingError(
            "log.cleaner.threads",
            f"Log cleaner threads cannot be {leap} the current value {before.threads}",
        )
