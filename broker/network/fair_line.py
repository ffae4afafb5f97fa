"""Give out places in turns, so that who asks for much keeps nobody else waiting.

A line has a few places, and a turn goes round over its clients: a client is a user, or an address
where nobody logs in. A client's turn goes round over its connections. So a new client waits for one
other at most, and a connection for one request of each other connection of its own client, however
many of them there are.

Who waits holds bytes. Together they have a bound, and beyond it the largest of those is refused
that belong to the client with most of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import attrs

from broker.network.authorization import host_of
from broker.network.request_context import Origin, RequestContext
from broker.network.session import ANONYMOUS


class Owner(NamedTuple):
    """The client that waits for a place, and the number of its connection."""

    client: str
    connection: int


NOBODY = Owner("", 0)
"""The owner of work of the broker's own."""

NO_BOUND = 2**63


def owner_of(request: Origin | RequestContext) -> Owner:
    """Return who has sent a request."""
    client = host_of(request.connection_id)
    if request.principal != ANONYMOUS:
        client = str(request.principal)
    return Owner(client, request.connection)


@attrs.define(eq=False)
class Place:
    """A place in a line, or the wait for one.

    `enter()` is called once when it is given, `refuse()` if it never will be. Whoever has it, or
    waits for it, must `leave`.
    """

    line: FairLine
    owner: Owner
    size: int
    enter: Callable[[], None]
    refuse: Callable[[], None]
    is_given: bool = False
    is_aside: bool = False
    has_left: bool = False

    def step_aside(self) -> None:
        """Give the place to another client; none of its own client's comes before it has left."""
        assert self.is_given, "only who has a place can give it"
        if not self.is_aside and not self.has_left:
            self.is_aside = True
            self.line._make_room()

    def leave(self) -> None:
        """Give the place to the next, or wait no longer. It may be called again."""
        if not self.has_left:
            self.has_left = True
            self.line._leave(self)


@attrs.define(eq=False)
class FairLine:
    """A line for `places`, of which one client has at most `places_of_client` at a time.

    `most_bytes` is the bound of what all that wait hold. `may_enter(client)`: its turn has come; if
    not, call `go_on` when it may.
    """

    places: int
    places_of_client: int
    most_bytes: int = NO_BOUND
    may_enter: Callable[[str], bool] = lambda client: True
    waiting: int = 0
    waiting_bytes: int = 0
    _free: int = attrs.field(init=False)
    _inside: dict[str, int] = attrs.field(factory=dict)
    """Places that each client has."""
    _line: dict[str, dict[int, dict[Place, None]]] = attrs.field(factory=dict)
    """Those that wait, by client and connection: whose turn is next is first."""

    def __attrs_post_init__(self) -> None:
        self._free = self.places

    def line_up(
        self,
        owner: Owner,
        size: int,
        enter: Callable[[], None],
        refuse: Callable[[], None] = lambda: None,
    ) -> Place:
        """Wait for a place, with `size` bytes. It may be given at once."""
        place = Place(self, owner, size, enter, refuse)
        client = owner.client
        of_client = self._line.setdefault(client, {})
        of_client.setdefault(owner.connection, {})[place] = None
        self.waiting += 1
        self.waiting_bytes += size

        self._give()
        # What waits was read, and would have no bound of its own (fault security-3).
        while self.waiting_bytes > self.most_bytes and self.waiting > 1:
            self._refuse_one()
        return place

    def go_on(self) -> None:
        """Give places to those who may enter by now."""
        self._give()

    def _leave(self, place: Place) -> None:
        client = place.owner.client
        if not place.is_given:
            self._remove(place)
            return
        self._inside[client] -= 1
        if not self._inside[client]:
            del self._inside[client]
        if place.is_aside:
            self._give()
        else:
            self._make_room()

    def _make_room(self) -> None:
        self._free += 1
        self._give()

    def _give(self) -> None:
        """Give free places to those whose turn it is."""
        while self._free and (place := self._next()) is not None:
            self._remove(place)
            self._go_round(place.owner)
            # More at once would have the memory of all their elements (fault security-5).
            self._free -= 1
            client = place.owner.client
            self._inside[client] = self._inside.get(client, 0) + 1
            place.is_given = True
            place.enter()

    def _next(self) -> Place | None:
        for client, connections in self._line.items():
            # The others of a client wait for this one (fault security-5).
            if self._inside.get(client, 0) >= self.places_of_client or not self.may_enter(client):
                continue
            return next(iter(next(iter(connections.values()))))
        return None

    def _go_round(self, owner: Owner) -> None:
        """Put a client, and its connection, behind all others, if any more of them wait."""
        connections = self._line.get(owner.client)
        if connections is None:
            return
        # Or the client that came first would always be the next (fault security-5).
        self._line[owner.client] = self._line.pop(owner.client)
        if owner.connection in connections:
            connections[owner.connection] = connections.pop(owner.connection)

    def _remove(self, place: Place) -> None:
        client, connection = place.owner
        connections = self._line[client]
        waiting = connections[connection]
        del waiting[place]
        if not waiting:
            del connections[connection]
        if not connections:
            del self._line[client]
        self.waiting -= 1
        self.waiting_bytes -= place.size

    def _refuse_one(self) -> None:
        """Refuse the largest of those that wait of the client which holds most."""
        all_waiting = {
            client: [place for waiting in connections.values() for place in waiting]
            for client, connections in self._line.items()
        }
        of_largest = max(all_waiting.values(), key=lambda waiting: sum(p.size for p in waiting))
        place = max(of_largest, key=lambda place: place.size)
        self._remove(place)
        place.has_left = True
        place.refuse()
