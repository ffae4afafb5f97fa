"""The real directory and its twin in memory do the same."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from core_log.directory import LogDirectory
from core_log.memory_directory import MemoryDirectory
from core_log.storage import Directory


def test_appended_buffers_are_read_back_at_any_position(directory: Directory) -> None:
    file = directory.open_segment("a.log")
    file.append([b"one", memoryview(b"two"), bytearray(b"three")])
    file.append([b"four"])
    assert (file.size, file.read(3, 8), file.read(11, 100)) == (15, b"twothree", b"four")


def test_write_over_the_end_fills_with_zeros(directory: Directory) -> None:
    file = directory.open_segment("a.index")
    file.write(4, b"xy")
    assert file.read(0, 10) == b"\0\0\0\0xy"


def test_truncate_shortens_and_lengthens(directory: Directory) -> None:
    file = directory.open_segment("a.index")
    file.append([b"abcdef"])
    file.truncate(2)
    file.truncate(4)
    assert file.read(0, 10) == b"ab\0\0"
    assert directory.size("a.index") == 4


def test_truncate_to_the_same_size_keeps_the_modification_time(tmp_path: Path) -> None:
    file = LogDirectory(tmp_path).open_segment("a.log")
    file.append([b"abc"])
    os.utime(tmp_path / "a.log", (1, 1))
    file.truncate(3)
    assert LogDirectory(tmp_path).modified_ms("a.log") == 1000


def test_reopened_file_goes_on_at_its_end(directory: Directory) -> None:
    directory.open_segment("a.log").append([b"abc"])
    file = directory.open_segment("a.log")
    file.append([b"def"])
    assert file.read(0, 6) == b"abcdef"


def test_range_can_be_read_after_the_file_was_removed(directory: Directory) -> None:
    file = directory.open_segment("a.log")
    file.append([b"abcdef"])
    kept = file.range(2, 3)
    directory.remove("a.log")
    del file
    assert kept.read() == b"cde"
    raw = kept.raw
    raw.seek(kept.start)
    assert raw.read(kept.size) == b"cde"
    assert directory.files() == []


def test_range_can_be_sent_by_the_kernel(tmp_path: Path) -> None:
    file = LogDirectory(tmp_path).open_segment("a.log")
    file.append([b"abcdef"])
    sent = file.range(1, 4)
    near, far = socket.socketpair()
    with near, far:
        assert os.sendfile(near.fileno(), sent.raw.fileno(), sent.start, sent.size) == 4
        assert far.recv(10) == b"bcde"


def test_renamed_file_is_found_under_its_new_name_only(directory: Directory) -> None:
    file = directory.open_segment("a.log")
    directory.rename("a.log", "a.log.deleted")
    file.append([b"late"])
    assert directory.files() == ["a.log.deleted"]
    assert directory.read("a.log.deleted") == b"late"
    with pytest.raises(FileNotFoundError):
        directory.rename("a.log", "b.log")


def test_small_files_are_replaced_whole(directory: Directory) -> None:
    assert directory.read("meta") is None
    directory.write_atomic("meta", b"old")
    directory.write_atomic("meta", b"new")
    assert directory.read("meta") == b"new"
    assert directory.files() == ["meta"]


def test_removing_what_is_not_there_is_nothing(directory: Directory) -> None:
    directory.remove("a.log")
    directory.remove_child("gone")
    assert directory.size("a.log") is None


def test_renamed_directory_is_written_under_its_new_name(directory: Directory) -> None:
    child = directory.child("flights-1")
    file = child.open_segment("a.log")
    child.rename_to("flights-1.x-delete")
    child.write_atomic("b", b"1")
    file.append([b"abc"])
    assert directory.children() == ["flights-1.x-delete"]
    assert directory.child("flights-1.x-delete").files() == ["a.log", "b"]
    directory.remove_child("flights-1.x-delete")
    assert directory.children() == []


def test_directory_is_locked_once(directory: Directory) -> None:
    directory.lock()
    again = directory if isinstance(directory, MemoryDirectory) else LogDirectory(directory.path)
    with pytest.raises(BlockingIOError):
        again.lock()
    directory.unlock()
    again.lock()
    again.unlock()


def test_lock_keeps_another_process_out(tmp_path: Path) -> None:
    held = LogDirectory(tmp_path)
    held.lock()
    program = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'r+')\n"
        "try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError: sys.exit(7)\n"
    )
    result = subprocess.run(
        [sys.executable, "-P", "-c", program, str(tmp_path / ".lock")], timeout=30
    )
    held.unlock()
    assert result.returncode == 7


def test_full_disk_takes_all_of_an_append_or_nothing(memory: MemoryDirectory) -> None:
    file = memory.open_segment("a.log")
    file.append([b"abc"])
    memory.disk.free_bytes = 2
    with pytest.raises(OSError, match="No space left") as raised:
        file.append([b"d", b"efg"])
    assert raised.value.errno == errno.ENOSPC
    assert (file.size, file.read(0, 9)) == (3, b"abc")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_write_that_fails_on_a_real_disk_leaves_the_size(tmp_path: Path) -> None:
    os.symlink("/dev/full", tmp_path / "full.log")
    file = LogDirectory(tmp_path).open_segment("full.log")
    with pytest.raises(OSError, match="No space left"):
        file.append([b"abc"])
    assert file.size == 0


def test_power_loss_keeps_what_was_fsynced(memory: MemoryDirectory) -> None:
    partition = memory.child("flights-0")
    file = partition.open_segment("a.log")
    file.append([b"safe"])
    file.fsync()
    partition.fsync_dir()
    file.append([b"lost"])
    partition.open_segment("never-synced.log").append([b"x"])
    memory.lose_power()
    assert memory.child("flights-0").files() == ["a.log"]
    assert memory.child("flights-0").read("a.log") == b"safe"


def test_modification_time_is_what_it_was_set_to(directory: Directory) -> None:
    directory.open_segment("a.log").append([b"abc"])
    directory.set_modified_ms("a.log", 1_600_000_000_123)
    assert directory.modified_ms("a.log") == 1_600_000_000_123


def test_existing_file_is_opened_and_a_missing_one_is_not_made(directory: Directory) -> None:
    directory.open_segment("a.log").append([b"abc"])
    assert directory.open_existing("a.log").read(0, 3) == b"abc"
    with pytest.raises(FileNotFoundError):
        directory.open_existing("b.log")
    assert directory.files() == ["a.log"]


def test_files_are_found_while_another_thread_renames_their_directory(tmp_path: Path) -> None:
    directory = LogDirectory(tmp_path / "t-0")
    directory.open_segment("a.log").append([b"abc"])
    directory.next_path = str(tmp_path / "t-0.x-delete")
    os.rename(directory.path, directory.next_path)  # and the thread has come no further

    assert (directory.size("a.log"), directory.read("a.log")) == (3, b"abc")
    assert directory.open_segment("a.log").read(0, 3) == b"abc"
    assert directory.modified_ms("a.log") > 0
    assert (directory.size("b.log"), directory.read("b.log")) == (None, None)
    with pytest.raises(FileNotFoundError):
        directory.modified_ms("b.log")
    assert not (tmp_path / "t-0").exists()


def test_bytes_that_the_disk_is_told_to_begin_with_are_read_and_appended_to_as_before(
    directory: Directory,
) -> None:
    file = directory.open_segment("a.log")
    file.append([bytes(10_000)])
    file.write_back(0, 10_000)
    directory.remove("a.log")
    file.write_back(5_000, 1_000_000)
    file.append([b"more"])
    assert (file.size, file.read(9_999, 10)) == (10_004, b"\0more")


def test_what_was_just_written_is_cached(directory: Directory) -> None:
    file = directory.open_segment("a.log")
    file.append([bytes(100_000)])
    assert file.range(10, 99_000).is_cached
    assert file.range(10, 0).is_cached


def test_file_that_left_the_page_cache_is_not_cached_until_it_is_read(tmp_path: Path) -> None:
    file = LogDirectory(tmp_path).open_segment("a.log")
    file.append([bytes(100_000)])
    file.fsync()
    os.posix_fadvise(file.raw.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    cold = file.range(0, 100_000)
    if cold.is_cached:
        pytest.skip("nothing leaves the cache of this file system")
    cold.read()
    assert cold.is_cached


def test_file_in_memory_leaves_the_cache_when_it_is_told_to(memory: MemoryDirectory) -> None:
    file = memory.open_segment("a.log")
    file.append([b"abc"])
    file.grow_cold()
    assert not file.range(0, 3).is_cached
    file.read(0, 3)
    assert file.range(0, 3).is_cached
