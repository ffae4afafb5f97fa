"""Heartbeat by the short way and by the general one: the same responses and timers."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from itertools import count
from typing import Any

import attrs

from broker.handlers import heartbeat, join_group, sync_group
from broker.handlers.short_heartbeat import ShortHeartbeat
from broker.network.authorization import group
from broker.network.dispatch import Dispatched, Dispatcher, Refused
from broker.network.purgatory import Wait
from broker.network.request_context import Origin
from groups.coordinator.config import GroupConfig
from groups.coordinator.coordinator import GroupCoordinator
from groups.runtime.memory_partition_log import MemoryPartitionLog
from offsets.config import OffsetsConfig
from protocol.acls import Operation
from protocol.api_key import ApiKey
from protocol.header import encode_request, encode_response
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.sync_group import SyncGroupRequest
from tests.broker.broken_frames import broken
from tests.broker.replication.replicas import NOW_MS, context
from tests.stage.authorizer import REFUSING, allowing
from tests.stage.clock import VirtualTimeLoop
from tests.stage.coordinator import coordinator_of_nothing, coordinator_still_loading

ORIGIN = Origin("PLAINTEXT", "127.0.0.1:1")
SESSION_MS = 10_000


@attrs.define(eq=False)
class Twin:
    """A coordinator, and the dispatcher in front of it."""

    coordinator: GroupCoordinator
    dispatcher: Dispatcher
    short: int = 0
    """Heartbeats that the short way has answered."""

    @classmethod
    async def of(cls, *, short: bool) -> Twin:
        numbers = count(1)
        coordinator = GroupCoordinator(
            MemoryPartitionLog(),
            OffsetsConfig(),
            lambda: 1,
            lambda: NOW_MS,
            asyncio.ensure_future,
            group_config=GroupConfig(initial_rebalance_delay_ms=0),
            new_uuid=lambda: str(next(numbers)),
        )
        coordinator.on_leadership({0}, set())
        await asyncio.sleep(1)
        way = ShortHeartbeat(coordinator)
        return cls(
            coordinator,
            Dispatcher(
                {ApiKey.HEARTBEAT: partial(heartbeat.handle, coordinator)},
                lambda: NOW_MS,
                lambda: NOW_MS,
                short_ways={ApiKey.HEARTBEAT: way} if short else {},
            ),
        )

    async def join(self, group_id: str) -> tuple[str, int]:
        """Join a group and synchronize; return the member's id and generation."""
        request = join_request(group_id)
        joined = await ended(join_group.handle(self.coordinator, request, context(0)))
        sync = SyncGroupRequest(
            group_id=group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[],
        )
        await ended(sync_group.handle(self.coordinator, sync, context(0)))
        return joined.member_id, joined.generation_id

    def serve(self, frame: bytes) -> Any:
        """Return the bytes of a response, or why there is none."""
        try:
            dispatched = self.dispatcher.dispatch(memoryview(frame), ORIGIN)
        except Refused as error:
            return str(error)
        assert isinstance(dispatched, Dispatched)
        if isinstance(dispatched.outcome, bytes):
            self.short += 1
            return dispatched.outcome, dispatched.close
        header = dispatched.header
        response, _ = encode_response(
            header.api_key, header.api_version, header.correlation_id, dispatched.outcome
        )
        return bytes(response), dispatched.close

    def timers(self) -> Any:
        """Return which timers are set, and when they end."""
        (led,) = self.coordinator.runtime.led_partitions()
        return {event: timer.deadline_s for event, timer in led.timers._timers.items()}


async def ended(outcome: Any) -> Any:
    """Return the response, when there is one."""
    while isinstance(outcome, Wait):
        await asyncio.sleep(0.1)
        outcome = outcome.try_complete(False) or outcome
    return outcome


def join_request(group_id: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=600_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def beat(version: int, **fields: Any) -> bytes:
    request = HeartbeatRequest(**fields)
    return encode_request(ApiKey.HEARTBEAT, version, 7, "kläger", request)[4:]


def test_both_ways_give_the_same_responses_and_timers() -> None:
    loop = VirtualTimeLoop()
    loop.run_until_complete(compare_ways())
    loop.close()


async def compare_ways() -> None:
    chance = random.Random(5)
    members: list[tuple[str, int]] = []
    # At the same time, so that their timers are the same.
    twins = await asyncio.gather(*(Twin.of(short=is_short) for is_short in (True, False)))
    for group_id in ("steady", "moving"):
        joined = await asyncio.gather(*(twin.join(group_id) for twin in twins))
        assert joined[0] == joined[1]
        members.append(joined[0])
    for twin in twins:
        # The group waits for its first member to join again.
        waiting = join_group.handle(twin.coordinator, join_request("moving"), context(0))
        assert isinstance(waiting, Wait)

    for number in range(1000):
        await asyncio.sleep(chance.choice([0, 0.01, 0.1]))
        place = chance.choice([0, 0, 1])
        member_id, generation_id = members[place]
        version = chance.choice([0, 1, 2, 3, 3, 4, 4, 4])
        fields: dict[str, Any] = {
            "group_id": ("steady", "moving")[place],
            "generation_id": generation_id,
            "member_id": member_id,
        }
        if chance.random() < 0.3:
            fields |= chance.choice(
                [
                    {"group_id": chance.choice(["", "Tür"])},
                    {"generation_id": chance.choice([-1, 0, 9])},
                    {"member_id": chance.choice(["", "unknown"])},
                    {"group_instance_id": "i"} if version >= 3 else {},
                ]
            )
        frame = beat(version, **fields)
        if chance.random() < 0.15:
            frame = broken(chance, frame, b"\0\x0c")

        responses = [twin.serve(frame) for twin in twins]
        assert responses[0] == responses[1], f"heartbeat {number}: {frame!r}"
        before, after = (twin.timers() for twin in twins)
        assert before == after, f"after heartbeat {number}: {frame!r}"

    # Otherwise nothing was compared.
    assert twins[0].short > 200


def test_a_usual_heartbeat_of_each_version_takes_the_short_way() -> None:
    loop = VirtualTimeLoop()
    loop.run_until_complete(beat_in_each_version())
    loop.close()


async def beat_in_each_version() -> None:
    twin = await Twin.of(short=True)
    member_id, generation_id = await twin.join("g")
    for version in range(5):
        frame = beat(version, group_id="g", generation_id=generation_id, member_id=member_id)
        twin.serve(frame)
        assert twin.short == version + 1


def test_a_member_who_may_not_read_its_group_is_told_so_the_general_way() -> None:
    loop = VirtualTimeLoop()

    async def beat_with(allowed: bool) -> tuple[int, int]:
        twin = await Twin.of(short=True)
        member_id, generation_id = await twin.join("steady")
        twin.dispatcher.authorizer = (
            allowing((Operation.READ, group("steady"))) if allowed else REFUSING
        )
        frame = beat(3, group_id="steady", generation_id=generation_id, member_id=member_id)
        twin.serve(frame)
        return twin.short, len(twin.timers())

    assert loop.run_until_complete(beat_with(True))[0] == 1
    assert loop.run_until_complete(beat_with(False))[0] == 0
    loop.close()


def test_a_coordinator_that_does_not_serve_leaves_it_to_the_general_way() -> None:
    for version in (3, 4):
        frame = beat(version, group_id="g", generation_id=1, member_id="m")
        for coordinator in (coordinator_of_nothing(), coordinator_still_loading()):
            assert ShortHeartbeat(coordinator)(memoryview(frame), NOW_MS, None) is None
