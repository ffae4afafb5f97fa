"""All logs of a broker."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core_log.checkpoint import CLEANER_OFFSETS, HIGH_WATERMARKS, RECOVERY_POINTS, decode_offsets
from core_log.config import LogConfig
from core_log.directory import LogDirectory
from core_log.log import Log
from core_log.log_dir import CLEAN_SHUTDOWN
from core_log.log_manager import REMOVAL_RETRY_MS, LogDirectoryError, LogManager
from core_log.memory_directory import MemoryDirectory
from core_log.meta_properties import MetaProperties
from core_log.storage import Directory
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch import decode_records, encode_batch, read_header
from protocol.topic_partition import TopicPartition

T0 = 1_000_000
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b.c-d", 0)


class Clock:
    """A wall clock that stands still."""

    def __init__(self) -> None:
        self.ms = T0

    def __call__(self) -> int:
        return self.ms


def loaded(*dirs: Directory, clock: Callable[[], int] | None = None, **config: Any) -> LogManager:
    manager = LogManager(dirs, LogConfig(**config), clock or Clock())
    manager.load()
    return manager


def append(manager: LogManager, topic_partition: TopicPartition, count: int = 1) -> None:
    for _ in range(count):
        batch = encode_batch([(T0, None, b"abc", ())])
        manager.get_or_create(topic_partition, manager.defaults).append(
            batch, read_header(batch), leader_epoch=0, now_ms=T0, max_timestamp=T0
        )


def flush(log: Log) -> None:
    begun = log.begin_flush()
    begun.run()
    log.end_flush(begun)


def test_logs_are_found_again_after_a_clean_stop(directory: Directory) -> None:
    manager = loaded(directory)
    append(manager, A0, 3)
    append(manager, B0, 2)
    manager.close()
    assert directory.read(CLEAN_SHUTDOWN) == b""
    assert decode_offsets(directory.read(RECOVERY_POINTS)) == {A0: 3, B0: 2}
    again = loaded(directory)
    assert {tp: log.log_end_offset for tp, log in again.logs.items()} == {A0: 3, B0: 2}
    assert again.get(A1) is None
    assert directory.read(CLEAN_SHUTDOWN) is None
    again.close()


def test_log_that_is_not_here_is_none_and_is_not_made(memory: MemoryDirectory) -> None:
    manager = loaded(memory)
    assert manager.get(A0) is None
    assert manager.dir_of(A0) is None
    assert memory.children() == []


def test_logs_are_recovered_after_a_crash(directory: Directory) -> None:
    manager = loaded(directory)
    append(manager, A0, 3)
    manager.close(clean=False)
    again = loaded(directory)
    assert again.logs[A0].log_end_offset == 3
    append(again, A0)
    again.close()


def test_crash_after_a_clean_stop_is_a_crash(memory: MemoryDirectory) -> None:
    manager = loaded(memory)
    append(manager, A0, 3)
    manager.close()
    again = loaded(memory)
    append(again, A0, 2)
    memory.lose_power(lambda synced, now: now[:-1])
    third = loaded(memory)
    assert third.logs[A0].log_end_offset == 4


def test_new_logs_go_where_there_are_fewest() -> None:
    dirs = [MemoryDirectory("one"), MemoryDirectory("two"), MemoryDirectory("three")]
    manager = loaded(*dirs)
    for partition in range(10):
        manager.get_or_create(TopicPartition("a", partition), LogConfig())
    assert sorted(len(directory.children()) for directory in dirs) == [3, 3, 4]


def test_directory_in_use_is_refused(directory: Directory) -> None:
    manager = loaded(directory)
    again = directory if isinstance(directory, MemoryDirectory) else LogDirectory(directory.path)
    with pytest.raises(LogDirectoryError, match="locked by another broker"):
        loaded(again)
    manager.close()
    loaded(again).close()


@pytest.mark.parametrize("spelling", ["{}/", "logs", "./logs/", "../{name}/logs"])
def test_checkpoint_is_found_however_the_directory_was_spelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = spelling.format(tmp_path / "logs", name=tmp_path.name)
    manager = loaded(LogDirectory(path))
    monkeypatch.chdir("/")
    append(manager, A0, 3)
    manager.close()
    checkpoint = (tmp_path / "logs" / RECOVERY_POINTS).read_bytes()
    assert decode_offsets(checkpoint) == {A0: 3}
    again = loaded(LogDirectory(tmp_path / "logs"))
    assert again.logs[A0].recovery_point == 3
    again.close()


def test_same_directory_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogDirectoryError, match="twice"):
        loaded(LogDirectory(tmp_path), LogDirectory(f"{tmp_path}/x/../"))


def test_stray_directory_is_named(memory: MemoryDirectory) -> None:
    memory.child("lost+found")
    with pytest.raises(LogDirectoryError, match=r"'lost\+found' is not named topic-partition"):
        loaded(memory)


def test_partition_in_two_directories_is_refused() -> None:
    dirs = [MemoryDirectory("one"), MemoryDirectory("two")]
    for directory in dirs:
        directory.child("a-0")
    with pytest.raises(
        LogDirectoryError, match=r"a-0 is in two directories.*/one/a-0 ends at .*/two/a-0 ends"
    ):
        loaded(*dirs)


def test_topics_own_settings_are_used_when_loading(memory: MemoryDirectory) -> None:
    memory.child("a-0")
    manager = LogManager([memory], LogConfig(), Clock())
    manager.load({"a": LogConfig(segment_bytes=99)})
    assert manager.logs[A0].config.segment_bytes == 99


def test_deleted_partition_goes_after_the_delay(directory: Directory) -> None:
    clock = Clock()
    manager = loaded(directory, clock=clock, file_delete_delay_ms=100)
    append(manager, A0)
    append(manager, A1)
    log = manager.logs[A0]
    manager.delete(A0)
    assert manager.get(A0) is None
    assert [name[-7:] for name in directory.children()] == ["-delete", "a-1"]
    with pytest.raises(ApiError):
        log.roll(T0)
    manager.tick(T0 + 99)
    assert len(directory.children()) == 2
    manager.tick(T0 + 100)
    assert directory.children() == ["a-1"]
    manager.delete(A0)
    manager.close()


def test_deleted_partition_is_read_on_by_who_has_begun_to(directory: Directory) -> None:
    manager = loaded(directory, file_delete_delay_ms=100)
    append(manager, A0, 2)
    log = manager.logs[A0]
    begun = log.read(0, 1000, 2)
    manager.delete(A0)
    (leaving,) = directory.children()
    assert log.directory.name == leaving
    assert "00000000000000000000.log" in log.directory.files()
    manager.tick(T0 + 100)
    assert directory.children() == []
    assert begun is not None
    assert [record.value for record in decode_records(begun.read())] == [b"abc"] * 2
    manager.close()


def test_log_nothing_was_written_to_is_there_after_a_power_loss(memory: MemoryDirectory) -> None:
    manager = loaded(memory)
    manager.get_or_create(A0, manager.defaults)
    manager.sync_names()
    memory.lose_power()
    assert loaded(memory).get(A0) is not None


def test_what_was_cut_off_before_a_new_segment_stays_away_after_a_power_loss(
    memory: MemoryDirectory,
) -> None:
    manager = loaded(memory)
    append(manager, A0, 3)
    log = manager.logs[A0]
    flush(log)
    log.truncate_to(2)
    log.roll(T0)
    append(manager, A0)
    flush(log)
    manager.checkpoint_recovery_points()
    memory.lose_power()
    first, second = loaded(memory).logs[A0].segments
    assert (first.size, second.base_offset) == (2 * second.size, 2)


def test_partition_made_again_starts_anew_even_after_a_crash(memory: MemoryDirectory) -> None:
    manager = loaded(memory)
    append(manager, A0, 5)
    manager.checkpoint_recovery_points()
    append(manager, A1, 5)
    log_dir = manager.dir_of(A0)
    assert log_dir is not None
    log_dir.cleaned.save_offset(A0, 3)
    log_dir.cleaned.save_offset(A1, 4)
    manager.delete(A0)
    manager.tick(T0)
    append(manager, A0)
    assert manager.logs[A0].log_end_offset == 1
    assert A0 not in decode_offsets(memory.read(RECOVERY_POINTS))
    assert decode_offsets(memory.read(CLEANER_OFFSETS)) == {A1: 4}


def test_partition_made_again_waits_until_its_old_recovery_point_can_go(
    memory: MemoryDirectory,
) -> None:
    manager = loaded(memory)
    append(manager, A0, 5)
    flush(manager.logs[A0])
    manager.checkpoint_recovery_points()
    manager.delete(A0)
    memory.disk.free_bytes = 0
    for _ in range(2):
        with pytest.raises(ApiError, match="No space left"):
            manager.get_or_create(A0, manager.defaults)

    memory.disk.free_bytes = None
    manager.get_or_create(A0, manager.defaults)

    assert A0 not in decode_offsets(memory.read(RECOVERY_POINTS))


def test_truncation_that_a_full_disk_refused_lowers_the_recovery_point_later(
    memory: MemoryDirectory,
) -> None:
    manager = loaded(memory)
    append(manager, A0, 5)
    log = manager.logs[A0]
    flush(log)
    manager.checkpoint_recovery_points()
    memory.disk.free_bytes = 0
    with pytest.raises(ApiError, match="No space left"):
        log.truncate_to(2)
    assert log.log_end_offset == 5

    memory.disk.free_bytes = None
    log.guard.clear_lack_of_room()
    log.truncate_to(2)

    assert decode_offsets(memory.read(RECOVERY_POINTS)) == {A0: 2}


def test_deletion_is_finished_at_the_next_start(memory: MemoryDirectory) -> None:
    manager = loaded(memory)
    append(manager, A0)
    manager.delete(A0)
    manager.close(clean=False)
    again = loaded(memory)
    assert again.logs == {}
    again.tick(T0)
    assert memory.children() == []


def test_recovery_points_are_kept_per_directory_as_they_were_flushed() -> None:
    dirs = [MemoryDirectory("one"), MemoryDirectory("two")]
    manager = loaded(*dirs)
    for partition in (A0, A1, B0):
        append(manager, partition, 5)
    flush(manager.logs[A0])
    append(manager, A0, 2)
    flush(manager.logs[B0])
    manager.checkpoint_recovery_points()
    kept = [decode_offsets(directory.read(RECOVERY_POINTS)) for directory in dirs]
    assert sorted(len(offsets) for offsets in kept) == [1, 2]
    assert kept[0] | kept[1] == {A0: 5, A1: 0, B0: 5}
    for directory, offsets in zip(dirs, kept, strict=True):
        assert sorted(directory.children()) == sorted(map(str, offsets))


def test_high_watermarks_are_kept_per_directory() -> None:
    dirs = [MemoryDirectory("one"), MemoryDirectory("two")]
    manager = loaded(*dirs)
    append(manager, A0)
    append(manager, B0)
    manager.checkpoint_high_watermarks({A0: 1, B0: 0})
    assert [len(decode_offsets(d.read(HIGH_WATERMARKS))) for d in dirs] == [1, 1]
    assert manager.read_high_watermarks() == {A0: 1, B0: 0}


def test_unreadable_checkpoint_counts_as_empty(memory: MemoryDirectory) -> None:
    manager = loaded(memory)
    append(manager, A0, 2)
    manager.close(clean=False)
    memory.write_atomic(RECOVERY_POINTS, b"rubbish\nrubbish\n")
    assert loaded(memory).logs[A0].log_end_offset == 2


def test_log_start_within_a_segment_survives(memory: MemoryDirectory) -> None:
    manager = loaded(memory)
    append(manager, A0, 5)
    manager.logs[A0].increment_log_start_offset(3)
    manager.close()
    assert loaded(memory).logs[A0].log_start_offset == 3


def test_meta_properties_are_stored_in_every_directory() -> None:
    dirs = [MemoryDirectory("one"), MemoryDirectory("two")]
    manager = loaded(*dirs)
    assert [*manager.read_meta_properties().values()] == []
    manager.write_meta_properties(MetaProperties(3, "abc"))
    assert [*manager.read_meta_properties().values()] == [MetaProperties(3, "abc")] * 2


def test_meta_properties_keep_what_another_version_added(memory: MemoryDirectory) -> None:
    memory.write_atomic("meta.properties", b"version=0\nbroker.id=3\nlater=yes\n")
    manager = loaded(memory)
    manager.write_meta_properties(MetaProperties(3, "abc"))
    assert [*manager.read_meta_properties().values()] == [
        MetaProperties(3, "abc", {"later": "yes"})
    ]


def test_retention_goes_over_the_logs_whose_high_watermark_is_known(
    memory: MemoryDirectory,
) -> None:
    manager = loaded(memory, segment_bytes=80, retention_ms=10)
    append(manager, A0, 3)
    append(manager, B0, 3)
    assert manager.delete_old_segments({A0: 3, A1: 7}, T0 + 11) == 3
    assert (manager.logs[A0].log_start_offset, manager.logs[B0].log_start_offset) == (3, 0)


def test_expired_segments_go_with_all_their_files(directory: Directory) -> None:
    manager = loaded(directory, segment_bytes=80, retention_ms=10, file_delete_delay_ms=100)
    append(manager, A0, 200)
    log = manager.logs[A0]
    assert len(log.segments) == 200
    assert manager.delete_old_segments({A0: 200}, T0 + 11) == 200
    flush = log.begin_flush()
    flush.run()
    log.end_flush(flush)
    manager.tick(T0 + 111)
    assert log.directory.files() == [
        "00000000000000000200.index",
        "00000000000000000200.log",
        "00000000000000000200.snapshot",
        "00000000000000000200.timeindex",
        "leader-epoch-checkpoint",
    ]
    with pytest.raises(ApiError) as raised:
        log.read(0, 1024, 200)
    assert raised.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(200, 1024, 200) is None
    append(manager, A0)
    assert log.log_end_offset == 201
    manager.close()


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of files that cannot be removed."""
    names: set[str] = set()
    remove = MemoryDirectory.remove

    def remove_others(directory: MemoryDirectory, name: str) -> None:
        if name in names:
            raise OSError(errno.EPERM, "Operation not permitted", name)
        remove(directory, name)

    monkeypatch.setattr(MemoryDirectory, "remove", remove_others)
    return names


