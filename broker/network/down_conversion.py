"""Ranges of a log for readers of older formats: converted while they are sent, piece by piece.

A response says how many bytes a partition has before the first of them is sent, but what a range
comes to in another format is known only after the last. So the number is set beforehand and held
to, as Kafka does (KIP-283): it is that of the range, or of its first batch converted if that is
more. What is over is cut off, as the log's own bytes may be; what is missing is filled by the head
of a message too long to be whole. Readers skip both. A range that is converted within its first
piece needs none of this.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent.futures import Executor

import attrs

from core_log.config import LogConfig
from core_log.storage import FileRange
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch_header import HEADER_BYTES, LOG_OVERHEAD
from protocol.records.compression import CompressionUnavailable
from protocol.records.convert import NoOlderForm, down_convert
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.entry import BYTES_TO_MAGIC, MAGIC_AT, read_entry
from protocol.records.legacy import size_at

PIECE_BYTES = 128 * 1024
"""Most that is read and converted at once, if no single batch is larger."""
AT_ONCE_BYTES = 32 * 1024
"""Uncompressed records up to this in one request are converted on the event loop."""
CONVERSION_TIMEOUT_MS = 30_000
UNREADABLE = (CorruptRecord, NoOlderForm, CompressionUnavailable)
"""What keeps a batch from being converted."""

_FILLER = struct.Struct(">qi")
_FILLER_OFFSET = -1


@attrs.frozen
class Conversion:
    """A range that its reader cannot read as it is. `limit` is how much he asked for.

    With a `hard` limit, that of readers from before KIP-74, a first batch that is larger comes cut.
    """

    source: FileRange
    magic: int
    fetch_offset: int
    limit: int
    hard: bool
    at_once: bool
    """Whether the event loop has the time: a small range, with nothing compressed in it."""

    @property
    def size(self) -> int:
        """What it counts for where bytes are counted."""
        return min(self.source.size, self.limit) if self.hard else self.source.size

    def begin(self, executor: Executor) -> bytes | ConvertedRange:
        """Convert the first piece; the rest, if there is any, when it is sent.

        Raises CorruptRecord, NoOlderForm and CompressionUnavailable for the first batch.
        """
        pieces = _Pieces(self.source, self.magic, self.fetch_offset)
        first = pieces.next()
        while not first and not pieces.ended:
            first = pieces.next()
        if not first:
            return b""
        cut_short = self.hard and self.source.size > self.limit
        least = 0 if cut_short else len(first[0])
        converted = b"".join(first)
        if pieces.ended:
            return converted[: max(self.limit, least)]
        return ConvertedRange(max(self.source.size, least), converted, pieces, executor)


def for_old_reader(
    found: FileRange, config: LogConfig, *, magic: int, fetch_offset: int, limit: int, hard: bool
) -> FileRange | Conversion:
    """What a reader of formats up to `magic` is given of a range of the log.

    That a topic kept in an old format holds nothing newer behind its first message is believed,
    as Kafka believes it: then the range goes as it is. Raises ApiError where conversion is
    forbidden.
    """
    first_magic = found.file.read(found.start, BYTES_TO_MAGIC)[MAGIC_AT]
    if config.magic <= magic and first_magic <= magic:
        return attrs.evolve(found, size=min(found.size, max(limit, 0))) if hard else found
    if first_magic > magic and not config.message_downconversion_enable:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "message.downconversion.enable is false")
    at_once = found.size <= AT_ONCE_BYTES and not has_compressed(found.read())
    return Conversion(found, magic, fetch_offset, max(limit, 0), hard, at_once)


def has_compressed(records: bytes | memoryview) -> bool:
    """Whether more may come out of them than there is."""
    position = 0
    try:
        while (header := read_entry(records, position, len(records))) is not None:
            if header.codec:
                return True
            position += header.size
    except CorruptRecord:
        pass
    return False


@attrs.define(eq=False)
class ConvertedRange:
    """Exactly `size` bytes, made as they are asked for; making one takes a thread's time."""

    size: int
    first: bytes
    rest: _Pieces
    executor: Executor

    def pieces(self) -> Iterator[bytes]:
        """The bytes, piece by piece; where the log turns out to be damaged they end early."""
        left, piece = self.size, self.first
        while left:
            yield piece[:left]
            left -= min(left, len(piece))
            if self.rest.ended or not left:
                break
            try:
                piece = b"".join(self.rest.next())
            except UNREADABLE:
                break
        yield from _filler(left)


@attrs.define(eq=False)
class _Pieces:
    """Goes through a range by whole entries."""

    source: FileRange
    magic: int
    fetch_offset: int
    ended: bool = False
    _done: int = 0

    def next(self) -> list[bytes]:
        """The next piece, converted, entry by entry. Raises as `down_convert` does.

        What is good before something bad is given first.
        """
        chunk = self._read()
        converted: list[bytes] = []
        taken = 0
        try:
            for end, messages in down_convert(chunk, self.magic, min_offset=self.fetch_offset):
                taken = end
                if messages:
                    converted.append(messages)
        except UNREADABLE:
            if not converted:
                raise
            self.ended = True
        at_the_end = self._done + len(chunk) >= self.source.size
        self._done += taken
        self.ended = self.ended or at_the_end or not taken
        return converted

    def _read(self) -> memoryview:
        """Some whole entries, perhaps with a part of the next one behind."""
        start, left = self.source.start + self._done, self.source.size - self._done
        chunk = self.source.file.read(start, min(PIECE_BYTES, left))
        if len(chunk) >= BYTES_TO_MAGIC and len(chunk) < size_at(chunk, 0) <= left:
            chunk = self.source.file.read(start, size_at(chunk, 0))
        return memoryview(chunk)


def _filler(size: int) -> Iterator[bytes]:
    if size <= 0:
        return
    head = _FILLER.pack(_FILLER_OFFSET, max(size + 1, HEADER_BYTES))[:size]
    yield head
    for start in range(LOG_OVERHEAD, size, PIECE_BYTES):
        yield bytes(min(PIECE_BYTES, size - start))
