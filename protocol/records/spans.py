"""Columns of batches and of their records, as compaction reads them."""

from collections.abc import Sequence
from typing import Final, NamedTuple

NO_KEY: Final = -1
"""The end of the key of a record without key."""


class Bodies(NamedTuple):
    """The decompressed records of batches: columns with a row for each batch.

    The `counts` records of a batch are the bytes from `starts` to `ends` of a buffer.
    """

    starts: Sequence[int]
    ends: Sequence[int]
    counts: Sequence[int]
    base_offsets: Sequence[int]


class Spans(NamedTuple):
    """Columns with a row for each record of all bodies in turn.

    `keyless` counts the records without key; their keys end at NO_KEY.
    """

    starts: Sequence[int]
    ends: Sequence[int]
    offsets: Sequence[int]
    timestamp_deltas: Sequence[int]
    key_starts: Sequence[int]
    key_ends: Sequence[int]
    tombstones: Sequence[int]
    keyless: int