def test_file_that_cannot_be_removed_keeps_no_other_and_is_tried_again(
    memory: MemoryDirectory, stuck: set[str]
) -> None:
    manager = loaded(memory, segment_bytes=80, retention_ms=10, file_delete_delay_ms=100)
    append(manager, A0, 3)
    assert manager.delete_old_segments({A0: 3}, T0 + 11) == 3
    flush(manager.logs[A0])
    stuck.add(kept := f"{0:020}.log.deleted")

    def deleted() -> list[str]:
        return [name for name in manager.logs[A0].directory.files() if name.endswith(".deleted")]

    manager.tick(T0 + 111)
    assert deleted() == [kept]
    stuck.clear()
    manager.tick(T0 + 111 + REMOVAL_RETRY_MS)
    assert deleted() == []


@pytest.mark.fault("strangers-116")
def test_deleted_log_with_a_file_that_cannot_be_removed_keeps_no_other(
    memory: MemoryDirectory, stuck: set[str]
) -> None:
    manager = loaded(memory, file_delete_delay_ms=100)
    for topic_partition in (A0, A1, B0):
        append(manager, topic_partition)
        manager.delete(topic_partition)
    (kept,) = (name for name in memory.children() if name.startswith("a-1."))
    memory.child(kept).write_atomic("stuck", b"")
    stuck.add("stuck")
    manager.tick(T0 + 100)
    assert memory.children() == [kept]
    assert memory.child(kept).files() == ["stuck"]
    stuck.clear()
    manager.tick(T0 + 100 + REMOVAL_RETRY_MS)
    assert memory.children() == []


