"""How many files a broker's partitions keep open, and what is closed meanwhile."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from weakref import ref

import pytest

from core_log.config import LogConfig
from core_log.directory import LogDirectory
from core_log.log_manager import LogManager
from core_log.open_files import OPEN_FILES, SECOND_CHANCES, OpenFiles
from core_log.producers.producer_snapshots import SNAPSHOT
from protocol.records.batch import encode_batch, read_header
from protocol.topic_partition import TopicPartition
from tests.core_log.conftest import T0, Writer

FILES = Path("/proc/self/fd")
PARTITIONS = 50
CONFIG = LogConfig(index_interval_bytes=0, segment_bytes=2000)


def has_open(below: Path, most: int) -> bool:
    """Return whether at most so many files are open. What is garbage may be open for a while."""
    if count_open(below) > most:
        gc.collect()
    return count_open(below) <= most


def count_open(below: Path) -> int:
    targets = []
    for entry in FILES.iterdir():
        try:
            targets.append(os.readlink(entry))
        except FileNotFoundError:  # of the listing itself
            continue
    # A snapshot of producers is open until the next flush has synced it.
    kept = [target for target in targets if target.startswith(f"{below}/t-")]
    return sum(not target.endswith(SNAPSHOT) for target in kept)


@pytest.mark.fault("outside-O6")
@pytest.mark.skipif(not FILES.is_dir(), reason="the system does not tell which files are open")
def test_a_partition_keeps_one_file_open_whether_it_is_written_to_or_not(tmp_path: Path) -> None:
    manager = LogManager([LogDirectory(tmp_path)], CONFIG, lambda: 0)
    manager.load()
    data = encode_batch([(5, None, b"v" * 100, ())])
    for number in range(PARTITIONS):
        log = manager.get_or_create(TopicPartition("t", number), CONFIG)
        for _ in range(number % 20):
            log.append(data, read_header(data), leader_epoch=0, now_ms=5, max_timestamp=5)
            log.read(0, 100, log.log_end_offset)
            log.offset_for_timestamp(5)
    segments = sum(len(log.segments) for log in manager.logs.values())
    assert has_open(tmp_path, most=segments)
    manager.close()
    del manager, log

    again = LogManager([LogDirectory(tmp_path)], CONFIG, lambda: 0)
    again.load()
    assert has_open(tmp_path, most=segments)
    again.close()


FEW = 6


@pytest.fixture
def few_open() -> Iterator[None]:
    """Keep few files open."""
    before = OPEN_FILES.most
    OPEN_FILES.close_down_to(0)
    OPEN_FILES.most = FEW
    try:
        yield
    finally:
        OPEN_FILES.most = before


class KeptFile:
    """A file as `OpenFiles` sees it."""

    def __init__(self, *, is_used: bool) -> None:
        self.is_used = is_used
        self.is_open = True

    def let_go(self) -> None:
        self.is_open = False


def kept_files(files: OpenFiles, used: list[bool]) -> list[KeptFile]:
    kept = [KeptFile(is_used=is_used) for is_used in used]
    for descriptor, file in enumerate(kept):
        files.add(descriptor, ref(file))
    return kept


def test_of_files_that_are_too_many_the_oldest_that_was_not_used_is_closed() -> None:
    files = OpenFiles(most=3)
    kept = kept_files(files, [True, False, True, False])
    assert [file.is_open for file in kept] == [True, False, True, True]
    assert [file.is_used for file in kept] == [False, False, True, False]


def test_where_all_were_used_one_is_closed_after_so_many_looks() -> None:
    files = OpenFiles(most=SECOND_CHANCES + 10)
    kept = kept_files(files, [True] * (files.most + 1))
    assert [file.is_open for file in kept].index(False) == SECOND_CHANCES
    assert sum(not file.is_used for file in kept) == SECOND_CHANCES


def test_files_that_were_closed_elsewhere_take_no_place() -> None:
    files = OpenFiles(most=3)
    kept = kept_files(files, [False] * 3)
    del kept[0]
    gc.collect()
    files.discard(1)
    last = KeptFile(is_used=False)
    files.add(7, ref(last))
    assert len(files) == 3
    assert all(file.is_open for file in [*kept, last])


@pytest.mark.fault("outside-O6")
@pytest.mark.skipif(not FILES.is_dir(), reason="the system does not tell which files are open")
def test_partitions_at_rest_have_no_file_open_and_lose_nothing(
    tmp_path: Path, few_open: None
) -> None:
    manager = LogManager([LogDirectory(tmp_path)], CONFIG, lambda: T0)
    manager.load()
    writers = [
        Writer(manager.get_or_create(TopicPartition("t", number), CONFIG))
        for number in range(PARTITIONS)
    ]
    for _ in range(3):
        for writer in writers:
            writer.append_many(5)
            assert has_open(tmp_path, most=FEW)
    assert all(len(writer.values()) == 15 for writer in writers)

    # All else that is done with files which are closed.
    for number, writer in enumerate(writers):
        log = writer.log
        if number % 3 == 0:
            log.roll(T0)
            flush = log.begin_flush()
            flush.run()
            log.end_flush(flush)
        elif number % 3 == 1:
            log.truncate_to(8)
            writer.append_many(7)
        else:
            log.offset_for_timestamp(5)
    assert all(len(writer.values()) == 15 for writer in writers)
    assert has_open(tmp_path, most=FEW)
    manager.close()
    del manager, writers, writer, log

    again = LogManager([LogDirectory(tmp_path)], CONFIG, lambda: T0)
    again.load()
    assert has_open(tmp_path, most=FEW)
    assert all(len(Writer(log).values()) == 15 for log in again.logs.values())
    again.close()


def test_range_of_a_closed_file_is_read_and_sent_after_its_segment_was_deleted(
    tmp_path: Path, few_open: None
) -> None:
    config = LogConfig(index_interval_bytes=0, segment_bytes=500, retention_ms=1)
    manager = LogManager([LogDirectory(tmp_path)], config, lambda: T0)
    manager.load()
    writer = Writer(manager.get_or_create(TopicPartition("t", 0), config))
    writer.append_many(30)
    kept = writer.log.read(0, 400, 30)
    assert kept is not None
    before = kept.read()

    OPEN_FILES.close_down_to(0)
    assert writer.log.delete_old_segments(30, T0 * 2) > 0
    OPEN_FILES.close_down_to(0)
    assert kept.read() == before
    near, far = socket.socketpair()
    with near, far:
        assert os.sendfile(near.fileno(), kept.raw.fileno(), kept.start, 10) == 10
        assert far.recv(10) == before[:10]
    manager.close()


def test_file_that_is_on_its_way_is_not_closed_under_its_reader(tmp_path: Path) -> None:
    file = LogDirectory(tmp_path).open_segment("a.log")
    file.append([b"abcdef"])
    on_its_way = file.raw
    file.let_go()
    others = [LogDirectory(tmp_path).open_segment(f"{number}.log") for number in range(3)]
    assert on_its_way.fd not in [other.raw.fd for other in others]
    assert os.pread(on_its_way.fd, 10, 0) == b"abcdef"
    assert file.raw.fd != on_its_way.fd


def test_closed_file_is_found_where_its_directory_is_now(tmp_path: Path) -> None:
    root = LogDirectory(tmp_path)
    directory = root.child("t-0")
    file = directory.open_segment("a.log")
    file.append([b"old"])
    file.let_go()
    directory.rename_to("t-0.1-delete")
    root.child("t-0").open_segment("a.log").append([b"another topic's"])

    file.append([b"er"])
    assert file.read(0, 100) == b"older"
    assert (tmp_path / "t-0" / "a.log").read_bytes() == b"another topic's"


class RenamedMeanwhile(LogDirectory):
    """A directory that is renamed, and its name given to another, when a file is looked up."""

    is_renamed = False

    def _look_up(self, name, read):  # type: ignore[no-untyped-def]
        if not self.is_renamed:
            self.is_renamed = True
            before = self.path
            os.rename(before, f"{before}.1-delete")
            os.mkdir(before)
            (Path(before) / name).write_bytes(b"another topic's")
            try:
                return read(f"{before}/{name}")
            finally:
                self.path = f"{before}.1-delete"
        return super()._look_up(name, read)


def test_name_that_another_directory_got_during_an_open_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "a.log").write_bytes(b"old")
    directory = RenamedMeanwhile(tmp_path / "t-0")
    assert directory.open_existing("a.log").read(0, 100) == b"old"


def test_fsync_of_a_closed_file_that_was_removed_has_nothing_to_do(tmp_path: Path) -> None:
    directory = LogDirectory(tmp_path)
    file = directory.open_segment("1.snapshot")
    file.append([b"abc"])
    file.let_go()
    directory.remove("1.snapshot")
    file.fsync()
    assert directory.files() == []


@contextlib.contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Let this process open so many files more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(count + 1)]
    for descriptor in opened:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(opened), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.fault("outside-O6")
def test_where_others_have_taken_all_descriptors_files_at_rest_give_theirs(tmp_path: Path) -> None:
    manager = LogManager([LogDirectory(tmp_path)], CONFIG, lambda: T0)
    manager.load()
    writers = [
        Writer(manager.get_or_create(TopicPartition("t", number), CONFIG)) for number in range(10)
    ]
    with descriptors_left(0):
        for writer in writers:
            writer.append_many(30)
        manager.checkpoint_recovery_points()
    assert all(len(writer.values()) == 30 for writer in writers)
    manager.close()
