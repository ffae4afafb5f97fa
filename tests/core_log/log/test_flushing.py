"""When a flush is due, and what it covers; a log that is closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core_log.flush import SYNCED_AHEAD_BYTES
from core_log.log import WRITE_BACK_BYTES
from core_log.memory_directory import MemoryDirectory
from core_log.storage import Directory, StorageFile
from protocol.errors import ApiError
from tests.core_log.log.reading_back import T0, Open


def test_flush_is_due_by_messages(
    memory: MemoryDirectory, open_log: Open, flush: Callable[[Any], None]
) -> None:
    writer = open_log(memory, flush_messages=2)
    writer.append(b"abc")
    assert not writer.log.is_flush_due(T0)
    writer.append(b"abc")
    assert writer.log.is_flush_due(T0)
    flush(writer)
    assert not writer.log.is_flush_due(T0)
    assert writer.log.recovery_point == 2


@pytest.mark.parametrize("cleanup_policy", [("delete",), ("compact",)])
def test_a_compacted_log_is_flushed_ahead_of_the_sync_at_a_roll(
    memory: MemoryDirectory,
    open_log: Open,
    flush: Callable[[Any], None],
    cleanup_policy: tuple[str, ...],
) -> None:
    writer = open_log(memory, cleanup_policy=cleanup_policy)
    for _ in range(SYNCED_AHEAD_BYTES // 2**20):
        assert not writer.log.is_flush_due(T0)
        writer.append(bytes(2**20))
    assert writer.log.is_flush_due(T0) is ("compact" in cleanup_policy)
    flush(writer)
    assert not writer.log.is_flush_due(T0)


def test_the_disk_begins_with_each_few_megabytes_as_they_come_and_anew_with_each_segment(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory, segment_bytes=3 * WRITE_BACK_BYTES)
    write_backs: list[tuple[int, int]] = []
    segments: list[StorageFile] = []

    def write_back(file: StorageFile, start: int, size: int) -> None:
        segments.append(file)
        write_backs.append((start, size))

    writer.log.write_back = write_back
    for _ in range(20):
        writer.append(bytes(2**20))

    first, second = writer.log.segments
    assert segments == [first.log, first.log, second.log, second.log]
    assert [start for start, _ in write_backs] == [0, write_backs[0][1], 0, write_backs[2][1]]
    assert all(WRITE_BACK_BYTES <= size < WRITE_BACK_BYTES + 2**21 for _, size in write_backs)


def test_flush_is_due_by_the_age_of_the_oldest_unflushed_batch(
    memory: MemoryDirectory, open_log: Open, flush: Callable[[Any], None]
) -> None:
    writer = open_log(memory, flush_ms=100)
    assert not writer.log.is_flush_due(T0 + 1000)
    writer.now_ms = T0 + 1000
    writer.append(b"abc")
    writer.now_ms = T0 + 1090
    writer.append(b"abc")
    assert not writer.log.is_flush_due(T0 + 1099)
    assert writer.log.is_flush_due(T0 + 1100)
    flush(writer)
    assert not writer.log.is_flush_due(T0 + 9999)


def test_rolled_segment_is_due_for_a_flush(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory)
    writer.append(b"abc")
    assert not writer.log.is_flush_due(T0)
    writer.log.roll(T0)
    assert writer.log.is_flush_due(T0)


def test_appends_during_a_flush_are_not_taken_for_flushed(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory, flush_messages=1)
    writer.append(b"abc")
    begun = writer.log.begin_flush()
    assert not writer.log.is_flush_due(T0)
    begun.run()
    writer.append(b"def")
    writer.log.end_flush(begun)
    assert writer.log.recovery_point == 1
    assert writer.log.is_flush_due(T0)


def test_flush_overtaken_by_a_truncation_moves_nothing(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory)
    writer.append_many(4)
    begun = writer.log.begin_flush()
    begun.run()
    writer.log.truncate_to(1)
    writer.append_many(5)
    writer.log.end_flush(begun)
    assert writer.log.recovery_point == 0


def test_closed_log_takes_no_writes(directory: Directory, open_log: Open) -> None:
    writer = open_log(directory)
    writer.append(b"abc")
    writer.log.close()
    assert writer.log.recovery_point == 1
    with pytest.raises(ApiError):
        writer.append(b"def")
