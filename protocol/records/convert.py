"""Batches for readers that know only older formats than the log is kept in.

What such a reader knows already is copied as it is. All else is read and written anew as messages
of its format, in the codec it was in: an uncompressed batch of n records becomes n messages, a
compressed one a wrapper. Lost on the way is what the older format has no place for: headers,
transaction markers, in format 0 the timestamps. Rules: Kafka's RecordsUtil.downConvert.
"""

from collections.abc import Iterator
from typing import Final

from protocol.bounds import MAX_DECOMPRESSED_BYTES
from protocol.records.batch import Record, decode_batch
from protocol.records.compression import Codec
from protocol.records.entry import Buffer, EntryHeader, read_entry
from protocol.records.legacy import encode_messages

NEWEST_OLD_MAGIC: Final = 1


class NoOlderForm(ValueError):
    """Records in a codec that came with a newer format than the one asked for: zstd."""


def down_convert(
    buf: Buffer,
    magic: int,
    *,
    min_offset: int = 0,
    max_decompressed: int = MAX_DECOMPRESSED_BYTES,
) -> Iterator[tuple[int, bytes]]:
    """What a reader at `min_offset` that knows formats up to `magic` gets of each whole entry.

    Yields where the entry ends and its messages, no bytes where it holds none for the reader. A
    part of an entry at the end is left. Raises CorruptRecord, NoOlderForm, CompressionUnavailable.
    """
    assert magic <= NEWEST_OLD_MAGIC
    pos, end = 0, len(buf)
    while (header := read_entry(buf, pos, end)) is not None:
        start, pos = pos, pos + header.size
        if header.magic <= magic:
            yield pos, bytes(buf[start:pos])
        elif header.is_control:
            decode_batch(buf, start, header)  # the checksum vouches for the control bit
            yield pos, b""
        elif header.codec is Codec.ZSTD:
            raise NoOlderForm("records in zstd have no form in the old formats")
        else:
            records = decode_batch(buf, start, header, max_decompressed=max_decompressed)
            yield pos, _messages(records, header, magic, min_offset)


def _messages(records: list[Record], header: EntryHeader, magic: int, min_offset: int) -> bytes:
    """Messages below `min_offset` go where they stand alone; in a wrapper they stay with others."""
    if not records or records[-1].offset < min_offset:
        return b""
    if header.codec is Codec.NONE and records[0].offset < min_offset:
        records = [record for record in records if record.offset >= min_offset]
    return encode_messages(records, magic, codec=header.codec, timestamp_type=header.timestamp_type)
