"""The order of Java's strings, in which Kafka sorts members and threads."""

from __future__ import annotations


def java_order(text: str) -> bytes:
    """Return a key that sorts texts as Java's String.compareTo does, by UTF-16 code unit."""
    # Big-endian UTF-16 compares as its code units do; half a surrogate pair is one too.
    return text.encode("utf-16-be", "surrogatepass")
