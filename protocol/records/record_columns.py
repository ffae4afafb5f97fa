"""Read records of uneven size by columns. Needs numpy, an extra.

If sizes differ, only the length of a record tells where the next one begins, and following that
chain is most of the work. So starts are guessed first: a record without headers ends with a 0 byte,
and its attributes, one or two bytes after its start, are 0 too. The guess is proved when the length
of each record leads to the next start. Payloads with many zeros spoil it; then the chain is
followed.

Once the starts are known, each field is one array: 8 bytes are loaded at the field's position in
each record, and the varints in them, of up to four or five bytes, are decoded together. A record
that cannot be proved so (headers, attributes, wider varints, a contradiction) is odd: the plain
walk must read it. This module never says that a record is corrupt.

All numbers are int64, and none of them comes near 2**63: lengths are below 2**28, positions below
2**43 even where a false length has been read.
"""

from collections.abc import Iterator
from itertools import repeat
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from protocol.records.corrupt_record import CorruptRecord
from protocol.records.record_run import Row
from protocol.records.varint import decode_folded

Ints: TypeAlias = NDArray[np.int64]

_WINDOW: Final = 8
"""Bytes loaded at once."""
_BLOCK: Final = 1 << 16
"""Bytes searched for starts at once; few enough for the cache of the processor."""
_SPARSE: Final = 400
"""Mean record size from which following the lengths is faster than searching all bytes."""
_NULL: Final = 1
"""A folded length of -1."""
_WIDEST: Final = 4
"""Most bytes of a length or offset delta."""
_WIDEST_TIMESTAMP: Final = 5


class Columns(NamedTuple):
    """The fields of neighbouring records, the last of which ends at `end`.

    `odd` has the indexes of the odd records, ascending; only `starts` is right for them. Offset
    deltas and lengths are folded (varint.py), timestamp deltas are not.
    """

    end: int
    odd: list[int]
    starts: Ints
    timestamp_deltas: Ints
    offset_deltas: Ints
    key_at: Ints
    key_lengths: Ints
    value_at: Ints
    value_lengths: Ints

    def ascend_from(self, least_delta: int, *, gaps: bool) -> bool:
        """Return whether the offset deltas go up from `least_delta`, by 1 if `gaps` is false."""
        deltas = self.offset_deltas
        if gaps:
            rising = bool(deltas[0] >= least_delta << 1 and (deltas[1:] > deltas[:-1]).all())
            # A negative delta is odd.
            return rising and not np.count_nonzero(deltas & 1)

        first = least_delta << 1
        return _equal(deltas, np.arange(first, first + 2 * len(deltas), 2))

    def rows(self, body: bytes, base_offset: int, base_timestamp: int) -> list[Row]:
        """Decode the records; the rows of the `odd` ones are wrong."""
        return list(
            zip(
                _sums(base_offset, self.offset_deltas >> 1),
                _sums(base_timestamp, self.timestamp_deltas),
                _payloads(body, self.key_at, self.key_lengths),
                _payloads(body, self.value_at, self.value_lengths),
                repeat(()),
                # `repeat` has no end.
                strict=False,
            )
        )


def _equal(left: Ints, right: Ints) -> bool:
    return not np.count_nonzero(left != right)


def _sums(base: int, deltas: Ints) -> list[int]:
    """Add `base` to all deltas, by Python's integers if int64 might overflow."""
    if -(1 << 62) < base < 1 << 62:
        sums: list[int] = (deltas + base).tolist()
        return sums

    return [base + delta for delta in deltas.tolist()]


def _payloads(body: bytes, at: Ints, lengths: Ints) -> list[bytes | None]:
    # The end 0 stands for null: no payload ends there.
    ends = np.where(lengths == _NULL, 0, at + (lengths >> 1))
    return [
        body[start:end] if end else None
        for start, end in zip(at.tolist(), ends.tolist(), strict=True)
    ]


def find_columns(body: bytes, pos: int, most: int, *, require_keys: bool) -> Columns | None:
    """Read up to `most` records from `pos`, but never the last of `body`.

    Returns None if so few of them are plain that the plain walk is as fast.
    """
    limit = len(body) - _WINDOW
    if limit <= pos:
        return None
    # `windows[i]` are the 8 bytes from position i on.
    windows: Ints = np.ndarray((limit + 1,), "<i8", body, 0, (1,))

    # Guess the starts, and prove the guess.
    frames = None
    if limit - pos < _SPARSE * most:
        guess = _guess_starts(body, pos, limit, most)
        if guess is not None and not _nearly_all(len(guess), most):
            return None
        frames = None if guess is None else _link(_Frames.at(guess, windows), most)

    # Otherwise follow the lengths.
    if frames is None:
        followed = np.fromiter(_follow_lengths(body, pos, limit, most), np.int64)
        frames = _Frames.at(followed, windows)

    # The last record may end beyond the last window: leave it out.
    if frames.ends[-1] > limit:
        frames = frames.select(slice(0, -1))
    if not _nearly_all(len(frames.starts), most):
        return None

    columns = _read_fields(frames, body, windows, require_keys)
    return columns if _nearly_all(len(frames.starts) - len(columns.odd), most) else None


def _nearly_all(plain: int, most: int) -> bool:
    return plain * 8 >= most * 7


