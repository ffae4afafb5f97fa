"""cleaner-offset-checkpoint: never more than is true."""

from __future__ import annotations

import pytest

from core_log.checkpoint import CLEANER_OFFSETS, decode_offsets
from core_log.cleaner_offsets import CleanerOffsets
from core_log.config import LogConfig
from core_log.log_manager import LogManager
from core_log.memory_directory import MemoryDirectory
from protocol.errors import ApiError
from protocol.records.batch import encode_batch, read_header
from protocol.topic_partition import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def loaded(*directories: MemoryDirectory) -> LogManager:
    for directory in directories:
        directory.unlock()
    manager = LogManager(directories, LogConfig(), lambda: 0)
    manager.load()
    return manager


def with_records(manager: LogManager, count: int) -> None:
    log = manager.get_or_create(A0, LogConfig())
    for _ in range(count):
        batch = encode_batch([(0, b"k", b"v", ())])
        log.append(batch, read_header(batch), leader_epoch=0, now_ms=0, max_timestamp=0)


def cleaned(manager: LogManager) -> CleanerOffsets:
    log_dir = manager.dir_of(A0)
    assert log_dir is not None
    return log_dir.cleaned


def stored(directory: MemoryDirectory) -> dict[TopicPartition, int]:
    return decode_offsets(directory.read(CLEANER_OFFSETS))


@pytest.mark.parametrize(("offset", "left"), [(5, 4), (4, 4), (3, 3), (0, 0)])
def test_a_truncation_lowers_the_entry_at_once(
    memory: MemoryDirectory, offset: int, left: int
) -> None:
    manager = loaded(memory)
    with_records(manager, 6)
    cleaned(manager).save_offset(A0, 4)
    manager.logs[A0].truncate_to(offset)
    assert stored(memory) == {A0: left}
    with_records(manager, 6)
    assert cleaned(loaded(memory)).get(A0) == left


def test_a_log_that_begins_anew_has_nothing_clean(memory: MemoryDirectory) -> None:
    manager = loaded(memory)
    with_records(manager, 6)
    cleaned(manager).save_offset(A0, 4)
    manager.logs[A0].truncate_fully_and_start_at(2)
    assert stored(memory) == {A0: 0}


def test_what_recovery_cut_is_not_clean(memory: MemoryDirectory) -> None:
    manager = loaded(memory)
    with_records(manager, 6)
    cleaned(manager).save_offset(A0, 6)
    manager.logs[A0].segments.active.log.truncate(manager.logs[A0].size // 2)
    assert cleaned(loaded(memory)).get(A0) == 3


def test_an_entry_of_a_log_that_went_is_not_its_successors(memory: MemoryDirectory) -> None:
    manager = loaded(memory)
    with_records(manager, 6)
    cleaned(manager).save_offset(A0, 6)
    memory.remove_child("a-0")
    again = loaded(memory)
    with_records(again, 6)
    assert cleaned(again).get(A0) == 0


def test_entries_without_a_log_go_when_another_log_is_deleted(memory: MemoryDirectory) -> None:
    memory.write_atomic(CLEANER_OFFSETS, b"0\n2\na 0 3\na 1 4\n")
    manager = loaded(memory)
    with_records(manager, 6)
    manager.delete(A0)
    manager.tick(0)
    assert stored(memory) == {}


def test_an_entry_of_a_deleted_log_goes_when_a_full_disk_has_room_again(
    memory: MemoryDirectory,
) -> None:
    manager = loaded(memory)
    with_records(manager, 6)
    cleaned(manager).save_offset(A0, 6)

    manager.delete(A0)
    memory.disk.free_bytes = 0
    for _ in range(3):
        manager.tick(0)
    assert stored(memory) == {A0: 6}
    memory.disk.free_bytes = None
    manager.tick(0)

    assert stored(memory) == {}
    with_records(manager, 6)
    assert cleaned(loaded(memory)).get(A0) is None


def test_entries_that_could_not_be_written_are_written_by_the_next_save(
    memory: MemoryDirectory,
) -> None:
    offsets = CleanerOffsets(memory)
    offsets.save_offset(A0, 4)
    offsets.save_offset(A1, 5)
    offsets.delete(A0)
    memory.disk.free_bytes = 0
    with pytest.raises(OSError, match="No space left"):
        offsets.save()

    memory.disk.free_bytes = None
    offsets.save()

    assert stored(memory) == {A1: 5}


def test_a_truncation_that_a_full_disk_refused_lowers_the_entry_later(
    memory: MemoryDirectory,
) -> None:
    manager = loaded(memory)
    with_records(manager, 6)
    cleaned(manager).save_offset(A0, 6)
    log = manager.logs[A0]
    memory.disk.free_bytes = 0
    with pytest.raises(ApiError, match="No space left"):
        log.truncate_to(4)
    assert (log.log_end_offset, stored(memory)) == (6, {A0: 6})

    memory.disk.free_bytes = None
    log.guard.clear_lack_of_room()
    log.truncate_to(4)

    assert stored(memory) == {A0: 4}


def test_an_entry_moves_with_its_log() -> None:
    here, there = MemoryDirectory("here"), MemoryDirectory("there")
    source, target = CleanerOffsets(here), CleanerOffsets(there)
    source.save_offset(A0, 4)
    source.save_offset(A1, 5)
    source.move(A0, target)
    source.move(A0, target)
    source.save()
    target.save()
    assert (stored(here), stored(there)) == ({A1: 5}, {A0: 4})


def test_a_checkpoint_that_cannot_be_read_counts_as_empty(memory: MemoryDirectory) -> None:
    memory.write_atomic(CLEANER_OFFSETS, b"0\nmany\n")
    manager = loaded(memory)
    with_records(manager, 1)
    assert cleaned(manager).get(A0) is None
