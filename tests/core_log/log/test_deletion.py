"""Segments and records that are deleted."""

from __future__ import annotations

import pytest

from core_log.memory_directory import MemoryDirectory
from core_log.storage import Directory
from protocol.errors import ApiError
from tests.core_log.log.reading_back import ONE, T0, Open, bases


def test_old_segments_go_in_two_steps(directory: Directory, open_log: Open) -> None:
    writer = open_log(directory, segment_bytes=3 * ONE, retention_ms=1000, file_delete_delay_ms=50)
    for number in range(7):
        writer.append(b"abc", timestamp=T0 + 1000 * (number // 3))
    assert writer.log.delete_old_segments(7, T0 + 2001) == 2
    assert (bases(writer), writer.log.log_start_offset) == ([6], 6)
    deleted = [name for name in directory.files() if name.endswith(".deleted")]
    assert deleted[0] == "00000000000000000000.index.deleted"
    assert len(deleted) == 6
    writer.log.tick(T0 + 49)
    assert len([name for name in directory.files() if name.endswith(".deleted")]) == 6
    writer.log.tick(T0 + 50)
    assert [name for name in directory.files() if name.endswith(".deleted")] == []


def test_deletion_of_everything_keeps_the_log_end(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory, segment_bytes=3 * ONE, retention_ms=10)
    for epoch in range(7):
        writer.append(b"abc", epoch=epoch)
    assert writer.log.delete_old_segments(7, T0 + 11) == 3
    assert (bases(writer), writer.log.log_start_offset, writer.log.log_end_offset) == ([7], 7, 7)
    assert writer.log.leader_epochs.entries == [(6, 7)]
    assert writer.log.delete_old_segments(7, T0 + 99) == 0
    assert writer.append(b"abc").base_offset == 7


def test_nothing_above_the_high_watermark_is_deleted(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory, segment_bytes=5 * ONE, retention_ms=10)
    for _ in range(20):
        writer.append(b"abc")
    for high_watermark in range(20):
        writer.log.delete_old_segments(high_watermark, T0 + 1000)
        assert writer.log.log_start_offset <= high_watermark


def test_deleted_records_are_out_of_range_before_their_segment_goes(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory, segment_bytes=5 * ONE, retention_ms=-1)
    for _ in range(15):
        writer.append(b"abc")
    assert writer.log.increment_log_start_offset(6)
    assert not writer.log.increment_log_start_offset(5)
    with pytest.raises(ApiError):
        writer.log.read(5, 1, 15)
    assert writer.log.delete_old_segments(15, T0) == 1
    assert (bases(writer), writer.log.log_start_offset) == ([5, 10], 6)
