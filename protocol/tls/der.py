"""Walk the elements of DER (X.690): tag, length, content.

The certificates that are walked have passed OpenSSL already, or come from the user's own files.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.frozen import frozen

SEQUENCE = 0x30
SET = 0x31
OBJECT_IDENTIFIER = 0x06
OCTET_STRING = 0x04
BOOLEAN = 0x01


class DerError(ValueError):
    """The bytes are not DER."""


@frozen
class Element:
    """An element: its tag, its content, and all of its bytes."""

    tag: int
    content: memoryview
    encoded: memoryview


def read_element(encoded: memoryview) -> Element:
    """Read the first element. Raises DerError."""
    if len(encoded) < 2:
        raise DerError("an element ends before its length")

    # A length below 128 has one byte; else that byte says how many follow.
    length = encoded[1]
    begin = 2
    if length >= 0x80:
        begin += length & 0x7F
        length = int.from_bytes(encoded[2:begin], "big")
    end = begin + length
    if end > len(encoded):
        raise DerError(f"an element of {length} bytes ends after {len(encoded)}")
    return Element(encoded[0], encoded[begin:end], encoded[:end])


def read_elements(encoded: memoryview) -> Iterator[Element]:
    """Read the elements that stand one after the other. Raises DerError."""
    while encoded:
        element = read_element(encoded)
        yield element
        encoded = encoded[len(element.encoded) :]


def read_object_identifier(content: memoryview) -> str:
    """Return an OBJECT IDENTIFIER with dots, such as 2.5.4.3. Raises DerError."""
    arcs: list[int] = []
    value = 0
    for byte in content:
        # Seven bits a byte; the last one of a number has a clear top bit.
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            arcs.append(value)
            value = 0
    if not arcs:
        raise DerError("an object identifier is empty")

    # The first number stands for two arcs.
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, (first, arcs[0] - 40 * first, *arcs[1:])))
