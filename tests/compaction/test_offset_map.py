"""The newest offset of each key, and that a map never holds more than it may: both maps."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from compaction.key_digests import DIGEST_BYTES, LONGEST_KEY_BYTES
from compaction.keys import Keys
from compaction.offset_map import KeyDict, OffsetMap, create_offset_map, entry_bytes
from protocol.special_values import UNKNOWN_OFFSET

pytestmark = pytest.mark.usefixtures("columns")
PLENTY = 10_000_000


def numbered(numbers: range, size: int = 8) -> list[bytes | None]:
    return [b"%0*d" % (size, number) for number in numbers]


def map_for(keys: int) -> OffsetMap:
    """Create a map, of either kind, with room for so many short keys."""
    return create_offset_map(keys * (PLENTY // create_offset_map(PLENTY).capacity))


def add(newest: OffsetMap, keys: list[bytes | None], offsets: range) -> int:
    return newest.add(Keys.of(keys), offsets)


def look_up(newest: OffsetMap, keys: list[bytes | None]) -> list[int]:
    return list(newest.newest(Keys.of(keys)))


def test_which_map_it_is(columns: str) -> None:
    assert isinstance(create_offset_map(0), KeyDict) == (columns == "plain")


@pytest.mark.parametrize("count", [10, 100, 1000, 5000])
def test_every_key_is_found_at_its_offset(count: int) -> None:
    newest = map_for(2 * count)
    assert newest.capacity == 2 * count
    assert add(newest, numbered(range(count)), range(count)) == count
    assert look_up(newest, numbered(range(count))) == list(range(count))
    assert look_up(newest, numbered(range(count, 2 * count))) == [UNKNOWN_OFFSET] * count
    assert (len(newest), list(newest.offsets())) == (count, list(range(count)))


@pytest.mark.parametrize("seed", range(4))
def test_keys_of_all_sizes_are_known_as_a_dict_knows_them(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [*range(20), LONGEST_KEY_BYTES - 1, LONGEST_KEY_BYTES, LONGEST_KEY_BYTES + 1, 300]
    keys = [rng.randbytes(rng.choice(sizes)) for _ in range(3000)]
    newest, expected, offset = create_offset_map(PLENTY), dict[bytes | None, int](), 0
    while offset < 20_000:
        chosen: list[bytes | None] = [*rng.choices(keys, k=rng.choice([1, 2, 100, 3000]))]
        offsets = range(offset, offset + len(chosen))
        assert add(newest, chosen, offsets) == len(chosen)
        expected.update(zip(chosen, offsets, strict=True))
        offset += len(chosen)
    assert look_up(newest, [*keys]) == [expected.get(key, UNKNOWN_OFFSET) for key in keys]
    assert list(newest.offsets()) == sorted(expected.values())


def test_keys_that_are_alike_are_different() -> None:
    """Zeros at the end, words exchanged, bits that a product shifts out."""
    keys: list[bytes | None] = [bytes(size) for size in range(40)]
    keys += [bytes(at) + b"\x80" + bytes(31 - at) for at in range(32)]
    keys += [bytes(at) + b"\x80" + bytes(7) + b"\x80" + bytes(23 - at) for at in range(24)]
    newest = create_offset_map(PLENTY)
    assert add(newest, keys, range(len(keys))) == len(keys)
    assert look_up(newest, keys) == list(range(len(keys)))


def test_later_offset_of_a_key_takes_the_place_of_the_first() -> None:
    newest = map_for(10)
    add(newest, [b"a", b"b", b"a"], range(1, 4))
    add(newest, [b"b"], range(4, 5))
    assert (look_up(newest, [b"a", b"b"]), len(newest)) == ([3, 4], 2)


def test_full_map_knows_nothing_of_an_absent_key() -> None:
    newest = map_for(10)
    assert add(newest, numbered(range(20)), range(20)) == 10
    assert look_up(newest, [b"absent!!", b"", None]) == [UNKNOWN_OFFSET] * 3


def test_full_map_takes_keys_that_it_has_up_to_the_first_that_is_new() -> None:
    newest = map_for(2)
    assert add(newest, [b"a", b"b", b"a", b"c", b"a"], range(5)) == 3
    assert look_up(newest, [b"a", b"b", b"c"]) == [2, 1, UNKNOWN_OFFSET]
    assert add(newest, [b"b", b"b", b"a"], range(5, 8)) == 3
    assert look_up(newest, [b"a", b"b"]) == [7, 6]


@pytest.mark.parametrize("seed", range(10))
def test_map_is_full_at_the_first_key_for_which_there_is_no_room(seed: int) -> None:
    rng = random.Random(seed)
    room = rng.randint(1, 300)
    keys: list[bytes | None] = [b"%d" % rng.randrange(400) for _ in range(2000)]
    newest, added_keys, done = map_for(room), set[bytes | None](), 0
    while done < len(keys):
        chosen = keys[done : done + rng.choice([1, 10, 500])]
        added = add(newest, chosen, range(done, done + len(chosen)))
        added_keys.update(chosen[:added])
        done += added
        if added < len(chosen):
            break
    assert len(newest) == len(added_keys) == min(room, len(set(keys)))
    assert done == len(keys) or keys[done] not in added_keys


def test_map_with_room_for_none_takes_one() -> None:
    assert add(create_offset_map(0), [b"a", b"b"], range(2)) == 1


def test_keys_that_differ_behind_many_equal_bytes_are_different() -> None:
    newest = create_offset_map(PLENTY)
    keys: list[bytes | None] = [b"x" * 100 + b"1", b"x" * 100 + b"2", b"x" * 64, b"x" * 65]
    add(newest, keys, range(4))
    assert look_up(newest, keys) == [0, 1, 2, 3]


def test_no_keys_are_added_to_any_map() -> None:
    newest = create_offset_map(0)
    assert (add(newest, [], range(0)), look_up(newest, []), list(newest.offsets())) == (0, [], [])


def test_one_long_key_makes_room_for_fewer_in_a_dict() -> None:
    newest = KeyDict(100 * entry_bytes(8))
    add(newest, [b"short"], range(1))
    before = newest.capacity
    add(newest, [b"x" * 32], range(1, 2))
    assert newest.capacity < before == 100


@pytest.mark.parametrize(
    ("size", "counted"), [(8, 8), (50, 50), (64, 64), (65, DIGEST_BYTES), (10_000, DIGEST_BYTES)]
)
def test_long_key_takes_no_more_than_its_digest(size: int, counted: int) -> None:
    newest = KeyDict(1_000_000)
    add(newest, [b"x" * size], range(1))
    assert newest.capacity == 1_000_000 // entry_bytes(counted)


@pytest.mark.parametrize("size", [8, 16, 50, 64, 200])
def test_memory_is_within_what_was_allowed(size: int) -> None:
    allowed, step = 4_000_000, 1000
    tracemalloc.start()
    newest = create_offset_map(allowed)
    offset = 1 << 40
    while True:
        numbers = range(offset, offset + step)
        if add(newest, numbered(numbers, size), numbers) < step:
            break
        offset += step
    used, _ = tracemalloc.get_traced_memory()
    ordered = newest.offsets()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(ordered) == newest.capacity
    assert used <= allowed
    # Besides the map: the keys of one step, and in a table what their look-up takes for a moment.
    assert most <= allowed + 1_000_000 + step * (size + 33)
    assert most > allowed / 2
