"""The codecs of a batch in Kafka's framing, with a bound on the size of the result.

gzip is RFC 1952, of one or several members. Snappy is the xerial stream: a header of 16 bytes, then
blocks of at most 32 KiB, each after its length. The header may come again between blocks; a stream
without a header is one raw block. LZ4 is the frame format, restricted to what Kafka's reader
accepts: one frame of independent blocks. Zstd (KIP-110) is the plain stream.

The reader of a peer's data says how much may come out of it (`room`), and no more than that is ever
allocated. A writer compresses no more than all readers accept (`protocol.bounds`). What a stock
broker has accepted is read: bytes behind a stream are ignored where its readers ignore them.
"""

import mmap
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from types import ModuleType
from typing import Final

from protocol.bounds import MAX_DECOMPRESSED_BYTES
from protocol.errors import KgroupError
from protocol.records.corrupt_record import CorruptRecord, RecordsTooLarge
from protocol.records.lz4_header import xxh32
from protocol.records.room import Room


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
    codec: Codec, data: bytes | memoryview, room: int | Room = MAX_DECOMPRESSED_BYTES
) -> bytes:
    """Decompress the records of a batch. What follows the stream is ignored, as Kafka does.

    Raises RecordsTooLarge if they are larger than `room`, CorruptRecord if the stream is damaged,
    and CompressionUnavailable. What was decompressed until then is taken from a Room, too.
    """
    shared = room if isinstance(room, Room) else Room(room)
    allowed = shared.left
    try:
        return _DECOMPRESS[codec](data, shared)
    except _Full:
        # All that was allowed has been decompressed, and is refused (fault security-0).
        shared.take(allowed)
        raise _too_much(codec, allowed) from None


def _cramjam() -> ModuleType:
    try:
        import cramjam
    except ImportError:
        raise CompressionUnavailable from None
    return cramjam


def _too_much(codec: Codec, max_bytes: int) -> RecordsTooLarge:
    return RecordsTooLarge(codec.name.lower(), max_bytes)


class _Full(Exception):
    """The records need more than the room that is left."""


_PARTS_FOR_ANY: Final = 1024
_BYTES_OF_A_PART: Final = 64
"""A stream may have so many parts (members, frames, blocks), and one more for so many bytes of
room: a part takes time however little is in it."""


def _most_parts(room: Room) -> int:
    return _PARTS_FOR_ANY + room.left // _BYTES_OF_A_PART


# none and gzip


def _keep(data: bytes) -> bytes:
    return data


def _keep_bounded(data: bytes | memoryview, room: Room) -> bytes:
    if len(data) > room.left:
        raise _Full
    return bytes(data)


_GZIP_WINDOW: Final = 31
"""zlib's number for the largest window in a gzip wrapper."""
_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_GZIP_WRAPPER_BYTES: Final = 18
"""Bytes of a member around its data: so many, or fewer, are not another member."""
_FIRST_SLICE_BYTES: Final = 4 * 1024
_LARGEST_SLICE_BYTES: Final = 256 * 1024
"""Bytes of a member that are decompressed at once, twice as many each time. What follows the end
of a small member has been passed for nothing."""
_PIECE_BYTES: Final = 2**20
"""Most bytes that come out at once."""
_GZIP_LARGEST_RATIO: Final = 1032
"""Most bytes that one of deflate can stand for."""


def _gzip(data: bytes) -> bytes:
    return zlib.compress(data, wbits=_GZIP_WINDOW)


def _gunzip(data: bytes | memoryview, room: Room) -> bytes:
    whole = bytes(data)
    out: list[bytes] = []
    pos = _inflate_member(whole, 0, out, room)

    # Java's reader goes on with what begins like a member, and ignores anything else (RFC 1952).
    most_members = _most_parts(room)
    # Members that are joined are one stream (fault broker-3).
    while len(whole) - pos > _GZIP_WRAPPER_BYTES and whole.startswith(_GZIP_MAGIC, pos):
        pos = _inflate_member(whole, pos, out, room)
        most_members -= 1
        if not most_members:
            raise _Full
    return out[0] if len(out) == 1 else b"".join(out)


