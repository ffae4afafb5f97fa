"""Long turns of the loop are logged: where, how often, and with how much computing."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import selectors
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.process.watchdog import (
    EVENTS_A_TURN,
    STACK_INTERVAL_S,
    LongTurn,
    TurnClock,
    Watchdog,
)
from tests.chaos.disks import long_turns

LIMIT_MS = 100
PATIENCE = 200_000_000


class WatchedClock:
    """A watchdog that looks when the test says, at turns that the test begins and ends."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.clock = TurnClock(LIMIT_MS / 1000)
        self.watchdog = Watchdog(self.clock, LIMIT_MS)
        self._caplog = caplog

    def turn(self, began: float) -> None:
        self.clock.turns += 1
        self.clock.began = began

    def wait(self) -> None:
        self.clock.began = None

    def end(self, took_s: float, computed_s: float) -> None:
        self.clock.ended.append(LongTurn(took_s, computed_s))
        self.wait()

    def look(self, now: float, late_s: float = 0.0) -> list[str]:
        """Look, and return the first line of each log message."""
        self._caplog.clear()
        self.watchdog.look(now, late_s)
        return [message.partition(":")[0] for message in self._caplog.messages]


@pytest.fixture
def watched(caplog: pytest.LogCaptureFixture) -> WatchedClock:
    return WatchedClock(caplog)


def test_a_long_turn_is_logged_once_and_again_when_it_is_over(watched: WatchedClock) -> None:
    watched.turn(10.0)
    assert watched.look(10.05) == []
    assert watched.look(10.11) == ["the event loop has been in one turn for 0.110 s"]
    assert watched.look(10.16) == []
    watched.end(0.17, 0.03)
    over = "a turn of the event loop took 0.170 s, and 0.030 s of the processor"
    assert watched.look(10.21) == [over]
    assert watched.look(10.26) == []


@pytest.mark.fault("outside-O16")
def test_machine_that_slept_has_no_stack_logged(watched: WatchedClock) -> None:
    watched.turn(10.0)
    assert watched.look(40.05, late_s=30.0) == []
    assert watched.look(40.08) == []
    watched.end(30.09, 0.0)
    over = "a turn of the event loop took 30.090 s, and 0.000 s of the processor"
    assert watched.look(40.2) == [over]


def test_turn_that_goes_on_after_the_machine_slept_is_logged(watched: WatchedClock) -> None:
    watched.turn(10.0)
    assert watched.look(40.05, late_s=30.0) == []
    assert watched.look(40.15) == ["the event loop has been in one turn for 0.150 s"]

    # It did not sleep in the next one.
    watched.turn(41.0)
    assert watched.look(41.2) == ["the event loop has been in one turn for 0.200 s"]


def test_log_of_a_long_turn_is_what_a_chaos_story_looks_for(
    watched: WatchedClock, tmp_path: Path
) -> None:
    lines = []
    for computed_s in (0.49, 0.51):
        watched.end(2.0, computed_s)
        lines += watched.look(3.0)
    log_file = tmp_path / "broker.log"
    log_file.write_text("\n".join(lines))
    assert long_turns(log_file) == [f"broker.log: {lines[1]}"]


def test_turns_that_are_short_are_no_news_however_many_there_are(watched: WatchedClock) -> None:
    for n in range(100):
        watched.turn(n * 0.06)
        assert watched.look(n * 0.06 + 0.05) == []


def test_a_loop_that_waits_is_no_news(watched: WatchedClock) -> None:
    watched.turn(1.0)
    watched.wait()
    assert watched.look(1000.0) == []


def test_a_stack_is_logged_once_a_second_at_most(watched: WatchedClock) -> None:
    stacks, ends = 0, 0
    for n in range(50):
        watched.turn(n * 0.2)
        for line in watched.look(n * 0.2 + 0.15):
            stacks += "has been" in line
            ends += "took" in line
        watched.end(0.2, 0.0)
    assert ends == 49
    assert stacks == 50 * 0.2 / STACK_INTERVAL_S


def ready_sockets(clock: TurnClock, count: int) -> list[socket.socket]:
    """Register so many sockets that can be written to."""
    pairs = [socket.socketpair() for _ in range(count)]
    for one, _ in pairs:
        clock.register(one, selectors.EVENT_WRITE)
    return [sock for pair in pairs for sock in pair]


def test_turn_has_some_of_the_sockets_that_are_ready_and_the_next_ones_have_the_others() -> None:
    with contextlib.closing(TurnClock()) as clock:
        sockets = ready_sockets(clock, 3 * EVENTS_A_TURN - 1)
        turns = [clock.select(0) for _ in range(3)]
        assert [len(turn) for turn in turns] == [EVENTS_A_TURN, EVENTS_A_TURN, EVENTS_A_TURN - 1]
        served = {key.fd for turn in turns for key, _ in turn}
        assert served == {sock.fileno() for sock in sockets[::2]}
        assert len(clock.select(0)) == EVENTS_A_TURN, "all of them are ready again"
        for sock in sockets:
            sock.close()


def test_socket_that_is_closed_or_not_waited_for_any_more_is_not_ready_in_a_later_turn() -> None:
    with contextlib.closing(TurnClock()) as clock:
        sockets = ready_sockets(clock, 2 * EVENTS_A_TURN)
        served = {key.fd for key, _ in clock.select(0)}
        closed, changed, *left = [sock for sock in sockets[::2] if sock.fileno() not in served]

        # Another socket has its number.
        number = closed.fileno()
        clock.unregister(closed)
        closed.close()
        one, other = socket.socketpair()
        assert number in (one.fileno(), other.fileno())
        clock.register(number, selectors.EVENT_READ)
        clock.modify(changed, selectors.EVENT_READ)

        assert {key.fd for key, _ in clock.select(0)} == {sock.fileno() for sock in left}
        for sock in (*sockets, one, other):
            sock.close()


def on_watched_loop(work: Callable[[], None], limit_ms: int = LIMIT_MS) -> Watchdog:
    """Do `work` in one turn of a real loop."""
    watchdog = Watchdog(TurnClock(), limit_ms)

    async def turn() -> None:
        with watchdog:
            asyncio.get_running_loop().call_soon(work)
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(watchdog.clock)) as runner:
        runner.run(turn())
    return watchdog


def test_what_the_loop_does_meanwhile_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def is_logged() -> bool:
        # On a busy machine another turn is long, too.
        return any("compute_until_logged" in message for message in caplog.messages)

    def compute_until_logged() -> None:
        for _ in itertools.repeat(None, PATIENCE):
            if is_logged():
                return

    watchdog = on_watched_loop(compute_until_logged, 1)
    assert is_logged()
    assert watchdog.clock.long_turns >= 1
    assert "of the event loop have lasted 1 ms or longer" in caplog.messages[-1]


def test_what_a_turn_took_of_the_processor_is_all_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    computing_s = 0.01

    def compute() -> None:
        # From its beginning to its end, whenever anybody looks.
        until = time.thread_time() + computing_s
        while time.thread_time() < until:
            pass

    on_watched_loop(compute, 1)
    took = [message for message in caplog.messages if "of the processor" in message]
    computed = [float(message.split(", and ")[1].split(" s")[0]) for message in took]
    assert max(computed) >= computing_s


def test_without_a_limit_nobody_looks(caplog: pytest.LogCaptureFixture) -> None:
    watchdog = on_watched_loop(lambda: None, 0)
    assert watchdog.looks == 0
    assert caplog.messages == []
