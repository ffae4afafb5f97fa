"""Periodic work, and what it waits for after the process stood still."""

from __future__ import annotations

import asyncio

import pytest

from broker.process.periodic import run_every
from tests.stage.clock import VirtualTimeLoop

pytestmark = pytest.mark.virtual_time


@pytest.mark.fault("groups-5")
async def test_work_after_a_stall_waits_until_others_were_heard() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    times: list[float] = []
    task = asyncio.ensure_future(run_every(10_000, "a look", lambda: times.append(loop.time())))
    await asyncio.sleep(15)
    assert times == [10.0]

    loop.work(12)
    await asyncio.sleep(0.5)
    assert times == [10.0]
    await asyncio.sleep(20)
    assert times == [10.0, 28.0, 38.0]
    task.cancel()
