"""Java's String.hashCode, by which Kafka chooses the partition of a group."""

from __future__ import annotations

import struct


def java_string_hash(text: str) -> int:
    """Compute String.hashCode: h = 31*h + unit over the UTF-16 units, as a signed 32-bit number."""
    # A Java string may hold a lone surrogate, which counts as a unit like any other.
    raw = text.encode("utf-16-be", "surrogatepass")

    value = 0
    for unit in struct.unpack(f">{len(raw) // 2}H", raw):
        value = (31 * value + unit) & 0xFFFFFFFF
    return wrap32(value)


def wrap32(value: int) -> int:
    """Wrap `value` as Java's int arithmetic does: keep the low 32 bits, signed."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def abs31(value: int) -> int:
    """Compute Kafka's Utils.abs: |value|, but 0 for -2**31. Masking the sign bit differs."""
    return 0 if value == -(1 << 31) else abs(value)


def group_partition(group_id: str, num_partitions: int) -> int:
    """Return the partition of `__consumer_offsets` that stores a group."""
    return abs31(java_string_hash(group_id)) % num_partitions
