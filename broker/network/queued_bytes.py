"""Bound the memory that the requests and responses of all connections take.

The limit is `queued.max.request.bytes`. It covers incomplete frames, frames that wait to be served,
parked requests, and responses that are not sent. Beyond the limit only the connections of other
brokers are read. When there is room again the connections are read in the order in which they were
paused. A new connection is read once, because its first request shows whether it is a broker's.

A request counts until nothing holds it, also if its connection is closed before (`keep`).

Incomplete frames alone never keep a connection from being read that is between two frames: they
count up to half of the limit, and what is beyond delays themselves (`incomplete_frames`). Those of
strangers, who have yet to log in, count up to an eighth, and delay strangers alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice

import attrs

from broker.network.incomplete_frames import READ_BYTES, IncompleteFrames, Reader

__all__ = ["READ_BYTES", "QueuedBytes", "Reader", "default_queued_bytes"]

CLIENTS_PART = 2
"""The part of the limit for incomplete frames of clients, as a divisor; half as much for one."""
STRANGERS_PART = 8
"""The part of the limit for incomplete frames of strangers; half as much for one address."""
CLIENT_FREE_BYTES = 64 * 1024
STRANGER_FREE_BYTES = 16 * 1024
"""Bytes of an incomplete frame that are taken in any case, of a client and of a stranger."""

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
    _is_short: bool = False

    # The incomplete frames, and which of both a connection's frame is among.
    _of_clients: IncompleteFrames = attrs.field(init=False)
    _of_strangers: IncompleteFrames = attrs.field(init=False)
    _frames_of: dict[Reader, IncompleteFrames] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        clients, strangers = self.limit // CLIENTS_PART, self.limit // STRANGERS_PART
        self._of_clients = IncompleteFrames(clients, clients // 2, CLIENT_FREE_BYTES)
        self._of_strangers = IncompleteFrames(
            strangers, strangers // 2, STRANGER_FREE_BYTES, by_address=True
        )

    def add(self, reader: Reader) -> None:
        """Add a new connection."""
        self._taken[reader] = 0
        self._reading[reader] = None

    def remove(self, reader: Reader) -> None:
        """Remove a closed connection, and the bytes that it held."""
        self.total -= self._taken.pop(reader)
        self._reading.pop(reader, None)
        self._paused.pop(reader, None)
        frames = self._frames_of.pop(reader, None)
        if frames is not None:
            frames.update(reader, 0)
        # Another frame must be completed in its place, or nothing makes room.
        self._balance(None)

    def update(self, reader: Reader, held_bytes: int) -> None:
        """Set the bytes that a connection holds, after it was read, served or written to."""
        assert held_bytes >= 0
        self.total += held_bytes - self._taken[reader]
        self._taken[reader] = held_bytes
        if reader.is_in_frame or reader in self._frames_of:
            self._note_frame(reader, held_bytes if reader.is_in_frame else 0)
        self._balance(reader)

    def keep(self, held_bytes: int) -> Callable[[], None]:
        """Count bytes that belong to no connection any more, until the result is called once."""
        self._add_kept(held_bytes)
        return partial(self._add_kept, -held_bytes)

    def _add_kept(self, grown: int) -> None:
        self.total += grown
        self._balance(None)

    def rotate(self) -> None:
        """Let other frames be completed in place of those whose clients have gone silent.

        Call it from time to time. It also resumes reading if there is room and no bytes move.
        """
        self._balance(None)
        self._of_clients.rotate()
        self._of_strangers.rotate()

    def _note_frame(self, reader: Reader, frame_bytes: int) -> None:
        before = self._frames_of.get(reader)
        frames = self._of_clients
        # Strangers have a part of their own, and keep nobody else from being read
        # (fault security-2).
        if reader.is_stranger:
            frames = self._of_strangers

        # Who has logged in is no stranger any more.
        if before is not None and (before is not frames or not frame_bytes):
            del self._frames_of[reader]
            before.update(reader, 0)
        if frame_bytes:
            self._frames_of[reader] = frames
            frames.update(reader, frame_bytes)

    def _balance(self, reader: Reader | None) -> None:
        """Pause or resume connections, after `reader` was updated, or any was removed."""
        counted = self.total
        # Frames that may never be completed take only a part of the limit from those who send
        # none (fault security-2).
        counted -= self._of_clients.excess + self._of_strangers.excess

        was_short = self._is_short
        self._is_short = counted > self.limit
        if self._is_short:
            self._stop_reading(list(self._reading) if reader is None or not was_short else [reader])
        elif self._paused:
            self._resume_readers(self.limit - counted)

        # Whole requests make room by themselves: until then none more is completed.
        is_full = self.total - self._of_clients.held - self._of_strangers.held > self.limit
        self._of_clients.settle(reader, self._is_short, is_full)
        self._of_strangers.settle(reader, False, False)

    def _stop_reading(self, readers: list[Reader]) -> None:
        """Pause those that are between two frames, but those of brokers, strangers and new ones."""
        for reader in readers:
            if reader.is_brokers:
                # Brokers are always read: their fetches end the produce requests that hold memory.
                self._reading.pop(reader, None)
            elif reader in self._paused:
                self._note_read_while_paused(reader)
            # A new connection is read until bytes arrive: they show whether a broker sends them.
            elif reader.was_read and not reader.is_in_frame and not reader.is_stranger:
                self._pause(reader)

    def _note_read_while_paused(self, reader: Reader) -> None:
        """Hand a connection over that was read once all the same, and is within a frame now."""
        if reader.is_in_frame:
            del self._paused[reader]
            self._reading[reader] = None
            reader.resume_reading()

    def _resume_readers(self, room: int) -> None:
        """Resume as many connections as there is room for, at least one."""
        # One read of each may bring READ_BYTES.
        room_for = max(1, room // READ_BYTES)
        for reader in list(islice(self._paused, room_for)):
            del self._paused[reader]
            self._reading[reader] = None
            reader.resume_reading()

    def _pause(self, reader: Reader) -> None:
        self._reading.pop(reader, None)
        self._paused[reader] = None
        reader.pause_reading()
