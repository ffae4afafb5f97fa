"""Convert ranges of a log for readers of older formats, piece by piece, while they are sent.

A response announces the bytes of a partition before the first byte is sent, but the size of a
converted range is known only at its end. So the size is fixed beforehand, as in Kafka (KIP-283): it
is the size of the range, or that of its first converted batch if this is more. Converted bytes
beyond the size are cut off, as the log's own bytes may be. Missing bytes are filled with the head
of a message that is too long to be complete. Readers skip an incomplete message at the end. A range
that fits into its first piece is sent with its exact size.
"""

from __future__ import annotations

import struct
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Executor

import attrs

from core_log.config import LogConfig
from core_log.storage import FileRange
from protocol.errors import ApiError, ErrorCode
from protocol.frozen import frozen
from protocol.records.batch_header import HEADER_BYTES, LOG_OVERHEAD, MAGIC, read_header
from protocol.records.compression import CompressionUnavailable
from protocol.records.convert import NoOlderForm, down_convert
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.entry import BYTES_TO_MAGIC, MAGIC_AT, read_entry
from protocol.records.legacy import size_at

PIECE_BYTES = 128 * 1024
"""Most bytes that are read and converted at once, unless a single batch is larger."""
AT_ONCE_BYTES = 32 * 1024
"""Uncompressed records of one request are converted on the event loop up to this size."""
LED_BYTES = 1024 * 1024
"""So many bytes are looked through for a message when ranges of a request have none."""
CONVERSION_S = 1.0
"""Time after which a thread begins with no other range of a request."""
CONVERSION_TIMEOUT_MS = 30_000
CONVERSION_PAUSE_MS = 500
"""Time that a reader waits while others hold too much; then it has nothing, and asks again."""
CONVERTED_BYTES = 256 * 1024 * 1024
"""Converted records of all connections that may be held until their readers take them. A reader may
ask for batches of many megabytes, and take none of them."""
UNREADABLE = (CorruptRecord, NoOlderForm, CompressionUnavailable)
"""The errors of a batch that cannot be converted."""

# Offset and size, with which a message of any format begins.
_FILLER = struct.Struct(">qi")
_FILLER_OFFSET = -1


@attrs.define(eq=False)
class ConvertedBytes:
    """The bytes that conversions hold, and may hold. The event loop alone calls it."""

    limit: int = CONVERTED_BYTES
    _taken: int = 0
    _of_clients: Counter[str] = attrs.field(factory=Counter)
    _given_back: deque[tuple[str, int]] = attrs.field(factory=deque)

    @property
    def held(self) -> int:
        """Bytes that are held now."""
        while self._given_back:
            client, size = self._given_back.popleft()
            self._taken -= size
            self._of_clients[client] -= size
            if not self._of_clients[client]:
                del self._of_clients[client]
        return self._taken

    def hold(self, size: int, client: str = "") -> Hold | None:
        """Take so many bytes, or return None while others hold too much. One may always hold.

        A client leaves room for others, whose consumers would stand still as long as it likes.
        """
        # Without a bound each connection has a batch of its own in memory (fault scale-S2).
        if self.held and self.held + size > self.limit:
            return None
        own = self._of_clients[client]
        # What it holds it may take very slowly (fault strangers-106, was: self.limit).
        share = self.limit // 4 * 3
        if own and own + size > share:
            return None
        self._taken += size
        self._of_clients[client] += size
        return Hold(client, size, self._given_back)


@attrs.define(eq=False)
class Hold:
    """Bytes that are held until nobody refers to this any more, in whatever thread that is."""

    client: str
    size: int
    _given_back: deque[tuple[str, int]]

    def __del__(self) -> None:
        self._given_back.append((self.client, self.size))


@frozen
class Conversion:
    """A range in a format that its reader does not know. `limit` is the bytes that it asked for.

    Readers from before KIP-74 have a `hard` limit: they get a larger first batch cut short.
    """

    source: FileRange
    magic: int
    fetch_offset: int
    limit: int
    hard: bool
    largest_batch: int = 0
    """Bytes of the largest batch that the topic takes."""

    @property
    def size(self) -> int:
        """Bytes charged against the fetch limits (size before conversion)."""
        return min(self.source.size, self.limit) if self.hard else self.source.size

    @property
    def held_bytes(self) -> int:
        """About the most bytes that are held at once while it is sent."""
        return min(self.source.size, max(PIECE_BYTES, self.largest_batch))

    def is_compressed(self) -> bool:
        """Return whether more bytes may come out of the range, which is read for that."""
        return has_compressed(self.source.read())

    def begin(self, executor: Executor, hold: Hold | None = None) -> bytes | ConvertedRange:
        """Convert the first piece. The rest, if there is any, is converted while it is sent.

        What is not small holds on to `hold` until it is sent.

        Raises CorruptRecord, NoOlderForm or CompressionUnavailable if the first batch cannot be
        converted.
        """
        # The first piece that is not empty: batches below the fetch offset give nothing.
        pieces = _Pieces(self.source, self.magic, self.fetch_offset)
        first = pieces.next()
        while not first and not pieces.ended:
            first = pieces.next()
        if not first:
            return b""

        # Only a hard limit may cut the first batch.
        is_cut_short = self.hard and self.source.size > self.limit
        min_size = 0 if is_cut_short else len(first[0])
        converted = b"".join(first)
        # All is converted: the exact size is known.
        if pieces.ended:
            whole = converted[: max(self.limit, min_size)]
            if len(whole) <= AT_ONCE_BYTES:
                return whole
            return ConvertedRange(len(whole), whole, pieces, executor, hold)
        return ConvertedRange(max(self.source.size, min_size), converted, pieces, executor, hold)

    def offset_behind(self, high_watermark: int, led_bytes: int) -> tuple[int, int]:
        """Return the offset behind the range, of which nothing was converted, and markers after it.

        The heads of entries are read for that, up to `led_bytes` behind the range, and none of what
        is not committed. The second number are the bytes behind the range that were looked through.
        """
        behind = self.fetch_offset
        position, end = self.source.start, self.source.start + self.source.size
        last = min(end + led_bytes, self.source.file.size)
        while position + BYTES_TO_MAGIC <= last:
            head = self.source.file.read(position, HEADER_BYTES)
            size = size_at(head, 0)
            if size <= 0:
                break
            position += size
            is_in_range = position <= end
            last_offset = _last_offset(head)
            if not (is_in_range or _is_marker(head)) or last_offset >= high_watermark:
                break
            behind = max(behind, last_offset + 1)
        return behind, max(0, position - end)


