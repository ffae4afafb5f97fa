"""Messages, formats 0 and 1: the content of logs and record sets before record batches.

An entry is `offset | size | crc | magic | attributes | [timestamp] | key | value`. The CRC-32
covers all fields after it, so an offset can be written without computing it again. Format 1 has the
timestamp (KIP-32). Key and value stand after their lengths, -1 for null.

Messages are compressed by wrapping: the value of one message, the wrapper, is the compressed
concatenation of other messages. The attributes of the wrapper name the codec, and its offset is
that of its last message. Inside, format 0 has absolute offsets, so a broker had to compress again
all that it received; format 1 counts from 0 (KIP-31). The rules for what a peer sends are stricter
than those for what is read from a log: see `validate_messages`.
Source: the message format section of Kafka's documentation before 0.11.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from protocol.bounds import MAX_REWRITTEN_RECORDS
from protocol.records.batch_header import CODEC_MASK, LOG_APPEND_TIME, LOG_OVERHEAD
from protocol.records.compression import Codec, compress, decompress
from protocol.records.corrupt_record import (
    CorruptRecord,
    DamagedOnTheWay,
    KeyRequired,
    TooManyRecords,
    UnsupportedMagic,
)
from protocol.records.lz4_header import with_kafkas_checksum, with_true_checksum
from protocol.records.record_run import Row
from protocol.records.room import Room

Buffer = bytes | bytearray | memoryview

SMALLEST_ENTRY: Final = 26
"""Bytes of a message of format 0 with neither key nor value."""
NO_TIMESTAMP: Final = -1
NO_TIMESTAMP_TYPE: Final = -1
CREATE_TIME: Final = 0
LOG_APPEND_TIME_TYPE: Final = 1

_CRC_COVERS_FROM: Final = 16
_FIELDS_AT: Final = (18, 26)
"""Position of the key's length, by magic."""
# Offset, size, CRC; in `_HEADER` also magic and attributes.
_ENTRY = Struct(">qiI")
_HEADER = Struct(">qiIbb")
_INT64 = Struct(">q")
_INT32 = Struct(">i")
# The length -1.
_NULL = b"\xff\xff\xff\xff"
_BODY_0 = Struct(">bbi")
_BODY_1 = Struct(">bbqi")
"""Magic, attributes, timestamp, the key's length."""


class MessageHeader(NamedTuple):
    """The fields of an entry before its key, with the properties of a batch header.

    The offset is that of the message, or of the last message in a wrapper. The first offset in a
    wrapper is known only after decompression. The timestamp is -1 in format 0.
    """

    offset: int
    length: int
    crc: int
    magic: int
    attributes: int
    timestamp: int

    @property
    def size(self) -> int:
        """Bytes of the whole entry."""
        return self.length + LOG_OVERHEAD

    @property
    def base_offset(self) -> int:
        """The only offset in the header; that of the first message in a wrapper may be smaller."""
        return self.offset

    @property
    def last_offset(self) -> int:
        """Offset of the message, or of the last one in a wrapper."""
        return self.offset

    @property
    def next_offset(self) -> int:
        """Offset at which a reader continues after this entry."""
        return self.offset + 1

    @property
    def max_timestamp(self) -> int:
        """Timestamp of the message; of a wrapper, the greatest of its messages."""
        return self.timestamp

    @property
    def codec(self) -> Codec:
        """Codec of the wrapper. Raises CorruptRecord if the format does not have it."""
        codec = self.attributes & CODEC_MASK
        if codec > Codec.LZ4:
            raise CorruptRecord(f"message names unknown compression {codec}")
        return Codec(codec)

    @property
    def timestamp_type(self) -> int:
        """0 CreateTime, 1 LogAppendTime, -1 in format 0, which has no timestamps."""
        if self.magic == 0:
            return NO_TIMESTAMP_TYPE
        return LOG_APPEND_TIME_TYPE if self.attributes & LOG_APPEND_TIME else CREATE_TIME

    # ---- what only record batches have

    @property
    def partition_leader_epoch(self) -> int:
        """Always -1: leader epochs came with record batches."""
        return -1

    @property
    def producer_id(self) -> int:
        """Always -1: producer ids came with record batches."""
        return -1

    @property
    def is_control(self) -> bool:
        """Always False: transactions came with record batches."""
        return False

    @property
    def is_transactional(self) -> bool:
        """Always False: transactions came with record batches."""
        return False