@pytest.mark.fault("strangers-115")
def test_deleted_log_behind_a_link_is_gone_with_its_link(tmp_path: Path) -> None:
    """An admin has moved one partition to another disk."""
    (tmp_path / "other").mkdir()
    (tmp_path / "logs").mkdir()
    (tmp_path / "other" / "a-0").mkdir()
    (tmp_path / "logs" / "a-0").symlink_to(tmp_path / "other" / "a-0")
    manager = loaded(LogDirectory(tmp_path / "logs"), file_delete_delay_ms=100)
    append(manager, A0, 3)
    assert "00000000000000000000.log" in os.listdir(tmp_path / "other" / "a-0")
    manager.delete(A0)
    manager.tick(T0 + 100)
    manager.close()
    assert os.listdir(tmp_path / "other") == []
    assert not [name for name in os.listdir(tmp_path / "logs") if name.startswith("a-0")]


def test_oldest_segments_go_until_the_log_is_small_enough(memory: MemoryDirectory) -> None:
    batch_bytes = len(encode_batch([(T0, None, b"abc", ())]))
    manager = loaded(memory, segment_bytes=10 * batch_bytes, retention_bytes=50 * batch_bytes + 10)
    append(manager, A0, 205)
    log = manager.logs[A0]
    assert manager.delete_old_segments({A0: 205}, T0) == 15
    assert (len(log.segments), log.size) == (6, 55 * batch_bytes)
    assert manager.delete_old_segments({A0: 205}, T0) == 0
    with pytest.raises(ApiError) as raised:
        log.read(149, 1024, 205)
    assert raised.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(150, 1024, 205) is not None
    append(manager, A0)
    assert log.log_end_offset == 206


