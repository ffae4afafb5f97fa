"""What requests and answers take of memory, over all connections (`queued.max.request.bytes`).

Counted are the parts that have come of frames, frames that wait to be served, requests that are
parked, and answers that were not sent. Beyond the limit no connection is read, but those of other
brokers; when there is room again the one goes on that has waited longest, then the next.

Frames that have begun may fill the limit themselves, and no room would ever come of that. So one of
those connections is always read, the oldest, until its frame is whole; who sends nothing meanwhile
goes to the end of the line (`pass_on`). A connection that was just made is read once, for nobody
knows before whether a broker calls.
"""

from __future__ import annotations

from itertools import islice
from typing import Protocol

import attrs


class Reader(Protocol):
    """A connection, as far as it is read."""

    @property
    def is_brokers(self) -> bool:
        """Whether another broker is at its other end."""

    @property
    def was_read(self) -> bool:
        """Whether anything has come on it."""

    @property
    def in_frame(self) -> bool:
        """Whether a part of a frame has come, and not all of it."""

    def hold_back(self) -> None:
        """Read no more."""

    def let_on(self) -> None:
        """Read on."""


READ_BYTES = 256 * 1024
"""Most that one read of a connection brings."""


_MOST_BY_DEFAULT = 1024**3


def default_queued_bytes(memory_bytes: int) -> int:
    """The limit of a broker that was given none: a quarter of the memory there is, or 1 GiB."""
    return min(memory_bytes // 4, _MOST_BY_DEFAULT)


@attrs.define(eq=False)
class QueuedBytes:
    """Of `limit` bytes, `total` are taken."""

    limit: int
    total: int = 0
    _taken: dict[Reader, int] = attrs.field(factory=dict)
    _reading: dict[Reader, None] = attrs.field(factory=dict)
    _held_back: dict[Reader, None] = attrs.field(factory=dict)  # oldest first
    _favoured: Reader | None = None
    _favoured_had: int = -1

    def add(self, reader: Reader) -> None:
        """A connection was made."""
        self._taken[reader] = 0
        self._reading[reader] = None

    def remove(self, reader: Reader) -> None:
        """It is gone, with all that it held."""
        self.update(reader, 0)
        del self._taken[reader]
        self._reading.pop(reader, None)
        self._held_back.pop(reader, None)
        if self._favoured is reader:
            self._favoured = None
            self._balance()

    def update(self, reader: Reader, held_bytes: int) -> None:
        """A connection holds so much now, after it was read, served or written to."""
        self.total += held_bytes - self._taken[reader]
        self._taken[reader] = held_bytes
        self._balance()

    def pass_on(self) -> None:
        """Called now and then: who was favoured and has sent nothing since gives way, and who has
        room though nothing moves goes on."""
        favoured = self._favoured
        if favoured is None:
            self._balance()
        elif self._taken[favoured] == self._favoured_had:
            self._hold_back(favoured)
            self._favoured = None
            self._balance()
        else:
            self._favoured_had = self._taken[favoured]

    def _balance(self) -> None:
        if self.total > self.limit:
            self._stop_reading()
        elif self._held_back:
            self._read_on()

    def _stop_reading(self) -> None:
        favoured = self._favoured
        if favoured is not None and not favoured.in_frame:
            self._hold_back(favoured)
            self._favoured = None
        for reader in list(self._reading):
            if reader.is_brokers:
                del self._reading[reader]
            elif reader.was_read:
                self._hold_back(reader)
        if self._favoured is None:
            self._favour()

    def _favour(self) -> None:
        """Have the oldest frame that has begun come to its end."""
        oldest = next((reader for reader in self._held_back if reader.in_frame), None)
        if oldest is not None:
            del self._held_back[oldest]
            self._favoured, self._favoured_had = oldest, -1
            oldest.let_on()

    def _read_on(self) -> None:
        """Have as many go on as there is room for."""
        if self._favoured is not None:
            self._reading[self._favoured] = None
            self._favoured = None
        room_for = max(1, (self.limit - self.total) // READ_BYTES)
        for reader in list(islice(self._held_back, room_for)):
            del self._held_back[reader]
            self._reading[reader] = None
            reader.let_on()

    def _hold_back(self, reader: Reader) -> None:
        self._reading.pop(reader, None)
        self._held_back[reader] = None
        reader.hold_back()