class _Frames(NamedTuple):
    """Starts and ends of records according to their lengths, and the first 8 bytes of each."""

    starts: Ints
    ends: Ints
    words: Ints
    length_widths: Ints

    @classmethod
    def at(cls, starts: Ints, windows: Ints) -> "_Frames":
        """Read the lengths at `starts`."""
        words = windows[starts]
        lengths, widths = take_varint(words, _WIDEST)
        return cls(starts, starts + widths + (lengths >> 1), words, widths)

    def select(self, rows: "slice | NDArray[np.bool_]") -> "_Frames":
        """Keep some rows of all columns."""
        return _Frames(*(column[rows] for column in self))


def _guess_starts(body: bytes, pos: int, limit: int, most: int) -> Ints | None:
    """Return the positions up to `limit` where records may start; None if there are too many."""
    octets = np.frombuffer(body, np.uint8)
    guesses = [np.array([pos])]
    room = 2 * most
    for block in range(pos, limit, _BLOCK):
        # Byte i ends a record, and the attributes of the next one are at i + 2 or i + 3.
        zero = octets[block : min(block + _BLOCK, limit) + 3] == 0
        is_end = zero[2:-1] | zero[3:]
        is_end &= zero[:-3]

        # Payloads with many zeros: following the lengths is faster.
        room -= int(np.count_nonzero(is_end))
        if room < 0:
            return None
        guesses.append(np.flatnonzero(is_end) + (block + 1))
    return np.concatenate(guesses)


def _link(guess: _Frames, most: int) -> _Frames | None:
    """Remove the guesses to which no length leads; return None if the rest is not one chain."""
    if not _equal(guess.starts[1:], guess.ends[:-1]):
        # Keep the guesses at which a record ends. `past` stands for all ends beyond the last.
        past = guess.starts[-1] + 1
        reached = np.zeros(past + 1, np.bool_)
        reached[guess.starts[0]] = True
        reached[np.minimum(guess.ends, past)] = True
        guess = guess.select(reached[guess.starts])
        if not _equal(guess.starts[1:], guess.ends[:-1]):
            return None

    return guess.select(slice(0, most)) if _nearly_all(len(guess.starts), most) else None


def _follow_lengths(body: bytes, pos: int, limit: int, most: int) -> Iterator[int]:
    """Yield the starts of up to `most` records, from length to length."""
    for _ in range(most):
        if pos > limit:
            return
        yield pos

        # 62: the continuation bit adds 64 after unfolding, and the length itself takes 2 bytes.
        if (length := body[pos]) < 128:
            pos += (length >> 1) + 1
        elif (high := body[pos + 1]) < 128:
            pos += (length + (high << 7) >> 1) - 62
        else:
            # The plain walk reads a length that is wide or damaged.
            try:
                length, begin = decode_folded(body, pos, 32)
            except CorruptRecord:
                return
            if begin - pos > _WIDEST:
                return
            pos = begin + (length >> 1)


def _read_fields(frames: _Frames, body: bytes, windows: Ints, require_keys: bool) -> Columns:
    """Read all fields, each from the end of the one before, and prove that they fill the record.

    A position beyond the limit of `windows` is replaced by the limit. The fields are then longer
    than the record, so it is odd no matter which bytes are read there.
    """
    starts, ends, words, length_widths = frames
    limit = len(windows) - 1

    # Attributes and timestamp delta are in the first 8 bytes.
    words = words >> 8 * length_widths
    odd = words & 255
    timestamps, widths = take_varint(words >> 8, _WIDEST_TIMESTAMP)

    # Offset delta and the length of the key are in the next 8 bytes.
    delta_at = starts + length_widths + 1 + widths
    words = windows[np.minimum(delta_at, limit)]
    deltas, delta_widths = take_varint(words, _WIDEST)
    keys, widths = take_varint(words >> 8 * delta_widths, _WIDEST)
    key_at = delta_at + delta_widths + widths

    # The length of the value comes after the key.
    value_length_at = key_at + (keys >> 1)
    values, widths = take_varint(windows[np.minimum(value_length_at, limit)], _WIDEST)
    value_at = value_length_at + widths

    # The last byte is the header count, 0. Lengths are not negative, but for null.
    last = ends - 1
    odd |= value_at + (values >> 1) != last
    odd |= np.frombuffer(body, np.uint8)[last]
    odd |= frames.words & 1
    if np.count_nonzero((keys | values) & 1):
        odd |= keys & 1 & (keys > (0 if require_keys else _NULL))
        odd |= values & 1 & (values > _NULL)

    odd_rows = np.flatnonzero(odd)

    # The lengths of odd records may lead anywhere: read no payloads there.
    keys[odd_rows] = values[odd_rows] = _NULL
    return Columns(
        end=int(ends[-1]),
        odd=odd_rows.tolist(),
        starts=starts,
        timestamp_deltas=timestamps >> 1 ^ -(timestamps & 1),
        offset_deltas=deltas,
        key_at=key_at,
        key_lengths=keys,
        value_at=value_at,
        value_lengths=values,
    )


def take_varint(words: Ints, widest: int) -> tuple[Ints, Ints]:
    """Return the folded numbers in the low bytes of `words`, and their widths in bytes.

    A number of more than `widest` bytes, or one that continues after its word, gets a width for
    which no record has room. (If the last byte of a word has its high bit set, a shift to the right
    fills the word with such bytes.)
    """
    folded = words & 127
    more = words >> 7 & 1
    widths = more + 1
    for group in range(1, widest):
        # Most numbers have one or two bytes: stop when none goes on.
        if not np.count_nonzero(more):
            return folded, widths
        words = words >> 8
        folded |= (words & 127) * more << 7 * group
        more &= words >> 7
        widths += more
    widths += more << 40
    return folded, widths
