"""Disks that fill up or fail under a log."""

from __future__ import annotations

import pytest

from core_log.memory_directory import MemoryDirectory
from core_log.segments.index_file import GATHERED_BYTES
from core_log.segments.offset_index import ENTRY as OFFSET_ENTRY
from protocol.errors import ApiError, ErrorCode
from tests.core_log.log.reading_back import ONE, T0, Open


def test_full_disk_fails_the_append_and_the_log_but_not_reads(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory)
    writer.append(b"abc")
    memory.disk.free_bytes = ONE - 1
    for _ in range(2):
        with pytest.raises(ApiError) as raised:
            writer.append(b"def")
        assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert memory.size("00000000000000000000.log") == ONE
    memory.disk.free_bytes = None
    with pytest.raises(ApiError):
        writer.append(b"def")
    with pytest.raises(ApiError):
        writer.log.truncate_to(0)
    assert writer.values() == [b"abc"]
    assert not writer.log.is_flush_due(T0 + 10**9)


def test_failed_index_entry_takes_the_batch_back(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory, index_interval_bytes=0)
    # The next entry is the first that is written, with all that were gathered.
    before = 1 + GATHERED_BYTES // OFFSET_ENTRY.size
    for _ in range(before):
        writer.append(b"abc")
    memory.disk.free_bytes = ONE + 4
    with pytest.raises(ApiError):
        writer.append(b"def")
    assert memory.size("00000000000000000000.log") == before * ONE
    assert writer.log.log_end_offset == before


def test_log_that_failed_serves_all_it_had_after_a_restart(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory, segment_bytes=3 * ONE)
    for _ in range(5):
        writer.append(b"abc")
    memory.disk.free_bytes = 20
    with pytest.raises(ApiError):
        writer.append(b"def")
    memory.disk.free_bytes = None
    again = open_log(memory, clean=False)
    assert again.values() == [b"abc"] * 5
    assert again.append(b"def").base_offset == 5
