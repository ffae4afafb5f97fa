"""The newest offset of each key, within a bound (Kafka's SkimpyOffsetMap).

There are two: a table of numbers where there is numpy (sum_table.py), and a dict. Keys beyond
LONGEST_KEY_BYTES are known to both by a digest: BLAKE2b of 128 bits, of which two being equal by
chance is as unlikely as that Kafka's MD5 are.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from hashlib import blake2b
from itertools import repeat
from typing import Final, Protocol

from compaction.keys import Keys

UNKNOWN: Final = -1
LONGEST_KEY_BYTES: Final = 64
"""A digest takes longer than all else that is done for a key: those of committed offsets stay."""
DIGEST_BYTES: Final = 16
BYTES_HEADER = 33
OFFSET_BYTES = 32
PLACE_BYTES = 90
"""Of the dict: 60 for each entry after it has grown, and 30 while the smaller one still is, or
while the offsets are sorted."""


class OffsetMap(Protocol):
    """Holds at most as many keys as are sure to take up no more than it may, but one."""

    @property
    def capacity(self) -> int:
        """How many keys fit, by what is known of them."""

    def __len__(self) -> int: ...

    def add(self, keys: Keys, offsets: Sequence[int]) -> int:
        """Note that these keys, all of which there are, are at these offsets, which go up; how
        many of them found room."""

    def offsets(self) -> Sequence[int]:
        """The offsets of all keys, ascending."""

    def newest(self, keys: Keys) -> Iterable[int]:
        """The newest offset of each key, UNKNOWN of such as are not in it."""


def create_offset_map(max_bytes: int) -> OffsetMap:
    """An empty one that may take up so much."""
    return _fastest()(max_bytes)


@cache
def _fastest() -> Callable[[int], OffsetMap]:
    try:
        from compaction.sum_table import SumTable
    except ImportError:
        return KeyDict
    return SumTable


def entry_bytes(key_bytes: int) -> int:
    """The most memory a dict's entry with a key object of so many bytes takes; malloc gives 16s."""
    return -(-(BYTES_HEADER + key_bytes) // 16) * 16 + OFFSET_BYTES + PLACE_BYTES


class KeyDict:
    """A dict, for whose entries Python takes several times Kafka's 24 bytes: the key's object, the
    offset's, and a place in the table, which is largest for its content just after it has grown.
    Each key is counted as large as the longest one yet."""

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
        short, longest = _short(keys)
        self._longest = max(self._longest, longest)
        newest, capacity = self._newest, self.capacity
        if len(newest) + len(short) <= capacity:
            newest.update(zip(short, offsets, strict=True))
            return len(short)
        for index, key in enumerate(short):
            if len(newest) >= capacity and key not in newest:
                return index
            newest[key] = offsets[index]
        return len(short)

    def offsets(self) -> Sequence[int]:
        return array("q", sorted(self._newest.values()))

    def newest(self, keys: Keys) -> Iterable[int]:
        return map(self._newest.get, _short(keys)[0], repeat(UNKNOWN))


def _short(keys: Keys) -> tuple[list[bytes | None], int]:
    """And how long the longest one is."""
    longest = keys.longest
    if longest > LONGEST_KEY_BYTES:
        keys = digest_keys(keys)
        longest = keys.longest
    return keys.to_list(), longest


def digest_keys(keys: Keys) -> Keys:
    """The same with digests in place of the long ones."""
    return Keys.of([_digest_of(key) for key in keys.to_list()])


def _digest_of(key: bytes | None) -> bytes | None:
    if key is None or len(key) <= LONGEST_KEY_BYTES:
        return key
    return blake2b(key, digest_size=DIGEST_BYTES).digest()
