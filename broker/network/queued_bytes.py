"""Bound the memory that the requests and responses of all connections take.

The limit is `queued.max.request.bytes`. It covers incomplete frames, frames that wait to be served,
parked requests, and responses that are not sent. Beyond the limit only the connections of other
brokers are read. A new connection is read once, because its first request shows whether it is a
broker's.

A client, a user or an address where nobody has logged in, may hold as much as the others leave
free: one alone half of the limit, two a third each, so that there is always room for one more.
Beyond that its own connections wait, and what it holds beyond is not counted against the others.
When there is room again the turn goes round over clients, and the connections of each are read in
the order in which they were paused.

Nor is a client served that has as much in responses alone, which it does not take: requests make
room when they are served, but responses when they are taken. Requests of brokers are served all the
same.

A request counts until nothing holds it, also if its connection is closed before (`keep`).

Incomplete frames alone never keep a connection from being read that is between two frames: they
count up to half of the limit, and what is beyond delays themselves (`incomplete_frames`). Those of
strangers, who have yet to log in, count up to an eighth, and delay strangers alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from itertools import islice

import attrs

from broker.network.incomplete_frames import LOOKED_AT, READ_BYTES, IncompleteFrames, Reader

__all__ = ["READ_BYTES", "QueuedBytes", "Reader", "default_queued_bytes"]

logger = logging.getLogger(__name__)

CLIENTS_PART = 2
"""The part of the limit for incomplete frames of clients, as a divisor; half as much for one."""
STRANGERS_PART = 8
"""The part of the limit for incomplete frames of strangers; half as much for one address."""
CLIENT_FREE_BYTES = 64 * 1024
STRANGER_FREE_BYTES = 16 * 1024
"""Bytes of an incomplete frame that are taken in any case, of a client and of a stranger."""

WEIGHED_PART = 64
"""The part of the limit above which what a client holds is weighed against the others', as a
divisor."""

_MOST_BY_DEFAULT = 1024**3


def default_queued_bytes(memory_bytes: int) -> int:
    """Return the limit of a broker without the setting: a quarter of memory, at most 1 GiB."""
    return min(memory_bytes // 4, _MOST_BY_DEFAULT)


@attrs.define(eq=False)
class _Client:
    """The connections of a client, and the bytes that it holds apart from incomplete frames."""

    name: str
    held: int = 0
    unsent: int = 0
    """Of these, the bytes of responses."""
    is_over: bool = False
    """True if it held more than was free when last looked at."""
    reading: dict[Reader, None] = attrs.field(factory=dict)
    paused: dict[Reader, None] = attrs.field(factory=dict)  # oldest first
    unserved: dict[Reader, None] = attrs.field(factory=dict)  # oldest first
    was_seen: bool = False
    """True if it was held back at an earlier look."""
    is_told: bool = False
    """True if the log has a line of that, which it has once while the client is connected."""


@attrs.define(eq=False)
class QueuedBytes:
    """The bytes that all connections hold: `total`, which should not exceed `limit`.

    `holds_back`: there are clients that are not served. `when_room` are called when one of them is
    served again.
    """

    limit: int
    total: int = 0
    holds_back: bool = False
    when_room: list[Callable[[], None]] = attrs.field(factory=list)
    _taken: dict[Reader, int] = attrs.field(factory=dict)
    _whole: dict[Reader, int] = attrs.field(factory=dict)
    """The same apart from incomplete frames."""
    _unsent: dict[Reader, int] = attrs.field(factory=dict)
    """Of these, the bytes of responses."""
    _clients: dict[str, _Client] = attrs.field(factory=dict)
    _client_of: dict[Reader, _Client] = attrs.field(factory=dict)
    _paused: dict[_Client, None] = attrs.field(factory=dict)
    """Clients with connections that are paused: whose turn is next is first."""
    _weighed: dict[_Client, None] = attrs.field(factory=dict)
    """Clients above their part of the limit."""
    _held_back: dict[_Client, None] = attrs.field(factory=dict)
    """Clients that are not served: whose turn is next is first."""
    _is_short: bool = False

    # The incomplete frames, and which of both a connection's frame is among.
    _of_clients: IncompleteFrames = attrs.field(init=False)
    _of_strangers: IncompleteFrames = attrs.field(init=False)
    _frames_of: dict[Reader, IncompleteFrames] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        clients, strangers = self.limit // CLIENTS_PART, self.limit // STRANGERS_PART
        self._of_clients = IncompleteFrames(
            clients, clients // 2, CLIENT_FREE_BYTES, self._is_full_for
        )
        self._of_strangers = IncompleteFrames(
            strangers, strangers // 2, STRANGER_FREE_BYTES, self._is_full_for
        )

    def add(self, reader: Reader) -> None:
        """Add a new connection."""
        self._taken[reader] = self._whole[reader] = self._unsent[reader] = 0
        self._enter(reader).reading[reader] = None

    def remove(self, reader: Reader) -> None:
        """Remove a closed connection, and the bytes that it held."""
        self.total -= self._taken.pop(reader)
        self._leave(reader)
        del self._whole[reader], self._unsent[reader]
        frames = self._frames_of.pop(reader, None)
        if frames is not None:
            frames.update(reader, 0)
        # Another frame must be completed in its place, or nothing makes room.
        self._balance(None)

    def update(self, reader: Reader, held_bytes: int, unsent_bytes: int = 0) -> None:
        """Set the bytes that a connection holds, after it was read, served or written to.

        `unsent_bytes` of them are responses.
        """
        assert held_bytes >= unsent_bytes >= 0
        if reader.is_brokers:
            unsent_bytes = 0
        self.total += held_bytes - self._taken[reader]
        self._taken[reader] = held_bytes
        frame_bytes = held_bytes if reader.is_in_frame else 0
        if frame_bytes or reader in self._frames_of:
            self._note_frame(reader, frame_bytes)
        self._note_whole(reader, held_bytes - frame_bytes, unsent_bytes)
        self._balance(reader)

    def may_serve(self, reader: Reader) -> bool:
        """Return whether a connection may be served; if not, it will be told when it may."""
        client = self._client_of[reader]
        if client not in self._held_back or reader.is_brokers or reader.is_stranger:
            return True
        client.unserved[reader] = None
        return False

    def has_room_for(self, name: str) -> bool:
        """Return whether a client may be served; if not, `when_room` tells when one may again."""
        return not self.holds_back or self._clients.get(name) not in self._held_back

    def keep(self, reader: Reader, held_bytes: int) -> Callable[[], None]:
        """Count bytes that a connection leaves behind, until the result is called once."""
        client = self._client_of[reader]
        self._add_kept(client, held_bytes)
        return partial(self._add_kept, client, -held_bytes)

    def _add_kept(self, client: _Client, grown: int) -> None:
        self.total += grown
        self._grow(client, grown)
        self._forget_if_gone(client)
        self._balance(None)

    def rotate(self) -> None:
        """Let other frames be completed in place of those whose clients have gone silent.

        Call it from time to time. It also resumes reading if there is room and no bytes move.
        """
        self._balance(None)
        self._tell_of_held_back()
        self._of_clients.rotate()
        self._of_strangers.rotate()

    # ---- clients

    def _enter(self, reader: Reader) -> _Client:
        client = self._clients.get(reader.client)
        if client is None:
            client = self._clients[reader.client] = _Client(reader.client)
        self._client_of[reader] = client
        client.unsent += self._unsent[reader]
        self._grow(client, self._whole[reader])
        return client

    def _leave(self, reader: Reader) -> None:
        client = self._client_of.pop(reader)
        client.unsent -= self._unsent[reader]
        self._grow(client, -self._whole[reader])
        client.reading.pop(reader, None)
        client.paused.pop(reader, None)
        client.unserved.pop(reader, None)
        if not client.paused:
            self._paused.pop(client, None)
        self._forget_if_gone(client)

    def _grow(self, client: _Client, grown: int) -> None:
        client.held += grown
        if client.held > self.limit // WEIGHED_PART:
            self._weighed[client] = None
        elif client in self._weighed:
            del self._weighed[client]

    def _forget_if_gone(self, client: _Client) -> None:
        """Forget a client that holds nothing, and has no connection that might be paused."""
        if not client.held and not client.reading and not client.paused:
            self._clients.pop(client.name, None)

    def _note_whole(self, reader: Reader, whole_bytes: int, unsent_bytes: int) -> None:
        client = self._client_of[reader]
        # It was read once all the same: its frame delays itself from now on.
        if reader in client.paused and reader.is_in_frame:
            self._resume(reader)
        # It has logged in, or is another user now.
        if client.name != reader.client:
            is_reading, is_paused = reader in client.reading, reader in client.paused
            is_unserved = reader in client.unserved
            self._leave(reader)
            client = self._enter(reader)
            if is_reading:
                client.reading[reader] = None
            elif is_paused:
                client.paused[reader] = self._paused[client] = None
            if is_unserved:
                reader.serve_again()
        client.unsent += unsent_bytes - self._unsent[reader]
        self._grow(client, whole_bytes - self._whole[reader])
        self._whole[reader] = whole_bytes
        self._unsent[reader] = unsent_bytes

    def _is_full_for(self, reader: Reader) -> bool:
        """Return whether whole requests take all the memory that a client may have."""
        whole_bytes = self.total - self._of_clients.held - self._of_strangers.held
        return self._client_of[reader].held > self._free_beside(whole_bytes)

    def _free_beside(self, counted: int) -> int:
        """Return how much of the limit is free if all hold so much; each may hold as much.

        What clients hold above that is not counted: they have to take it back themselves.
        """
        free = self.limit - counted
        if not self._weighed:
            return free
        left = free + sum(client.held for client in self._weighed)
        # The least first. Those that come after one have to share what it leaves.
        sharing = len(self._weighed) + 1
        for client in sorted(self._weighed, key=lambda client: client.held):
            share = left // sharing
            if client.held > share:
                # Or one that takes no responses would stop all the others (fault strangers-5).
                return left - (sharing - 1) * max(share, self.limit // WEIGHED_PART)
            left -= client.held
            sharing -= 1
        return free

    # ---- balance

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
        free = self._free_beside(counted)

        was_short = self._is_short
        self._is_short = free < 0
        most_unsent = max(free, self.limit // WEIGHED_PART)
        if reader is not None:
            self._hold_back_if_due(self._client_of[reader], most_unsent)
        if self._held_back:
            self._serve_again(most_unsent)
        if not self._is_short:
            if reader is not None:
                self._hold_to_share(reader, free)
            if self._paused:
                self._resume_readers(free)
        elif reader is not None and was_short:
            self._stop_reading([reader])
        else:
            for client in list(self._clients.values()):
                self._stop_reading(list(client.reading))

        # Whole requests make room by themselves: until then none more is completed.
        self._of_clients.settle(reader, self._is_short)
        self._of_strangers.settle(reader, False)

    def _hold_to_share(self, reader: Reader, free: int) -> None:
        """Pause the connections of a client that holds more than is free."""
        client = self._client_of[reader]
        was_over = client.is_over
        client.is_over = client.held > free
        if client.is_over:
            self._stop_reading([reader] if was_over else list(client.reading))

    def _hold_back_if_due(self, client: _Client, most_unsent: int) -> None:
        """Have a client wait that does not take its responses (fault strangers-6)."""
        if client.unsent > most_unsent:
            self._held_back[client] = None
            self.holds_back = True

    def _serve_again(self, most_unsent: int) -> None:
        """Serve those clients again that have taken responses."""
        for client in list(islice(self._held_back, LOOKED_AT)):
            del self._held_back[client]
            if client.unsent > most_unsent:
                self._held_back[client] = None
                continue
            self.holds_back = bool(self._held_back)
            client.was_seen = False
            unserved, client.unserved = client.unserved, {}
            for reader in unserved:
                reader.serve_again()
            for tell in self.when_room:
                tell()

    def _tell_of_held_back(self) -> None:
        for client in list(islice(self._held_back, LOOKED_AT)):
            if client.was_seen and not client.is_told:
                client.is_told = True
                logger.warning(
                    "%s does not take its responses, %d bytes: until it does, its requests wait "
                    "(queued.max.request.bytes)",
                    client.name,
                    client.unsent,
                )
            client.was_seen = True

    def _stop_reading(self, readers: list[Reader]) -> None:
        """Pause those that are between two frames, but those of brokers, strangers and new ones."""
        for reader in readers:
            client = self._client_of[reader]
            if reader.is_brokers:
                # Brokers are always read: their fetches end the produce requests that hold memory.
                client.reading.pop(reader, None)
            # A new connection is read until bytes arrive: they show whether a broker sends them.
            elif (
                reader in client.reading
                and reader.was_read
                and not reader.is_in_frame
                and not reader.is_stranger
            ):
                client.reading.pop(reader, None)
                client.paused[reader] = self._paused[client] = None
                reader.pause_reading()

    def _resume_readers(self, free: int) -> None:
        """Resume as many connections as there is room for, at least one that has a share left."""
        # One read of each may bring READ_BYTES.
        room_for = max(1, free // READ_BYTES)
        for client in list(islice(self._paused, LOOKED_AT)):
            if not room_for:
                return
            del self._paused[client]
            client.is_over = client.held > free
            if not client.is_over:
                of_share = max(1, (free - client.held) // READ_BYTES)
                for reader in list(islice(client.paused, min(room_for, of_share))):
                    self._resume(reader)
                    room_for -= 1
            # Or one client would always be the next.
            if client.paused:
                self._paused[client] = None

    def _resume(self, reader: Reader) -> None:
        client = self._client_of[reader]
        del client.paused[reader]
        if not client.paused:
            self._paused.pop(client, None)
        client.reading[reader] = None
        reader.resume_reading()
