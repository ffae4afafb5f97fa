"""A disk without room, in the middle of any work."""

from __future__ import annotations

import contextlib
import errno
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from core_log.config import LogConfig
from core_log.directory import LogDirectory
from core_log.log import Log
from core_log.log_manager import LogManager
from core_log.memory_directory import Disk, MemoryDirectory
from core_log.segments import index_file
from core_log.storage import Directory, SyncFailed
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch import encode_batch, read_header
from tests.core_log.life_of_logs import A0, B0, NOW_MS, Beginning, Life

BEGINNINGS = {"empty": (), "closed": (True,), "killed": (False,)}


@pytest.mark.parametrize("runs", BEGINNINGS.values(), ids=BEGINNINGS)
def test_a_write_without_room_loses_nothing_and_stops_no_other_log(runs: tuple[bool, ...]) -> None:
    refusals = 0
    for fault, life in Beginning.after(*runs).failures(errno.ENOSPC, of_reads=False):
        assert fault.struck is not None
        path, _ = fault.struck
        refusals += sum(life.refused.values())
        if path.endswith("/a-0"):
            assert life.refused[B0] == 0, fault
        if path.endswith("/b-0"):
            assert life.refused[A0] == 0, fault
    assert refusals > 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 300 KB."""
    yield from mounted(tmp_path, "300k")


def mounted(path: Path, size: str) -> Iterator[Path]:
    """Mount a real file system of that size."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting is not permitted here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def test_a_real_disk_that_is_full_and_has_room_again(small_disk: Path) -> None:
    filling = small_disk / "filling"
    filling.write_bytes(bytes(150_000))
    life = Life()
    for _ in range(8):
        life.run(LogDirectory(small_disk / "logs"), close=True)
        # Unbuffered: how much Python keeps until the close differs from version to version.
        with contextlib.suppress(OSError), filling.open("ab", buffering=0) as file:
            file.write(bytes(20_000))
    assert sum(life.refused.values()) > 0
    assert min(map(len, life.kept.values())) > 10
    filling.unlink()
    life.check(LogDirectory(small_disk / "logs"))


@pytest.mark.parametrize("runs", BEGINNINGS.values(), ids=BEGINNINGS)
def test_when_there_is_room_again_the_same_run_goes_on(runs: tuple[bool, ...]) -> None:
    final: dict[str, set[str]] = {"/logs/a-0": set(), "/logs/b-0": set()}
    for fault, life in Beginning.after(*runs).failures(errno.ENOSPC, of_reads=False, heals=True):
        if life.failed:
            assert fault.struck is not None
            path, operation = fault.struck
            final[path].add(operation.split()[0])

    # What cannot be taken back is final: a sync that failed, a truncation half done.
    assert not final["/logs/b-0"]  # which is appended to, and no more
    assert "fsync" in final["/logs/a-0"]
    assert not final["/logs/a-0"] & {"append", "reserve", "child"}


MIB = 2**20
OFFSET_ENTRY_BYTES = 8
SMALL = LogConfig(segment_bytes=2 * MIB, retention_bytes=3 * MIB, file_delete_delay_ms=1000)


