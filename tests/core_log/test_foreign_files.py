"""What others have put into our directories: files of newer brokers are kept, directories that are
not ours are refused by name and left as they are."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core_log.config import LogConfig
from core_log.directory import LogDirectory
from core_log.log_dir import CLEAN_SHUTDOWN
from core_log.log_manager import LogDirectoryError, LogManager
from core_log.memory_directory import MemoryDirectory
from core_log.meta_properties import InconsistentMetaProperties
from core_log.storage import Directory
from protocol.records.batch import encode_batch, read_header
from protocol.topic_partition import TopicPartition

Open = Callable[..., Any]
T0 = 1_000_000
METADATA = b"version: 0\ntopic_id: rI0PvrWuTxmUcxWV8Zn3fA\n"
"""`partition.metadata`, as 2.8 writes it."""


def loaded(*dirs: Directory) -> LogManager:
    manager = LogManager(dirs, LogConfig(), lambda: T0)
    manager.load()
    return manager


def test_metadata_of_a_partition_outlives_all_that_befalls_its_log(
    directory: Directory, open_log: Open
) -> None:
    directory.write_atomic("partition.metadata", METADATA)
    writer = open_log(directory, segment_bytes=400, retention_ms=0, file_delete_delay_ms=0)
    writer.append_many(20)
    writer.log.truncate_to(10)
    writer.log.delete_old_segments(10, T0 + 10**6)
    writer.log.tick(T0 + 10**7)
    writer.log.truncate_fully_and_start_at(50)
    writer.append_many(2)
    open_log(directory, clean=False).log.close()
    open_log(directory)
    assert directory.read("partition.metadata") == METADATA


def test_metadata_goes_with_its_partition(memory: MemoryDirectory) -> None:
    memory.child("a-0").write_atomic("partition.metadata", METADATA)
    manager = loaded(memory)
    manager.delete(TopicPartition("a", 0))
    (leaving,) = memory.children()
    assert memory.child(leaving).read("partition.metadata") == METADATA
    manager.tick(T0 + 10**6)
    assert memory.children() == []


def test_files_of_others_in_the_log_directory_are_left_alone(directory: Directory) -> None:
    directory.write_atomic("notes.txt", b"of an operator")
    manager = loaded(directory)
    manager.get_or_create(TopicPartition("a", 0), LogConfig())
    manager.close()
    assert directory.read("notes.txt") == b"of an operator"


@pytest.mark.parametrize("stray", ["lost+found", "no_dash", "-0", "a-", "a-b", "a-0.b-delete2"])
def test_directory_that_is_no_partitions_is_refused_before_anything_is_touched(stray: str) -> None:
    first, second = MemoryDirectory("one"), MemoryDirectory("two")
    manager = loaded(first, second)
    manager.get_or_create(TopicPartition("a", 0), LogConfig())
    manager.close()
    second.child(stray)
    with pytest.raises(LogDirectoryError) as raised:
        loaded(first, second)
    assert str(raised.value).startswith(f"/two: {stray!r} is not named topic-partition")
    assert [directory.read(CLEAN_SHUTDOWN) for directory in (first, second)] == [b"", b""]


def test_directory_of_a_newer_version_is_refused_by_name(memory: MemoryDirectory) -> None:
    memory.write_atomic("meta.properties", b"version=1\nnode.id=3\ncluster.id=abc\n")
    manager = LogManager([memory], LogConfig(), lambda: T0)
    with pytest.raises(InconsistentMetaProperties, match=r"^/logs/meta\.properties: version 1 is"):
        manager.read_meta_properties()


def test_directory_that_a_jvm_has_locked_is_refused_by_name(tmp_path: Path) -> None:
    """A JVM takes the POSIX lock of the file, and no other."""
    program = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'w')\n"
        "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-P", "-c", program, str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(LogDirectoryError, match=f"{tmp_path} is locked by another broker"):
            loaded(LogDirectory(tmp_path))
        other.communicate()
    loaded(LogDirectory(tmp_path)).close()


def test_partition_of_the_longest_topic_is_deleted_on_a_real_disk(tmp_path: Path) -> None:
    longest = TopicPartition("t" * 249, 9)
    directory = LogDirectory(tmp_path)
    manager = loaded(directory)
    log = manager.get_or_create(longest, LogConfig())
    batch = encode_batch([(T0, None, b"a", ())])
    log.append(batch, read_header(batch), leader_epoch=0, now_ms=T0, max_timestamp=T0)
    manager.delete(longest)
    (leaving,) = directory.children()
    assert leaving.endswith("-delete")
    manager.close(clean=False)
    again = loaded(LogDirectory(tmp_path))
    again.tick(T0 + 10**6)
    assert (again.logs, directory.children()) == ({}, [])
    again.close()


def test_log_emptied_by_deletion_of_records_begins_where_it_ended(
    directory: Directory, open_log: Open
) -> None:
    again = open_log(directory, log_start_offset=77)
    assert (again.log.log_start_offset, again.log.log_end_offset) == (77, 77)
    assert [segment.base_offset for segment in again.log.segments] == [77]
    again.append_many(1)
    assert again.numbers() == [77]
