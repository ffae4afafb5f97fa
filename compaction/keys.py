"""The keys of records, at their places in a buffer. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import sub
from typing import Self

from protocol.frozen import frozen
from protocol.records.spans import NO_KEY


@frozen
class Keys:
    """Columns, a row for each record: its key is the bytes from `starts` to `ends` of `buffer`.

    A row without a key ends at NO_KEY.
    """

    buffer: bytes
    starts: Sequence[int]
    ends: Sequence[int]

    @classmethod
    def of(cls, keys: Sequence[bytes | None]) -> Self:
        """Join keys in a buffer of their own."""
        places = list(accumulate((len(key or b"") for key in keys), initial=0))
        ends = [NO_KEY if key is None else end for key, end in zip(keys, places[1:], strict=True)]
        return cls(b"".join(key or b"" for key in keys), places[:-1], ends)

    def __len__(self) -> int:
        return len(self.starts)

    def select(self, rows: Sequence[int]) -> Keys:
        """Return the keys of some rows."""
        return Keys(
            self.buffer, [self.starts[row] for row in rows], [self.ends[row] for row in rows]
        )

    def to_list(self) -> list[bytes | None]:
        """Return an object for each key."""
        buffer = self.buffer
        places = zip(self.starts, self.ends, strict=True)
        # Mostly each record has a key: the search is faster than a test of each.
        if NO_KEY in self.ends:
            return [buffer[start:end] if end != NO_KEY else None for start, end in places]
        return [buffer[start:end] for start, end in places]

    @property
    def longest(self) -> int:
        """Bytes of the longest key."""
        return max(map(sub, self.ends, self.starts), default=0)
