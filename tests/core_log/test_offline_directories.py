"""Log directories whose disk fails while the broker runs."""

from __future__ import annotations

import errno
import logging

import attrs
import pytest

from core_log.config import LogConfig
from core_log.log_dir import CLEAN_SHUTDOWN, LogDir
from core_log.log_manager import LogManager
from core_log.memory_directory import Disk, MemoryDirectory
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch import encode_batch, read_header
from protocol.topic_partition import TopicPartition

T0 = 1_000_000
A0, A1, A2 = (TopicPartition("a", partition) for partition in range(3))


@attrs.define(eq=False)
class Broker:
    """Two disks, with two logs on the first and one on the second."""

    one: MemoryDirectory = attrs.field(factory=lambda: MemoryDirectory("one", Disk()))
    two: MemoryDirectory = attrs.field(factory=lambda: MemoryDirectory("two", Disk()))
    logs: LogManager = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.one.child("a-0")
        self.one.child("a-1")
        self.two.child("a-2")
        self.logs = LogManager([self.one, self.two], LogConfig(), lambda: T0)
        self.logs.load()

    def append(self, *partitions: TopicPartition) -> list[ErrorCode]:
        return [self._append(partition) for partition in partitions]

    def _append(self, partition: TopicPartition) -> ErrorCode:
        batch = encode_batch([(T0, None, b"abc", ())])
        try:
            log = self.logs.get_or_create(partition, LogConfig())
            log.append(batch, read_header(batch), leader_epoch=0, now_ms=T0, max_timestamp=T0)
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    def probe(self) -> None:
        """Probe the disks as housekeeping does each second."""
        for log_dir in self.logs.suspect_dirs():
            try:
                log_dir.probe()
                log_dir.clear_suspicion()
            except OSError as error:
                self.logs.take_offline(log_dir, error)


OK, FAILED = ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR


def test_disk_that_cannot_be_written_is_offline_with_all_its_logs_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker()
    log = broker.logs.logs[A1]
    broker.one.disk.is_broken = True
    assert broker.append(A0) == [FAILED]
    caplog.clear()
    broker.probe()
    assert broker.append(A0, A1, A2) == [FAILED, FAILED, OK]
    assert log.failure == "/one is offline"
    assert list(broker.logs.by_directory()) == ["/two"]
    assert list(broker.logs.offline_dirs) == ["/one"]
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert lines == ["/one is offline with 2 logs: [Errno 5] Input/output error"]


def test_error_of_a_disk_that_can_be_written_is_one_logs(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    broker.logs.logs[A0].guard.fail(OSError(errno.EIO, "one bad block"))
    broker.probe()
    assert broker.append(A0, A1, A2) == [FAILED, OK, OK]
    assert (broker.logs.offline_dirs, broker.logs.suspect_dirs()) == ({}, [])


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_is_not_even_suspected(number: int) -> None:
    broker = Broker()
    broker.logs.logs[A0].guard.fail(OSError(number, "full"))
    assert broker.logs.suspect_dirs() == []


class Full(MemoryDirectory):
    """A directory that has no room for one more file."""

    def write_atomic(self, name: str, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_probe_that_finds_the_disk_full_finds_no_fault() -> None:
    LogDir(Full("full")).probe()


def test_checkpoint_that_fails_has_the_disk_probed() -> None:
    broker = Broker()
    broker.one.disk.is_broken = True
    broker.logs.checkpoint_recovery_points()
    broker.probe()
    assert list(broker.logs.offline_dirs) == ["/one"]


def test_new_log_goes_to_a_directory_that_lives() -> None:
    broker = Broker()
    broker.two.disk.is_broken = True
    broker.append(A2)
    broker.probe()
    broker.logs.get_or_create(TopicPartition("b", 0), LogConfig(), is_new=True)
    assert broker.one.children() == ["a-0", "a-1", "b-0"]


def test_log_that_may_be_in_a_directory_that_is_offline_is_not_made_anew() -> None:
    broker = Broker()
    broker.two.disk.is_broken = True
    broker.append(A2)
    broker.probe()
    with pytest.raises(ApiError, match="offline: /two") as raised:
        broker.logs.get_or_create(TopicPartition("b", 0), LogConfig(), is_new=False)
    assert raised.value.code == FAILED
    assert broker.one.children() == ["a-0", "a-1"]


def test_log_in_a_directory_that_is_offline_is_not_deleted_and_says_so() -> None:
    broker = Broker()
    broker.two.disk.is_broken = True
    broker.append(A2)
    broker.probe()
    with pytest.raises(ApiError, match="/two is offline"):
        broker.logs.delete(A2)


def test_only_the_directories_that_live_are_marked_clean() -> None:
    broker = Broker()
    broker.append(A0, A1, A2)
    broker.two.disk.is_broken = True
    broker.append(A2)
    broker.probe()
    broker.logs.close()
    assert broker.one.read(CLEAN_SHUTDOWN) == b""
    assert broker.two.read(CLEAN_SHUTDOWN) is None


def test_disk_that_works_again_is_served_again_after_a_restart() -> None:
    broker = Broker()
    broker.append(A0, A1, A2)
    broker.two.disk.is_broken = True
    broker.append(A2)
    broker.probe()
    broker.logs.close()
    broker.two.disk.is_broken = False
    again = LogManager([broker.one, broker.two], LogConfig(), lambda: T0)
    again.load()
    assert {tp: log.log_end_offset for tp, log in again.logs.items()} == {A0: 1, A1: 1, A2: 1}


def test_no_directory_lives_when_the_last_one_has_failed() -> None:
    broker = Broker()
    for directory in (broker.one, broker.two):
        directory.disk.is_broken = True
    broker.append(A0, A2)
    broker.probe()
    assert broker.logs.by_directory() == {}
    assert broker.append(A0, A2, TopicPartition("b", 0)) == [FAILED] * 3
