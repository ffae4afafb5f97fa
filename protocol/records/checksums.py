"""Check the checksums of batches, and of messages of older formats.

They are apart from the headers, for most commands read no more than these, and importing crc32c
takes longer than importing all the rest of them.
"""

from crc32c import crc32c

from protocol.records.batch_header import CRC_COVERS_FROM, BatchHeader
from protocol.records.corrupt_record import CorruptRecord, DamagedOnTheWay
from protocol.records.entry import Buffer, EntryHeader
from protocol.records.legacy import MessageHeader, check_message_crc


def check_crc(buf: Buffer, pos: int, header: BatchHeader) -> None:
    """Raise CorruptRecord unless the batch at `pos` is complete and matches its CRC."""
    end = pos + header.size
    if end > len(buf):
        raise CorruptRecord(f"batch of {header.size} bytes ends after {len(buf) - pos}")

    computed = crc32c(memoryview(buf)[pos + CRC_COVERS_FROM : end])
    if computed != header.crc:
        raise DamagedOnTheWay(f"batch CRC is {computed:#010x}, its header says {header.crc:#010x}")


def check_entry(buf: Buffer, pos: int, header: EntryHeader) -> None:
    """Check the checksum of the entry at `pos`. Raises CorruptRecord."""
    if isinstance(header, MessageHeader):
        check_message_crc(buf, pos, header)
    else:
        check_crc(buf, pos, header)