def _inflate_member(data: bytes, pos: int, out: list[bytes], room: Room) -> int:
    """Add the member at `pos` to `out`, and return the position behind it."""
    stream = zlib.decompressobj(_GZIP_WINDOW)
    slice_bytes = _FIRST_SLICE_BYTES
    given = b""
    while not stream.eof:
        if not given:
            given = data[pos : pos + slice_bytes]
            pos += len(given)
            slice_bytes = min(2 * slice_bytes, _LARGEST_SLICE_BYTES)
            if not given:
                raise CorruptRecord("gzip data ends early")

        # Ask for one byte more than allowed, to see whether there is more.
        most_bytes = min(room.left + 1, _PIECE_BYTES)
        try:
            piece = stream.decompress(given, most_bytes)
        except zlib.error as error:
            # What came out before the damage is lost, but not free (fault security-0).
            room.take(min(most_bytes, _GZIP_LARGEST_RATIO * len(given)))
            raise CorruptRecord(f"gzip data is damaged: {error}") from None

        # What is too large is let go before it is whole (fault outside-O4).
        if len(piece) > room.left:
            raise _Full
        room.take(len(piece))
        if piece:
            out.append(piece)
        given = stream.unconsumed_tail
    return pos - len(stream.unused_data)


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


def _unsnappy(data: bytes | memoryview, room: Room) -> bytes:
    cramjam = _cramjam()
    out = []
    parts = _most_parts(room)
    try:
        for block in _xerial_blocks(bytes(data)):
            # Each block says how large it will be: refuse it before it is decompressed.
            size = cramjam.snappy.decompress_raw_len(block)
            parts -= 1
            if size > room.left or not parts:
                raise _Full
            room.take(size)
            out.append(bytes(cramjam.snappy.decompress_raw(block)))
    except cramjam.DecompressionError as error:
        raise CorruptRecord(f"snappy data is damaged: {error}") from None
    return b"".join(out)


def _xerial_blocks(data: bytes) -> Iterator[bytes]:
    """Split a xerial stream into its raw blocks."""
    if not data.startswith(_XERIAL_MAGIC):
        yield data
        return

    pos = 0
    end = len(data)
    # Too few bytes for a length are ignored, as by the Java library (fault broker-3, was: end - 1).
    last_length_at = end - 4
    while pos <= last_length_at:
        # The header stands there again where two streams were joined.
        if data.startswith(_XERIAL_MAGIC, pos):
            pos += len(_XERIAL_HEADER)
            if pos > end:
                raise CorruptRecord("snappy data ends early")
            continue

        start = pos + 4
        pos = start + int.from_bytes(data[pos:start], "big")
        if pos > end:
            raise CorruptRecord("snappy data ends early")
        yield data[start:pos]


# lz4

_LZ4_HEADER: Final = bytes.fromhex("04224d18 60 40 82")
"""Magic; flags for version 1, independent blocks, no checksums; 64 KiB blocks; header checksum."""
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_END: Final = bytes(4)
_LZ4_STORED: Final = 1 << 31
"""Set in the length of a block that is not compressed."""
_LZ4_LARGEST_RATIO: Final = 255
"""Most bytes that one compressed byte can stand for."""
_LZ4_BLOCK_SUMS: Final = 0x10
_LZ4_CONTENT_SIZE: Final = 0x08
_LZ4_CONTENT_SUM: Final = 0x04
"""Flags of a frame: its blocks have checksums, its size and a checksum of its content follow."""


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


def _unlz4(data: bytes | memoryview, room: Room) -> bytes:
    lz4 = _cramjam().lz4
    frame, most_bytes = _lz4_frame(bytes(data), _most_parts(room))
    return _decompress_into(Codec.LZ4, lz4, frame, most_bytes, room)


