"""Entries of a log or a record set, of any format: a record batch, or a message of an older format.

All begin with int64 offset | int32 size | 4 bytes | int8 magic, so 17 bytes are enough to know the
format of an entry and the position of the next one.
"""

from typing import Final

from protocol.records.batch_header import HEADER_BYTES, MAGIC, BatchHeader, read_header
from protocol.records.legacy import MessageHeader, read_message_header, size_at

Buffer = bytes | bytearray | memoryview
EntryHeader = BatchHeader | MessageHeader

MAGIC_AT: Final = 16
BYTES_TO_MAGIC: Final = 17


def read_entry(buf: Buffer, pos: int, end: int) -> EntryHeader | None:
    """Read the header of the entry at `pos`; None if the bytes up to `end` are only a part of it.

    Raises CorruptRecord; UnsupportedMagic for formats of the future.
    """
    # A batch is the common case.
    left = end - pos
    if left >= HEADER_BYTES and buf[pos + MAGIC_AT] == MAGIC:
        batch = read_header(buf, pos)
        return batch if batch.size <= left else None

    # A message, or too few bytes for a batch.
    if left < BYTES_TO_MAGIC:
        return None
    magic = buf[pos + MAGIC_AT]

    # A format of the future is an error even if its entry is not whole.
    if magic <= MAGIC and size_at(buf, pos) > left:
        return None

    return read_header(buf, pos) if magic == MAGIC else read_message_header(buf, pos)
