"""A record as the producer buffers it, and the bytes that it counts for."""

from collections.abc import Sequence
from typing import Any

Header = tuple[str, bytes | None]
EncodedRecord = tuple[str, int | None, Any, bytes | None, bytes | None, Sequence[Header], int, int]
"""Topic, partition, original key, key, value, headers, timestamp_ms, size in bytes."""

LEAST_OVERHEAD_BYTES = 7
"""Fewest bytes that a record adds to its key and value: lengths, deltas, attributes, headers."""
MOST_OVERHEAD_BYTES = 26
"""Most bytes of these, without headers."""


def record_bytes(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    """Return an upper bound for the uncompressed size of a record in a batch."""
    size = MOST_OVERHEAD_BYTES + (len(key) if key else 0) + (len(value) if value else 0)

    for name, content in headers:
        # Two varints of five bytes at most, and four bytes of UTF-8 for each character.
        size += 10 + 4 * len(name) + (len(content) if content else 0)
    return size
