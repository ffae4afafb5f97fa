"""Share the event loop fairly between connections.

One event loop serves all connections, and a client may send thousands of requests at once. So each
connection that has requests gets a *share* of a *round*: SHARE_REQUESTS requests or SHARE_S
seconds, whichever ends first. A connection that has used up its share waits until all others have
had theirs. A *fresh* connection has just sent a request, and has some of its share left. It goes
before those that are *behind*, and gets one request served at first. So a client that sends little
gets a quick response, however many clients send much.

A turn of the loop spends at most TURN_S seconds on requests, so that the loop's other work comes in
between: accepting, replication, the controller. In each turn the connection of the active
controller is served first, and so are those of the control plane's listener.

Most of the time no connection is behind, and requests are served the moment they arrive.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

import attrs

logger = logging.getLogger(__name__)

SHARE_REQUESTS = 32
SHARE_S = 0.002
"""The share of a connection in one round, in requests and in seconds. Requests that are served at
once may exceed it."""
ROUND_S = 0.2
"""Seconds that a round may take, but for the last request of each connection. So beyond 100 of them
the share of each is smaller."""
FRESH_REQUESTS = 1
"""Requests of a fresh connection that are served before it falls behind."""
TURN_S = 0.005
"""Seconds that a turn of the loop spends on requests. The last request of a turn may exceed it."""


@attrs.define(eq=False)
class Share:
    """The part of its share that a connection has used in its latest round."""

    round: int = 0
    requests: int = 0
    seconds: float = 0.0
    in_line: bool = False

    def is_used_up(self, share_s: float) -> bool:
        """Return whether nothing is left of a share of so many seconds."""
        return self.requests >= SHARE_REQUESTS or self.seconds >= share_s


class Served(Protocol):
    """A connection whose requests are served in turns."""

    @property
    def number(self) -> int:
        """The number of the connection, in the order of accepting."""

    @property
    def is_control_plane(self) -> bool:
        """True if the connection came by the listener of the control plane."""

    @property
    def share(self) -> Share:
        """The share of the connection. `Turns` alone changes it."""

    @property
    def has_more(self) -> bool:
        """True if `serve_next` should be called again."""

    def serve_next(self) -> int:
        """Serve the next request, or some at once; return how many, 0 if none can be served now."""

    def end_share(self) -> None:
        """Send the responses: other connections are served next, or the turn ends."""

    def close(self) -> None:
        """Close the connection, without a response."""


@attrs.define(eq=False)
class Turns:
    """The connections that have requests, in lines.

    `call_soon` is the loop's, `time` returns seconds, and `is_controller(number)` is true for the
    connection of the active controller.
    """

    call_soon: Callable[[Callable[[], None]], object]
    time: Callable[[], float]
    is_controller: Callable[[int], bool] = lambda number: False

    # The lines, in the order of service. The last one waits for the next round.
    _first: deque[Served] = attrs.field(factory=deque)
    _fresh: deque[Served] = attrs.field(factory=deque)
    _behind: deque[Served] = attrs.field(factory=deque)
    _next_round: deque[Served] = attrs.field(factory=deque)

    _unended: dict[Served, None] = attrs.field(factory=dict)
    """Connections that were served in this turn, and are in line again."""
    _round: int = 1
    _spent_s: float = 0.0
    _is_called: bool = False
    """True while a connection is in line: then a turn is due, or runs."""

    def serve_or_line_up(self, connection: Served) -> None:
        """Serve the requests that have arrived: now if no other connection comes first."""
        if self._has_time_for(connection):
            self._serve(connection, SHARE_REQUESTS)
            connection.end_share()
        else:
            self.line_up(connection)

    def line_up(self, connection: Served) -> None:
        """Serve the requests of a connection later, when its turn comes."""
        if connection.share.in_line:
            return

        # The controller, then those without a share in this round, then the fresh ones.
        connection.share.in_line = True
        if self._comes_first(connection):
            self._first.append(connection)
        elif self._is_used_up(connection):
            self._next_round.append(connection)
        else:
            self._fresh.append(connection)
        self._call_turn()

    def _has_time_for(self, connection: Served) -> bool:
        if connection.share.in_line or self._spent_s >= TURN_S:
            return False

        # Nobody overtakes a line but the controller.
        return not self._is_called or self._comes_first(connection)

    def _comes_first(self, connection: Served) -> bool:
        return connection.is_control_plane or self.is_controller(connection.number)

    @property
    def _share_s(self) -> float:
        """Return the seconds of a share: fewer where many connections are in line."""
        # Or who asks often would wait 2 s for its next share while 1,000 others pipeline.
        in_line = len(self._fresh) + len(self._behind) + len(self._next_round)
        return min(SHARE_S, ROUND_S / max(in_line, 1))

    def _is_used_up(self, connection: Served) -> bool:
        """Return whether a connection has used up its share of this round.

        The share of the controller is renewed each time.
        """
        share = connection.share
        if share.round != self._round or self._comes_first(connection):
            share.round = self._round
            share.requests = 0
            share.seconds = 0.0
        return share.is_used_up(self._share_s)

    def _call_turn(self) -> None:
        if not self._is_called:
            self._is_called = True
            self.call_soon(self._turn)

    def _turn(self) -> None:
        """Serve the connections in line until the turn's time or their shares are used up."""
        self._spent_s = 0.0

        # Nobody has anything left of this round's share.
        if not self._fresh and not self._behind:
            self._begin_round()

        self._serve_line(self._first, SHARE_REQUESTS)
        self._serve_line(self._fresh, FRESH_REQUESTS)
        self._serve_line(self._behind, SHARE_REQUESTS)
        unended, self._unended = self._unended, {}
        for connection in unended:
            try:
                connection.end_share()
            except Exception:
                _close(connection)

        self._is_called = False
        # The loop's other work comes before the next turn.
        if self._first or self._fresh or self._behind or self._next_round:
            self._call_turn()

    def _begin_round(self) -> None:
        """Give every connection a new share, those first that had used up their last one."""
        self._round += 1
        self._behind, self._next_round = self._next_round, self._behind

    def _serve_line(self, line: deque[Served], max_requests: int) -> None:
        """Serve the connections that are in a line now, until the turn's time is used up."""
        for _ in range(len(line)):
            if self._spent_s >= TURN_S:
                break

            connection = line.popleft()
            connection.share.in_line = False
            try:
                self._serve(connection, max_requests)

                # Of those in line again once, at the end of the turn: it costs a write, and more
                # system calls if reading stops or resumes.
                if connection.share.in_line:
                    self._unended[connection] = None
                else:
                    self._unended.pop(connection, None)
                    connection.end_share()
            except Exception:
                # Or nobody would have a turn any more (fault strangers-7).
                _close(connection)

    def _serve(self, connection: Served, max_requests: int) -> None:
        """Serve up to `max_requests` requests, within what is left of the connection's share."""
        share = connection.share
        if self._is_used_up(connection) and not self._is_called:
            # No other connection is in line, so all others have had their shares.
            self._begin_round()
            self._is_used_up(connection)

        requests = min(max_requests, SHARE_REQUESTS - share.requests)
        share_s = self._share_s
        served = 0
        began = self.time()
        seconds = 0.0
        while (
            served < requests
            and share.seconds + seconds < share_s
            and (served_now := connection.serve_next())
        ):
            served += served_now
            seconds = self.time() - began

        share.requests += served
        share.seconds += seconds
        self._spent_s += seconds
        if connection.has_more:
            self._line_up_behind(connection)

    def _line_up_behind(self, connection: Served) -> None:
        """Put a connection that was served, and has more requests, in line again."""
        if connection.share.is_used_up(self._share_s):
            self.line_up(connection)
        else:
            connection.share.in_line = True
            self._behind.append(connection)
            self._call_turn()


def _close(connection: Served) -> None:
    """Close a connection whose request has failed by a bug of ours, and log the bug."""
    logger.exception("a connection could not be served")
    connection.close()
