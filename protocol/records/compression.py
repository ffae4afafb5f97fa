"""The codecs of a batch in Kafka's framing, with a bound on the size of the result.

gzip is RFC 1952. Snappy is the xerial stream: a header of 16 bytes, then blocks of at most 32 KiB,
each after its length. The header may come again between blocks; a stream without a header is one
raw block. LZ4 is the frame format, restricted to what Kafka's reader accepts: one frame of
independent blocks. Zstd (KIP-110) is the plain stream. The reader of a peer's data gives the
largest size that it accepts, and no more than that is ever allocated. A writer compresses no more
than all readers accept (`protocol.bounds`).
"""

import zlib
from collections.abc import Callable
from enum import IntEnum
from types import ModuleType
from typing import Any, Final

from protocol.bounds import MAX_DECOMPRESSED_BYTES
from protocol.errors import KgroupError
from protocol.records.corrupt_record import CorruptRecord, RecordsTooLarge


class Codec(IntEnum):
    """The compression bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of_name(cls, name: str) -> "Codec":
        """Look up a producer's `compression.type`. Raises ValueError."""
        try:
            return _CODEC_OF_NAME[name]
        except KeyError:
            names = ", ".join(_CODEC_OF_NAME)
            raise ValueError(f"compression {name!r} is none of {names}") from None


class CompressionUnavailable(KgroupError, RuntimeError):
    """The codec needs a package that is not installed."""

    def __init__(self) -> None:
        super().__init__("snappy, lz4 and zstd need: pip install 'kgroup[compression]'")


def compress(codec: Codec, data: bytes) -> bytes:
    """Compress the records of a batch. Raises RecordsTooLarge and CompressionUnavailable."""
    if codec is not Codec.NONE and len(data) > MAX_DECOMPRESSED_BYTES:
        raise _too_much(codec, MAX_DECOMPRESSED_BYTES)
    return _COMPRESS[codec](data)


