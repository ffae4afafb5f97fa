"""A process without a free file descriptor, which says nothing against its disks."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from core_log.config import LogConfig
from core_log.directory import LogDirectory
from core_log.log_manager import LogManager
from core_log.open_files import OPEN_FILES
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import TopicPartition
from tests.core_log.conftest import T0, Writer

TP = TopicPartition("flights", 0)


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Let this process open nothing for a moment, whatever it closes of its logs."""
    OPEN_FILES.close_down_to(0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_read_that_finds_no_descriptor_fails_alone_and_can_be_repeated(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=1000, index_interval_bytes=0)
    manager = LogManager([LogDirectory(tmp_path)], config, lambda: T0)
    manager.load()
    writer = Writer(manager.get_or_create(TP, config))
    writer.append_many(30)

    with no_descriptor_left(), pytest.raises(ApiError) as refused:  # its files would be opened
        writer.log.read(3, 1000, 30)

    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (writer.log.failure, manager.suspect_dirs()) == (None, [])
    assert len(writer.values()) == 30
    manager.close()


@pytest.mark.fault("outside-O6")
def test_append_and_flush_that_find_no_descriptor_fail_alone_and_can_be_repeated(
    tmp_path: Path,
) -> None:
    config = LogConfig(segment_bytes=1000, index_interval_bytes=0)
    manager = LogManager([LogDirectory(tmp_path)], config, lambda: T0)
    manager.load()
    writer = Writer(manager.get_or_create(TP, config))
    writer.append_many(30)

    with no_descriptor_left():
        with pytest.raises(ApiError) as refused:
            writer.append_many(1)
        with pytest.raises(ApiError) as not_rolled:
            writer.log.roll(T0)
    assert refused.value.code is not_rolled.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (writer.log.failure, manager.suspect_dirs()) == (None, [])

    writer.append_many(20)
    writer.log.roll(T0)
    flush = writer.log.begin_flush()
    flush.run()
    writer.log.end_flush(flush)
    assert len(writer.values()) == writer.log.recovery_point == 50
    manager.close()


def test_directory_for_which_nothing_could_be_tried_is_not_taken_for_broken(
    tmp_path: Path,
) -> None:
    manager = LogManager([LogDirectory(tmp_path)], LogConfig(), lambda: T0)
    manager.load()
    (log_dir,) = manager.dirs
    with no_descriptor_left():
        manager.checkpoint_recovery_points()
        log_dir.probe()
    assert manager.suspect_dirs() == []
    manager.close()
