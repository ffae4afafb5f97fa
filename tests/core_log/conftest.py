"""Logs to test: on a disk in memory unless a test is about the real one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from core_log.appending.appended import LogAppendInfo
from core_log.config import LogConfig
from core_log.directory import LogDirectory
from core_log.log import Log
from core_log.memory_directory import MemoryDirectory, MemoryFile
from core_log.recovery.loading import load_log
from core_log.storage import Directory
from protocol.records.batch import decode_records, encode_batch, read_header
from protocol.topic_partition import TopicPartition

FLIGHTS_0 = TopicPartition("flights", 0)
T0 = 1_000_000


@pytest.fixture(params=["memory", "disk"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Directory:
    """The directory of one log: in memory, then on a real disk."""
    if request.param == "memory":
        return MemoryDirectory("logs").child("flights-0")
    return LogDirectory(tmp_path / "flights-0")


@pytest.fixture
def memory() -> MemoryDirectory:
    """A disk in memory, which a test may fill up or cut off from power."""
    return MemoryDirectory("logs")


@attrs.define(eq=False)
class Writer:
    """Appends and reads back as a leader's handlers do."""

    log: Log
    now_ms: int = T0

    def append(
        self,
        *values: bytes,
        timestamp: int | None = None,
        epoch: int = 0,
        may_sync: bool = True,
        **header: Any,
    ) -> LogAppendInfo:
        """Append one batch of `values`."""
        timestamp = self.now_ms if timestamp is None else timestamp
        batch = encode_batch([(timestamp, None, value, ()) for value in values], **header)
        return self.log.append(
            batch,
            read_header(batch),
            leader_epoch=epoch,
            now_ms=self.now_ms,
            max_timestamp=timestamp,
            may_sync=may_sync,
        )

    def append_many(self, count: int, size: int = 100) -> None:
        """`count` batches of one record that starts with its offset."""
        for _ in range(count):
            self.append(b"%d" % self.log.log_end_offset + b"." * size)

    def values(self, offset: int | None = None, end_offset: int | None = None) -> list[bytes]:
        """Read the values as a consumer does, fetch by fetch, without the filling."""
        read_values: list[bytes] = []
        offset = self.log.log_start_offset if offset is None else offset
        end_offset = self.log.log_end_offset if end_offset is None else end_offset
        while (fetched := self.log.read(offset, 1000, end_offset)) is not None:
            records = decode_records(fetched.read(), offset)
            if not records:
                break
            read_values += [(record.value or b"").rstrip(b".") for record in records]
            offset = records[-1].offset + 1
        return read_values

    def numbers(self, offset: int | None = None) -> list[int]:
        """The values of `append_many`."""
        return [int(value) for value in self.values(offset)]


@pytest.fixture
def open_log() -> Callable[..., Writer]:
    """Open a log: `open_log(directory, recovery_point=…, clean=…, **settings)`."""

    def open_log(
        directory: Directory,
        *,
        recovery_point: int = 0,
        clean: bool = True,
        log_start_offset: int = 0,
        now_ms: int = T0,
        **settings: Any,
    ) -> Writer:
        clock = [lambda: now_ms]
        log = load_log(
            directory,
            FLIGHTS_0,
            LogConfig(**settings),
            recovery_point=recovery_point,
            clean_shutdown=clean,
            monotonic_ms=lambda: clock[0](),
            log_start_offset=log_start_offset,
        )
        writer = Writer(log, now_ms)
        clock[0] = lambda: writer.now_ms
        return writer

    return open_log


@pytest.fixture
def flush() -> Callable[[Writer], None]:
    """Run a flush to its end."""

    def flush(writer: Writer) -> None:
        begun = writer.log.begin_flush()
        begun.run()
        writer.log.end_flush(begun)

    return flush


def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all reads from now on."""
    sizes: list[int] = []
    real = MemoryFile.read

    def noted(self: MemoryFile, start: int, size: int) -> bytes:
        data = real(self, start, size)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(MemoryFile, "read", noted)
    return sizes