def read_message_header(buf: Buffer, pos: int = 0) -> MessageHeader:
    """Read the header at `pos`; the rest of the entry need not be there.

    Raises UnsupportedMagic for other formats, CorruptRecord if the size is too small.
    """
    if len(buf) - pos < SMALLEST_ENTRY:
        raise CorruptRecord(f"{len(buf) - pos} bytes cannot hold a message")
    offset, length, crc, magic, attributes = _HEADER.unpack_from(buf, pos)
    if magic not in (0, 1):
        raise UnsupportedMagic(magic)

    # The lengths of key and value, four bytes each, must fit in.
    if length + LOG_OVERHEAD < _FIELDS_AT[magic] + 8:
        raise DamagedOnTheWay(f"message size {length} is too small for format {magic}")

    # SMALLEST_ENTRY bytes reach to the end of the timestamp.
    timestamp = NO_TIMESTAMP
    if magic:
        (timestamp,) = _INT64.unpack_from(buf, pos + 18)
    return MessageHeader(offset, length, crc, magic, attributes, timestamp)


def check_message_crc(buf: Buffer, pos: int, header: MessageHeader) -> None:
    """Raise CorruptRecord unless the entry at `pos` is complete and matches its CRC."""
    end = pos + header.size
    if end > len(buf):
        raise CorruptRecord(f"message of {header.size} bytes ends after {len(buf) - pos}")

    computed = zlib.crc32(memoryview(buf)[pos + _CRC_COVERS_FROM : end])
    if computed != header.crc:
        raise DamagedOnTheWay(
            f"message CRC is {computed:#010x}, its header says {header.crc:#010x}"
        )


# ---- reading


def decode_message(
    buf: Buffer, pos: int, header: MessageHeader, *, max_decompressed: int
) -> list[Row]:
    """Read the message at `pos`, or all messages of a wrapper, with their offsets in the log.

    Raises CorruptRecord and CompressionUnavailable.
    """
    check_message_crc(buf, pos, header)
    if header.codec is Codec.NONE:
        return [_read_row(buf, pos, header)]

    inner = _unwrap(buf, pos, header, max_decompressed)
    rows = [_read_row(inner, at, message) for at, message in _inner_messages(inner, strict=False)]
    if not rows:
        raise CorruptRecord("a compressed message holds none")

    # Format 1: offsets count from 0, and LogAppendTime is in the wrapper only.
    if header.magic:
        rows = _with_absolute_offsets(rows, header.offset)
    if header.timestamp_type == LOG_APPEND_TIME_TYPE:
        append_time = header.timestamp
        rows = [(offset, append_time, key, value, none) for offset, _, key, value, none in rows]
    return rows


def _unwrap(buf: Buffer, pos: int, header: MessageHeader, max_decompressed: int | Room) -> bytes:
    """Decompress the messages of the wrapper at `pos`."""
    _, _, _, value, _ = _read_row(buf, pos, header)
    if value is None:
        raise CorruptRecord("a compressed message has a null value")

    # In format 0 Kafka writes another checksum into the frame's header (KAFKA-3160).
    if header.codec is Codec.LZ4 and header.magic == 0:
        value = with_true_checksum(value)
    return decompress(header.codec, value, max_decompressed)


def _inner_messages(inner: bytes, *, strict: bool) -> Iterator[tuple[int, MessageHeader]]:
    """Yield the messages of a wrapper; `strict` refuses a partial one at the end."""
    pos = 0
    end = len(inner)
    while pos < end:
        # A partial message at the end: a reader leaves it, a leader refuses it.
        if end - pos < SMALLEST_ENTRY or end - pos < size_at(inner, pos):
            if strict:
                raise CorruptRecord("a compressed message ends with a partial one")
            return

        header = read_message_header(inner, pos)
        # Only the wrapper may be compressed.
        if header.attributes & CODEC_MASK:
            raise CorruptRecord("a compressed message is inside another one")
        check_message_crc(inner, pos, header)
        yield pos, header
        pos += header.size


