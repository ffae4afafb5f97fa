"""The state of a log after a crash, a power loss, or damage to its files."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

import pytest

from core_log.directory import LogDirectory
from core_log.memory_directory import MemoryDirectory
from core_log.storage import Directory
from protocol.records.batch import read_header

Open = Callable[..., Any]
FIRST = "00000000000000000000"
SMALL = {"segment_bytes": 1500, "index_interval_bytes": 300}


def crashed(directory: Directory, open_log: Open, count: int = 30, **settings: int) -> None:
    """Write a log of `count` batches that nobody closes."""
    open_log(directory, **(settings or SMALL)).append_many(count)


def damage(directory: Directory, name: str, change: Callable[[bytes], bytes]) -> None:
    directory.write_atomic(name, change(directory.read(name) or b""))


def logs_of(directory: Directory) -> list[str]:
    return [name for name in directory.files() if name.endswith(".log")]


def test_log_that_was_not_closed_is_whole(directory: Directory, open_log: Open) -> None:
    crashed(directory, open_log)
    writer = open_log(directory, clean=False, **SMALL)
    assert writer.numbers() == list(range(30))
    assert writer.log.recovery_point == 30
    writer.append_many(10)
    assert writer.numbers() == list(range(40))


def test_recovered_indexes_find_every_offset_and_timestamp(
    directory: Directory, open_log: Open
) -> None:
    writer = open_log(directory, **SMALL)
    for number in range(30):
        writer.append(b"%d" % number + b"." * 100, timestamp=1000 + number)
    again = open_log(directory, clean=False, **SMALL)
    for number in range(30):
        assert again.values(number)[0] == b"%d" % number
        assert again.log.offset_for_timestamp(1000 + number) == (1000 + number, number)
    assert all(segment.offset_index.file.count > 1 for segment in list(again.log.segments)[:-1])


@pytest.mark.parametrize(
    "tail",
    [
        b"\0" * 4000,
        b"\xff" * 50,
        random.Random(1).randbytes(700),
        b"\0" * 8 + b"\x7f\xff\xff\xff" + b"\x02" * 90,
        b"\0\0",
    ],
    ids=["zeros", "ones", "random", "impossible length", "two bytes"],
)
def test_nonsense_behind_the_last_batch_is_cut(
    directory: Directory, open_log: Open, caplog: pytest.LogCaptureFixture, tail: bytes
) -> None:
    crashed(directory, open_log, 5, segment_bytes=10**6)
    damage(directory, f"{FIRST}.log", lambda data: data + tail)
    with caplog.at_level(logging.WARNING):
        writer = open_log(directory, clean=False)
    assert writer.numbers() == [0, 1, 2, 3, 4]
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"flights-0: recovery truncates {len(tail)} bytes from offset 5 on: ")
    writer.append_many(2)
    assert writer.numbers() == list(range(7))


def test_torn_last_batch_is_cut(directory: Directory, open_log: Open) -> None:
    crashed(directory, open_log, 5, segment_bytes=10**6)
    damage(directory, f"{FIRST}.log", lambda data: data[:-1])
    writer = open_log(directory, clean=False)
    assert writer.numbers() == [0, 1, 2, 3]
    writer.append_many(1)
    assert writer.numbers() == [0, 1, 2, 3, 4]


def test_flipped_bit_cuts_the_log_and_drops_later_segments(
    memory: MemoryDirectory, open_log: Open
) -> None:
    crashed(memory, open_log)
    second = logs_of(memory)[1]
    at = len(memory.read(second) or b"") // 2
    damage(memory, second, lambda data: data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
    writer = open_log(memory, clean=False, **SMALL)
    end = writer.log.log_end_offset
    assert int(second[:20]) <= end < 20
    assert writer.numbers() == list(range(end))
    assert logs_of(memory) == [f"{FIRST}.log", second]
    writer.append_many(20)
    assert writer.numbers() == list(range(end + 20))


def test_what_a_cut_takes_of_later_segments_is_named_up_to_its_last_offset(
    memory: MemoryDirectory, open_log: Open, caplog: pytest.LogCaptureFixture
) -> None:
    crashed(memory, open_log)
    second, last = logs_of(memory)[1], logs_of(memory)[-1]
    assert int(second[:20]) < int(last[:20]) < 29
    damage(memory, second, lambda data: data[:-1] + bytes([data[-1] ^ 4]))
    end = open_log(memory, clean=False, **SMALL).log.log_end_offset
    assert f"recovery truncates offsets {end} to 29, " in caplog.text


def test_batch_that_repeats_earlier_offsets_is_cut(memory: MemoryDirectory, open_log: Open) -> None:
    crashed(memory, open_log, 4, segment_bytes=10**6)
    damage(memory, f"{FIRST}.log", lambda data: data + data[: len(data) // 4])
    assert open_log(memory, clean=False).numbers() == [0, 1, 2, 3]


def test_segments_below_the_recovery_point_are_believed(
    memory: MemoryDirectory, open_log: Open
) -> None:
    crashed(memory, open_log)
    names = logs_of(memory)
    damage(memory, names[0], lambda data: data[:-3] + b"xyz")
    writer = open_log(memory, clean=False, recovery_point=int(names[1][:20]) + 1, **SMALL)
    assert writer.log.log_end_offset == 30


def test_segment_that_holds_the_recovery_point_is_checked(
    memory: MemoryDirectory, open_log: Open
) -> None:
    crashed(memory, open_log)
    names = logs_of(memory)
    damage(memory, names[1], lambda data: data[:-3] + b"xyz")
    recovery_point = int(names[1][:20]) + 1
    writer = open_log(memory, clean=False, recovery_point=recovery_point, **SMALL)
    assert writer.log.log_end_offset == int(names[2][:20]) - 1


@pytest.mark.parametrize("suffixes", [[".index"], [".timeindex"], [".index", ".timeindex"]])
@pytest.mark.parametrize("change", ["missing", "garbage", "zeros"])
def test_lost_or_corrupt_index_is_rebuilt_even_after_a_clean_stop(
    directory: Directory, open_log: Open, suffixes: list[str], change: str
) -> None:
    writer = open_log(directory, **SMALL)
    writer.append_many(30)
    writer.log.close()
    for name in directory.files():
        if any(name.endswith(suffix) for suffix in suffixes):
            directory.remove(name)
            if change != "missing":
                directory.write_atomic(name, b"garbage" if change == "garbage" else bytes(240))
    again = open_log(directory, recovery_point=30, **SMALL)
    assert [again.numbers(offset)[0] for offset in range(30)] == list(range(30))
    assert again.log.offset_for_timestamp(again.now_ms) == (again.now_ms, 0)


def test_index_without_a_log_is_removed(directory: Directory, open_log: Open) -> None:
    crashed(directory, open_log, 5)
    directory.write_atomic("00000000000000000005.index", b"12345678")
    directory.write_atomic("00000000000000000005.timeindex", b"123456789012")
    open_log(directory, clean=False)
    assert "00000000000000000005.index" not in directory.files()
    assert "00000000000000000005.timeindex" not in directory.files()


def test_closed_log_with_a_damaged_end_is_recovered_all_the_same(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory)
    writer.append_many(5)
    writer.log.close()
    damage(memory, f"{FIRST}.log", lambda data: data + b"tail")
    again = open_log(memory, recovery_point=5)
    again.append_many(1)
    assert again.numbers() == list(range(6))


def test_closed_log_is_not_read_again(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory, **SMALL)
    writer.append_many(30)
    writer.log.close()
    before = {name: memory.modified_ms(name) for name in logs_of(memory)}
    memory.disk.now_ms = lambda: 99
    again = open_log(memory, recovery_point=30, **SMALL)
    assert again.log.log_end_offset == again.log.recovery_point == 30
    assert {name: memory.modified_ms(name) for name in logs_of(memory)} == before


def test_leader_epochs_are_found_again_in_the_batches(
    memory: MemoryDirectory, open_log: Open
) -> None:
    writer = open_log(memory)
    for epoch in (1, 1, 2, 5):
        writer.append(b"abc", epoch=epoch)
    assert memory.size("leader-epoch-checkpoint") is None
    again = open_log(memory, clean=False)
    assert again.log.leader_epochs.entries == [(1, 0), (2, 2), (5, 3)]


def test_leader_epochs_are_on_disk_before_the_recovery_point_moves(
    memory: MemoryDirectory, open_log: Open, flush: Callable[[Any], None]
) -> None:
    writer = open_log(memory, segment_bytes=200)
    for epoch in (1, 2, 3):
        writer.append(b"a" * 100, epoch=epoch)
    flush(writer)
    writer.append(b"a" * 100, epoch=4)
    again = open_log(memory, clean=False, recovery_point=3, segment_bytes=200)
    assert again.log.leader_epochs.entries == [(1, 0), (2, 1), (3, 2), (4, 3)]


def test_epochs_behind_a_cut_are_forgotten(memory: MemoryDirectory, open_log: Open) -> None:
    writer = open_log(memory)
    for epoch in (1, 2):
        writer.append(b"abc", epoch=epoch)
    damage(memory, f"{FIRST}.log", lambda data: data[:-1])
    assert open_log(memory, clean=False).log.leader_epochs.entries == [(1, 0)]


def test_log_shorter_than_its_start_begins_at_its_start(
    memory: MemoryDirectory, open_log: Open
) -> None:
    crashed(memory, open_log, 5)
    writer = open_log(memory, clean=False, log_start_offset=9)
    assert (writer.log.log_start_offset, writer.log.log_end_offset) == (9, 9)
    assert writer.append(b"abc").base_offset == 9


def test_deleted_and_unfinished_files_are_removed(directory: Directory, open_log: Open) -> None:
    crashed(directory, open_log, 5)
    for suffix in (".log.deleted", ".index.deleted", ".log.cleaned", ".timeindex.cleaned"):
        directory.write_atomic(f"{FIRST}{suffix}", b"x")
    writer = open_log(directory, clean=False)
    assert writer.numbers() == list(range(5))
    assert [n for n in directory.files() if n.endswith((".deleted", ".cleaned"))] == []


@pytest.mark.parametrize("renamed", [0, 1, 2])
def test_finished_copy_takes_the_place_of_its_originals(
    memory: MemoryDirectory, open_log: Open, renamed: int
) -> None:
    crashed(memory, open_log)
    first, second, third = logs_of(memory)[:3]
    one_batch = read_header(memory.read(first) or b"").size
    copy = (memory.read(first) or b"")[:one_batch] + (memory.read(second) or b"")
    memory.write_atomic(f"{FIRST}.log.swap", copy)
    memory.write_atomic(f"{FIRST}.index.swap", b"")
    for name in (first, second)[:renamed]:
        memory.rename(name, name + ".deleted")
    writer = open_log(memory, clean=False, **SMALL)
    assert logs_of(memory)[:2] == [first, third]
    assert writer.numbers() == [0, *range(int(second[:20]), 30)]
    assert [name for name in memory.files() if name.endswith((".swap", ".deleted"))] == []


def test_copies_of_an_unfinished_split_are_dropped(memory: MemoryDirectory, open_log: Open) -> None:
    crashed(memory, open_log)
    names = logs_of(memory)
    memory.write_atomic(names[0] + ".cleaned", b"unfinished")
    memory.write_atomic(names[1] + ".swap", memory.read(names[1]) or b"")
    writer = open_log(memory, clean=False, **SMALL)
    assert writer.numbers() == list(range(30))
    assert logs_of(memory) == names


def test_power_loss_keeps_what_was_flushed(
    memory: MemoryDirectory, open_log: Open, flush: Callable[[Any], None]
) -> None:
    partition = memory.child("flights-0")
    writer = open_log(partition, **SMALL)
    writer.append_many(20)
    flush(writer)
    recovery_point = writer.log.recovery_point
    writer.append_many(20)
    memory.lose_power()
    again = open_log(memory.child("flights-0"), clean=False, recovery_point=recovery_point, **SMALL)
    assert recovery_point == 20
    assert again.numbers()[:20] == list(range(20))


@pytest.mark.parametrize("seed", range(30))
def test_power_loss_that_tears_files_anywhere_loses_nothing_flushed(
    memory: MemoryDirectory, open_log: Open, flush: Callable[[Any], None], seed: int
) -> None:
    chosen = random.Random(seed)

    def survivor(synced: bytes, now: bytes) -> bytes:
        """Keep some unsynced bytes, some of them as zeros or as rubbish."""
        kept = now[: chosen.randint(min(len(synced), len(now)), len(now))]
        lost = chosen.randint(0, len(kept) - min(len(synced), len(kept)))
        filling = chosen.choice([bytes(lost), chosen.randbytes(lost)])
        return kept[: len(kept) - lost] + filling

    partition = memory.child("flights-0")
    writer = open_log(partition, segment_bytes=2000, segment_index_bytes=400)
    for _ in range(chosen.randint(1, 4)):
        writer.append_many(chosen.randint(0, 30))
        flush(writer)
        writer.append_many(chosen.randint(0, 10))
    recovery_point, end = writer.log.recovery_point, writer.log.log_end_offset
    memory.lose_power(survivor)
    again = open_log(
        memory.child("flights-0"), clean=False, recovery_point=recovery_point, segment_bytes=2000
    )
    assert recovery_point <= again.log.log_end_offset <= end
    assert again.numbers() == list(range(again.log.log_end_offset))
    again.append_many(5)
    assert again.numbers() == list(range(again.log.log_end_offset))


def test_file_beyond_two_gibibytes_is_refused(tmp_path: Any, open_log: Open) -> None:
    directory = LogDirectory(tmp_path / "flights-0")
    directory.open_segment(f"{FIRST}.log").truncate(2**31)
    with pytest.raises(ValueError, match="2147483648 bytes"):
        open_log(directory, clean=False)


def test_rebuilt_log_has_kafkas_files_only(tmp_path: Any, open_log: Open) -> None:
    directory = LogDirectory(tmp_path / "flights-0")
    crashed(directory, open_log, 3)
    open_log(directory, clean=False).log.close()
    assert directory.files() == [
        f"{FIRST}.index",
        f"{FIRST}.log",
        f"{FIRST}.timeindex",
        "00000000000000000003.snapshot",
        "leader-epoch-checkpoint",
    ]
