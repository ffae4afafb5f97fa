"""The records of many batches read together, by columns: needs numpy, an extra.

Only its length tells where the next record of a batch begins, so that chain is followed; but the
chains of all batches are independent, and the n-th records of all of them are found in one step.
A committed offset or a metric comes in batches of a few records, of which a chunk holds thousands.
When few chains are left they are followed one after the other.

Then each field is one array: 8 bytes are loaded at every record's position of it, and the varints
in them taken apart together. What is too wide for that, or contradicts itself, makes the whole
answer None: the plain walk (record_spans.py) is to judge. All numbers are int64 and stay below
2**60 even where a lie has been read.
"""

from typing import Final

import numpy as np

from protocol.records.record_columns import Ints, take_varint
from protocol.records.record_spans import NO_KEY, Bodies, Spans
from protocol.records.record_walk import SMALLEST_RECORD

_WINDOW: Final = 8
"""Bytes loaded at once."""
_FEW_CHAINS: Final = 48
"""Up to so many chains are followed one by one: a step for all costs as much as that."""
_NULL: Final = 1
"""A folded length of -1."""
_WIDEST: Final = 4
"""Most bytes of a length or offset delta."""
_WIDEST_TIMESTAMP: Final = 7


def find_spans(buffer: bytes, bodies: Bodies) -> Spans | None:
    """Read the records of all `bodies`; None when that takes a closer look."""
    body_starts, body_ends, counts, base_offsets = (np.array(column, np.int64) for column in bodies)
    if (counts < 0).any() or (counts * SMALLEST_RECORD > body_ends - body_starts).any():
        return None
    if len(buffer) < int(body_ends.max()) + _WINDOW:
        buffer += bytes(_WINDOW)
    windows: Ints = np.ndarray((len(buffer) - _WINDOW + 1,), "<i8", buffer, 0, (1,))
    firsts = counts.cumsum() - counts
    starts = _starts(buffer, windows, body_starts, counts, firsts)
    if starts is None:
        return None
    limit = len(windows) - 1
    words = windows[starts]
    lengths, widths = take_varint(words, _WIDEST)
    ends = starts + widths + (lengths >> 1)
    if not _is_chain(starts, ends, firsts, counts, body_starts, body_ends):
        return None
    at = starts + widths + 1
    timestamps, widths = take_varint(windows[np.minimum(at, limit)], _WIDEST_TIMESTAMP)
    at += widths
    words = windows[np.minimum(at, limit)]
    deltas, delta_widths = take_varint(words, _WIDEST)
    keys, widths = take_varint(words >> 8 * delta_widths, _WIDEST)
    at += delta_widths + widths
    key_ends = at + (keys >> 1)
    values, widths = take_varint(windows[np.minimum(key_ends, limit)], _WIDEST)
    value_ends = key_ends + widths + (values >> 1)
    odd = (lengths | deltas) & 1
    odd |= value_ends >= ends
    odd |= keys & 1 & (keys > _NULL) | values & 1 & (values > _NULL)
    offsets = np.repeat(base_offsets, counts) + (deltas >> 1)
    if odd.any() or not _go_up(offsets, firsts, counts):
        return None
    keyless = keys == _NULL
    key_ends[keyless] = NO_KEY
    return Spans(
        starts=starts.data,
        ends=ends.data,
        offsets=offsets.tolist(),
        timestamp_deltas=(timestamps >> 1 ^ -(timestamps & 1)).data,
        key_starts=at.data,
        key_ends=key_ends.data,
        tombstones=(values == _NULL).data,
        keyless=int(np.count_nonzero(keyless)),
    )


def _starts(
    buffer: bytes, windows: Ints, body_starts: Ints, counts: Ints, firsts: Ints
) -> Ints | None:
    """Where each record of each body begins, as the lengths say; None where one leads outside."""
    limit = len(windows) - 1
    starts: Ints = np.zeros(int(counts.sum()), np.int64)
    chains = np.flatnonzero(counts)
    at = body_starts[chains]
    done = 0
    while len(chains) > _FEW_CHAINS:
        starts[firsts[chains] + done] = at
        lengths, widths = take_varint(windows[at], _WIDEST)
        at = np.minimum(at + widths + (lengths >> 1), limit)
        done += 1
        longer = counts[chains] > done
        chains, at = chains[longer], at[longer]
    for chain, pos in zip(chains.tolist(), at.tolist(), strict=True):
        left = int(counts[chain]) - done
        followed = _follow(buffer, pos, left, limit)
        if followed is None:
            return None
        first = int(firsts[chain]) + done
        starts[first : first + left] = followed
    return starts


def _follow(buffer: bytes, pos: int, count: int, limit: int) -> list[int] | None:
    found = []
    for _ in range(count):
        if pos > limit:
            return None
        found.append(pos)
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
    return found


def _is_chain(
    starts: Ints, ends: Ints, firsts: Ints, counts: Ints, body_starts: Ints, body_ends: Ints
) -> bool:
    """Whether each record begins where the one before it, or the body, says, and none is left."""
    some = counts > 0
    if not (body_starts == body_ends)[~some].all():
        return False
    if not len(starts):
        return True
    expected = np.empty_like(starts)
    expected[1:] = ends[:-1]
    expected[firsts[some]] = body_starts[some]
    lasts = (firsts + counts - 1)[some]
    return bool((expected == starts).all() and (ends[lasts] == body_ends[some]).all())


def _go_up(offsets: Ints, firsts: Ints, counts: Ints) -> bool:
    rises = offsets[1:] > offsets[:-1]
    rises[firsts[(firsts > 0) & (counts > 0)] - 1] = True  # from one batch to the next
    return bool(rises.all())
