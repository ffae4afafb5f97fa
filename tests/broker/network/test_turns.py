"""Shares, rounds and turns, on a clock that only requests move."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import attrs
import pytest

from broker.network.turns import ROUND_S, SHARE_REQUESTS, SHARE_S, TURN_S, Served, Share, Turns

FAST_S = 1e-6
SLOW_S = SHARE_S / 4


@attrs.define(eq=False)
class Loop:
    """A loop that runs a turn when the test says so, and the time that requests have taken."""

    time_s: float = 0.0
    controller: int = 0
    served: list[tuple[int, str]] = attrs.field(factory=list)
    turns: Turns = attrs.field(init=False)
    _soon: list[Callable[[], None]] = attrs.field(factory=list)
    _numbers: count[int] = attrs.field(factory=lambda: count(1))

    def __attrs_post_init__(self) -> None:
        self.turns = Turns(
            self._soon.append, lambda: self.time_s, lambda number: number == self.controller
        )

    def connection(self, request_s: float = FAST_S) -> Connection:
        return Connection(self, next(self._numbers), request_s)

    def turn(self) -> list[int]:
        """Run one turn; return the number of the connection for each request served in it."""
        before = len(self.served)
        due = list(self._soon)
        self._soon.clear()
        for call in due:
            call()
        return [number for number, _ in self.served[before:]]

    def turns_until(self, connection: Connection) -> int:
        """Run turns until no request of the connection waits; return how many."""
        turns = 0
        while connection.waiting:
            self.turn()
            turns += 1
        return turns

    def run(self) -> int:
        """Run turns until no connection is in line; return how many."""
        turns = 0
        while self._soon:
            self.turn()
            turns += 1
        return turns


@attrs.define(eq=False)
class Connection:
    """A connection whose requests take `request_s` each. `wakes(key)` is called for each."""

    loop: Loop
    number: int
    request_s: float
    share: Share = attrs.field(factory=Share)
    waiting: list[str] = attrs.field(factory=list)
    shares: int = 0
    is_control_plane: bool = False
    is_closed: bool = False
    wakes: Callable[[str], None] = lambda key: None

    def asks(self, requests: int = 1, key: str = "") -> None:
        """Receive so many requests at once."""
        self.waiting += [key] * requests
        self.loop.turns.serve_or_line_up(self)

    @property
    def has_more(self) -> bool:
        return bool(self.waiting)

    def serve_next(self) -> bool:
        if not self.waiting:
            return False
        key = self.waiting.pop(0)
        self.loop.served.append((self.number, key))
        self.loop.time_s += self.request_s
        self.wakes(key)
        return True

    def end_share(self) -> None:
        self.shares += 1

    def close(self) -> None:
        self.is_closed = True


_: Served = Connection(Loop(), 0, 0.0)


@attrs.define(eq=False)
class Broken(Connection):
    """A connection whose second request, or the end of whose share, fails by a bug."""

    fails_at_end: bool = False

    def serve_next(self) -> bool:
        if self.loop.served and not self.fails_at_end:
            raise KeyError("a bug")
        return super().serve_next()

    def end_share(self) -> None:
        super().end_share()
        if self.fails_at_end and self.shares > 1:
            raise KeyError("a bug")


@pytest.mark.fault("strangers-7")
@pytest.mark.parametrize("fails_at_end", [False, True])
def test_a_bug_in_a_request_closes_its_connection_and_the_others_are_served_on(
    fails_at_end: bool, caplog: pytest.LogCaptureFixture
) -> None:
    loop = Loop()
    first, other = loop.connection(), loop.connection()
    broken = Broken(loop, 3, FAST_S, fails_at_end=fails_at_end)
    for connection in (first, broken, other):
        connection.asks(3 * SHARE_REQUESTS)
    loop.run()
    assert not first.waiting
    assert not other.waiting
    assert broken.is_closed
    assert "a connection could not be served" in caplog.messages
    assert "KeyError: 'a bug'" in caplog.text


def test_who_is_alone_is_served_the_moment_he_asks() -> None:
    loop = Loop()
    connection = loop.connection()
    for n in range(3 * SHARE_REQUESTS):
        connection.asks()
        assert len(loop.served) == n + 1
    assert loop.run() <= 3


def test_many_requests_are_served_a_share_in_each_turn() -> None:
    loop = Loop()
    loop.connection().asks(3 * SHARE_REQUESTS)
    assert len(loop.served) == SHARE_REQUESTS
    assert len(loop.turn()) == SHARE_REQUESTS
    assert len(loop.turn()) == SHARE_REQUESTS


def test_a_share_of_slow_requests_is_over_by_the_clock() -> None:
    loop = Loop()
    loop.connection(SLOW_S).asks(100)
    assert len(loop.served) == SHARE_S / SLOW_S


def test_who_asks_often_waits_for_a_short_round_however_many_others_there_are() -> None:
    """A share of 2 ms for each of 1,000 connections would make a round of 2 s."""
    loop = Loop()
    request_s = SHARE_S / 10
    for _ in range(1000):
        loop.connection(request_s).asks(100)
    often = loop.connection(request_s)
    for _ in range(3 * SHARE_REQUESTS):
        before_s = loop.time_s
        often.asks()
        loop.turns_until(often)
        assert loop.time_s - before_s < 2 * (ROUND_S + TURN_S)


@pytest.mark.parametrize("request_s", [FAST_S, SLOW_S])
def test_nobody_is_served_more_than_a_share_before_all_others_have_had_theirs(
    request_s: float,
) -> None:
    loop = Loop()
    requests = 1000
    connections = [loop.connection(request_s) for _ in range(20)]
    for connection in connections:
        connection.asks(requests)
    loop.run()
    share = min(SHARE_REQUESTS, SHARE_S / request_s)
    had = dict.fromkeys(range(1, 21), 0)
    for number, _ in loop.served:
        had[number] += 1
        # A connection may be served at the end of a round and at the beginning of the next.
        assert had[number] <= min(had.values()) + 2 * share
    assert set(had.values()) == {requests}


def test_a_turn_serves_for_no_longer_than_its_time_and_a_share() -> None:
    loop = Loop()
    for _ in range(50):
        loop.connection(SLOW_S).asks(1000)
    assert loop.time_s <= TURN_S + SHARE_S
    for _ in range(100):
        began = loop.time_s
        loop.turn()
        assert 0 < loop.time_s - began <= TURN_S + SHARE_S + SLOW_S


def test_requests_of_many_in_one_turn_are_bounded_too() -> None:
    """Each connection has one request, which is served at once until the turn's time is over."""
    loop = Loop()
    for _ in range(200):
        loop.connection(SLOW_S).asks()
    assert loop.time_s <= TURN_S + SHARE_S
    loop.run()
    assert len(loop.served) == 200