def test_full_disk_refuses_what_does_not_fit_and_is_closed_clean_with_room(
    memory: MemoryDirectory,
) -> None:
    manager = loaded(memory)
    append(manager, A0)
    append(manager, A1)
    memory.disk.free_bytes = 10
    with pytest.raises(ApiError) as raised:
        append(manager, A0)
    assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    manager.checkpoint_recovery_points()
    memory.disk.free_bytes = None
    append(manager, A1)
    manager.close()
    assert memory.read(CLEAN_SHUTDOWN) == b""
    again = loaded(memory)
    assert {tp: log.log_end_offset for tp, log in again.logs.items()} == {A0: 1, A1: 2}


def test_full_disk_that_stays_full_is_not_marked_clean(memory: MemoryDirectory) -> None:
    manager = loaded(memory)
    append(manager, A0)
    memory.disk.free_bytes = 10
    with pytest.raises(ApiError):
        append(manager, A0)
    manager.close()
    assert memory.read(CLEAN_SHUTDOWN) is None
    memory.disk.free_bytes = None
    assert loaded(memory).logs[A0].log_end_offset == 1


def test_log_that_cannot_be_loaded_leaves_the_others_served(memory: MemoryDirectory) -> None:
    manager = loaded(memory)
    append(manager, A0)
    append(manager, A1)
    manager.close()
    memory.child("a-0").write_atomic("rubbish.log", b"")
    again = loaded(memory)
    assert list(again.logs) == [A1]
    with pytest.raises(ApiError, match="rubbish"):
        again.get_or_create(A0, LogConfig())
    again.close()
    assert memory.read(CLEAN_SHUTDOWN) is None


