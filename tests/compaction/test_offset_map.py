"""The newest offset of each key, and that the map never holds more than it may."""

from __future__ import annotations

import tracemalloc

import pytest

from compaction.offset_map import (
    DIGEST_BYTES,
    LONGEST_KEY_BYTES,
    UNKNOWN,
    OffsetMap,
    entry_bytes,
)


def keys_of(count: int, size: int = 8) -> list[bytes]:
    return [b"%0*d" % (size, number) for number in range(count)]


def room_for(keys: int, size: int = 8) -> int:
    return keys * entry_bytes(size)


@pytest.mark.parametrize("count", [10, 100, 1000, 5000])
def test_every_key_is_found_at_its_offset(count: int) -> None:
    newest = OffsetMap(room_for(2 * count))
    assert newest.add(keys_of(count), range(count)) == count
    assert list(newest.newest(keys_of(count))) == list(range(count))
    assert newest.utilization == 0.5


def test_later_offset_of_a_key_takes_the_place_of_the_first() -> None:
    newest = OffsetMap(room_for(10))
    newest.add([b"a", b"b", b"a"], [1, 2, 3])
    newest.add([b"b"], [4])
    assert (list(newest.newest([b"a", b"b"])), len(newest)) == ([3, 4], 2)


def test_full_map_knows_nothing_of_an_absent_key() -> None:
    newest = OffsetMap(room_for(10))
    assert newest.add(keys_of(20), range(20)) == 10
    assert list(newest.newest([b"absent!!"])) == [UNKNOWN]


def test_full_map_takes_keys_that_it_has_up_to_the_first_that_is_new() -> None:
    newest = OffsetMap(room_for(2))
    assert newest.add([b"a", b"b", b"a", b"c", b"a"], range(5)) == 3
    assert list(newest.newest([b"a", b"b", b"c"])) == [2, 1, UNKNOWN]


def test_map_with_room_for_none_takes_one() -> None:
    assert OffsetMap(0).add([b"a", b"b"], [0, 1]) == 1


def test_one_long_key_makes_room_for_fewer() -> None:
    newest = OffsetMap(room_for(100))
    newest.add([b"short"], [0])
    before = newest.capacity
    newest.add([b"x" * 32], [1])
    assert newest.capacity < before == 100


def test_keys_that_differ_behind_many_equal_bytes_are_different() -> None:
    newest = OffsetMap(room_for(10, LONGEST_KEY_BYTES))
    keys = [b"x" * 100 + b"1", b"x" * 100 + b"2", b"x" * 64, b"x" * 65]
    newest.add(keys, range(4))
    assert list(newest.newest(keys)) == [0, 1, 2, 3]


def test_no_keys_are_added_to_any_map() -> None:
    newest = OffsetMap(0)
    assert (newest.add([], []), list(newest.newest([]))) == (0, [])


@pytest.mark.parametrize(
    ("size", "counted"), [(8, 8), (50, 50), (64, 64), (65, DIGEST_BYTES), (10_000, DIGEST_BYTES)]
)
def test_long_key_takes_no_more_than_its_digest(size: int, counted: int) -> None:
    newest = OffsetMap(1_000_000)
    newest.add([b"x" * size], [0])
    assert newest.capacity == 1_000_000 // entry_bytes(counted)


@pytest.mark.parametrize("size", [8, 16, 50, 64, 200])
def test_memory_is_within_what_was_allowed(size: int) -> None:
    allowed = 4_000_000
    newest = OffsetMap(allowed)
    tracemalloc.start()
    offset, step = 1 << 40, 1000
    while True:
        keys = [b"%0*d" % (size, number) for number in range(offset, offset + step)]
        if newest.add(keys, range(offset, offset + step)) < step:
            break
        offset += step
    del keys
    used, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used <= allowed
    assert most <= allowed + 200_000 + step * (size + 33)
    assert used > allowed / 2
