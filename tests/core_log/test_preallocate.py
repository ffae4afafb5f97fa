"""preallocate: the active segment's file has the room it will fill, and gives the rest back."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core_log.config import LogConfig
from core_log.directory import LogDirectory
from core_log.memory_directory import MemoryDirectory
from core_log.storage import Directory
from protocol.errors import ApiError, ErrorCode

Open = Callable[..., Any]
FIRST = "00000000000000000000.log"
ROOM = {"preallocate": True, "segment_bytes": 4096}


def test_reserved_room_is_in_the_directory_and_not_in_the_file(directory: Directory) -> None:
    file = directory.open_segment("f")
    file.reserve(1000)
    assert (directory.size("f"), file.size, file.read(0, 10)) == (1000, 0, b"")
    file.append([b"abc"])
    assert (directory.size("f"), file.size, file.read(0, 10)) == (1000, 3, b"abc")
    assert file.range(0, 3).read() == b"abc"
    file.trim()
    assert (directory.size("f"), file.size) == (3, 3)


def test_reserved_room_is_zeros_to_whoever_opens_the_file(directory: Directory) -> None:
    file = directory.open_segment("f")
    file.reserve(10)
    file.append([b"abc"])
    assert directory.open_segment("f").read(0, 20) == b"abc" + bytes(7)


def test_file_that_is_cut_has_no_room_left(directory: Directory) -> None:
    file = directory.open_segment("f")
    file.reserve(1000)
    file.append([b"abcdef"])
    file.truncate(2)
    assert directory.size("f") == 2
    file.append([b"x"])
    assert (directory.size("f"), file.read(0, 9)) == (3, b"abx")


def test_reserved_room_is_really_the_files(tmp_path: Path) -> None:
    LogDirectory(tmp_path).open_segment("f").reserve(1 << 20)
    assert os.stat(tmp_path / "f").st_blocks * 512 >= 1 << 20


def test_active_segment_has_its_room_from_the_beginning(
    directory: Directory, open_log: Open
) -> None:
    writer = open_log(directory, **ROOM)
    writer.append(b"abc")
    assert (directory.size(FIRST), writer.log.size) == (4096, 71)
    assert writer.values() == [b"abc"]


def test_roll_gives_the_rest_back_and_the_next_segment_has_its_own(
    directory: Directory, open_log: Open
) -> None:
    writer = open_log(directory, **ROOM)
    writer.append(b"abc")
    writer.log.roll(writer.now_ms)
    assert directory.size(FIRST) == 71
    assert directory.size("00000000000000000001.log") == 4096


def test_closed_log_has_no_room_and_is_found_as_it_was(
    directory: Directory, open_log: Open
) -> None:
    writer = open_log(directory, **ROOM)
    writer.append_many(3)
    writer.log.close()
    assert directory.size(FIRST) == writer.log.size
    again = open_log(directory, recovery_point=3, **ROOM)
    again.append_many(2)
    assert again.numbers() == [0, 1, 2, 3, 4]


def test_log_is_recovered_from_the_midst_of_its_zeros(directory: Directory, open_log: Open) -> None:
    writer = open_log(directory, **ROOM)
    writer.append_many(3)
    again = open_log(directory, clean=False, **ROOM)
    assert (again.log.log_end_offset, directory.size(FIRST)) == (3, writer.log.size)
    again.append_many(1)
    assert again.numbers() == [0, 1, 2, 3]


def test_power_loss_keeps_what_was_flushed_before_the_zeros(
    memory: MemoryDirectory, open_log: Open, flush: Callable[[Any], None]
) -> None:
    directory = memory.child("flights-0")
    writer = open_log(directory, **ROOM)
    writer.append_many(3)
    flush(writer)
    writer.append_many(2)
    memory.lose_power()
    again = open_log(memory.child("flights-0"), clean=False, recovery_point=3, **ROOM)
    assert again.numbers() == [0, 1, 2]


def test_disk_without_the_room_says_so_before_anything_is_written(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory, **ROOM)
    writer.append(b"abc")
    memory.disk.free_bytes = 1000
    with pytest.raises(ApiError) as raised:
        writer.log.roll(writer.now_ms)
    assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not writer.log.guard.suspects_disk


def test_setting_changed_meanwhile_counts_from_the_next_segment_on(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory)
    writer.append(b"abc")
    writer.log.update_config(LogConfig(preallocate=True, segment_bytes=1024))
    writer.log.roll(writer.now_ms)
    assert [memory.size(name) for name in memory.files() if name.endswith(".log")] == [71, 1024]


def test_rolled_segments_are_read_to_their_end(directory: Directory, open_log: Open) -> None:
    writer = open_log(directory, preallocate=True, segment_bytes=500)
    writer.append_many(20)
    assert writer.numbers() == list(range(20))
    assert writer.log.bytes_between(0, 20) == writer.log.size
