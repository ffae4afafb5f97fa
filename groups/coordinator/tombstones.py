"""Remove keys of a group by tombstone records, a bounded number in each append.

The log takes no batch beyond max.message.bytes, and nothing bounds the offsets of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from groups.coordinator.events import AppendEnded
from groups.runtime.effects import Append
from groups.runtime.journal import RECORD_OVERHEAD
from offsets.records import Key, Record, encode_key

K = TypeVar("K", bound=Key)

APPEND_BYTES = 8192
"""Largest size of the tombstones of one append, unless one alone is larger. The journal lets
appends share a batch, so small ones cost nothing."""


def tombstones(keys: Iterable[K], then: Callable[[Sequence[K]], AppendEnded]) -> list[Append]:
    """Return appends that remove `keys` of one group, in order, each with its `then`."""
    appends: list[Append] = []
    taken: list[K] = []
    size = 0
    for key in keys:
        key_size = len(encode_key(key)) + RECORD_OVERHEAD
        # Full: go on with another append.
        if taken and size + key_size > APPEND_BYTES:
            appends.append(_append(taken, then))
            taken = []
            size = 0
        taken.append(key)
        size += key_size

    if taken:
        appends.append(_append(taken, then))
    return appends


def _append(keys: Sequence[K], then: Callable[[Sequence[K]], AppendEnded]) -> Append:
    records: list[Record] = [(key, None) for key in keys]
    return Append(records, then=then(keys))
