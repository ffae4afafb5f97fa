"""The newest offset of each key, within a bound (Kafka's SkimpyOffsetMap).

A dict, for whose entries Python takes several times Kafka's 24 bytes: the key's object, the
offset's, and a place in the table, which is largest for its content just after it has grown. So
long keys are known by a digest: BLAKE2b of 128 bits, of which two being equal by chance is as
unlikely as that Kafka's MD5 are. The bound is held by counting each key as large as the longest
one yet.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import repeat

UNKNOWN = -1
LONGEST_KEY_BYTES = 64
"""A digest takes longer than all else that is done for a key: those of committed offsets stay."""
DIGEST_BYTES = 16
BYTES_HEADER = 33
OFFSET_BYTES = 32
PLACE_BYTES = 90
"""Of the table: 60 for each entry after it has grown, and 30 while the smaller one still is, or
while the offsets are sorted."""


def entry_bytes(key_bytes: int) -> int:
    """The most memory an entry with a key object of so many bytes takes; malloc gives 16s."""
    return -(-(BYTES_HEADER + key_bytes) // 16) * 16 + OFFSET_BYTES + PLACE_BYTES


class OffsetMap:
    """Holds at most as many keys as are sure to take up no more than `max_bytes`, but one."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._newest: dict[bytes, int] = {}
        self._longest = 0

    def __len__(self) -> int:
        return len(self._newest)

    @property
    def capacity(self) -> int:
        """How many keys fit, by what is known of their sizes."""
        return max(1, self.max_bytes // entry_bytes(self._longest))

    @property
    def utilization(self) -> float:
        """The share of the capacity that is used."""
        return len(self) / self.capacity

    def add(self, keys: Sequence[bytes], offsets: Sequence[int]) -> int:
        """Note that these keys are at these offsets, which go up; how many of them found room."""
        if not keys:
            return 0
        short = _short(keys)
        self._longest = max(self._longest, max(map(len, short)))
        newest, capacity = self._newest, self.capacity
        if len(newest) + len(short) <= capacity:
            newest.update(zip(short, offsets, strict=True))
            return len(short)
        for index, key in enumerate(short):
            if len(newest) >= capacity and key not in newest:
                return index
            newest[key] = offsets[index]
        return len(short)

    def offsets(self) -> array[int]:
        """The offsets of all keys, ascending."""
        return array("q", sorted(self._newest.values()))

    def newest(self, keys: Sequence[bytes]) -> Iterable[int]:
        """The newest offset of each key, UNKNOWN of such as are not in it."""
        return map(self._newest.get, _short(keys), repeat(UNKNOWN))


def _short(keys: Sequence[bytes]) -> Sequence[bytes]:
    if max(map(len, keys), default=0) <= LONGEST_KEY_BYTES:
        return keys
    return [
        key if len(key) <= LONGEST_KEY_BYTES else blake2b(key, digest_size=DIGEST_BYTES).digest()
        for key in keys
    ]