def decompress(
    codec: Codec, data: bytes | memoryview, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> bytes:
    """Decompress the records of a batch.

    Raises RecordsTooLarge if they are larger than `max_bytes`, CorruptRecord if the stream is
    damaged, and CompressionUnavailable.
    """
    return _DECOMPRESS[codec](data, max_bytes)


def _cramjam() -> ModuleType:
    try:
        import cramjam
    except ImportError:
        raise CompressionUnavailable from None
    return cramjam


def _too_much(codec: Codec, max_bytes: int) -> RecordsTooLarge:
    return RecordsTooLarge(codec.name.lower(), max_bytes)


# none and gzip


def _keep(data: bytes) -> bytes:
    return data


def _keep_bounded(data: bytes | memoryview, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise _too_much(Codec.NONE, max_bytes)
    return bytes(data)


_GZIP_WINDOW: Final = 31
"""zlib's number for the largest window in a gzip wrapper."""


def _gzip(data: bytes) -> bytes:
    return zlib.compress(data, wbits=_GZIP_WINDOW)


def _gunzip(data: bytes | memoryview, max_bytes: int) -> bytes:
    # Ask for one byte more than allowed, to see whether there is more.
    stream = zlib.decompressobj(_GZIP_WINDOW)
    try:
        out = stream.decompress(data, max_bytes + 1)
    except zlib.error as error:
        raise CorruptRecord(f"gzip data is damaged: {error}") from None

    if len(out) > max_bytes:
        raise _too_much(Codec.GZIP, max_bytes)
    if not stream.eof:
        raise CorruptRecord("gzip data ends early")
    if stream.unused_data:
        raise CorruptRecord(f"{len(stream.unused_data)} bytes follow the gzip data")
    return out


# snappy

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + (1).to_bytes(4, "big") * 2
"""The magic, then version 1, compatible with version 1."""
_XERIAL_BLOCK_BYTES: Final = 32 * 1024


def _snappy(data: bytes) -> bytes:
    compress_raw = _cramjam().snappy.compress_raw
    stream = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        stream += len(block).to_bytes(4, "big"), block
    return b"".join(stream)


def _unsnappy(data: bytes | memoryview, max_bytes: int) -> bytes:
    cramjam = _cramjam()
    out = []
    room = max_bytes  # bytes that all further blocks may still take
    try:
        for block in _xerial_blocks(bytes(data)):
            # Each block says how large it will be: refuse it before it is decompressed.
            room -= cramjam.snappy.decompress_raw_len(block)
            if room < 0:
                raise _too_much(Codec.SNAPPY, max_bytes)
            out.append(bytes(cramjam.snappy.decompress_raw(block)))
    except cramjam.DecompressionError as error:
        raise CorruptRecord(f"snappy data is damaged: {error}") from None
    return b"".join(out)


def _xerial_blocks(data: bytes) -> list[bytes]:
    """Split a xerial stream into its raw blocks."""
    if not data.startswith(_XERIAL_MAGIC):
        return [data]

    blocks = []
    pos = 0
    while pos < len(data):
        # The header stands there again where two streams were joined.
        if data.startswith(_XERIAL_MAGIC, pos):
            pos += len(_XERIAL_HEADER)
            continue

        start = pos + 4
        pos = start + int.from_bytes(data[pos:start], "big")
        blocks.append(data[start:pos])

    # The last length, or a header that is cut, leads beyond the end.
    if pos > len(data):
        raise CorruptRecord("snappy data ends early")
    return blocks


# lz4

_LZ4_HEADER: Final = bytes.fromhex("04224d18 60 40 82")
"""Magic; flags for version 1, independent blocks, no checksums; 64 KiB blocks; header checksum."""
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_END: Final = bytes(4)
_LZ4_STORED: Final = 1 << 31
"""Set in the length of a block that is not compressed."""
_LZ4_LARGEST_RATIO: Final = 255
"""Most bytes that one compressed byte can stand for."""


def _lz4(data: bytes) -> bytes:
    compress_block = _cramjam().lz4.compress_block
    frame = [_LZ4_HEADER]
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        block = data[start : start + _LZ4_BLOCK_BYTES]
        packed = bytes(compress_block(block, store_size=False))
        # A block that does not shrink is stored as it is.
        if len(packed) < len(block):
            frame += len(packed).to_bytes(4, "little"), packed
        else:
            frame += (len(block) | _LZ4_STORED).to_bytes(4, "little"), block
    frame.append(_LZ4_END)
    return b"".join(frame)


def _unlz4(data: bytes | memoryview, max_bytes: int) -> bytes:
    lz4 = _cramjam().lz4
    frame = bytes(data)
    # Some writers announce blocks of 4 MiB for a few bytes. Allocating those would cost more than
    # decompressing them.
    room = min(_check_lz4_frame(frame), _LZ4_LARGEST_RATIO * len(frame), max_bytes)
    return _decompress_into(Codec.LZ4, lz4, frame, room, room)


def _check_lz4_frame(frame: bytes) -> int:
    """Check that every Kafka client can read the frame; return the most bytes its blocks can hold.

    The codec itself also accepts linked blocks and several frames. Kafka's reader refuses linked
    blocks and ignores further frames. Raises CorruptRecord.
    """
    if len(frame) < len(_LZ4_HEADER) or frame[:4] != _LZ4_HEADER[:4]:
        raise CorruptRecord("lz4 data does not begin with a frame")

    # Bits 6 and 7 are the version, 1. Bit 5 says that the blocks are independent.
    flags = frame[4]
    if flags >> 6 != 1 or not flags & 0x20:
        raise CorruptRecord(f"lz4 frame flags {flags:#04x} are not those of independent blocks")

    # Skip the header. The ids 4 to 7 stand for blocks of 64 KiB to 4 MiB. With bit 3 set there are
    # 8 more bytes, the size of the content.
    block_bytes = 1 << 2 * (frame[5] >> 4 & 7) + 8
    block_sum_bytes = 4 if flags & 0x10 else 0
    pos = len(_LZ4_HEADER) + (8 if flags & 0x08 else 0)
    blocks = 0

    # Count the blocks up to the end mark, then skip the checksum of the content.
    while length := int.from_bytes(frame[pos : pos + 4], "little"):
        pos += 4 + (length & ~_LZ4_STORED) + block_sum_bytes
        blocks += 1
    pos += 4 + (4 if flags & 0x04 else 0)

    if pos != len(frame):
        raise CorruptRecord("lz4 data is not exactly one frame")
    return blocks * block_bytes


# zstd


def _zstd(data: bytes) -> bytes:
    return bytes(_cramjam().zstd.compress(data))


def _unzstd(data: bytes | memoryview, max_bytes: int) -> bytes:
    # The first buffer is a guess: eight times the size, and at least 64 KiB.
    return _decompress_into(
        Codec.ZSTD, _cramjam().zstd, data, max(8 * len(data), 64 * 1024), max_bytes
    )


_BUFFER_IS_FULL: Final = "whole buffer"
"""Part of the codec's message for that; all other messages mean damaged data."""


def _decompress_into(
    codec: Codec, module: Any, data: bytes | memoryview, first_room: int, last_room: int
) -> bytes:
    """Decompress into a buffer of `first_room` bytes, then into larger ones, up to `last_room`.

    A stream need not contain its size. The codec distinguishes a full buffer from damaged data only
    in its message, which may change, so damaged data is retried up to the bound, too.
    """
    room = min(first_room, last_room)
    while True:
        out = bytearray(room)
        try:
            return bytes(memoryview(out)[: module.decompress_into(data, out)])
        except _cramjam().DecompressionError as error:
            if room == last_room:
                if _BUFFER_IS_FULL in str(error):
                    raise _too_much(codec, last_room) from None
                raise CorruptRecord(f"{codec.name.lower()} data is damaged: {error}") from None

        room = min(4 * room, last_room)


_CODEC_OF_NAME: Final = {codec.name.lower(): codec for codec in Codec}

_COMPRESS: Final[dict[Codec, Callable[[bytes], bytes]]] = {
    Codec.NONE: _keep,
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}

_DECOMPRESS: Final[dict[Codec, Callable[[bytes | memoryview, int], bytes]]] = {
    Codec.NONE: _keep_bounded,
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
