"""The offset map as a table in three arrays, 24 bytes a place as Kafka's. It needs numpy, an extra.

A key is known by two sums modulo 2**64: of a secret number, and of its length and its 32-bit words,
each times a secret number, all drawn for each map (multilinear hashing). Two different keys have
both sums equal with a chance of 2**-66 at most, whoever chose the keys; if nobody chose them,
2**-128.

All keys of a call are looked up together: each round looks at one place for every key that is not
found yet. A key's places follow from its sums, so they are as if drawn at random, and if one of
them is free the key is not there.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from compaction.key_digests import LONGEST_KEY_BYTES, digest_keys
from compaction.keys import Keys
from protocol.special_values import UNKNOWN_OFFSET

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

KEY_BYTES: Final = 48
"""Bytes for each key: 32 in a table that is three quarters full, and the rest while a table is made
from one half as large, or while the offsets are sorted."""
_FULLEST: Final = 0.75
_FIRST_PLACES: Final = 1024
_MOVED_AT_ONCE: Final = 8192
_WORD: Final = 8
_HALF: Final = np.uint64(32)
_LOW: Final = np.uint64(2**32 - 1)
_MASKS: Final[Words] = np.array([2 ** (8 * size) - 1 for size in range(_WORD + 1)], np.uint64)
"""Masks for a word, by the number of its bytes that are the key's."""


class SumTable:
    """Holds at most `max_bytes // KEY_BYTES` keys, or one."""

    def __init__(self, max_bytes: int) -> None:
        self.capacity = max(1, max_bytes // KEY_BYTES)
        self._most_places = int(self.capacity / _FULLEST) + 1
        # One number for the length, two for each word, and one to begin with.
        numbers = 2 + 2 * LONGEST_KEY_BYTES // _WORD
        self._secret: Words = np.array(
            [[secrets.randbits(64) for _ in range(numbers)] for _ in range(2)], np.uint64
        )

        # Begin small. Doubling comes out at the greatest size again.
        places = self._most_places
        while places > _FIRST_PLACES:
            places = -(-places // 2)
        self._make(places)

    def __len__(self) -> int:
        return self._used

    def add(self, keys: Keys, offsets: Sequence[int]) -> int:
        first, second = self._sums(keys)
        new: Ints = np.asarray(offsets, np.int64)
        done = 0
        count = len(new)

        while done < count:
            # If the rest is too much, add it up to the first new key without room.
            room = self.capacity - self._used
            end = count
            if count - done > room:
                unknown = np.flatnonzero(self._find(first[done:], second[done:]) == UNKNOWN_OFFSET)
                if len(unknown) > room:
                    end = done + int(unknown[room])

            self._put(first[done:end], second[done:end], new[done:end])
            done = end
            if not room:
                break
        return done

    def offsets(self) -> Sequence[int]:
        used = self._offsets[self._offsets != UNKNOWN_OFFSET]
        used.sort()
        ascending: memoryview[int] = used.data
        return ascending

    def newest(self, keys: Keys) -> Sequence[int]:
        offsets: list[int] = self._find(*self._sums(keys)).tolist()
        return offsets

    def _make(self, places: int) -> None:
        self._places = places
        self._used = 0
        self._first: Words = np.zeros(places, np.uint64)
        self._second: Words = np.zeros(places, np.uint64)
        self._offsets: Ints = np.full(places, UNKNOWN_OFFSET, np.int64)

    def _sums(self, keys: Keys) -> tuple[Words, Words]:
        starts: Ints = np.asarray(keys.starts, np.int64)
        left = np.asarray(keys.ends, np.int64) - starts
        longest = int(left.max(initial=0))
        if longest > LONGEST_KEY_BYTES:
            return self._sums(digest_keys(keys))

        first, second = (
            left.astype(np.uint64) * numbers[0] + numbers[-1] for numbers in self._secret
        )
        # Whole words are read, so the buffer needs room behind the last key.
        buffer = keys.buffer
        if len(buffer) < int(starts.max(initial=0)) + longest + _WORD:
            buffer += bytes(longest + _WORD)
        words: Words = np.ndarray((len(buffer) - _WORD + 1,), "<u8", buffer, 0, (1,))

        for nth in range(1, 2 * -(-longest // _WORD), 2):
            # A key that has come to its end adds nothing, from wherever it is read.
            word = words[starts] & _MASKS[np.clip(left, 0, _WORD)]
            low, high = word & _LOW, word >> _HALF
            for sums, numbers in zip((first, second), self._secret, strict=True):
                sums += low * numbers[nth]
                sums += high * numbers[nth + 1]
            starts, left = starts + _WORD, left - _WORD
        return first, second

    def _at(self, sums: Words) -> Ints:
        # Scales the upper half of a sum to the number of places, without a division.
        return ((sums >> _HALF) * np.uint64(self._places) >> _HALF).astype(np.int64)

    def _find(self, first: Words, second: Words) -> Ints:
        offsets: Ints = np.full(len(first), UNKNOWN_OFFSET, np.int64)
        rows = np.arange(len(first))
        # The first sum gives the first place; the second is added for each further one.
        steps = first
        while len(rows):
            at = self._at(steps)
            offsets_there = self._offsets[at]
            is_there = (self._first[at] == first) & (self._second[at] == second)
            offsets[rows[is_there]] = offsets_there[is_there]

            # Keys go on to their next place where another key is.
            goes_on = np.flatnonzero(~is_there & (offsets_there != UNKNOWN_OFFSET))
            rows, first, second = rows[goes_on], first[goes_on], second[goes_on]
            steps = steps[goes_on] + second
        return offsets

    def _put(self, first: Words, second: Words, offsets: Ints) -> None:
        """Put all these keys, for which there is room. Of equal ones the last offset counts."""
        wanted = min((self._used + len(first)) / _FULLEST, self._most_places)
        while self._places < wanted:
            self._grow()

        steps = first
        while len(first):
            at = self._at(steps)
            free = np.flatnonzero(self._offsets[at] == UNKNOWN_OFFSET)
            if len(free):
                # If several want one place, the last of them gets it with all three numbers.
                taken = at[free]
                self._first[taken], self._second[taken] = first[free], second[free]
                self._offsets[taken] = offsets[free]
                self._used += len(np.unique(taken))

            # Keys go on to their next place where another key is.
            is_there = (self._first[at] == first) & (self._second[at] == second)
            self._offsets[at[is_there]] = offsets[is_there]
            goes_on = np.flatnonzero(~is_there)
            first, second, offsets = first[goes_on], second[goes_on], offsets[goes_on]
            steps = steps[goes_on] + second

    def _grow(self) -> None:
        used = np.flatnonzero(self._offsets != UNKNOWN_OFFSET)
        first, second, offsets = self._first[used], self._second[used], self._offsets[used]
        del used, self._first, self._second, self._offsets

        self._make(min(2 * self._places, self._most_places))
        # In slices: `_put` needs memory for all that it is given at once.
        for begin in range(0, len(first), _MOVED_AT_ONCE):
            moved = slice(begin, begin + _MOVED_AT_ONCE)
            self._put(first[moved], second[moved], offsets[moved])
