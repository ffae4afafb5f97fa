"""The header checksum of an LZ4 frame: the correct one, and that of Kafka's format 0 (KAFKA-3160).

The byte after a frame's descriptor is the second byte of the xxHash-32 of that descriptor. Kafka's
first writer also hashed the frame's magic number. Messages of format 0 still carry the wrong byte:
some of their readers check no checksum, and the others expect the wrong one.
"""

from typing import Final

_MAGIC_BYTES: Final = 4
# The magic number, a descriptor of two bytes, and the checksum.
_SMALLEST_FRAME: Final = 7
_HAS_CONTENT_SIZE: Final = 0x08
_CONTENT_SIZE_BYTES: Final = 8

# The constants of xxHash-32.
_PRIME_1, _PRIME_2, _PRIME_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_PRIME_4, _PRIME_5 = 0x27D4EB2F, 0x165667B1
_MASK: Final = 0xFFFFFFFF


def with_true_checksum(frame: bytes | memoryview) -> bytes:
    """Return the frame with the correct checksum. Bytes that are not a frame stay as they are."""
    return _with_checksum(frame, _MAGIC_BYTES)


def with_kafkas_checksum(frame: bytes) -> bytes:
    """Return the frame with the checksum of messages of format 0."""
    return _with_checksum(frame, 0)


def _with_checksum(frame: bytes | memoryview, hashed_from: int) -> bytes:
    whole = bytes(frame)
    if len(whole) < _SMALLEST_FRAME:
        return whole

    # The descriptor: two bytes, and the size of the content if a flag says so.
    at = _MAGIC_BYTES + 2 + (_CONTENT_SIZE_BYTES if whole[_MAGIC_BYTES] & _HAS_CONTENT_SIZE else 0)
    checksum = xxh32(whole[hashed_from:at]) >> 8 & 0xFF
    return b"".join((whole[:at], bytes((checksum,)), whole[at + 1 :]))


def xxh32(data: bytes) -> int:
    """Compute xxHash-32 with seed 0 of fewer than 16 bytes."""
    assert len(data) < 16

    # Short input skips the four lanes of the algorithm.
    hashed = _PRIME_5 + len(data)
    words = len(data) // 4 * 4

    # Whole words, then the bytes that are left.
    for pos in range(0, words, 4):
        hashed += int.from_bytes(data[pos : pos + 4], "little") * _PRIME_3
        hashed = _rotate_left(hashed, 17) * _PRIME_4

    for byte in data[words:]:
        hashed = _rotate_left(hashed + byte * _PRIME_5, 11) * _PRIME_1

    # Mix the bits, so that each of them depends on all input.
    hashed &= _MASK
    hashed = (hashed ^ hashed >> 15) * _PRIME_2 & _MASK
    hashed = (hashed ^ hashed >> 13) * _PRIME_3 & _MASK
    return hashed ^ hashed >> 16


def _rotate_left(word: int, bits: int) -> int:
    word &= _MASK
    return word << bits | word >> 32 - bits
