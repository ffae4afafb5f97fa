"""The 61 bytes in front of the records of a v2 batch (KIP-98; Kafka's message format).

The CRC-32C covers everything from the attributes on, so the leader can write base offset and leader
epoch into a batch without computing the CRC again.
"""

from struct import Struct
from typing import Final, NamedTuple

from protocol.records.compression import Codec
from protocol.records.corrupt_record import CorruptRecord, DamagedOnTheWay, UnsupportedMagic

HEADER_BYTES: Final = 61
LOG_OVERHEAD: Final = 12
"""Bytes of base offset and length; the length field does not count them."""
MAGIC: Final = 2
CRC_AT: Final = 17
CRC_COVERS_FROM: Final = 21

# Bits of the attributes.
CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

# The fields in the order of BatchHeader, big-endian.
HEADER = Struct(">qiibIhiqqqhii")
_MAGIC_AT: Final = 16
_CODECS: Final = tuple(Codec)


def codec_of(attributes: int) -> Codec:
    """Return the codec named in the attributes. Raises CorruptRecord if it does not exist."""
    number = attributes & CODEC_MASK
    if number >= len(_CODECS):
        raise CorruptRecord(f"batch names unknown compression {number}")
    return _CODECS[number]


class BatchHeader(NamedTuple):
    """The fields as they are stored; producer id, producer epoch, base sequence: -1 if absent."""

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Offset of the last record when the batch was written; compaction may have removed it."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset at which a reader continues after this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """Codec of the records. Raises CorruptRecord if it does not exist."""
        return codec_of(self.attributes)

    @property
    def is_control(self) -> bool:
        """True if the batch is a transaction marker, which no consumer may see."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """True if the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def timestamp_type(self) -> int:
        """0: CreateTime, set by the producer. 1: LogAppendTime, `max_timestamp` for all records."""
        return 1 if self.attributes & LOG_APPEND_TIME else 0


def read_header(buf: bytes | bytearray | memoryview, pos: int = 0) -> BatchHeader:
    """Read the header at `pos`; the records after it need not be there yet.

    Raises UnsupportedMagic for a legacy message set, CorruptRecord if there are fewer than 61 bytes
    or the length is too small for them.
    """
    # The magic, a signed byte, is at the same place in all formats.
    if len(buf) - pos > _MAGIC_AT and buf[pos + _MAGIC_AT] != MAGIC:
        magic = buf[pos + _MAGIC_AT]
        raise UnsupportedMagic(magic if magic < 128 else magic - 256)

    if len(buf) - pos < HEADER_BYTES:
        raise CorruptRecord(f"{len(buf) - pos} bytes cannot hold a batch header of {HEADER_BYTES}")
    header = BatchHeader._make(HEADER.unpack_from(buf, pos))
    if header.size < HEADER_BYTES:
        raise DamagedOnTheWay(f"batch length {header.length} is too short for its own header")
    return header