def _last_offset(head: bytes) -> int:
    """Return the last offset of an entry. A message, and one that wraps others, begins with it."""
    if head[MAGIC_AT] == MAGIC:
        return read_header(head).last_offset
    return int.from_bytes(head[:8], "big", signed=True)


def _is_marker(head: bytes) -> bool:
    return head[MAGIC_AT] == MAGIC and len(head) == HEADER_BYTES and read_header(head).is_control


def convert_for_old_reader(
    source: FileRange, config: LogConfig, *, magic: int, fetch_offset: int, limit: int, hard: bool
) -> FileRange | Conversion:
    """Return a range as it is if a reader of formats up to `magic` can read it, else a Conversion.

    If a topic keeps an old format and its first message has an old format, the rest is taken to
    have one too, as in Kafka. Raises ApiError if the topic forbids conversion, and any entry needs
    it.
    """
    first_magic = source.file.read(source.start, BYTES_TO_MAGIC)[MAGIC_AT]
    is_readable = config.magic <= magic and first_magic <= magic

    # Where conversion is forbidden, every entry has to be readable as it is.
    if not is_readable and not config.message_downconversion_enable:
        if has_newer(source, magic):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "message.downconversion.enable is false")
        is_readable = True

    if is_readable:
        return attrs.evolve(source, size=min(source.size, max(limit, 0))) if hard else source
    return Conversion(source, magic, fetch_offset, max(limit, 0), hard, config.max_message_bytes)


def has_newer(source: FileRange, magic: int) -> bool:
    """Return whether any entry of the range has a format above `magic`."""
    position = source.start
    end = source.start + source.size
    size = 1
    # A damaged size ends the walk: the reader meets the damage itself.
    while size > 0 and position + BYTES_TO_MAGIC <= end:
        prefix = source.file.read(position, BYTES_TO_MAGIC)
        if prefix[MAGIC_AT] > magic:
            return True
        size = size_at(prefix, 0)
        position += size
    return False


def has_compressed(records: bytes | memoryview) -> bool:
    """Return whether any entry is compressed, so that more bytes may come out of it."""
    position = 0
    try:
        while (header := read_entry(records, position, len(records))) is not None:
            if header.codec:
                return True
            position += header.size
    except CorruptRecord:
        # The conversion meets the same entry, and reports it.
        pass
    return False


@attrs.define(eq=False)
class ConvertedRange:
    """A converted range of exactly `size` bytes, which `pieces` converts in a thread."""

    size: int
    first: bytes
    rest: _Pieces
    executor: Executor
    hold: Hold | None = None

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes, piece by piece, once. From a damaged batch on they are filler."""
        left = self.size
        piece, self.first = self.first, b""
        while left:
            # The announced size is kept to the byte.
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
    """A walk through a range that converts whole entries."""

    source: FileRange
    magic: int
    fetch_offset: int
    ended: bool = False
    _done: int = 0

    def next(self) -> list[bytes]:
        """Convert the next piece; return it entry by entry. Raises as `down_convert` does.

        Good entries before a bad one are returned first, and end the walk.
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

        is_last = self._done + len(chunk) >= self.source.size
        # An entry that is incomplete here is read again with the next piece.
        self._done += taken
        self.ended = self.ended or is_last or not taken
        return converted

    def _read(self) -> memoryview:
        """Read some whole entries, and perhaps the beginning of another."""
        start = self.source.start + self._done
        left = self.source.size - self._done
        chunk = self.source.file.read(start, min(PIECE_BYTES, left))

        # A first entry that is larger than a piece is read whole.
        if len(chunk) >= BYTES_TO_MAGIC and len(chunk) < size_at(chunk, 0) <= left:
            chunk = self.source.file.read(start, size_at(chunk, 0))
        return memoryview(chunk)


def _filler(size: int) -> Iterator[bytes]:
    """Yield `size` bytes: the head of a message that claims to be longer, then zeros."""
    if size <= 0:
        return

    # The size is past the end of the range, and no less than Kafka's overflow batch has (KIP-283).
    yield _FILLER.pack(_FILLER_OFFSET, max(size + 1, HEADER_BYTES))[:size]
    for start in range(LOG_OVERHEAD, size, PIECE_BYTES):
        yield bytes(min(PIECE_BYTES, size - start))
