"""Timers that bring events."""

from __future__ import annotations

import asyncio

import attrs
import pytest

from groups.event_timers import EventTimers
from tests.stage.clock import VirtualTimeLoop

pytestmark = pytest.mark.virtual_time


@attrs.frozen
class Due:
    what: str


def timers_into(events: list[tuple[float, Due]]) -> EventTimers:
    loop = asyncio.get_running_loop()
    began = loop.time()
    return EventTimers(lambda event: events.append((round(loop.time() - began, 3), event)))


async def test_timer_brings_its_event_once() -> None:
    events: list[tuple[float, Due]] = []
    timers_into(events).set(Due("a"), 250)
    await asyncio.sleep(10)
    assert events == [(0.25, Due("a"))]


async def test_setting_an_equal_event_again_moves_its_timer_alone() -> None:
    events: list[tuple[float, Due]] = []
    timers = timers_into(events)
    timers.set(Due("a"), 100)
    timers.set(Due("b"), 200)
    timers.set(Due("a"), 300)
    await asyncio.sleep(10)
    assert events == [(0.2, Due("b")), (0.3, Due("a"))]


async def test_event_may_set_its_own_timer_again() -> None:
    loop = asyncio.get_running_loop()
    times: list[float] = []

    def handle(event: Due) -> None:
        times.append(round(loop.time(), 3))
        if len(times) < 3:
            timers.set(event, 100)

    timers = EventTimers(handle)
    began = loop.time()
    timers.set(Due("again"), 100)
    await asyncio.sleep(10)
    assert [round(time - began, 3) for time in times] == [0.1, 0.2, 0.3]


async def test_cancelled_timers_bring_nothing_and_can_be_set_again() -> None:
    events: list[tuple[float, Due]] = []
    timers = timers_into(events)
    timers.set(Due("a"), 100)
    timers.set(Due("b"), 100)
    timers.cancel_all()
    timers.set(Due("b"), 200)
    await asyncio.sleep(10)
    assert events == [(0.2, Due("b"))]


async def test_timer_that_is_moved_to_an_earlier_time_rings_then_and_not_again() -> None:
    events: list[tuple[float, Due]] = []
    timers = timers_into(events)
    timers.set(Due("a"), 300)
    timers.set(Due("b"), 200)
    timers.set(Due("a"), 100)
    await asyncio.sleep(10)
    assert events == [(0.1, Due("a")), (0.2, Due("b"))]


async def test_timers_that_are_moved_again_and_again_take_no_more_room() -> None:
    events: list[tuple[float, Due]] = []
    timers = timers_into(events)
    for _ in range(100):
        timers.set(Due("a"), 300)
        timers.set(Due("a"), 100)
        await asyncio.sleep(0.05)
    assert events == []
    assert len(timers._heap) <= 8
    await asyncio.sleep(10)
    assert events == [(5.05, Due("a"))]


async def test_timers_that_are_moved_from_a_distant_time_take_no_more_room() -> None:
    events: list[tuple[float, Due]] = []
    timers = timers_into(events)
    for number in range(100):
        timers.set(Due(str(number)), 10**9)
        timers.set(Due(str(number)), 100)
        await asyncio.sleep(1)
    assert len(events) == 100
    assert len(timers._heap) <= 2


async def test_event_that_fails_keeps_no_other_from_coming() -> None:
    came: list[str] = []
    complaints: list[object] = []

    def handle(event: Due) -> None:
        came.append(event.what)
        if event.what == "bad":
            raise ValueError(event)

    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    timers = EventTimers(handle)
    timers.set(Due("bad"), 100)
    timers.set(Due("good"), 100)
    timers.set(Due("later"), 200)
    await asyncio.sleep(10)
    assert sorted(came) == ["bad", "good", "later"]
    assert len(complaints) == 1


@pytest.mark.fault("groups-5")
async def test_what_is_due_after_a_stall_waits_until_others_were_heard() -> None:
    events: list[tuple[float, Due]] = []
    timers = timers_into(events)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    timers.set(Due("heard"), 10_000)
    timers.set(Due("silent"), 10_000)
    await asyncio.sleep(5)

    # The heartbeat is read in a turn after the one in which all timers are due.
    loop.work(12)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert events == []
    timers.set(Due("heard"), 10_000)
    timers.set(Due("short"), 10)

    await asyncio.sleep(30)
    assert events == [(18.0, Due("silent")), (18.0, Due("short")), (27.0, Due("heard"))]


async def test_a_loop_that_stands_still_again_and_again_puts_nothing_off_for_ever() -> None:
    events: list[tuple[float, Due]] = []
    timers = timers_into(events)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    timers.set(Due("silent"), 10_000)
    for _ in range(10):
        loop.work(12)
        await asyncio.sleep(0)
    assert [event for _, event in events] == [Due("silent")]
