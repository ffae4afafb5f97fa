"""Handshakes take turns, and their number is bounded."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from protocol.tls.handshakes import TURN_S, Handshakes


@attrs.define(eq=False)
class Loop:
    """A loop's clock and its next turn, moved by the test."""

    time_s: float = 0.0
    soon: list[Callable[[], None]] = attrs.field(factory=list)

    def turn(self) -> None:
        due, self.soon = self.soon, []
        for call in due:
            call()


@attrs.define(eq=False)
class Peer:
    """A handshake whose steps take `step_s` each; `ends_after` of them finish it."""

    handshakes: Handshakes
    loop: Loop
    step_s: float = TURN_S
    ends_after: int = 2
    steps: int = 0
    reason: str = ""
    wakes: Callable[[], None] = lambda: None

    def step(self) -> None:
        self.steps += 1
        self.wakes()
        self.loop.time_s += self.step_s
        if self.steps == self.ends_after:
            self.handshakes.end(self)

    def give_up(self, reason: str) -> None:
        self.reason = reason
        self.handshakes.end(self)


def make(max_at_once: int = 10) -> tuple[Loop, Handshakes]:
    loop = Loop()
    return loop, Handshakes(lambda call: loop.soon.append(call), lambda: loop.time_s, max_at_once)


def begun(loop: Loop, handshakes: Handshakes, number: int, step_s: float = TURN_S) -> list[Peer]:
    peers = [Peer(handshakes, loop, step_s) for _ in range(number)]
    for peer in peers:
        handshakes.begin(peer)
    return peers


def test_a_turn_performs_no_more_than_it_has_time_for() -> None:
    loop, handshakes = make()
    peers = begun(loop, handshakes, 4, TURN_S / 2)
    for peer in peers:
        handshakes.line_up(peer)
    loop.turn()
    assert [peer.steps for peer in peers] == [1, 1, 0, 0]
    loop.turn()
    assert [peer.steps for peer in peers] == [1, 1, 1, 1]
    assert loop.soon == []


def test_a_handshake_that_takes_long_has_a_turn_alone() -> None:
    loop, handshakes = make()
    peers = begun(loop, handshakes, 2, 10 * TURN_S)
    for peer in peers:
        handshakes.line_up(peer)
    loop.turn()
    assert [peer.steps for peer in peers] == [1, 0]


def test_one_too_many_ends_the_one_that_is_silent_longest() -> None:
    loop, handshakes = make(max_at_once=3)
    first, second, third = begun(loop, handshakes, 3)
    handshakes.line_up(first)
    loop.turn()
    begun(loop, handshakes, 1)
    assert second.reason == "too many handshakes at once"
    assert (first.reason, third.reason) == ("", "")
    assert len(handshakes) == 3


def test_one_that_waits_for_its_turn_is_not_silent() -> None:
    loop, handshakes = make(max_at_once=2)
    first, second = begun(loop, handshakes, 2)
    handshakes.line_up(first)
    handshakes.line_up(second)
    (newest,) = begun(loop, handshakes, 1)
    assert newest.reason, "nobody else has kept us waiting"
    loop.turn()
    loop.turn()
    assert (first.steps, second.steps) == (1, 1)


def test_a_finished_handshake_makes_room() -> None:
    loop, handshakes = make(max_at_once=1)
    (first,) = begun(loop, handshakes, 1)
    for _ in range(first.ends_after):
        handshakes.line_up(first)
        loop.turn()
    assert len(handshakes) == 0
    handshakes.line_up(first)
    assert loop.soon == [], "bytes behind the handshake are none of it"


def test_a_connection_that_ends_in_line_takes_no_turn() -> None:
    loop, handshakes = make()
    (first,) = begun(loop, handshakes, 1)
    handshakes.line_up(first)
    handshakes.end(first)
    loop.turn()
    assert first.steps == 0


def test_an_error_in_one_handshake_leaves_the_others_their_turns() -> None:
    loop, handshakes = make()
    first, second = begun(loop, handshakes, 2)

    def break_down() -> None:
        raise RuntimeError("a bug")

    first.wakes = break_down
    handshakes.line_up(first)
    handshakes.line_up(second)
    with pytest.raises(RuntimeError):
        loop.turn()
    loop.turn()
    assert second.steps == 1
