"""Compute Java's `hashCode()` of the Java objects that Python's stand for.

With `producer.type` it decides a key's partition, so that Python and Scala producers put equal keys
on one partition. A Python int is an Integer if it fits 32 bits, otherwise a Long. Both have the
same hash, except that a negative Long has another than its Integer.
"""

import struct
from collections.abc import Callable
from typing import Any

from protocol.java_hash import java_string_hash

_MASK = 0xFFFFFFFF
# Java folds all NaN values into this one (`doubleToLongBits`).
_NAN = 0x7FF8000000000000


def java_hash_code(key: Any) -> int:
    """Return the signed 32-bit hash of str, bytes (`Arrays.hashCode`), int, float (Double) or bool.

    Raises TypeError for any other type, OverflowError for an int beyond 64 bits.
    """
    for kind, hash_code in _HASH_OF.items():
        if isinstance(key, kind):
            return hash_code(key)

    raise TypeError(f"a {type(key).__name__} has no Java hash code; give a partitioner.class")


def _integer(number: int) -> int:
    if -(1 << 31) <= number < 1 << 31:
        # The hash of an Integer is its value.
        return number
    if -(1 << 63) <= number < 1 << 63:
        return _fold(struct.pack(">q", number))
    raise OverflowError(f"the key {number} does not fit the 64 bits of a Long")


def _double(number: float) -> int:
    bits = struct.pack(">d", number)
    return _fold(struct.pack(">Q", _NAN) if number != number else bits)


def _fold(eight_bytes: bytes) -> int:
    high, low = struct.unpack(">ii", eight_bytes)
    folded: int = high ^ low
    return folded


def _bytes(key: bytes) -> int:
    h = 1
    for byte in key:
        # Java's bytes are signed, and its arithmetic has 32 bits.
        h = (31 * h + (byte - 256 if byte > 127 else byte)) & _MASK
    return h - (1 << 32) if h >> 31 else h


_HASH_OF: dict[type | tuple[type, ...], Callable[[Any], int]] = {
    bool: lambda truth: 1231 if truth else 1237,  # before int: a bool is one
    int: _integer,
    str: java_string_hash,
    (bytes, bytearray): _bytes,
    float: _double,
}
