"""Bound the memory that incomplete frames take, so that who sends none is read all the same.

Incomplete frames make no room by themselves, whatever time passes. So together they have a limit of
their own, and each client has a share of it. Beyond either, a connection within a frame waits; its
first bytes are always taken, so that a small frame is never held up by large ones.

The frames have to be completed in the end. So one of the connections that wait is read all the
same, the *favoured* one: the oldest whose client has sent more, until its frame is complete or
nothing more comes. What is kept then of frames that were favoured in vain has a bound, too: beyond
it nobody is favoured until such a frame is completed or given up (`deadlines`). Nor is a client
whose whole requests take all the memory there is for them: they make room by themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Protocol

import attrs

READ_BYTES = 256 * 1024
"""Most bytes that one read of a connection brings."""
LOOKED_AT = 16
"""Connections that wait and are looked at, at once, for one that can go on."""


class Reader(Protocol):
    """A connection whose reading can be paused."""

    @property
    def client(self) -> str:
        """The client: a user, or an address where nobody has logged in."""

    @property
    def is_brokers(self) -> bool:
        """True if another broker sends on it."""

    @property
    def is_stranger(self) -> bool:
        """True if its client has to log in, and has not yet."""

    @property
    def was_read(self) -> bool:
        """True if any bytes have arrived on it."""

    @property
    def is_in_frame(self) -> bool:
        """True while the beginning of a frame is kept until its rest arrives."""

    @property
    def has_unread(self) -> bool:
        """True if the client has sent bytes that are not read yet."""

    def pause_reading(self) -> None:
        """Stop reading."""

    def resume_reading(self) -> None:
        """Read on."""

    def serve_again(self) -> None:
        """Serve requests again, after there was no room for their responses."""


@attrs.define(eq=False)
class IncompleteFrames:
    """The frames that have begun, of one kind of connections: `held` bytes in all.

    `share` is the most of one client. Beyond it, and beyond `limit`, each connection may still hold
    `free_bytes`. `is_full(reader)`: whole requests take all that a connection may have of memory.
    """

    limit: int
    share: int
    free_bytes: int
    is_full: Callable[[Reader], bool]
    held: int = 0
    _bytes: dict[Reader, int] = attrs.field(factory=dict)
    _owners: dict[Reader, str] = attrs.field(factory=dict)
    """Their clients, as they were when the frames began: who logs in becomes another."""
    _shares: dict[str, int] = attrs.field(factory=dict)
    _waiting: dict[Reader, None] = attrs.field(factory=dict)  # oldest first
    _is_over: bool = False
    _favoured: Reader | None = None
    _favoured_bytes: int = -1
    """Bytes that the favoured connection held at the last `rotate`."""
    _favoured_from: int = 0
    """Bytes that it held when it was favoured."""
    _in_vain: dict[Reader, int] = attrs.field(factory=dict)
    """Bytes that were taken of those that have been favoured, and have not ended their frames."""
    _in_vain_bytes: int = 0

    @property
    def excess(self) -> int:
        """Bytes above the limit."""
        return max(0, self.held - self.limit)

    def update(self, reader: Reader, frame_bytes: int) -> None:
        """Set the bytes of the frame that a connection is in; 0: it is in none any more."""
        grown = frame_bytes - self._bytes.get(reader, 0)
        self.held += grown
        owner = self._owners.setdefault(reader, reader.client)
        self._shares[owner] = self._shares.get(owner, 0) + grown
        if not self._shares[owner]:
            del self._shares[owner]

        if frame_bytes:
            self._bytes[reader] = frame_bytes
            return
        self._bytes.pop(reader, None)
        del self._owners[reader]
        self._in_vain_bytes -= self._in_vain.pop(reader, 0)
        if self._favoured is reader:
            self._favoured = None
        if reader in self._waiting:
            del self._waiting[reader]
            reader.resume_reading()

    def settle(self, reader: Reader | None, is_short: bool) -> None:
        """Pause and resume connections, after `reader` was updated, or any was removed.

        `is_short`: memory is short for other reasons too.
        """
        was_over = self._is_over
        self._is_over = is_short or self.held > self.limit
        if self._is_over and not was_over:
            for each in list(self._bytes):
                self._pause_if_due(each)
        elif reader in self._bytes:
            self._pause_if_due(reader)

        if self._waiting:
            self._go_on(reader)

    def rotate(self) -> None:
        """Let another connection go on if the favoured one has sent nothing since the last call."""
        favoured = self._favoured
        if favoured is not None and self._bytes[favoured] == self._favoured_bytes:
            self._favoured = None
            self._give_way(favoured)
        elif favoured is not None:
            self._favoured_bytes = self._bytes[favoured]
        if self._waiting:
            self._go_on(None)

    def _must_wait(self, reader: Reader) -> bool:
        # Brokers are always read: their fetches end the produce requests that hold memory.
        if reader.is_brokers or self._bytes[reader] <= self.free_bytes:
            return False
        return self._is_over or self._shares[self._owners[reader]] > self.share

    def _pause_if_due(self, reader: Reader) -> None:
        is_reading = reader not in self._waiting and reader is not self._favoured
        if is_reading and self._must_wait(reader):
            self._waiting[reader] = None
            reader.pause_reading()

    def _go_on(self, updated: Reader | None) -> None:
        """Read those for whom there is room again, and the favoured one."""
        if not self._is_over:
            room_for = max(1, (self.limit - self.held) // READ_BYTES)
            for reader in list(islice(self._waiting, min(room_for, LOOKED_AT))):
                del self._waiting[reader]
                if self._must_wait(reader):
                    self._waiting[reader] = None
                else:
                    reader.resume_reading()

        # Who is read, and sends nothing now, gives way to one who has sent.
        favoured = self._favoured
        if favoured is None:
            is_favoured = self._favour()
            # Nobody has sent more: whoever was read last is the likeliest to do so.
            if not is_favoured and updated in self._waiting and self._may_favour(updated):
                self._read_as_favoured(updated)
        elif favoured is updated and not favoured.has_unread and not self.is_full(favoured):
            self._give_way(favoured)
            self._favoured = None
            # If nobody has sent more, it goes on.
            if not self._favour() and self._may_favour(favoured):
                self._read_as_favoured(favoured)

    def _favour(self) -> bool:
        """Read the first connection in line whose client has sent more; False if there is none."""
        for reader in list(islice(self._waiting, LOOKED_AT)):
            if self._may_favour(reader) and reader.has_unread:
                self._read_as_favoured(reader)
                return True
            # The silent go to the end of the line, or they would keep all others from being read.
            del self._waiting[reader]
            self._waiting[reader] = None
        return False

    def _read_as_favoured(self, reader: Reader) -> None:
        del self._waiting[reader]
        self._favoured = reader
        # No real number of bytes: it has until the second `rotate` from now.
        self._favoured_bytes = -1
        self._favoured_from = self._bytes[reader]
        reader.resume_reading()

    def _may_favour(self, reader: Reader) -> bool:
        # One frame after the other would be completed, and nothing bound them (fault security-2).
        if self.is_full(reader):
            return False
        # Its own bytes never keep it from going on: the frame of one of them is always completed.
        of_others = self._in_vain_bytes - self._in_vain.get(reader, 0)
        return of_others <= self.share

    def _give_way(self, favoured: Reader) -> None:
        """Have a connection that was favoured wait again."""
        taken = self._bytes[favoured] - self._favoured_from
        self._in_vain[favoured] = self._in_vain.get(favoured, 0) + taken
        # Or one after the other would be read, and nothing bound them (fault security-2).
        self._in_vain_bytes += taken
        self._waiting[favoured] = None
        favoured.pause_reading()
