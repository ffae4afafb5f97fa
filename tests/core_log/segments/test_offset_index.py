"""The `.index` file."""

from __future__ import annotations

import random
from bisect import bisect_right

import pytest

from core_log.memory_directory import MemoryDirectory
from core_log.segments.index_file import CorruptIndex
from core_log.segments.offset_index import ENTRY, OffsetIndex

BASE = 45
NAME = "00000000000000000045.index"


def active(directory: MemoryDirectory, max_bytes: int = 80) -> OffsetIndex:
    index = OffsetIndex.create(directory, NAME, BASE)
    index.file.activate(max_bytes)
    return index


def test_entries_are_kafkas_bytes(memory: MemoryDirectory) -> None:
    index = active(memory)
    index.append(BASE + 1, 0)
    index.append(BASE + 300, 4200)
    index.file.seal()
    assert memory.read(NAME) == bytes.fromhex("0000000100000000 0000012c00001068")


def test_active_index_has_its_full_length_until_it_is_sealed(memory: MemoryDirectory) -> None:
    index = active(memory, max_bytes=83)
    index.append(BASE + 1, 0)
    assert memory.size(NAME) == 80
    index.file.seal()
    assert memory.size(NAME) == 8


def test_index_is_full_when_no_slot_is_left(memory: MemoryDirectory) -> None:
    index = active(memory, max_bytes=16)
    index.append(BASE + 1, 0)
    assert not index.is_full
    index.append(BASE + 2, 10)
    assert index.is_full


def test_lookup_gives_the_last_entry_not_above(memory: MemoryDirectory) -> None:
    index = active(memory, max_bytes=8000)
    chosen = random.Random(7)
    offsets = sorted(chosen.sample(range(BASE + 1, BASE + 5000), 500))
    for number, offset in enumerate(offsets):
        index.append(offset, number * 10)
    for target in chosen.sample(range(BASE, BASE + 5100), 300):
        slot = bisect_right(offsets, target) - 1
        assert index.lookup(target) == ((offsets[slot], slot * 10) if slot >= 0 else (BASE, 0))


def test_lookups_beside_appends_and_truncations_find_what_is_there(memory: MemoryDirectory) -> None:
    index = active(memory, max_bytes=16_000)
    chosen = random.Random(8)
    offsets: list[int] = []
    for number in range(1200):
        last = offsets[-1] if offsets else BASE
        index.append(last + chosen.randrange(1, 5), number)
        offsets.append(index.last_offset)
        if chosen.random() < 0.02:
            end = chosen.choice(offsets[-300:])
            index.truncate_to(end)
            offsets = [offset for offset in offsets if offset < end]
        elif chosen.random() < 0.1:
            index.remove_last()
            offsets.pop()
        target = chosen.randrange(BASE, (offsets or [BASE])[-1] + 3)
        slot = bisect_right(offsets, target) - 1
        assert index.lookup(target).offset == (offsets[slot] if slot >= 0 else BASE)


def test_lookup_in_an_empty_index_gives_the_start(memory: MemoryDirectory) -> None:
    assert active(memory).lookup(BASE + 9) == (BASE, 0)


def test_sealed_index_is_opened_again(memory: MemoryDirectory) -> None:
    index = active(memory)
    index.append(51, 0)
    index.append(52, 40)
    index.file.seal()
    again = OffsetIndex.load(memory, NAME, BASE, log_size=100)
    assert (again.last_offset, again.lookup(51), again.last()) == (52, (51, 0), (52, 40))


@pytest.mark.parametrize(
    ("offset", "left"), [(55, [51, 53, 54]), (54, [51, 53]), (52, [51]), (51, []), (45, [])]
)
def test_truncate_drops_the_entries_from_an_offset_on(
    memory: MemoryDirectory, offset: int, left: list[int]
) -> None:
    index = active(memory)
    for number, indexed in enumerate([51, 53, 54]):
        index.append(indexed, number)
    index.truncate_to(offset)
    assert [BASE + index.file.entry(slot)[0] for slot in range(index.file.count)] == left
    assert index.last_offset == (left[-1] if left else BASE)


@pytest.mark.parametrize(
    "entries",
    [
        b"abc",
        ENTRY.pack(-1, 0),
        ENTRY.pack(5, 10) + ENTRY.pack(5, 20),
        ENTRY.pack(5, 100),
        ENTRY.pack(5, 10) + bytes(72),
        bytes(80),
    ],
    ids=["length", "below base", "not ascending", "beyond the log", "zero tail", "all zero"],
)
def test_index_that_contradicts_itself_is_corrupt(memory: MemoryDirectory, entries: bytes) -> None:
    memory.write_atomic(NAME, entries)
    with pytest.raises(CorruptIndex):
        OffsetIndex.load(memory, NAME, BASE, log_size=100)


def test_missing_index_is_corrupt(memory: MemoryDirectory) -> None:
    with pytest.raises(CorruptIndex):
        OffsetIndex.load(memory, NAME, BASE, log_size=100)


def test_entry_at_the_base_offset_is_sound(memory: MemoryDirectory) -> None:
    memory.write_atomic(NAME, ENTRY.pack(0, 0))
    assert OffsetIndex.load(memory, NAME, BASE, log_size=100).last_offset == BASE