def _lz4_frame(data: bytes, most_blocks: int) -> tuple[bytes, int]:
    """Return the frame that Kafka's reader reads, and the most bytes its blocks can hold.

    The codec itself also accepts linked blocks and several frames. Kafka's reader refuses linked
    blocks, and ignores the size of the content, its checksum and all that follows the first frame.
    Raises CorruptRecord.
    """
    if len(data) < len(_LZ4_HEADER) or data[:4] != _LZ4_HEADER[:4]:
        raise CorruptRecord("lz4 data does not begin with a frame")

    # Bits 6 and 7 are the version, 1. Bit 5 says that the blocks are independent.
    flags = data[4]
    if flags >> 6 != 1 or not flags & 0x20:
        raise CorruptRecord(f"lz4 frame flags {flags:#04x} are not those of independent blocks")

    # The ids 4 to 7 stand for blocks of 64 KiB to 4 MiB. Some writers announce those for a few
    # bytes: what can come out of these is less.
    block_bytes = 1 << 2 * (data[5] >> 4 & 7) + 8
    block_sum_bytes = 4 if flags & _LZ4_BLOCK_SUMS else 0
    begin = len(_LZ4_HEADER) + (8 if flags & _LZ4_CONTENT_SIZE else 0)

    # Find the end mark.
    pos = begin
    most_bytes = 0
    while word := int.from_bytes(data[pos : pos + 4], "little"):
        length = word & ~_LZ4_STORED
        pos += 4 + length + block_sum_bytes
        most_bytes += min(
            block_bytes, length if word & _LZ4_STORED else _LZ4_LARGEST_RATIO * length
        )
        most_blocks -= 1
        if not most_blocks:
            raise _Full
    pos += 4
    if pos > len(data):
        raise CorruptRecord("lz4 data ends early")

    # The size and the sum of the content are not compared: once the header is known to be sound,
    # they are taken out of the frame.
    if data[begin - 1] != xxh32(data[4 : begin - 1]) >> 8 & 0xFF:
        raise CorruptRecord("lz4 data is damaged: the checksum of its header is wrong")
    # A size that is wrong is no damage (fault broker-3).
    flags &= ~(_LZ4_CONTENT_SIZE | _LZ4_CONTENT_SUM)
    # Neither is what follows the frame (fault broker-3).
    data = data[:pos]
    descriptor = bytes((flags, data[5]))
    checksum = xxh32(descriptor) >> 8 & 0xFF
    frame = b"".join((_LZ4_HEADER[:4], descriptor, bytes((checksum,)), data[begin:]))
    return frame, most_bytes


# zstd


def _zstd(data: bytes) -> bytes:
    return bytes(_cramjam().zstd.compress(data))


_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE: Final = b"\x2a\x4d\x18"
"""The magic of a frame without content, but for its first byte, 0x50 to 0x5f."""
_ZSTD_BLOCK_BYTES: Final = 128 * 1024
_ZSTD_RAW, _ZSTD_RLE, _ZSTD_COMPRESSED = 0, 1, 2
_ZSTD_DICTIONARY_BYTES: Final = (0, 1, 2, 4)
_ZSTD_SIZE_BYTES: Final = (0, 2, 4, 8)
"""Bytes of the dictionary's id and of the content's size, by their flags."""


def _unzstd(data: bytes | memoryview, room: Room) -> bytes:
    zstd = _cramjam().zstd
    frames, most_bytes = _zstd_frames(bytes(data), _most_parts(room))
    return _decompress_into(Codec.ZSTD, zstd, frames, most_bytes, room)


def _zstd_frames(data: bytes, most_blocks: int) -> tuple[bytes, int]:
    """Return the whole frames at the beginning, and the most bytes that they can hold.

    What follows them is ignored, as by the Java library. Raises CorruptRecord if there is none.
    """
    pos = most_bytes = 0
    while pos < len(data):
        try:
            end, content_bytes, blocks = _walk_zstd_frame(data, pos, most_blocks)
        except IndexError:
            end = len(data) + 1
        except CorruptRecord:
            if not pos:
                raise
            break

        # A frame that is cut.
        if end > len(data):
            if not pos:
                raise CorruptRecord("zstd data ends early")
            break
        pos = end
        most_bytes += content_bytes
        most_blocks -= blocks + 1
        if most_blocks <= 0:
            raise _Full

    if not pos:
        raise CorruptRecord("zstd data ends early")
    # What follows the frames is not given to the codec (fault broker-3).
    data = data[:pos]
    return data, most_bytes