def has_one_magic(buf: Buffer, pos: int, header: MessageHeader, *, max_decompressed: int) -> bool:
    """Return whether all messages of the wrapper at `pos` are of its own format.

    Kafka's cleaner once left others (KAFKA-4298). Raises as `decode_message` does.
    """
    inner = _unwrap(buf, pos, header, max_decompressed)
    return all(message.magic == header.magic for _, message in _inner_messages(inner, strict=False))


def _with_absolute_offsets(rows: list[Row], wrapper_offset: int) -> list[Row]:
    """Shift offsets that count from 0 so that the last one is the wrapper's.

    A wrapper at offset 0 adds nothing: some producers never give it an offset.
    """
    last = rows[-1][0]
    if 0 != wrapper_offset < last:
        raise CorruptRecord(f"wrapper offset {wrapper_offset} is below the inner offset {last}")

    # The wrapper has the offset of its last message.
    base = wrapper_offset - last if wrapper_offset else 0
    if not base:
        return rows
    return [(base + row[0], *row[1:]) for row in rows]


def _read_row(buf: Buffer, pos: int, header: MessageHeader) -> Row:
    """Read the fields of a message. Raises CorruptRecord unless they fill it exactly."""
    end = pos + header.size
    # After the key there must be room for the length of the value.
    key, at = _read_bytes(buf, pos + _FIELDS_AT[header.magic], end - 4, "key")
    value, at = _read_bytes(buf, at, end, "value")
    if at != end:
        raise CorruptRecord(f"{end - at} bytes are left over in the message at {header.offset}")
    return header.offset, header.timestamp, key, value, ()


def _read_bytes(buf: Buffer, pos: int, end: int, field: str) -> tuple[bytes | None, int]:
    (length,) = _INT32.unpack_from(buf, pos)
    pos += 4
    if length == -1:
        return None, pos

    if not 0 <= length <= end - pos:
        raise CorruptRecord(f"{field} length {length} with {end - pos} bytes left")
    return bytes(buf[pos : pos + length]), pos + length


def entry_size(magic: int, key: bytes | None, value: bytes | None) -> int:
    """Return the bytes of a message of format `magic` outside of a wrapper."""
    return _FIELDS_AT[magic] + 8 + len(key or b"") + len(value or b"")


def size_at(buf: Buffer, pos: int) -> int:
    """Return the bytes of the entry at `pos`, of any format, according to its size field."""
    (length,) = _INT32.unpack_from(buf, pos + 8)
    return int(length) + LOG_OVERHEAD


# ---- produced messages


class ProducedMessage(NamedTuple):
    """An entry of a produced message set: a message, or a wrapper with its messages."""

    header: MessageHeader
    data: memoryview
    rows: list[Row]


def validate_messages(
    buf: Buffer, *, require_keys: bool, room: Room, most: int = MAX_REWRITTEN_RECORDS
) -> list[ProducedMessage]:
    """Read and check all entries of a produced message set.

    Each entry must be whole and match its CRC. So must the messages in a wrapper, which are of its
    format and not compressed again. Timestamps are at least -1. All wrappers together decompress to
    at most the `room` that is left, and there are `most` messages at most. `require_keys` is the
    rule of a compacted topic. Raises CorruptRecord and CompressionUnavailable.
    """
    view = memoryview(buf)
    entries = []
    messages = 0
    pos = 0
    while pos < len(buf):
        # A produced set ends with a whole entry.
        if len(buf) - pos < SMALLEST_ENTRY or size_at(buf, pos) > len(buf) - pos:
            raise CorruptRecord(f"the message set ends within a message, at byte {pos}")

        header = read_message_header(buf, pos)
        check_message_crc(buf, pos, header)
        entry = view[pos : pos + header.size]

        # Read the message itself, or in its place those that it wraps.
        rows = [_read_row(buf, pos, header)]
        if header.codec is not Codec.NONE:
            inner = _unwrap(buf, pos, header, room)
            rows = _read_produced(inner, header, most)

        # A message of no bytes is an object too (fault security-0).
        messages += len(rows)
        if messages > most:
            raise TooManyRecords(most)
        for row in rows:
            _check_row(row, require_keys)
        entries.append(ProducedMessage(header, entry, rows))
        pos += header.size
    return entries


