"""A process without a free file descriptor, which says nothing against its disks."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core_log.config import LogConfig
from core_log.directory import LogDirectory
from core_log.log import Log
from core_log.log_manager import LogManager
from core_log.open_files import OPEN_FILES
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch import read_header
from protocol.records.batch_header import TRANSACTIONAL
from protocol.records.control_record import ABORT, encode_marker
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


@contextlib.contextmanager
def taken_by_others() -> Iterator[None]:
    """Let others have all descriptors of this process but those that logs have, and the spare."""
    OPEN_FILES.close_down_to(0)
    OPEN_FILES.keep_spare()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The limit is above all numbers in use, and those between are taken.
    most = max(int(name) for name in os.listdir("/proc/self/fd")) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    others = []
    try:
        with contextlib.suppress(OSError):
            while True:
                others.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for descriptor in others:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        OPEN_FILES.keep_spare()


def open_manager(path: Path, config: LogConfig) -> LogManager:
    """A broker's logs, loaded."""
    manager = LogManager([LogDirectory(path)], config, lambda: T0)
    manager.load()
    return manager


def abort(writer: Writer) -> None:
    """Write a record of a transaction, then the marker that aborts it."""
    producer = {"producer_id": 7, "producer_epoch": 0}
    writer.append(b"aborted", **producer, base_sequence=0, flags=TRANSACTIONAL)
    marker = encode_marker(ABORT, **producer, coordinator_epoch=0, timestamp_ms=T0)
    writer.log.append(marker, read_header(marker), leader_epoch=0, now_ms=T0, max_timestamp=T0)


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


CHANGES: dict[str, tuple[Callable[[Log], object], int, int]] = {
    "truncated": (lambda log: log.truncate_to(101), 0, 101),
    "truncated by segments that nobody reads": (lambda log: log.truncate_to(3), 0, 3),
    "restarted": (lambda log: log.truncate_fully_and_start_at(1000), 1000, 1000),
    # The last segment waits for the next retention: no other one can be begun now.
    "retained": (lambda log: log.delete_old_segments(300, T0 * 9), 295, 300),
}
"""What is done to a log of 60 segments, and where it starts and ends then."""


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="missing tool: /proc/self/fd")
@pytest.mark.parametrize("change", CHANGES)
def test_change_that_may_not_stop_half_way_ends_while_others_have_all_descriptors(
    tmp_path: Path, change: str
) -> None:
    config = LogConfig(segment_bytes=1000, index_interval_bytes=0, retention_ms=1)
    manager = open_manager(tmp_path, config)
    writer = Writer(manager.get_or_create(TP, config))
    writer.append_many(300)
    assert len(writer.log.segments) == 60
    make, start, end = CHANGES[change]

    with taken_by_others():
        make(writer.log)

    log = writer.log
    assert (log.failure, log.log_start_offset, log.log_end_offset) == (None, start, end)
    writer.append_many(10)
    assert len(writer.values()) == end + 10 - start
    manager.close()
    again = open_manager(tmp_path, config)
    assert again.logs[TP].log_end_offset == end + 10
    again.close()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="missing tool: /proc/self/fd")
def test_aborted_transaction_is_written_down_while_others_have_all_descriptors(
    tmp_path: Path,
) -> None:
    manager = open_manager(tmp_path, LogConfig())
    log = manager.get_or_create(TP, LogConfig())
    # The log's own file is open: only that of aborted transactions is not.
    log.segments.active.log.hold()
    with taken_by_others():
        abort(Writer(log))
    assert log.failure is None
    assert [aborted.producer_id for aborted in log.aborted_transactions(0, 2)] == [7]
    manager.close()


def test_flush_of_files_that_cannot_be_opened_now_is_left_to_the_next(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, LogConfig())
    writer = Writer(manager.get_or_create(TP, LogConfig()))
    writer.append_many(3)
    flush = writer.log.begin_flush()
    with no_descriptor_left(), pytest.raises(OSError, match="Too many open files") as unopened:
        flush.run()
    writer.log.fail_flush(unopened.value)
    assert (writer.log.failure, writer.log.recovery_point) == (None, 0)

    flush = writer.log.begin_flush()
    flush.run()
    writer.log.end_flush(flush)
    assert writer.log.recovery_point == 3
    manager.close()


def test_swap_that_cannot_open_the_originals_changes_nothing(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=1000, index_interval_bytes=0)
    manager = open_manager(tmp_path, config)
    writer = Writer(manager.get_or_create(TP, config))
    writer.append_many(30)
    for suffix in (".log", ".index", ".timeindex"):
        name = tmp_path / str(TP) / f"{0:020}{suffix}"
        shutil.copy(name, f"{name}.cleaned")

    with no_descriptor_left(), pytest.raises(ApiError):
        writer.log.replace_segments(0, [0], truncations=writer.log.truncations)
    assert (writer.log.failure, len(writer.values())) == (None, 30)
    assert writer.log.replace_segments(0, [0], truncations=writer.log.truncations)
    assert len(writer.values()) == 30
    manager.close()