def _walk_zstd_frame(data: bytes, pos: int, most_blocks: int) -> tuple[int, int, int]:
    """Return the end of the frame at `pos`, the most bytes it can hold, and its blocks (RFC 8878).

    Raises IndexError if it is cut.
    """
    if data[pos + 1 : pos + 4] == _ZSTD_SKIPPABLE and data[pos] >> 4 == 5:
        return pos + 8 + int.from_bytes(data[pos + 4 : pos + 8], "little"), 0, 0
    if data[pos : pos + 4] != _ZSTD_MAGIC:
        raise CorruptRecord("zstd data does not begin with a frame")

    # The header. A block is no larger than the window, which is the content if that is one segment.
    descriptor = data[pos + 4]
    pos += 5
    is_one_segment = descriptor & 0x20
    window = 0
    if not is_one_segment:
        exponent, mantissa = data[pos] >> 3, data[pos] & 7
        window = (1 << 10 + exponent) // 8 * (8 + mantissa)
        pos += 1
    pos += _ZSTD_DICTIONARY_BYTES[descriptor & 3]
    size_bytes = _ZSTD_SIZE_BYTES[descriptor >> 6]
    if is_one_segment:
        size_bytes = size_bytes or 1
        window = int.from_bytes(data[pos : pos + size_bytes], "little")
        window += 256 if size_bytes == 2 else 0
    pos += size_bytes
    block_bytes = min(window, _ZSTD_BLOCK_BYTES)

    # The blocks, each after a header of three bytes.
    most_bytes = blocks = 0
    is_last = 0
    while not is_last:
        header = data[pos] | data[pos + 1] << 8 | data[pos + 2] << 16
        is_last, kind, size = header & 1, header >> 1 & 3, header >> 3
        pos += 3 + (1 if kind == _ZSTD_RLE else size)
        most_bytes += block_bytes if kind == _ZSTD_COMPRESSED else size
        blocks += 1
        if blocks > most_blocks:
            raise _Full

    # The checksum of the content.
    return pos + (4 if descriptor & 4 else 0), most_bytes, blocks


_LARGE_BYTES: Final = 2**20
_BUFFER_IS_FULL: Final = "whole buffer"
"""Part of the codec's message for that; all other messages mean damaged data."""


def _decompress_into(
    codec: Codec, module: ModuleType, data: bytes, most_bytes: int, room: Room
) -> bytes:
    """Decompress into a buffer of the size that may be needed, which is given back.

    A large one has pages of its own: the system takes them as they are filled, and has them back
    at the end. On the heap others would soon lie beside it.
    """
    size = min(most_bytes, room.left)
    is_large = size > _LARGE_BYTES
    out = mmap.mmap(-1, size) if is_large else bytearray(size)
    try:
        used = module.decompress_into(data, out)
    except _cramjam().DecompressionError as error:
        # Nobody knows how much was written before the damage (fault security-0).
        room.take(size)
        if size < most_bytes and _BUFFER_IS_FULL in str(error):
            raise _Full from None
        raise CorruptRecord(f"{codec.name.lower()} data is damaged: {error}") from None
    else:
        room.take(used)
        return bytes(memoryview(out)[:used]) if isinstance(out, bytearray) else out[:used]
    finally:
        if isinstance(out, mmap.mmap):
            out.close()


_CODEC_OF_NAME: Final = {codec.name.lower(): codec for codec in Codec}

_COMPRESS: Final[dict[Codec, Callable[[bytes], bytes]]] = {
    Codec.NONE: _keep,
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}

_DECOMPRESS: Final[dict[Codec, Callable[[bytes | memoryview, Room], bytes]]] = {
    Codec.NONE: _keep_bounded,
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
