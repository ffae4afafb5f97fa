"""When heartbeats are sent, and for whom."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import attrs

from clients.cluster import Cluster
from clients.high_level.heartbeats import HeartbeatIdentity, Heartbeats, PollClock
from kgroup.testing.beside_the_loop import BesideTheLoop
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.stage.clock import run_in_virtual_time

INTERVAL_MS = 500


@attrs.define(eq=False)
class Coordinator:
    """Accepts every heartbeat, and notes when it came, and with which generation."""

    beats: list[tuple[int, int]] = attrs.field(factory=list)

    async def call_coordinator(self, group_id: str, request: HeartbeatRequest) -> Any:
        now_ms = round(asyncio.get_running_loop().time() * 1000)
        self.beats.append((now_ms, request.generation_id))
        return HeartbeatResponse(error_code=ErrorCode.NONE)

    async def close(self) -> None: ...

    def times_after(self, since_ms: int) -> list[int]:
        return [now_ms - since_ms for now_ms, _ in self.beats]


def play(scene: Callable[[Coordinator, Heartbeats], Awaitable[None]]) -> None:
    async def whole() -> None:
        coordinator = Coordinator()
        heartbeats = Heartbeats(
            "g",
            None,
            INTERVAL_MS,
            PollClock([], 300_000),
            lambda: cast(Cluster, coordinator),
            lambda identity, error: None,
            lambda overdue: None,
            start=BesideTheLoop,
        )
        await scene(coordinator, heartbeats)
        heartbeats.end()

    run_in_virtual_time(whole())


async def passes(duration_ms: int) -> None:
    await asyncio.sleep(duration_ms / 1000)


def now_ms() -> int:
    return round(asyncio.get_running_loop().time() * 1000)


def test_joining_counts_as_a_heartbeat_and_others_follow_at_the_interval() -> None:
    async def scene(coordinator: Coordinator, heartbeats: Heartbeats) -> None:
        began_ms = now_ms()
        heartbeats.begin(HeartbeatIdentity("m", 1))
        await passes(3 * INTERVAL_MS + 10)
        assert coordinator.times_after(began_ms) == [500, 1000, 1500]

    play(scene)


def test_hastened_heartbeats_come_soon_and_then_ever_less_often() -> None:
    async def scene(coordinator: Coordinator, heartbeats: Heartbeats) -> None:
        heartbeats.begin(HeartbeatIdentity("m", 1))
        await passes(100)
        hastened_ms = now_ms()
        heartbeats.hasten()
        await passes(2000)
        assert coordinator.times_after(hastened_ms) == [10, 30, 70, 150, 310, 630, 1130, 1630]

    play(scene)


def test_next_generation_is_not_hastened_with_the_last_one() -> None:
    async def scene(coordinator: Coordinator, heartbeats: Heartbeats) -> None:
        heartbeats.begin(HeartbeatIdentity("m", 1))
        heartbeats.hasten()
        heartbeats.begin(HeartbeatIdentity("m", 2))
        began_ms = now_ms()
        await passes(INTERVAL_MS + 10)
        assert coordinator.beats == [(began_ms + INTERVAL_MS, 2)]

    play(scene)


def test_nobody_sends_heartbeats_after_the_end() -> None:
    async def scene(coordinator: Coordinator, heartbeats: Heartbeats) -> None:
        heartbeats.begin(HeartbeatIdentity("m", 1))
        heartbeats.hasten()
        heartbeats.end()
        await passes(2 * INTERVAL_MS)
        assert coordinator.beats == []

    play(scene)