def test_who_asks_little_is_served_before_those_who_are_behind() -> None:
    loop = Loop()
    for _ in range(200):
        loop.connection(SLOW_S).asks(18_000)
    light = loop.connection()
    light.asks()
    assert loop.turns_until(light) <= 200 * SLOW_S / TURN_S, "one request of each came before"
    for _ in range(SHARE_REQUESTS - 1):
        light.asks()
        assert loop.turn()[0] == light.number
    light.asks()
    assert light.number not in loop.turn(), "it has had as much as the others by now"


def test_who_asks_little_holds_nobody_up_for_ever() -> None:
    """Fifty connections send one request at a time, again and again: more than a turn serves."""
    loop = Loop()
    patient = loop.connection(SLOW_S)
    busy = [loop.connection(SLOW_S) for _ in range(50)]
    patient.asks(1000)
    before = len(loop.served)
    for _ in range(1000):
        for connection in busy:
            if not connection.waiting:
                connection.asks()
        loop.turn()
    of_patient = [number for number, _ in loop.served[before:]].count(patient.number)
    assert of_patient >= len(loop.served) // 51 - SHARE_REQUESTS


def test_the_controller_comes_first_in_each_turn_though_it_has_had_its_share() -> None:
    loop = Loop()
    controller = loop.connection()
    loop.controller = controller.number
    for _ in range(200):
        loop.connection(SLOW_S).asks(18_000)
    for _ in range(10 * SHARE_REQUESTS):
        controller.asks()
        assert loop.turns_until(controller) <= 1
        loop.turn()
    controller.asks(3 * SHARE_REQUESTS)
    for _ in range(3):
        served = loop.turn()
        assert served[:SHARE_REQUESTS] == [controller.number] * SHARE_REQUESTS
        assert len(set(served)) > 1, "the others have the rest of it"


def test_a_connection_of_the_control_plane_comes_first_before_its_first_request() -> None:
    loop = Loop()
    for _ in range(200):
        loop.connection(SLOW_S).asks(18_000)
    control_plane = loop.connection()
    control_plane.is_control_plane = True
    control_plane.asks()
    assert loop.turns_until(control_plane) <= 1


def test_a_new_controller_is_heard_before_those_who_are_behind() -> None:
    """Its first request does not show that it is the controller; 200 others begin with it."""
    loop = Loop()
    for _ in range(200):
        loop.connection(20 * FAST_S).asks(18_000)
    controller = loop.connection(20 * FAST_S)
    controller.asks(1, "ApiVersions")
    assert loop.turns_until(controller) <= 2
    controller.asks(1, "LeaderAndIsr")
    assert loop.turns_until(controller) <= 1


def test_who_is_set_free_by_another_request_is_not_served_within_it() -> None:
    loop = Loop()
    waker, sleeper = loop.connection(), loop.connection()
    waker.wakes = lambda key: loop.turns.line_up(sleeper) if key == "wake" else None
    sleeper.waiting += ["late"]
    waker.waiting += ["wake", "next"]
    loop.turns.serve_or_line_up(waker)
    assert loop.served == [(1, "wake"), (1, "next")]
    assert loop.turn() == [sleeper.number]


def test_who_is_in_line_twice_is_served_once() -> None:
    loop = Loop()
    connection = loop.connection()
    connection.waiting += ["a", "b"]
    loop.turns.line_up(connection)
    loop.turns.line_up(connection)
    loop.turns.serve_or_line_up(connection)
    assert loop.turn() == [1, 1]
    assert loop.run() == 0


def test_after_all_have_gone_nothing_is_due() -> None:
    loop = Loop()
    connections = [loop.connection() for _ in range(5)]
    for connection in connections:
        connection.asks(1000)
    for connection in connections:
        connection.waiting.clear()
    assert loop.run() <= 2


def test_a_share_ends_once_a_turn_however_often_a_connection_is_served_in_it() -> None:
    loop = Loop()
    busy, asks_little = loop.connection(TURN_S), loop.connection()
    busy.asks(1)
    both = [loop.connection() for _ in range(2)]
    for connection in both:
        connection.asks(5)
    asks_little.asks(1)
    assert sorted(loop.turn()) == [2, 3, 3, 3, 3, 3, 4, 4, 4, 4, 4]
    assert [connection.shares for connection in (*both, asks_little)] == [1, 1, 1]


def test_who_is_behind_at_the_end_of_a_turn_is_sent_what_he_was_answered() -> None:
    loop = Loop()
    loop.connection(TURN_S).asks(1)
    connection = loop.connection()
    connection.asks(2 * SHARE_REQUESTS)
    assert len(loop.turn()) == SHARE_REQUESTS
    assert (connection.has_more, connection.shares) == (True, 1)
