"""Timers that bring events."""

from __future__ import annotations

import asyncio

import attrs
import pytest

from groups.event_timers import EventTimers

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