def _read_produced(inner: bytes, header: MessageHeader, most: int) -> list[Row]:
    """Read the messages of a produced wrapper."""
    rows: list[Row] = []
    for at, message in _inner_messages(inner, strict=True):
        if len(rows) == most:
            raise TooManyRecords(most)
        if message.magic != header.magic:
            raise CorruptRecord(f"format {message.magic} inside a message of {header.magic}")
        rows.append(_read_row(inner, at, message))

    if not rows:
        raise CorruptRecord("a compressed message holds none")
    return rows


def _check_row(row: Row, require_keys: bool) -> None:
    offset, timestamp, key, _, _ = row
    if require_keys and key is None:
        raise KeyRequired(f"message {offset}")
    if timestamp < NO_TIMESTAMP:
        raise CorruptRecord(f"message {offset}: timestamp {timestamp} is negative")


# ---- writing


def encode_messages(
    rows: Sequence[Row], magic: int, *, codec: Codec = Codec.NONE, timestamp_type: int = CREATE_TIME
) -> bytes:
    """Encode rows as messages of format `magic`, in one wrapper if there is a `codec`.

    Offsets must go up. Headers are left out, because these formats have no place for them. With
    LogAppendTime in format 1 all rows must have the same time. Raises RecordsTooLarge and
    CompressionUnavailable.
    """
    # Format 0 has neither timestamps nor a bit for their type.
    attributes = LOG_APPEND_TIME if magic and timestamp_type == LOG_APPEND_TIME_TYPE else 0
    if codec is Codec.NONE or not rows:
        return b"".join(_encode_entries(rows, magic, attributes, 0))

    assert codec <= Codec.LZ4, "zstd came with record batches"

    # Inside a wrapper, format 1 counts from 0 (KIP-31), format 0 has the offsets of the log.
    base_offset = rows[0][0] if magic else 0
    packed = compress(codec, b"".join(_encode_entries(rows, magic, attributes, base_offset)))
    if codec is Codec.LZ4 and magic == 0:
        packed = with_kafkas_checksum(packed)

    # The wrapper has the last offset and the greatest timestamp in it.
    latest = max(row[1] for row in rows)
    wrapper: Row = (rows[-1][0], latest, None, packed, ())
    return b"".join(_encode_entries([wrapper], magic, attributes | codec, 0))


def _encode_entries(
    rows: Iterable[Row], magic: int, attributes: int, base_offset: int
) -> list[bytes]:
    parts: list[bytes] = []
    # Local names: the loop below runs once for each message of a conversion.
    crc32 = zlib.crc32
    pack_entry = _ENTRY.pack
    pack_length = _INT32.pack

    for offset, timestamp, key, value, _ in rows:
        # All fields between the CRC and the value.
        key_length = -1 if key is None else len(key)
        if magic:
            head = _BODY_1.pack(magic, attributes, timestamp, key_length)
        else:
            head = _BODY_0.pack(magic, attributes, key_length)
        if value is None:
            head = b"".join((head, key or b"", _NULL))
            value = b""
        else:
            head = b"".join((head, key or b"", pack_length(len(value))))

        # The size counts the CRC, four bytes, but not itself and the offset.
        crc = crc32(value, crc32(head))
        parts += pack_entry(offset - base_offset, len(head) + len(value) + 4, crc), head, value
    return parts


def restamp(data: Buffer, offset: int, timestamp: int, timestamp_type: int) -> bytes:
    """Return a message of format 1 with these fields instead of its own, and the CRC for them."""
    head = bytearray(data[: _FIELDS_AT[1]])
    _, length, _, magic, attributes = _HEADER.unpack_from(head)
    assert magic == 1

    # The codec stays, only the type of the timestamp changes.
    attributes &= ~LOG_APPEND_TIME
    if timestamp_type == LOG_APPEND_TIME_TYPE:
        attributes |= LOG_APPEND_TIME
    head[17] = attributes
    _INT64.pack_into(head, 18, timestamp)

    # The CRC covers the timestamp, so it is computed again.
    rest = bytes(data[_FIELDS_AT[1] :])
    crc = zlib.crc32(rest, zlib.crc32(head[_CRC_COVERS_FROM:]))
    _ENTRY.pack_into(head, 0, offset, length, crc)
    return bytes(head) + rest
