"""Records of uneven size, proved by columns: the one module that needs numpy, an optional extra.

Where records differ in size only their lengths tell where the next begins, and following that
chain is most of the work. So the starts are guessed first: a record without headers ends in a 0
byte, and its attributes, one or two bytes on, are 0 too. The guess proves itself, each record's
length leading to the next start; payloads full of zeros spoil it, and the chain is then followed
one by one. Every field is then one array: 8 bytes are loaded at each record's position of the
field, and its varints, of up to four or five bytes, are peeled off together.

No verdict is spoken here. A record that is not plain (headers, attributes, wide varints, a wrong
length) is odd, for the plain walk to judge, and where too many are odd all of them are.

All numbers are int64: a position is below 2**31, a length below 2**28, so no sum overflows.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protocol.records.corrupt_record import CorruptRecord
from protocol.records.varint import decode_folded

Ints = NDArray[np.int64]

_WINDOW: Final = 8
"""Bytes loaded at once."""
_BLOCK: Final = 64 * 1024
"""Bytes searched for starts at once: what stays in the processor's cache."""
_SPARSE: Final = 400
"""Bytes of a mean record from which following the lengths is faster than searching the bytes."""
_LENGTH_GROUPS: Final = 4
_TIMESTAMP_GROUPS: Final = 5


class Columns(NamedTuple):
    """`records` neighbours up to `end`; of the `odd` ones (ascending) only `starts` is true.

    `starts` has one more item, the end. Timestamp and offset deltas are numbers, key and value
    lengths stay folded (varint.py), where 1 is null.
    """

    records: int
    starts: list[int]
    odd: list[int]
    timestamp_deltas: Ints
    offset_deltas: Ints
    key_at: Ints
    key_length: Ints
    value_at: Ints
    value_length: Ints


class _Frames(NamedTuple):
    """Where records begin and end, by their lengths alone, and the first bytes of each."""

    starts: Ints
    ends: Ints
    words: Ints
    length_width: Ints
    unfinished: Ints

    def chosen(self, which: "slice | list[int]") -> "_Frames":
        return _Frames(*(column[which] for column in self))


def find_columns(body: bytes, pos: int, most: int) -> Columns | None:
    """Read up to `most` records from `pos`, leaving at least the last one of `body` unread.

    None when that is no faster than reading them one by one.
    """
    limit = len(body) - _WINDOW
    if limit < pos:
        return None
    windows: Ints = np.ndarray((limit + 1,), "<i8", body, 0, (1,))
    octets = np.frombuffer(body, np.uint8)
    frames = None
    if limit - pos < _SPARSE * most:
        guess = _guess_starts(octets, pos, limit, most)
        if guess is not None:
            if _is_most(len(guess), most):
                frames = _linked(_frames_at(windows, guess), most)
            else:
                return None
    if frames is None:
        followed = np.fromiter(_follow(body, pos, limit, most), np.int64)
        frames = _frames_at(windows, followed)
    if not len(frames.starts):
        return None
    if frames.ends[-1] > limit:
        frames = frames.chosen(slice(0, -1))
    columns = _columns_of(frames, windows, octets, limit)
    return columns if _is_most(columns.records - len(columns.odd), most) else None
