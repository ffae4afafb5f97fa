"""When heartbeats are sent, and for whom; what the member hears when none is accepted."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import attrs
import pytest

from clients.cluster import Cluster
from clients.cluster_view import BrokerEndpoint
from clients.high_level.heartbeats import RETRY_MS, HeartbeatIdentity, Heartbeats, PollClock
from clients.known_cluster import KnownCluster
from kgroup.testing.beside_the_loop import BesideTheLoop
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import GROUP_KEY
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.leave_group import LeaveGroupRequest
from tests.stage.clock import VirtualTimeLoop, run_in_virtual_time

INTERVAL_MS = 500
SESSION_MS = 3000
LIMIT_MS = SESSION_MS // 3
ME = HeartbeatIdentity("m", 1)


@attrs.define(eq=False)
class Coordinator:
    """Accepts every heartbeat, and notes when it came, and with which generation.

    Or it is silent, or fails in a way that nobody expects.
    """

    known: KnownCluster = attrs.field(factory=KnownCluster)
    took_s: float = 0.0
    suspended_s: float = 0.0
    beats: list[tuple[int, int]] = attrs.field(factory=list)
    is_silent: bool = False
    stale: bool = False
    error: ErrorCode = ErrorCode.NONE
    bug: Exception | None = None

    leaves: list[str] = attrs.field(factory=list)

    async def call_coordinator(
        self,
        group_id: str,
        request: HeartbeatRequest | LeaveGroupRequest,
        *,
        is_doubtful: object = None,
    ) -> Any:
        if isinstance(request, LeaveGroupRequest):
            # It has no response in time.
            self.leaves.append(request.member_id)
            await asyncio.Event().wait()
            return None
        self.beats.append((now_ms(), request.generation_id))
        if self.bug is not None:
            raise self.bug
        if self.is_silent:
            await asyncio.Event().wait()
        await asyncio.sleep(self.took_s)
        return HeartbeatResponse(error_code=self.error)

    def coordinator_failed(self, group_id: str, endpoint: BrokerEndpoint) -> None:
        self.known.forget_coordinator((GROUP_KEY, group_id), endpoint)

    def forget_coordinator(self, group_id: str) -> None: ...
    def ask_another(self) -> None: ...
    async def refresh(self) -> None: ...
    async def close(self) -> None: ...

    def times_after(self, since_ms: int) -> list[int]:
        return [now_ms - since_ms for now_ms, _ in self.beats]


@attrs.define(eq=False)
class Heard:
    """What the member hears of its heartbeats."""

    errors: list[ErrorCode] = attrs.field(factory=list)
    silences: list[tuple[HeartbeatIdentity, int]] = attrs.field(factory=list)
    failures: list[str] = attrs.field(factory=list)
    overdue: list[int] = attrs.field(factory=list)


@attrs.define(eq=False)
class BusyStream:
    """A stream whose application works on one message for ever."""

    is_asked: bool = False
    work: str = "the first message"

    def work_in_hand(self) -> object | None:
        return self.work


def play(
    scene: Callable[[Coordinator, Heartbeats, Heard], Awaitable[None]],
    clock: PollClock | None = None,
    group_instance_id: str | None = None,
    session_ms: int = SESSION_MS,
) -> None:
    async def whole() -> None:
        coordinator = Coordinator()
        heard = Heard()
        heartbeats = Heartbeats(
            "g",
            group_instance_id,
            INTERVAL_MS,
            session_ms,
            clock or PollClock([], 300_000),
            lambda limit_ms: cast(Cluster, coordinator),
            lambda identity, error: heard.errors.append(error),
            lambda identity, silence_ms: heard.silences.append((identity, silence_ms)),
            heard.failures.append,
            lambda overdue: heard.overdue.append(overdue.worked_ms),
            start=BesideTheLoop,
            suspended_s=lambda: coordinator.suspended_s,
        )
        await scene(coordinator, heartbeats, heard)
        heartbeats.end()

    run_in_virtual_time(whole())


async def passes(duration_ms: int) -> None:
    await asyncio.sleep(duration_ms / 1000)


def now_ms() -> int:
    return round(asyncio.get_running_loop().time() * 1000)


def test_joining_counts_as_a_heartbeat_and_others_follow_at_the_interval() -> None:
    async def scene(coordinator: Coordinator, heartbeats: Heartbeats, heard: Heard) -> None:
        began_ms = now_ms()
        heartbeats.begin(HeartbeatIdentity("m", 1))
        await passes(3 * INTERVAL_MS + 10)
        assert coordinator.times_after(began_ms) == [500, 1000, 1500]

    play(scene)


def test_hastened_heartbeats_come_soon_and_then_ever_less_often() -> None:
    async def scene(coordinator: Coordinator, heartbeats: Heartbeats, heard: Heard) -> None:
        heartbeats.begin(HeartbeatIdentity("m", 1))
        await passes(100)
        hastened_ms = now_ms()
        heartbeats.hasten()
        await passes(2000)
        assert coordinator.times_after(hastened_ms) == [10, 30, 70, 150, 310, 630, 1130, 1630]

    play(scene)


def test_next_generation_is_not_hastened_with_the_last_one() -> None:
    async def scene(coordinator: Coordinator, heartbeats: Heartbeats, heard: Heard) -> None:
        heartbeats.begin(HeartbeatIdentity("m", 1))
        heartbeats.hasten()
        heartbeats.begin(HeartbeatIdentity("m", 2))
        began_ms = now_ms()
        await passes(INTERVAL_MS + 10)
        assert coordinator.beats == [(began_ms + INTERVAL_MS, 2)]

    play(scene)


def test_nobody_sends_heartbeats_after_the_end() -> None:
    async def scene(coordinator: Coordinator, heartbeats: Heartbeats, heard: Heard) -> None:
        heartbeats.begin(HeartbeatIdentity("m", 1))
        heartbeats.hasten()
        heartbeats.end()
        await passes(2 * INTERVAL_MS)
        assert coordinator.beats == []

    play(scene)


@pytest.mark.fault("groups-3")
def test_silent_coordinator_is_given_up_after_a_third_of_the_session() -> None:
    async def scene(coordinator: Coordinator, heartbeats: Heartbeats, heard: Heard) -> None:
        coordinator.is_silent = True
        began_ms = now_ms()
        heartbeats.begin(ME)
        await passes(3 * LIMIT_MS)
        first = INTERVAL_MS
        second = first + LIMIT_MS + RETRY_MS
        assert coordinator.times_after(began_ms) == [first, second, second + LIMIT_MS + RETRY_MS]

    play(scene)


def test_member_hears_once_that_its_session_has_passed_without_an_accepted_heartbeat() -> None:
    async def scene(coordinator: Coordinator, heartbeats: Heartbeats, heard: Heard) -> None:
        heartbeats.begin(ME)
        await passes(2 * INTERVAL_MS + 100)
        coordinator.is_silent = True
        accepted_ms = 2 * INTERVAL_MS
        await passes(SESSION_MS - INTERVAL_MS)
        assert heard.silences == []
        await passes(3 * SESSION_MS)
        ((identity, silence_ms),) = heard.silences
        assert identity == ME
        assert SESSION_MS <= silence_ms < now_ms() - accepted_ms

    play(scene)


def test_member_hears_when_its_session_passes_though_a_heartbeat_waits_still() -> None:
    session_ms = 10 * SESSION_MS

    async def scene(coordinator: Coordinator, heartbeats: Heartbeats, heard: Heard) -> None:
        coordinator.is_silent = True
        heartbeats.begin(ME)
        await passes(session_ms)
        assert heard.silences == []
        await passes(RETRY_MS)
        assert heard.silences == [(ME, session_ms + 1)]

    play(scene, session_ms=session_ms)


def test_coordinator_that_was_given_up_is_named_still() -> None:
    async def scene(coordinator: Coordinator, heartbeats: Heartbeats, heard: Heard) -> None:
        assert heartbeats.coordinator == "the coordinator"
        coordinator.is_silent = True
        coordinator.known.learn_coordinators({(GROUP_KEY, "g"): BrokerEndpoint(2, "b", 9092)})
        heartbeats.begin(ME)
        await passes(INTERVAL_MS + LIMIT_MS + 10)
        assert coordinator.known.coordinator((GROUP_KEY, "g")) is None
        assert heartbeats.coordinator == "broker 2 (b:9092)"

    play(scene)


def test_response_that_is_read_after_a_stall_accepts_nobody_and_the_next_does_at_once() -> None:
    async def scene(coordinator: Coordinator, heartbeats: Heartbeats, heard: Heard) -> None:
        coordinator.took_s = 0.2
        heartbeats.begin(ME)
        await passes(INTERVAL_MS + 100)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.work(60)
        await passes(10)
        assert heard.errors == []
        assert not heartbeats.is_entitled
        await passes(RETRY_MS + 200)
        assert heard.errors == [ErrorCode.NONE]
        assert heartbeats.is_entitled

    play(scene)


def test_time_of_a_suspended_machine_ends_the_entitlement_until_the_next_heartbeat() -> None:
    async def scene(coordinator: Coordinator, heartbeats: Heartbeats, heard: Heard) -> None:
        coordinator.suspended_s = 1000.0
        heartbeats.begin(ME)
        await passes(INTERVAL_MS + 100)
        assert heartbeats.is_entitled
        # The loop's clock does not tell.
        coordinator.suspended_s += SESSION_MS / 1000
        assert not heartbeats.is_entitled
        beats = len(coordinator.beats)
        await passes(100)
        assert len(coordinator.beats) == beats + 1
        assert heartbeats.is_entitled

    play(scene, PollClock([], 2000))


def test_second_silence_is_told_again() -> None:
    async def scene(coordinator: Coordinator, heartbeats: Heartbeats, heard: Heard) -> None:
        coordinator.is_silent = True
        heartbeats.begin(ME)
        await passes(3 * SESSION_MS)
        coordinator.is_silent = False
        await passes(SESSION_MS)
        coordinator.is_silent = True
        await passes(3 * SESSION_MS)
        assert len(heard.silences) == 2

    play(scene)


def test_entitlement_ends_a_session_after_the_last_accepted_heartbeat_was_sent() -> None:
    async def scene(coordinator: Coordinator, heartbeats: Heartbeats, heard: Heard) -> None:
        assert heartbeats.is_entitled, "there is nothing to be entitled to"
        coordinator.is_silent = True
        heartbeats.begin(ME)
        await passes(SESSION_MS - 1)
        assert heartbeats.is_entitled
        await passes(1)
        assert not heartbeats.is_entitled
        coordinator.is_silent = False
        await passes(LIMIT_MS + 2 * RETRY_MS)
        assert heartbeats.is_entitled

    play(scene)


@pytest.mark.fault("groups-1")
@pytest.mark.parametrize("instance", [None, "static"])
def test_nobody_is_entitled_once_the_thread_leaves_whether_it_is_answered_or_not(
    instance: str | None,
) -> None:
    async def scene(coordinator: Coordinator, heartbeats: Heartbeats, heard: Heard) -> None:
        heartbeats.begin(ME)
        await passes(1900)
        assert heartbeats.is_entitled
        # The application is overdue; the coordinator reads that we leave, and does not answer.
        await passes(200)
        assert coordinator.leaves == (["m"] if instance is None else [])
        assert not heartbeats.is_entitled
        beats = len(coordinator.beats)
        await passes(2 * LIMIT_MS)
        assert len(heard.overdue) == 1
        assert len(coordinator.beats) == beats

        # Until the member joins again.
        heartbeats.begin(HeartbeatIdentity("m", 2))
        assert heartbeats.is_entitled

    play(scene, PollClock([BusyStream()], 1900), instance)


@pytest.mark.fault("groups-5")
def test_application_that_stood_still_with_its_process_may_ask_before_it_is_overdue() -> None:
    stream = BusyStream()

    async def scene(coordinator: Coordinator, heartbeats: Heartbeats, heard: Heard) -> None:
        heartbeats.begin(ME)
        await passes(100)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.work(60)
        await passes(500)
        assert coordinator.leaves == []
        stream.work = "the second message"
        await passes(1000)
        assert coordinator.leaves == []
        await passes(1500)
        assert coordinator.leaves == ["m"]

    play(scene, PollClock([stream], 1900))


def test_heartbeat_during_a_rebalance_keeps_the_session() -> None:
    async def scene(coordinator: Coordinator, heartbeats: Heartbeats, heard: Heard) -> None:
        coordinator.error = ErrorCode.REBALANCE_IN_PROGRESS
        heartbeats.begin(ME)
        await passes(3 * SESSION_MS)
        assert heartbeats.is_entitled
        assert heard.silences == []

    play(scene)


def test_coordinator_that_is_none_is_asked_no_more_and_the_next_one_soon() -> None:
    async def scene(coordinator: Coordinator, heartbeats: Heartbeats, heard: Heard) -> None:
        coordinator.error = ErrorCode.NOT_COORDINATOR
        began_ms = now_ms()
        heartbeats.begin(ME)
        await passes(INTERVAL_MS + 2 * RETRY_MS + 10)
        first = INTERVAL_MS
        times = [first, first + RETRY_MS, first + 2 * RETRY_MS]
        assert coordinator.times_after(began_ms) == times

    play(scene)


@pytest.mark.fault("groups-1")
def test_member_hears_of_a_thread_that_ends_with_an_error_and_can_begin_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(coordinator: Coordinator, heartbeats: Heartbeats, heard: Heard) -> None:
        coordinator.bug = ValueError("a bug")
        heartbeats.begin(ME)
        await passes(3 * INTERVAL_MS)
        assert heard.failures == ["ValueError('a bug')"]
        assert len(coordinator.beats) == 1

        coordinator.bug = None
        heartbeats.begin(HeartbeatIdentity("m", 2))
        await passes(2 * INTERVAL_MS + 10)
        assert heard.errors == [ErrorCode.NONE] * 2

    play(scene)
    assert "group g: heartbeats failed" in caplog.text