@pytest.fixture
def larger_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 12 MiB."""
    yield from mounted(tmp_path, "12m")


def test_logs_that_filled_the_disk_are_cut_by_retention_and_written_again() -> None:
    fill_and_retain(MemoryDirectory("logs", Disk(free_bytes=12 * MIB)))


def test_the_same_on_a_real_disk(larger_disk: Path) -> None:
    fill_and_retain(LogDirectory(larger_disk / "logs"))


def fill_and_retain(directory: Directory) -> None:
    """Write to a log until its disk is full, and then do what helps."""
    manager = LogManager([directory], SMALL, lambda: NOW_MS)
    manager.load()
    log = manager.get_or_create(A0, SMALL)
    (log_dir,) = manager.dirs
    while is_appended(log):
        assert log.log_end_offset < 100
    end = log.log_end_offset
    assert (log.guard.is_full, manager.full_dirs()) == (True, [log_dir])
    with pytest.raises(OSError, match="No space left"):
        log_dir.probe_room()

    # What was acknowledged is read, and nothing is appended before somebody has found room.
    assert log.read(0, 100, end) is not None
    assert not is_appended(log)
    assert manager.delete_old_segments({A0: end}, NOW_MS) > 0
    assert not is_appended(log)
    manager.tick(NOW_MS + 1000)

    log_dir.probe_room()
    log_dir.resume_writes()
    assert manager.full_dirs() == []
    assert is_appended(log)
    assert log.log_end_offset == end + 1

    manager.close()
    again = LogManager([directory], SMALL, lambda: NOW_MS)
    again.load()
    assert again.logs[A0].log_end_offset == end + 1
    assert again.logs[A0].log_start_offset > 0
    again.close()


def test_deleting_a_log_helps_though_not_one_byte_is_left() -> None:
    disk = Disk(free_bytes=12 * MIB)
    manager = LogManager([MemoryDirectory("logs", disk)], SMALL, lambda: NOW_MS)
    manager.load()
    log, other = (manager.get_or_create(tp, SMALL) for tp in (A0, B0))
    while is_appended(log):
        assert log.log_end_offset < 100
    disk.free_bytes = 0
    assert not is_appended(other)

    manager.delete(A0)
    manager.tick(NOW_MS + 1000)

    (log_dir,) = manager.dirs
    assert log_dir.directory.children() == ["b-0"]
    log_dir.probe_room()
    log_dir.resume_writes()
    assert is_appended(other)


def test_an_entry_of_one_index_is_taken_back_if_the_other_has_no_room_for_its(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index_file, "GATHERED_BYTES", 1)
    disk, config = Disk(), LogConfig(index_interval_bytes=0)
    manager = LogManager([MemoryDirectory("logs", disk)], config, lambda: NOW_MS)
    manager.load()
    log = manager.get_or_create(A0, config)
    assert is_appended(log, 10)
    batch_bytes = log.segments.active.size
    assert is_appended(log, 10, NOW_MS + 1)
    disk.free_bytes = batch_bytes + OFFSET_ENTRY_BYTES + 1
    assert not is_appended(log, 10, NOW_MS + 2)
    disk.free_bytes = None
    log.guard.clear_lack_of_room()
    assert is_appended(log, 10, NOW_MS + 2)
    assert log.log_end_offset == 3


def test_a_segment_that_no_other_could_follow_is_written_on() -> None:
    disk = Disk()
    config = LogConfig(segment_bytes=400, index_interval_bytes=0, preallocate=True)
    manager = LogManager([MemoryDirectory("logs", disk)], config, lambda: NOW_MS)
    manager.load()
    log = manager.get_or_create(A0, config)
    assert is_appended(log, 10)
    disk.free_bytes = 15  # an entry of the time index, and not the next segment
    assert not is_appended(log, 300)
    disk.free_bytes = None
    log.guard.clear_lack_of_room()
    assert is_appended(log, 10)
    assert len(log.segments) == 1
    assert is_appended(log, 300)
    assert len(log.segments) == 2


def test_a_lack_of_room_does_not_end_another_failure() -> None:
    manager = LogManager([MemoryDirectory("logs")], SMALL, lambda: NOW_MS)
    manager.load()
    log = manager.get_or_create(A0, SMALL)
    log.guard.refuse(OSError(errno.ENOSPC, "full"))
    log.guard.fail(OSError(errno.EIO, "broken"))
    (log_dir,) = manager.dirs
    assert not log_dir.is_full
    log_dir.resume_writes()
    assert not is_appended(log)


def test_a_sync_that_fails_for_a_lack_of_room_is_final() -> None:
    manager = LogManager([MemoryDirectory("logs")], SMALL, lambda: NOW_MS)
    manager.load()
    log = manager.get_or_create(A0, SMALL)
    log.fail_flush(SyncFailed(errno.ENOSPC, "full"))
    assert (log.failure, log.guard.is_full) == ("[Errno 28] full", False)


def is_appended(log: Log, size: int = MIB, time_ms: int = NOW_MS) -> bool:
    """Append a record of so many bytes; False where it is refused as a full disk's are."""
    batch = encode_batch([(time_ms, None, bytes(size), ())])
    try:
        header = read_header(batch)
        log.append(batch, header, leader_epoch=0, now_ms=NOW_MS, max_timestamp=time_ms)
    except ApiError as error:
        if error.code != ErrorCode.KAFKA_STORAGE_ERROR:
            raise
        return False
    return True
