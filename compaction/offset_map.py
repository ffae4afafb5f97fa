"""The newest offset of each key, within a bound (Kafka's SkimpyOffsetMap).

There are two: a table of numbers if there is numpy (sum_table.py), and a dict. Both know long keys
by their digests (key_digests.py).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import repeat
from typing import Protocol

from compaction.key_digests import LONGEST_KEY_BYTES, digest_keys
from compaction.keys import Keys
from protocol.special_values import UNKNOWN_OFFSET

# CPython's sizes: of a bytes object without its bytes, and of an int below 2**60.
BYTES_HEADER = 33
OFFSET_BYTES = 32
PLACE_BYTES = 90
"""A place in the dict: 60 bytes for each entry after it has grown, and 30 while the smaller one
still exists, or while the offsets are sorted."""


class OffsetMap(Protocol):
    """Holds the newest offset of as many keys as surely fit into its memory, but at least one."""

    @property
    def capacity(self) -> int:
        """Number of keys that fit, by what is known of them."""

    def __len__(self) -> int: ...

    def add(self, keys: Keys, offsets: Sequence[int]) -> int:
        """Note that these keys, which must exist, are at these ascending offsets.

        Returns how many of them found room.
        """

    def offsets(self) -> Sequence[int]:
        """Return the offsets of all keys, ascending."""

    def newest(self, keys: Keys) -> Iterable[int]:
        """Return the newest offset of each key, UNKNOWN_OFFSET for keys that are not in the map."""


def create_offset_map(max_bytes: int) -> OffsetMap:
    """Create an empty map that may take up `max_bytes`."""
    return _fastest()(max_bytes)


@cache
def _fastest() -> Callable[[int], OffsetMap]:
    try:
        from compaction.sum_table import SumTable
    except ImportError:
        # numpy comes with an extra, and is not there.
        return KeyDict
    return SumTable


def entry_bytes(key_bytes: int) -> int:
    """Return the most memory of a dict's entry with a key of so many bytes; malloc gives 16s."""
    return -(-(BYTES_HEADER + key_bytes) // 16) * 16 + OFFSET_BYTES + PLACE_BYTES


class KeyDict:
    """A dict. An entry takes several times Kafka's 24 bytes.

    It has the key's object, the offset's, and a place in the table, which is largest for its
    content just after it has grown. Each key is counted as large as the longest one yet.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._newest: dict[bytes | None, int] = {}
        self._longest = 0

    def __len__(self) -> int:
        return len(self._newest)

    @property
    def capacity(self) -> int:
        return max(1, self.max_bytes // entry_bytes(self._longest))

    def add(self, keys: Keys, offsets: Sequence[int]) -> int:
        short, longest = _shorten(keys)
        self._longest = max(self._longest, longest)
        newest = self._newest
        capacity = self.capacity

        # Most calls fit as a whole.
        if len(newest) + len(short) <= capacity:
            newest.update(zip(short, offsets, strict=True))
            return len(short)

        # Otherwise key by key, up to the first new one without room.
        for index, key in enumerate(short):
            if len(newest) >= capacity and key not in newest:
                return index
            newest[key] = offsets[index]
        return len(short)

    def offsets(self) -> Sequence[int]:
        return array("q", sorted(self._newest.values()))

    def newest(self, keys: Keys) -> Iterable[int]:
        return map(self._newest.get, _shorten(keys)[0], repeat(UNKNOWN_OFFSET))


def _shorten(keys: Keys) -> tuple[list[bytes | None], int]:
    """Return the keys, long ones as digests, and the length of the longest."""
    longest = keys.longest
    if longest > LONGEST_KEY_BYTES:
        keys = digest_keys(keys)
        longest = keys.longest
    return keys.to_list(), longest
