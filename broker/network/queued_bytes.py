"""Bound the memory that the requests and responses of all connections take.

The limit is `queued.max.request.bytes`. It covers incomplete frames, frames that wait to be served,
parked requests, and responses that are not sent. Beyond the limit only the connections of other
brokers are read. When there is room again the connections are read in the order in which they were
paused.

Incomplete frames alone may fill the limit, and would never make room by themselves. So one of their
connections is always read, the *favoured* one: the oldest, until its frame is complete. If it sends
nothing, it goes to the end of the line (`rotate`). A new connection is read once, because its first
request shows whether it is a broker's.
"""

from __future__ import annotations

from itertools import islice
from typing import Protocol

import attrs


class Reader(Protocol):
    """A connection whose reading can be paused."""

    @property
    def is_brokers(self) -> bool:
        """True if another broker sends on it."""

    @property
    def was_read(self) -> bool:
        """True if any bytes have arrived on it."""

    @property
    def is_in_frame(self) -> bool:
        """True while the beginning of a frame is kept until its rest arrives."""

    def pause_reading(self) -> None:
        """Stop reading."""

    def resume_reading(self) -> None:
        """Read on."""


READ_BYTES = 256 * 1024
"""Most bytes that one read of a connection brings."""


_MOST_BY_DEFAULT = 1024**3


def default_queued_bytes(memory_bytes: int) -> int:
    """Return the limit of a broker without the setting: a quarter of memory, at most 1 GiB."""
    return min(memory_bytes // 4, _MOST_BY_DEFAULT)


@attrs.define(eq=False)
class QueuedBytes:
    """The bytes that all connections hold: `total`, which should not exceed `limit`."""

    limit: int
    total: int = 0
    _taken: dict[Reader, int] = attrs.field(factory=dict)
    _reading: dict[Reader, None] = attrs.field(factory=dict)
    _paused: dict[Reader, None] = attrs.field(factory=dict)  # oldest first
    _favoured: Reader | None = None
    _favoured_bytes: int = -1
    """Bytes that the favoured connection held at the last `rotate`."""

    def add(self, reader: Reader) -> None:
        """Add a new connection."""
        self._taken[reader] = 0
        self._reading[reader] = None

    def remove(self, reader: Reader) -> None:
        """Remove a closed connection, and the bytes that it held."""
        self.update(reader, 0)
        del self._taken[reader]
        self._reading.pop(reader, None)
        self._paused.pop(reader, None)

        # Another frame must be completed in its place, or nothing makes room.
        if self._favoured is reader:
            self._favoured = None
            self._balance()

    def update(self, reader: Reader, held_bytes: int) -> None:
        """Set the bytes that a connection holds, after it was read, served or written to."""
        assert held_bytes >= 0
        self.total += held_bytes - self._taken[reader]
        self._taken[reader] = held_bytes
        self._balance()

    def rotate(self) -> None:
        """Favour another connection if this one has sent nothing since the last call.

        Call it from time to time. It also resumes reading if there is room and no bytes move.
        """
        favoured = self._favoured

        if favoured is None:
            self._balance()
        elif self._taken[favoured] == self._favoured_bytes:
            # Nothing has come since the last call: it goes to the end of the line.
            self._pause(favoured)
            self._favoured = None
            self._balance()
        else:
            self._favoured_bytes = self._taken[favoured]

    def _balance(self) -> None:
        if self.total > self.limit:
            self._stop_reading()
        elif self._paused:
            self._resume_readers()

    def _stop_reading(self) -> None:
        """Pause all connections but the favoured one, those of brokers, and new ones."""
        favoured = self._favoured
        # Its frame is complete: it waits like the others.
        if favoured is not None and not favoured.is_in_frame:
            self._pause(favoured)
            self._favoured = None

        # A new connection is read until bytes arrive: they show whether a broker sends them.
        for reader in list(self._reading):
            if reader.is_brokers:
                # Brokers are always read: their fetches end the produce requests that hold memory.
                del self._reading[reader]
            elif reader.was_read:
                self._pause(reader)

        if self._favoured is None:
            self._favour()

    def _favour(self) -> None:
        """Read the connection that was paused first within a frame, to complete the frame."""
        oldest = next((reader for reader in self._paused if reader.is_in_frame), None)
        if oldest is not None:
            del self._paused[oldest]
            self._favoured = oldest
            # No real number of bytes: it has until the second `rotate` from now.
            self._favoured_bytes = -1
            oldest.resume_reading()

    def _resume_readers(self) -> None:
        """Resume as many connections as there is room for, at least one."""
        # The favoured connection is one of many again.
        if self._favoured is not None:
            self._reading[self._favoured] = None
            self._favoured = None

        # One read of each may bring READ_BYTES.
        room_for = max(1, (self.limit - self.total) // READ_BYTES)
        for reader in list(islice(self._paused, room_for)):
            del self._paused[reader]
            self._reading[reader] = None
            reader.resume_reading()

    def _pause(self, reader: Reader) -> None:
        self._reading.pop(reader, None)
        self._paused[reader] = None
        reader.pause_reading()
