"""Read the records of many batches together, by columns. Needs numpy, an extra.

Only the length of a record tells where the next one of its batch begins, so that chain is followed.
But the chains of all batches are independent, so the n-th records of all batches are found in one
step. Committed offsets and metrics come in batches of a few records, and a chunk has thousands of
such batches. When few chains are left they are followed one after the other.

Then each field is one array: 8 bytes are loaded at the field's position in each record, and the
varints in them are decoded together. If anything is too wide for that or contradicts itself, the
result is None, and the plain walk (record_spans.py) reads the records. All numbers are int64 and
stay below 2**60 even where a false length has been read.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protocol.records.record_columns import Ints, take_varint
from protocol.records.record_walk import SMALLEST_RECORD
from protocol.records.spans import NO_KEY, Bodies, Spans

Flags = NDArray[np.bool_]

_WINDOW: Final = 8
"""Bytes loaded at once."""
_FEW_CHAINS: Final = 32
"""Up to this many chains are followed one by one: a step for all of them takes as long."""
_NULL: Final = 1
"""A folded length of -1."""
_WIDEST: Final = 4
"""Most bytes of a length or offset delta."""
_WIDEST_TIMESTAMP: Final = 7


def _advances() -> Ints:
    """Return how far a record reaches whose length is in these two bytes; 0 if it is longer."""
    lengths, widths = take_varint(np.arange(1 << 16), 2)
    return np.where(widths <= 2, widths + (lengths >> 1), 0)


_ADVANCES: Final = _advances()
"""By the first two bytes of a record, as a little-endian number."""


class Fields(NamedTuple):
    """The fields of the records of many bodies: arrays with a row for each record.

    `value_ends` are the positions of the header counts. The key or value of a record that has none
    begins and ends at the same place.
    """

    starts: Ints
    ends: Ints
    offsets: Ints
    timestamp_deltas: Ints
    key_starts: Ints
    key_ends: Ints
    is_keyless: Flags
    value_starts: Ints
    value_ends: Ints
    is_tombstone: Flags

    def select(self, rows: Flags) -> "Fields":
        """Keep some rows of all columns."""
        columns: list[Any] = [column[rows] for column in self]
        return Fields(*columns)


def find_spans(buffer: bytes, bodies: Bodies) -> Spans | None:
    """Read the records of all `bodies`; return None if the plain walk must read them."""
    fields = find_fields(buffer, bodies)
    if fields is None:
        return None

    key_ends = fields.key_ends
    key_ends[fields.is_keyless] = NO_KEY
    return Spans(
        starts=fields.starts.data,
        ends=fields.ends.data,
        offsets=fields.offsets.tolist(),
        timestamp_deltas=fields.timestamp_deltas.data,
        key_starts=fields.key_starts.data,
        key_ends=key_ends.data,
        tombstones=fields.is_tombstone.data,
        keyless=int(np.count_nonzero(fields.is_keyless)),
    )


def find_fields(buffer: bytes, bodies: Bodies) -> Fields | None:
    """Read the fields of the records of all `bodies`; return None if the plain walk must.

    Headers are not read: there is room for them between the end of the value and that of the
    record, and nothing more is known.
    """
    # Each body must have room for its records.
    body_starts, body_ends, counts, base_offsets = (np.array(column, np.int64) for column in bodies)
    if (counts < 0).any() or (counts * SMALLEST_RECORD > body_ends - body_starts).any():
        return None

    # The window of the last byte must end inside the buffer.
    if len(buffer) < int(body_ends.max()) + _WINDOW:
        buffer += bytes(_WINDOW)
    # `windows[i]` are the 8 bytes from position i on.
    windows: Ints = np.ndarray((len(buffer) - _WINDOW + 1,), "<i8", buffer, 0, (1,))

    # Follow the lengths. `firsts` are the rows of the first records.
    firsts = counts.cumsum() - counts
    starts = _find_starts(buffer, windows, body_starts, counts, firsts)
    if starts is None:
        return None

    limit = len(windows) - 1
    words = windows[starts]
    lengths, widths = take_varint(words, _WIDEST)
    ends = starts + widths + (lengths >> 1)
    if not _is_chain(starts, ends, firsts, counts, body_starts, body_ends):
        return None

    # Read the fields, each from the end of the one before.
    at = starts + widths + 1
    timestamps, widths = take_varint(windows[np.minimum(at, limit)], _WIDEST_TIMESTAMP)
    at += widths
    words = windows[np.minimum(at, limit)]
    deltas, delta_widths = take_varint(words, _WIDEST)
    keys, widths = take_varint(words >> 8 * delta_widths, _WIDEST)
    at += delta_widths + widths
    key_ends = at + (keys >> 1)
    values, widths = take_varint(windows[np.minimum(key_ends, limit)], _WIDEST)
    value_starts = key_ends + widths
    value_ends = value_starts + (values >> 1)

    # Lengths and deltas are not negative, but for null; the value ends before the header count.
    odd = (lengths | deltas) & 1
    odd |= value_ends >= ends
    odd |= keys & 1 & (keys > _NULL) | values & 1 & (values > _NULL)
    offsets = np.repeat(base_offsets, counts) + (deltas >> 1)
    if odd.any() or not _go_up(offsets, firsts, counts):
        return None

    return Fields(
        starts=starts,
        ends=ends,
        offsets=offsets,
        timestamp_deltas=timestamps >> 1 ^ -(timestamps & 1),
        key_starts=at,
        key_ends=key_ends,
        is_keyless=keys == _NULL,
        value_starts=value_starts,
        value_ends=value_ends,
        is_tombstone=values == _NULL,
    )


def _find_starts(
    buffer: bytes, windows: Ints, body_starts: Ints, counts: Ints, firsts: Ints
) -> Ints | None:
    """Return the starts of all records, according to the lengths; None if one leads outside."""
    limit = len(windows) - 1
    starts: Ints = np.zeros(int(counts.sum()), np.int64)

    # The longest chains first, so that those that go on are always the first ones.
    chains = np.argsort(-counts, kind="stable")
    rows = firsts[chains]
    at = body_starts[chains]
    ends_at = np.searchsorted(-counts[chains], -np.arange(int(counts.max(initial=0)) + 1))
    done = 0  # records of each body that have been found

    # All chains in one step.
    shorts = np.ndarray((len(windows),), "<u2", buffer, 0, (1,))
    while (going := int(ends_at[done])) > _FEW_CHAINS:
        at = at[:going]
        starts[rows[:going] + done] = at
        advances = _ADVANCES[shorts[at]]
        if not advances.all():
            lengths, widths = take_varint(windows[at], _WIDEST)
            advances = widths + (lengths >> 1)
        # A false length stays within the windows; `_is_chain` finds it.
        at = np.minimum(at + advances, limit)
        done += 1

    # The few that are left, one by one.
    left = counts[chains[:going]] - done
    for row, pos, count in zip(
        rows[:going].tolist(), at[:going].tolist(), left.tolist(), strict=True
    ):
        followed = _follow_lengths(buffer, pos, count, limit)
        if followed is None:
            return None
        starts[row + done : row + done + count] = followed
    return starts


def _follow_lengths(buffer: bytes, pos: int, count: int, limit: int) -> list[int] | None:
    """Return the starts of `count` records; None if a length leads outside or is too wide."""
    starts = []
    for _ in range(count):
        if pos > limit:
            return None
        starts.append(pos)

        # The constants take off the continuation bits, halved by unfolding, and add the width.
        if (length := buffer[pos]) < 128:
            pos += (length >> 1) + 1
        elif (high := buffer[pos + 1]) < 128:
            pos += (length + (high << 7) >> 1) - 62
        elif (top := buffer[pos + 2]) < 128:
            pos += (length + (high << 7) + (top << 14) - 128 - 16384 >> 1) + 3
        elif (last := buffer[pos + 3]) < 128:
            pos += (length + (high << 7) + (top << 14) + (last << 21) - 2113664 >> 1) + 4
        else:
            return None
    return starts


def _is_chain(
    starts: Ints, ends: Ints, firsts: Ints, counts: Ints, body_starts: Ints, body_ends: Ints
) -> bool:
    """Return whether the records follow each other and fill their bodies."""
    has_records = counts > 0
    if not (body_starts == body_ends)[~has_records].all():
        return False
    if not len(starts):
        return True

    # A record begins where the one before ends, or where its body begins.
    expected = np.empty_like(starts)
    expected[1:] = ends[:-1]
    expected[firsts[has_records]] = body_starts[has_records]
    lasts = (firsts + counts - 1)[has_records]
    return bool((expected == starts).all() and (ends[lasts] == body_ends[has_records]).all())


def _go_up(offsets: Ints, firsts: Ints, counts: Ints) -> bool:
    """Return whether the offsets go up within each batch."""
    rises = offsets[1:] > offsets[:-1]
    rises[firsts[(firsts > 0) & (counts > 0)] - 1] = True  # from one batch to the next
    return bool(rises.all())
