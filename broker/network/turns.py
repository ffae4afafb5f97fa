"""Fair turns: whose requests are served when, and for how long.

One event loop serves all connections, and a client may send thousands of requests at once. So each
connection that has requests gets a *share* of a *round*: so many requests, or so much time,
whatever is over first. Who has had his share waits until all others have had theirs. Those that
come anew, with something left of their share, go before those that are behind, and are served one
request each at first: who asks little is answered soon, however many ask much.

A turn of the loop spends only so much time on requests altogether, so that everything else it does
comes in between: accepting, replication, the controller. In each turn the connection of the active
controller comes first.

Most of the time nobody is behind, and requests are served the moment they arrive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

import attrs

SHARE_REQUESTS = 32
SHARE_S = 0.002
"""What a connection is served before the others have had theirs."""
FRESH_REQUESTS = 1
"""What a connection that comes anew is served before it falls behind."""
TURN_S = 0.005
"""What a turn of the loop spends on requests, but for the end of the last share in it."""


@attrs.define(eq=False)
class Share:
    """What a connection has had of its latest round."""

    round: int = 0
    requests: int = 0
    seconds: float = 0.0
    in_line: bool = False

    @property
    def is_used_up(self) -> bool:
        """Whether it has had all of it."""
        return self.requests >= SHARE_REQUESTS or self.seconds >= SHARE_S


class Served(Protocol):
    """A connection."""

    @property
    def number(self) -> int:
        """Connections are numbered as they were accepted."""

    @property
    def share(self) -> Share:
        """What it has had; it belongs to `Turns`."""

    @property
    def has_more(self) -> bool:
        """Whether to call `serve_next` again."""

    def serve_next(self) -> bool:
        """Serve the next request that may be served now; False: there is none."""

    def end_share(self) -> None:
        """Send what was answered: others are served now, or the turn is over."""


@attrs.define(eq=False)
class Turns:
    """`soon` is the loop's `call_soon`, `time` gives seconds, `is_controller(number)` knows the
    connection of the active controller."""

    soon: Callable[[Callable[[], None]], object]
    time: Callable[[], float]
    is_controller: Callable[[int], bool] = lambda number: False
    _first: deque[Served] = attrs.field(factory=deque)
    _fresh: deque[Served] = attrs.field(factory=deque)
    _behind: deque[Served] = attrs.field(factory=deque)
    _next_round: deque[Served] = attrs.field(factory=deque)
    _unended: dict[Served, None] = attrs.field(factory=dict)
    """Served in the present turn, and to be served again."""
    _round: int = 1
    _spent_s: float = 0.0
    _is_called: bool = False
    """Whether somebody is in line: then a turn is due, or is being made."""

    def arrived(self, connection: Served) -> None:
        """Serve what has arrived: now, if there is time and nobody is to be served before."""
        if self._has_time_for(connection):
            self._serve(connection, SHARE_REQUESTS)
            connection.end_share()
        else:
            self.line_up(connection)

    def line_up(self, connection: Served) -> None:
        """Serve its requests when its turn comes: not in the middle of what is being done now."""
        if connection.share.in_line:
            return
        connection.share.in_line = True
        if self.is_controller(connection.number):
            self._first.append(connection)
        elif self._is_used_up(connection):
            self._next_round.append(connection)
        else:
            self._fresh.append(connection)
        self._call()

    def _has_time_for(self, connection: Served) -> bool:
        if connection.share.in_line or self._spent_s >= TURN_S:
            return False
        return not self._is_called or self.is_controller(connection.number)

    def _is_used_up(self, connection: Served) -> bool:
        """Whether it has had its share of this round; the controller has one in each turn."""
        share = connection.share
        if share.round != self._round or self.is_controller(connection.number):
            share.round, share.requests, share.seconds = self._round, 0, 0.0
        return share.is_used_up

    def _call(self) -> None:
        if not self._is_called:
            self._is_called = True
            self.soon(self._turn)

    def _turn(self) -> None:
        """Serve those in line until the turn's time is over, or the round's shares are."""
        self._spent_s = 0.0
        if not self._fresh and not self._behind:
            self._begin_round()
        self._serve_line(self._first, SHARE_REQUESTS)
        self._serve_line(self._fresh, FRESH_REQUESTS)
        self._serve_line(self._behind, SHARE_REQUESTS)
        self._end_shares()
        self._is_called = False
        if self._first or self._fresh or self._behind or self._next_round:
            self._call()

    def _begin_round(self) -> None:
        self._round += 1
        self._behind, self._next_round = self._next_round, self._behind

    def _serve_line(self, line: deque[Served], most: int) -> None:
        """Serve those who are in a line now, as far as the turn's time goes."""
        for _ in range(len(line)):
            if self._spent_s >= TURN_S:
                break
            connection = line.popleft()
            connection.share.in_line = False
            self._serve(connection, most)
            if connection.share.in_line:
                self._unended[connection] = None
            else:
                self._unended.pop(connection, None)
                connection.end_share()

    def _end_shares(self) -> None:
        """Of those that are in line again, once a turn for each: an end takes a write, and others
        where reading is to be stopped or begun."""
        unended, self._unended = self._unended, {}
        for connection in unended:
            connection.end_share()

    def _serve(self, connection: Served, most: int) -> None:
        """Serve so many requests, or what is left of a share."""
        share = connection.share
        if self._is_used_up(connection) and not self._is_called:  # all others have had theirs
            self._begin_round()
            self._is_used_up(connection)
        requests = min(most, SHARE_REQUESTS - share.requests)
        served, began, seconds = 0, self.time(), 0.0
        while served < requests and share.seconds + seconds < SHARE_S and connection.serve_next():
            served += 1
            seconds = self.time() - began
        share.requests += served
        share.seconds += seconds
        self._spent_s += seconds
        if connection.has_more:
            self._line_up_behind(connection)

    def _line_up_behind(self, connection: Served) -> None:
        if connection.share.is_used_up:
            self.line_up(connection)
        else:
            connection.share.in_line = True
            self._behind.append(connection)
            self._call()
