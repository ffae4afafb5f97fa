"""Logs that are moved to another directory: wherever the power goes, there is one whole log."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from core_log.checkpoint import CLEANER_OFFSETS, HIGH_WATERMARKS, RECOVERY_POINTS, decode_offsets
from core_log.config import LogConfig
from core_log.directory_name import Kind, parse
from core_log.future_logs import COPY_COMPLETE
from core_log.log import Log
from core_log.log_manager import LogManager
from core_log.memory_directory import Disk, MemoryDirectory
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch import decode_records, encode_batch, read_header
from protocol.topic_partition import TopicPartition

T0 = 1_000_000
TP = TopicPartition("t", 0)


class PowerCut(BaseException):
    """The machine stops here."""


@attrs.define(eq=False)
class DoomedDisk(Disk):
    """A disk whose machine stops before its n-th change of names; `fails` makes that an error."""

    steps: int | None = None
    fails: bool = False

    def step(self) -> None:
        if self.steps is not None:
            self.steps -= 1
            if self.steps < 0:
                self.steps = None
                raise OSError("the disk is broken") if self.fails else PowerCut


class Doomed(MemoryDirectory):
    """A directory on such a disk."""

    disk: DoomedDisk

    def child(self, name: str) -> MemoryDirectory:
        if name not in self._children:
            self._children[name] = Doomed(name, self.disk, self)
        return self._children[name]

    def rename_to(self, name: str) -> None:
        self.disk.step()
        super().rename_to(name)

    def write_atomic(self, name: str, data: bytes) -> None:
        self.disk.step()
        super().write_atomic(name, data)

    def fsync_dir(self) -> None:
        self.disk.step()
        super().fsync_dir()

    def remove(self, name: str) -> None:
        self.disk.step()
        super().remove(name)


def two_directories() -> tuple[Doomed, Doomed]:
    disk = DoomedDisk()
    return Doomed("a", disk), Doomed("b", disk)


def loaded(*dirs: MemoryDirectory, **config: Any) -> LogManager:
    manager = LogManager(dirs, LogConfig(**config), lambda: T0)
    manager.load()
    return manager


def append(log: Log, value: bytes, **header: Any) -> None:
    batch = encode_batch([(T0, None, value, ())], **header)
    log.append(batch, read_header(batch), leader_epoch=3, now_ms=T0, max_timestamp=T0)


def flush(log: Log) -> None:
    begun = log.begin_flush()
    begun.run()
    log.end_flush(begun)


def values(log: Log) -> list[bytes]:
    read_values: list[bytes] = []
    offset = log.log_start_offset
    while (piece := log.read(offset, 1000, log.log_end_offset)) is not None:
        records = decode_records(piece.read(), offset)
        read_values += [record.value or b"" for record in records]
        offset = records[-1].offset + 1
    return read_values


def copy(current: Log, future: Log, end: int | None = None) -> None:
    end = current.log_end_offset if end is None else end
    while (piece := current.read(future.log_end_offset, 1000, end)) is not None:
        future.append_follower(piece.read(), now_ms=T0)


def begun(manager: LogManager, path: str = "/b") -> Log:
    """Begin a move of the partition to a directory."""
    manager.set_target_directory(TP, path)
    future = manager.futures.create(TP, manager.defaults, lambda: T0)
    assert future is not None
    return future


def filled(*dirs: MemoryDirectory, count: int = 5, **config: Any) -> LogManager:
    manager = loaded(*dirs, **config)
    log = manager.get_or_create(TP, manager.defaults)
    for number in range(count):
        append(log, b"%d" % number)
    flush(log)
    manager.sync_names()
    return manager


def kinds(directory: MemoryDirectory) -> list[Kind]:
    return [parse(name)[1] for name in directory.children()]


FIVE = [b"0", b"1", b"2", b"3", b"4"]


def test_the_future_log_takes_the_current_ones_place_and_is_found_again() -> None:
    a, b = two_directories()
    manager = filled(a, b)
    current, future = manager.logs[TP], begun(manager)
    copy(current, future)
    manager.futures.checkpoint(TP, {TP: 5})
    assert manager.futures.replace_current(TP) is future
    assert manager.get(TP) is future
    assert (kinds(a), kinds(b)) == ([Kind.DELETED], [Kind.CURRENT])
    append(future, b"more")
    assert values(future) == [*FIVE, b"more"]
    manager.close()
    again = loaded(a, b)
    assert values(again.logs[TP]) == [*FIVE, b"more"]
    assert again.futures.current_dir(TP).path == "/b"
    assert again.read_high_watermarks() == {TP: 5}


def test_who_reads_the_current_log_goes_on_and_who_writes_to_it_is_refused() -> None:
    a, b = two_directories()
    manager = filled(a, b)
    current, future = manager.logs[TP], begun(manager)
    copy(current, future)
    read = current.read(0, 1000, 5)
    manager.futures.replace_current(TP)
    manager.tick(T0)
    assert read is not None
    assert [record.value for record in decode_records(read.read(), 0)] == FIVE
    with pytest.raises(ApiError, match="the replica was moved"):
        append(current, b"x")
    manager.tick(T0 + manager.defaults.file_delete_delay_ms)
    assert a.children() == []
    assert decode_offsets(a.read(RECOVERY_POINTS)) == {}


@pytest.mark.parametrize("power", [True, False], ids=["power", "kill"])
def test_wherever_it_stops_one_whole_log_is_found_and_the_move_ends(power: bool) -> None:
    outcomes = []
    for steps in range(100):
        a, b = two_directories()
        manager = filled(a, b)
        future = begun(manager)
        copy(manager.logs[TP], future)
        flush(future)
        manager.sync_names()
        manager.futures.checkpoint(TP, {TP: 5})
        a.disk.steps = steps
        try:
            manager.futures.replace_current(TP)
        except PowerCut:
            pass
        else:
            break
        if power:
            a.lose_power()
            b.lose_power()
        a.disk.locked.clear()
        again = loaded(a, b)
        assert values(again.logs[TP]) == FIVE
        resumed = again.futures.get(TP)
        outcomes.append(again.futures.current_dir(TP).path)
        if resumed is not None:
            assert outcomes[-1] == "/a"
            assert resumed.directory.size(COPY_COMPLETE) is None
            again.futures.replace_current(TP)
        assert again.futures.current_dir(TP).path == "/b"
        again.tick(T0 + again.defaults.file_delete_delay_ms)
        again.close()
        assert (kinds(a), kinds(b)) == ([], [Kind.CURRENT])
    assert {"/a", "/b"} == set(outcomes)
    assert outcomes == sorted(outcomes)


def test_whichever_step_fails_the_partition_has_one_log_that_takes_writes() -> None:
    for steps in range(100):
        a, b = two_directories()
        manager = filled(a, b)
        future = begun(manager)
        copy(manager.logs[TP], future)
        a.disk.steps, a.disk.fails = steps, True
        try:
            manager.futures.replace_current(TP)
        except OSError:
            assert manager.get(TP) is not future
        if a.disk.steps is not None:
            break
        log = manager.logs[TP]
        append(log, b"more")
        assert values(log) == [*FIVE, b"more"]
        manager.close(clean=False)
        assert values(loaded(a, b).logs[TP]) == [*FIVE, b"more"]
    assert steps > 5


def test_a_move_that_was_cut_short_is_resumed_with_what_is_there() -> None:
    a, b = two_directories()
    manager = filled(a, b)
    copy(manager.logs[TP], begun(manager), end=2)
    manager.close()
    again = loaded(a, b)
    resumed = again.futures.get(TP)
    assert resumed is not None
    assert again.futures.path_of(TP) == "/b"
    assert values(resumed) == FIVE[:2]
    assert again.get(TP) is not resumed


def test_checkpoints_speak_of_the_future_log_in_its_own_directory() -> None:
    a, b = two_directories()
    manager = filled(a, b)
    future = begun(manager)
    copy(manager.logs[TP], future, end=2)
    flush(future)
    manager.checkpoint_recovery_points()
    manager.checkpoint_high_watermarks({TP: 4})
    assert decode_offsets(a.read(RECOVERY_POINTS)) == {TP: 5}
    assert decode_offsets(b.read(RECOVERY_POINTS)) == {TP: 2}
    assert decode_offsets(a.read(HIGH_WATERMARKS)) == {TP: 4}
    assert decode_offsets(b.read(HIGH_WATERMARKS)) == {TP: 2}
    assert manager.read_high_watermarks() == {TP: 4}


def test_what_the_new_log_begins_with_is_all_that_the_old_one_knew() -> None:
    a, b = two_directories()
    manager = filled(a, b, count=1)
    current = manager.logs[TP]
    append(current, b"numbered", producer_id=7, producer_epoch=0, base_sequence=0)
    current.begin_epoch(9)
    current.increment_log_start_offset(2)
    flush(current)
    future = begun(manager)
    future.truncate_fully_and_start_at(2)  # nothing is left to be copied
    manager.futures.replace_current(TP)
    assert future.leader_epochs.entries == current.leader_epochs.entries == [(9, 2)]
    assert future.recovery_point == 2
    append(future, b"next", producer_id=7, producer_epoch=0, base_sequence=1)
    manager.close(clean=False)
    again = loaded(a, b).logs[TP]
    append(again, b"and again", producer_id=7, producer_epoch=0, base_sequence=2)
    assert values(again) == [b"next", b"and again"]


def test_a_move_is_given_up_by_directing_the_partition_to_where_it_is() -> None:
    a, b = two_directories()
    manager = filled(a, b)
    begun(manager)
    manager.set_target_directory(TP, "/a")
    assert manager.futures.get(TP) is None
    assert manager.futures.create(TP, manager.defaults, lambda: T0) is None
    assert kinds(b) == [Kind.DELETED]
    manager.tick(T0 + manager.defaults.file_delete_delay_ms)
    assert b.children() == []


def test_a_move_can_go_elsewhere_and_asking_again_for_the_same_changes_nothing() -> None:
    disk = DoomedDisk()
    dirs = [Doomed(name, disk) for name in "abc"]
    manager = filled(*dirs)
    first = begun(manager)
    manager.set_target_directory(TP, "/b")
    assert manager.futures.create(TP, manager.defaults, lambda: T0) is None
    assert manager.futures.get(TP) is first
    second = begun(manager, "/c")
    assert manager.futures.get(TP) is second
    assert first.failure is not None
    assert [kinds(each) for each in dirs] == [[Kind.CURRENT], [Kind.DELETED], [Kind.FUTURE]]


def test_a_partition_that_comes_later_is_made_where_it_was_directed_to() -> None:
    a, b = two_directories()
    manager = loaded(a, b)
    manager.set_target_directory(TP, "/b")
    manager.get_or_create(TP, manager.defaults)
    manager.get_or_create(TopicPartition("t", 1), manager.defaults)
    assert (a.children(), b.children()) == (["t-1"], ["t-0"])


def test_a_deleted_partition_takes_its_future_log_along() -> None:
    a, b = two_directories()
    manager = filled(a, b)
    begun(manager)
    manager.delete(TP)
    assert manager.futures.get(TP) is None
    assert (kinds(a), kinds(b)) == ([Kind.DELETED], [Kind.DELETED])


def test_directories_that_are_not_there_or_offline_are_refused() -> None:
    class Unreadable(MemoryDirectory):
        def children(self) -> list[str]:
            raise OSError("broken")

    manager = filled(MemoryDirectory("a"), Unreadable("bad"))
    for path, code in (
        ("/nowhere", ErrorCode.LOG_DIR_NOT_FOUND),
        ("/bad", ErrorCode.KAFKA_STORAGE_ERROR),
    ):
        with pytest.raises(ApiError) as refused:
            manager.set_target_directory(TP, path)
        assert refused.value.code is code


def test_a_topic_whose_name_leaves_no_room_for_more_cannot_be_moved() -> None:
    manager = loaded(*two_directories())
    with pytest.raises(ApiError) as refused:
        manager.set_target_directory(TopicPartition("t" * 249, 0), "/b")
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_copy_without_its_mark_is_not_taken_for_the_log_that_is_gone() -> None:
    a, b = two_directories()
    manager = filled(a, b)
    copy(manager.logs[TP], begun(manager), end=2)
    manager.close()
    a.remove_child("t-0")
    again = loaded(a, b)
    assert again.get(TP) is None
    log = again.get_or_create(TP, again.defaults)
    assert log.log_end_offset == 0
    assert again.futures.get(TP) is None
    assert again.futures.current_dir(TP).path == "/b"
    assert sorted(kinds(b), key=str) == [Kind.CURRENT, Kind.DELETED]


def test_of_two_copies_one_is_gone_on_with() -> None:
    a, b = two_directories()
    manager = filled(a, b)
    copy(manager.logs[TP], begun(manager), end=2)
    manager.close()
    b.child("t-0." + "0" * 32 + "-future")
    again = loaded(a, b)
    assert again.futures.get(TP) is not None
    assert sorted(kinds(b), key=str) == [Kind.DELETED, Kind.FUTURE]


def test_a_copy_that_cannot_be_opened_is_given_up_and_the_partition_served() -> None:
    a, b = two_directories()
    manager = filled(a, b)
    begun(manager)
    manager.close()
    b.child("t-0." + "0" * 32 + "-future").open_segment("nonsense.log")
    b.remove_child(next(name for name in b.children() if "0" * 32 not in name))
    again = loaded(a, b)
    assert again.futures.get(TP) is None
    assert kinds(b) == [Kind.DELETED]
    assert values(again.logs[TP]) == FIVE


def test_up_to_where_a_log_is_clean_goes_with_it() -> None:
    a, b = two_directories()
    manager = filled(a, b)
    source, target = manager.futures.dirs
    source.cleaned.save_offset(TP, 2)
    copy(manager.logs[TP], begun(manager))
    manager.futures.replace_current(TP)
    manager.tick(T0)
    assert decode_offsets(a.read(CLEANER_OFFSETS)) == {}
    assert decode_offsets(b.read(CLEANER_OFFSETS)) == {TP: 2}
    assert target.cleaned.get(TP) == 2


def test_a_log_that_was_never_cleaned_is_not_taken_for_clean_by_an_old_checkpoint() -> None:
    a, b = two_directories()
    manager = filled(a, b)
    target = manager.futures.dirs[1]
    target.cleaned.save_offset(TP, 4)
    copy(manager.logs[TP], begun(manager))
    manager.futures.replace_current(TP)
    assert target.cleaned.get(TP) is None
