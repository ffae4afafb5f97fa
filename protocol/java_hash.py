"""Java's String.hashCode, on which Kafka's choice of a group's partition depends."""

from __future__ import annotations

import struct


def java_string_hash(text: str) -> int:
    """String.hashCode of `text`: 31*h + unit over its UTF-16 units, as a signed 32-bit number."""
    raw = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(raw) // 2}H", raw):
        value = (31 * value + unit) & 0xFFFFFFFF
    return wrap32(value)


def wrap32(value: int) -> int:
    """What Java's int arithmetic leaves of `value`: its low 32 bits, signed."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def abs31(value: int) -> int:
    """Kafka's Utils.abs: |value|, but 0 for -2**31. Not the same as masking the sign bit."""
    return 0 if value == -(1 << 31) else abs(value)


def group_partition(group_id: str, num_partitions: int) -> int:
    """The partition of `__consumer_offsets` that keeps a group."""
    return abs31(java_string_hash(group_id)) % num_partitions
