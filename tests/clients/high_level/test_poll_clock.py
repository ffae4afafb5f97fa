"""How long an application works on one message, as the thread of the heartbeats sees it."""

import attrs

from clients.high_level.heartbeats import PollClock

LIMIT_MS = 1000


@attrs.define(eq=False)
class Stream:
    """A stream whose application works on `work`."""

    work: object | None = None
    is_asked: bool = False

    def work_in_hand(self) -> object | None:
        return self.work


def test_work_on_one_message_is_overdue_beyond_the_limit() -> None:
    stream = Stream("message 1")
    clock = PollClock([stream], LIMIT_MS)
    assert clock.find_overdue(10.0) is None
    assert clock.find_overdue(11.0) is None
    overdue = clock.find_overdue(11.25)
    assert overdue is not None
    assert (overdue.stream, overdue.worked_ms) == (stream, 1250)


def test_another_message_begins_another_time() -> None:
    stream = Stream("message 1")
    clock = PollClock([stream], LIMIT_MS)
    clock.find_overdue(10.0)
    stream.work = "message 2"
    assert clock.find_overdue(10.9) is None
    assert clock.find_overdue(11.8) is None
    assert clock.find_overdue(12.0) is not None


def test_stream_that_waits_for_messages_has_no_limit() -> None:
    stream = Stream("message 1")
    clock = PollClock([stream], LIMIT_MS)
    clock.find_overdue(10.0)
    stream.work = None
    assert clock.find_overdue(20.0) is None
    stream.work = "message 1"
    assert clock.find_overdue(21.0) is None


def test_each_stream_has_a_clock_of_its_own() -> None:
    fast, slow = Stream("a"), Stream("x")
    clock = PollClock([fast, slow], LIMIT_MS)
    for step in range(20):
        fast.work = step
        overdue = clock.find_overdue(10.0 + step / 10)
        if overdue is not None:
            break
    assert overdue is not None
    assert overdue.stream is slow


def test_clock_that_is_put_off_waits_a_moment_more_and_once_in_an_interval() -> None:
    clock = PollClock([Stream("message 1")], LIMIT_MS)
    assert clock.find_overdue(10.0) is None
    clock.put_off(70.0)
    assert clock.find_overdue(70.9) is None
    clock.put_off(70.9)
    assert clock.find_overdue(71.0) is not None
