"""Convert batches for readers that know only older formats than that of the log.

An entry in a format that the reader knows is copied. All others are decoded and written as messages
of the reader's format, in the same codec: an uncompressed batch of n records becomes n messages, a
compressed one a wrapper. The older formats have no place for headers and transaction markers,
format 0 none for timestamps; these are lost. Rules: Kafka's RecordsUtil.downConvert.
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
    """The codec of the records does not exist in the older format (zstd)."""


def down_convert(
    buf: Buffer,
    magic: int,
    *,
    min_offset: int = 0,
    max_decompressed: int = MAX_DECOMPRESSED_BYTES,
) -> Iterator[tuple[int, bytes]]:
    """Convert each whole entry for a reader at `min_offset` that knows formats up to `magic`.

    Yields the end position of the entry and its messages; no bytes if it has none for the reader.
    A part of an entry at the end is left out. Raises CorruptRecord, NoOlderForm and
    CompressionUnavailable.
    """
    assert magic <= NEWEST_OLD_MAGIC
    pos = 0
    end = len(buf)
    while (header := read_entry(buf, pos, end)) is not None:
        start = pos
        pos += header.size

        if header.magic <= magic:
            # The reader knows this format.
            yield pos, bytes(buf[start:pos])
        elif header.is_control:
            # An old reader would take a marker for a record.
            decode_batch(buf, start, header)  # the checksum covers the control bit
            yield pos, b""
        elif header.codec is Codec.ZSTD:
            raise NoOlderForm("records in zstd have no form in the old formats")
        else:
            records = decode_batch(buf, start, header, max_decompressed=max_decompressed)
            yield pos, _messages(records, header, magic, min_offset)


def _messages(records: list[Record], header: EntryHeader, magic: int, min_offset: int) -> bytes:
    """Encode records; those below `min_offset` are left out unless they share a wrapper."""
    if not records or records[-1].offset < min_offset:
        return b""

    # Messages that stand alone must not be below the consumer's offset (KAFKA-5360).
    if header.codec is Codec.NONE and records[0].offset < min_offset:
        records = [record for record in records if record.offset >= min_offset]
    return encode_messages(records, magic, codec=header.codec, timestamp_type=header.timestamp_type)
