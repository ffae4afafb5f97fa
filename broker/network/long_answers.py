"""Long answers: their elements are encoded as they are made, and have a bound together."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import attrs

from protocol.encoding import Encoded, EncodedArray, encode_element

MOST_ANSWER_BYTES = 128 * 2**20
"""Bytes of the answers to one request, at most: it may name the largest group 30,000 times."""
CHUNK_BYTES = 64 * 1024
"""Bytes of the chunks of a response, at least, but for the last."""


class AnswerTooLarge(Exception):
    """The answers to a request are larger together than a response may be."""

    def __init__(self) -> None:
        super().__init__(f"the response to a request has more than {MOST_ANSWER_BYTES} bytes")


@attrs.define(eq=False)
class AnswerBytes:
    """The bytes of all answers to one request."""

    total: int = 0

    def add(self, size: int) -> None:
        """Count some more. Raises AnswerTooLarge."""
        self.total += size
        # A request of 90 KB would take all memory (fault security-2).
        if self.total > MOST_ANSWER_BYTES:
            raise AnswerTooLarge


@attrs.define(eq=False)
class LongAnswer:
    """The elements of an array of a response of this class and version.

    The array may be one of several of the response, which share `size`.
    """

    response: type
    version: int
    size: AnswerBytes = attrs.field(factory=AnswerBytes)
    _count: int = 0
    _chunks: list[Encoded] = attrs.field(factory=list)
    _small: list[Encoded] = attrs.field(factory=list)
    _small_bytes: int = 0

    def add(self, elements: Collection[Any]) -> None:
        """Encode elements; those that are encoded are taken as they are. Raises AnswerTooLarge."""
        self._count += len(elements)
        for element in elements:
            encoded = element
            if not isinstance(element, Encoded):
                encoded = encode_element(element, self.response, self.version)
            self.size.add(len(encoded.body))

            # To send 12,000 chunks of some elements each would take a turn of 26 ms to begin.
            self._small.append(encoded)
            self._small_bytes += len(encoded.body)
            if self._small_bytes >= CHUNK_BYTES:
                self._join()

    def array(self) -> EncodedArray:
        """Return all of it; nothing may be added after this."""
        if self._small:
            self._join()
        return EncodedArray(self._count, self._chunks)

    def _join(self) -> None:
        body = b"".join(element.body for element in self._small)
        self._chunks.append(Encoded(self._small[0].kind, body))
        self._small, self._small_bytes = [], 0