def test_progress_of_a_long_recovery_is_told(
    memory: MemoryDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    for partition in range(40):
        memory.child(f"a-{partition}")
    ticking = iter(range(0, 10**9, 500))
    with caplog.at_level(logging.INFO):
        LogManager([memory], LogConfig(), lambda: next(ticking)).load()
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "/logs: loading 40 logs with recovery"
    assert any("of 40 logs loaded" in line for line in lines[1:-1])
    assert lines[-1].startswith("/logs: 40 logs loaded in")


def test_two_hundred_closed_logs_are_loaded_with_less_than_a_second_of_cpu(tmp_path: Path) -> None:
    manager = loaded(LogDirectory(tmp_path))
    for partition in range(200):
        append(manager, TopicPartition("a", partition), 3)
    manager.close()
    started = time.process_time()
    again = loaded(LogDirectory(tmp_path))
    took_s = time.process_time() - started
    assert sum(log.log_end_offset for log in again.logs.values()) == 600
    again.close(clean=False)
    assert took_s < 1


def test_producers_that_are_silent_are_forgotten_in_every_log(memory: MemoryDirectory) -> None:
    manager = loaded(memory)
    batch = encode_batch([(T0, None, b"a", ())], producer_id=1, producer_epoch=0, base_sequence=0)
    logs = [manager.get_or_create(partition, manager.defaults) for partition in (A0, B0)]
    for log in logs:
        log.append(batch, read_header(batch), leader_epoch=0, now_ms=T0, max_timestamp=T0)
    assert len(list(manager.expire_producers(T0 + 999, 1000))) == 2
    assert [len(log.producers.producers) for log in logs] == [1, 1]
    assert len(list(manager.expire_producers(T0 + 1000, 1000))) == 2
    assert [len(log.producers.producers) for log in logs] == [0, 0]
