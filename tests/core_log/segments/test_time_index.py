"""The `.timeindex` file."""

from __future__ import annotations

import pytest

from core_log.memory_directory import MemoryDirectory
from core_log.segments.index_file import CorruptIndex
from core_log.segments.time_index import ENTRY, TimeIndex

BASE = 45
NAME = "00000000000000000045.timeindex"


def active(directory: MemoryDirectory, max_bytes: int = 120) -> TimeIndex:
    index = TimeIndex.create(directory, NAME, BASE)
    index.file.activate(max_bytes)
    return index


def test_entries_are_kafkas_bytes(memory: MemoryDirectory) -> None:
    index = active(memory)
    index.maybe_append(1_600_000_000_000, BASE + 20)
    index.file.seal()
    assert memory.read(NAME) == bytes.fromhex("000001748 76e800000000014".replace(" ", ""))


def test_full_length_is_a_multiple_of_the_entry(memory: MemoryDirectory) -> None:
    active(memory, max_bytes=10 * 2**20)
    assert memory.size(NAME) == 10485756


def test_lookup_gives_the_last_entry_not_later(memory: MemoryDirectory) -> None:
    index = active(memory)
    assert index.lookup(100) == (-1, BASE)
    for timestamp, offset in [(10, 55), (20, 65), (30, 75)]:
        index.maybe_append(timestamp, offset)
    assert index.lookup(9) == (-1, BASE)
    assert index.lookup(25) == (20, 65)
    assert index.lookup(30) == (30, 75)


def test_timestamp_that_is_not_later_adds_nothing(memory: MemoryDirectory) -> None:
    index = active(memory)
    index.maybe_append(10, 55)
    index.maybe_append(10, 60)
    index.maybe_append(9, 65)
    assert (index.file.count, index.last) == (1, (10, 55))


def test_last_slot_is_kept_for_the_closing_entry(memory: MemoryDirectory) -> None:
    index = active(memory, max_bytes=36)
    index.maybe_append(1, 50)
    assert not index.is_full
    index.maybe_append(2, 51)
    assert index.is_full
    index.maybe_append(3, 52)
    assert index.file.count == 3


def test_truncate_drops_the_entries_from_an_offset_on(memory: MemoryDirectory) -> None:
    index = active(memory)
    for timestamp, offset in [(10, 55), (20, 65), (30, 75)]:
        index.maybe_append(timestamp, offset)
    index.truncate_to(66)
    assert (index.file.count, index.last) == (2, (20, 65))
    index.truncate_to(BASE)
    assert (index.file.count, index.last) == (0, (-1, BASE))


@pytest.mark.parametrize(
    "entries",
    [b"abc", ENTRY.pack(5, -1), ENTRY.pack(5, 1) + ENTRY.pack(4, 2), ENTRY.pack(5, 1) + bytes(12)],
    ids=["length", "below base", "time goes back", "zero tail"],
)
def test_index_that_contradicts_itself_is_corrupt(memory: MemoryDirectory, entries: bytes) -> None:
    memory.write_atomic(NAME, entries)
    with pytest.raises(CorruptIndex):
        TimeIndex.load(memory, NAME, BASE)
