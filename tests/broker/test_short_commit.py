"""OffsetCommit by the short way and by the general one: the same responses, records and state."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import attrs
import pytest

from broker.handlers import join_group, leave_group, offset_commit, sync_group
from broker.handlers.short_commit import MAX_HEAD_BYTES, MAX_HEADS, ShortCommit
from broker.network.authorization import Resource, group, topic
from broker.network.dispatch import AT_ONCE_ELEMENTS, Dispatched, Dispatcher, Refused
from broker.network.purgatory import Wait
from broker.network.request_context import Origin
from groups.coordinator.config import GroupConfig
from groups.coordinator.coordinator import GroupCoordinator
from groups.runtime.memory_partition_log import MemoryPartitionLog
from offsets.config import OffsetsConfig
from offsets.records import value_versions
from protocol.acls import Operation
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.header import encode_request, encode_response
from protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.sync_group import SyncGroupRequest
from protocol.records.batch import decode_rows
from protocol.records.batch_header import read_header
from protocol.topic_partition import TopicPartition
from protocol.wire import Message
from tests.broker.broken_frames import broken
from tests.broker.reads import serve_read
from tests.broker.zookeeper_twin import NO_ZOOKEEPER
from tests.stage.authorizer import allowing
from tests.stage.clock import VirtualTimeLoop

ORIGIN = Origin("PLAINTEXT", "127.0.0.1:1")
NOW_MS = 1_700_000_000_000
KNOWN = {"flights": range(300), "weather": range(1), "tür": range(2)}
EMPTY_GROUP, GROUP = "nobody's", "orders"

Disturb = Callable[[MemoryPartitionLog, GroupCoordinator], None]


@attrs.frozen
class Case:
    """A coordinator, and what is done to it before a request."""

    replicas: int = 1
    batch_bytes: int = 1_048_588
    config: OffsetsConfig = attrs.field(factory=OffsetsConfig)
    release: str = "2.8"
    disturb: Disturb = lambda log, coordinator: None


def refuse_some(log: MemoryPartitionLog, coordinator: GroupCoordinator) -> None:
    is_refused = log.partition(0).end_offset % 3 == 0
    log.fail(0, ErrorCode.KAFKA_STORAGE_ERROR if is_refused else None)
    # What was refused is not there, so the end does not move on by itself.
    log.partition(0).end_offset += is_refused


def keep_some_waiting(log: MemoryPartitionLog, coordinator: GroupCoordinator) -> None:
    if log.partition(0).is_held:
        log.release(0)
    elif log.partition(0).end_offset % 2 == 0:
        log.hold(0)


def lose_replicas(log: MemoryPartitionLog, coordinator: GroupCoordinator) -> None:
    partition = log.partition(0)
    partition.is_enough_in_sync = partition.end_offset % 4 != 0


def delete_topic(log: MemoryPartitionLog, coordinator: GroupCoordinator) -> None:
    if log.partition(0).end_offset % 5 == 0:
        coordinator.on_deleted([TopicPartition("flights", 0)])


CASES = {
    "one replica": Case(),
    "two replicas": Case(replicas=2),
    "small batches": Case(batch_bytes=250),
    "compressed": Case(config=OffsetsConfig(topic_compression_codec=1)),
    "older brokers beside": Case(release="2.0"),
    "appends that fail": Case(disturb=refuse_some),
    "appends that wait": Case(disturb=keep_some_waiting),
    "too few in sync": Case(disturb=lose_replicas),
    "topics that are deleted": Case(disturb=delete_topic),
}

NEVER_SHORT = {"two replicas", "older brokers beside"}


@attrs.define(eq=False)
class Twin:
    """A coordinator, and the dispatcher in front of it."""

    log: MemoryPartitionLog
    coordinator: GroupCoordinator
    dispatcher: Dispatcher
    short: int = 0
    """Requests that the short way has answered."""
    at_once: int = 0
    """Requests that were served with others."""

    @classmethod
    def of(cls, case: Case, *, short: bool) -> Twin:
        loop = asyncio.get_running_loop()
        numbers = iter(range(1000))
        log = MemoryPartitionLog(case.replicas, case.batch_bytes)
        coordinator = GroupCoordinator(
            log,
            case.config,
            lambda: 1,
            lambda: NOW_MS,
            loop.create_task,
            value_versions=value_versions(case.release),
            group_config=GroupConfig(initial_rebalance_delay_ms=0),
            new_uuid=lambda: str(next(numbers)),
        )
        coordinator.on_leadership({0}, set())

        def known(topic: str) -> Any:
            return KNOWN.get(topic, ())

        handle = partial(offset_commit.handle, coordinator, NO_ZOOKEEPER, known)
        dispatcher = Dispatcher(
            {
                ApiKey.OFFSET_COMMIT: handle,
                ApiKey.JOIN_GROUP: partial(join_group.handle, coordinator),
                ApiKey.SYNC_GROUP: partial(sync_group.handle, coordinator),
                ApiKey.LEAVE_GROUP: partial(leave_group.handle, coordinator),
            },
            lambda: NOW_MS,
            lambda: NOW_MS,
        )
        if short:
            way = ShortCommit(coordinator, known)
            dispatcher.short_ways = {ApiKey.OFFSET_COMMIT: way}
            dispatcher.run_ways = {ApiKey.OFFSET_COMMIT: way.serve_run}
        return cls(log, coordinator, dispatcher)

    def dispatch(self, frame: bytes) -> Dispatched | str:
        try:
            return self.dispatcher.dispatch(memoryview(frame), ORIGIN)
        except Refused as error:
            return str(error)

    async def serve_read(self, frames: Sequence[bytes]) -> list[list[Any]]:
        """Return what becomes of the requests of one read, as far as possible at once."""
        outcomes, at_once = await serve_read(self.dispatcher, ORIGIN, frames, self.serve)
        self.at_once += at_once
        return outcomes

    async def serve(self, frame: bytes) -> list[Any]:
        """Return what becomes of a request: that it waits, and the response."""
        dispatched = self.dispatch(frame)
        if isinstance(dispatched, str):
            return [dispatched]

        steps: list[Any] = []
        while isinstance(wait := dispatched.outcome, Wait):
            steps.append(wait.timeout_ms)
            self.log.replicate(0)
            self.log.release(0)
            await asyncio.sleep(0.01)
            ended = wait.try_complete(False) or wait.try_complete(True)
            assert isinstance(ended, Dispatched)
            dispatched = ended

        if isinstance(dispatched.outcome, bytes):
            self.short += 1
            return [*steps, dispatched.outcome, dispatched.close]
        header = dispatched.header
        written, _ = encode_response(
            header.api_key, header.api_version, header.correlation_id, dispatched.outcome
        )
        return [*steps, bytes(written), dispatched.close]

    async def ask(self, key: ApiKey, version: int, request: Message) -> Any:
        """Return the response to a request of a member."""
        dispatched = self.dispatch(bytes(encode_request(key, version, 1, "c", request))[4:])
        assert not isinstance(dispatched, str)
        while isinstance(wait := dispatched.outcome, Wait):
            self.log.replicate(0)
            await asyncio.sleep(0.01)
            dispatched = wait.try_complete(False) or dispatched
        return dispatched.outcome

    async def join(self) -> JoinGroupResponse:
        """Form a group of one member."""
        joined = await self.ask(
            ApiKey.JOIN_GROUP,
            2,
            JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                member_id="",
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            ),
        )
        sync = SyncGroupRequest(
            group_id=GROUP,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[],
        )
        await self.ask(ApiKey.SYNC_GROUP, 2, sync)
        assert isinstance(joined, JoinGroupResponse)
        return joined

    def records(self) -> list[Any]:
        """Return the records of the log, whatever batches they are in."""
        return [
            (row[0], row[2], row[3])
            for _, encoded in self.log.partition(0).batches
            for row in decode_rows(encoded, 0, read_header(encoded))
        ]

    def state(self) -> dict[str, Any]:
        """Return all batches, and what the coordinator keeps."""
        self.coordinator.runtime.check()
        (led,) = self.coordinator.runtime.led_partitions()
        groups = sorted(led.shard.offsets.groups())
        return {
            "log": self.log.partition(0).batches,
            "offsets": {group: list(led.shard.offsets.values_of(group)) for group in groups},
            "live": sorted(led.shard.live),
            "in flight": led.shard.in_flight,
            "sessions": {
                str(event): timer.deadline_s for event, timer in led.timers._timers.items()
            },
        }


def made(chance: random.Random, member_id: str, generation_id: int) -> bytes:
    """Make a commit: mostly a usual one, often almost one, sometimes nearly anything."""

    def rarely(value: Any, usual: Any) -> Any:
        return value if chance.random() < 0.05 else usual

    def partitions() -> list[OffsetCommitRequestPartition]:
        count = chance.choice([1, 1, 2, 70]) if chance.random() < 0.9 else chance.randrange(3)
        return [
            OffsetCommitRequestPartition(
                partition_index=rarely(chance.choice([-1, 300, 2**31 - 1]), index),
                committed_offset=chance.choice([0, 42, 2**62, -1]),
                committed_leader_epoch=chance.choice([-1, 7]),
                committed_metadata=rarely("noted", chance.choice(["", None])),
            )
            for index in range(count)
        ]

    version = chance.choice([8, 8, 7, 7, 6, 5, 4, 3, 2, 2, 1])
    is_members = chance.random() < 0.5
    request = OffsetCommitRequest(
        group_id=chance.choice([GROUP, EMPTY_GROUP]) if not is_members else GROUP,
        generation_id_or_member_epoch=rarely(99, generation_id if is_members else -1),
        member_id=rarely("stranger", member_id if is_members else ""),
        group_instance_id=rarely("instance", None) if version >= 7 else None,
        retention_time_ms=rarely(1000, -1) if 2 <= version <= 4 else -1,
        topics=[
            OffsetCommitRequestTopic(
                name=chance.choice(["flights", "flights", "weather", "tür", "unknown"]),
                partitions=partitions(),
            )
            for _ in range(1 if chance.random() < 0.9 else chance.randrange(3))
        ],
    )
    client_id = chance.choice([None, "", "client", "kläger"])
    frame = encode_request(
        ApiKey.OFFSET_COMMIT, version, chance.getrandbits(31), client_id, request
    )
    return bytes(frame)[4:]


@pytest.fixture
def loop() -> Any:
    made = VirtualTimeLoop()
    yield made
    made.run_until_complete(end_others())
    made.close()


async def end_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


@pytest.mark.parametrize("name", CASES)
def test_both_ways_give_the_same_responses_records_and_state(
    name: str, loop: VirtualTimeLoop
) -> None:
    loop.run_until_complete(compare_ways(name))


async def joined_twins(case: Case) -> tuple[list[Twin], str, int]:
    """Return a twin with the short way and one without, and the id and generation of a member."""
    twins = [Twin.of(case, short=is_short) for is_short in (True, False)]
    await asyncio.sleep(1)

    # Both at the same time, so that their sessions are equal too.
    joined = await asyncio.gather(*(twin.join() for twin in twins))
    assert joined[0] == joined[1]
    return twins, joined[0].member_id, joined[0].generation_id


async def compare_ways(name: str) -> None:
    chance = random.Random(name)
    case = CASES[name]
    twins, member_id, generation_id = await joined_twins(case)
    short, general = twins

    for number in range(700):
        # The member stays by its commits alone, so these must count as signs of life.
        await asyncio.sleep(0.1)
        if number == 500:
            leave = LeaveGroupRequest(group_id=GROUP, member_id=member_id)
            await asyncio.gather(*(twin.ask(ApiKey.LEAVE_GROUP, 2, leave) for twin in twins))

        for twin in twins:
            case.disturb(twin.log, twin.coordinator)
        frame = made(chance, member_id, generation_id)
        if chance.random() < 0.25:
            frame = broken(chance, frame, b"\0\x08")

        outcomes = await asyncio.gather(*(twin.serve(frame) for twin in twins))
        assert outcomes[0] == outcomes[1], f"request {number}: {frame!r}"
        if number % 50 == 0:
            assert short.state() == general.state(), f"after request {number}"

    assert short.state() == general.state()
    # Otherwise nothing was compared.
    assert name in NEVER_SHORT or short.short > 50


RUN_CASES = ("one replica", "two replicas", "compressed", "older brokers beside")


@pytest.mark.parametrize("name", RUN_CASES)
def test_requests_of_one_read_give_what_they_give_one_by_one(
    name: str, loop: VirtualTimeLoop
) -> None:
    loop.run_until_complete(compare_reads(name))


async def compare_reads(name: str) -> None:
    chance = random.Random(name)
    twins, member_id, generation_id = await joined_twins(CASES[name])
    short, general = twins

    for number in range(300):
        await asyncio.sleep(0.1)
        frame = made(chance, member_id, generation_id)
        frames = [
            frame if chance.random() < 0.8 else made(chance, member_id, generation_id)
            for _ in range(chance.randrange(1, 9))
        ]
        if chance.random() < 0.25:
            frames[-1] = broken(chance, frames[-1], b"\0\x08")

        reads = await asyncio.gather(*(twin.serve_read(frames) for twin in twins))
        assert reads[0] == reads[1], f"read {number}: {frames!r}"

    assert short.records() == general.records()
    assert short.state() | {"log": []} == general.state() | {"log": []}
    assert name in NEVER_SHORT or short.at_once > 100
    assert not general.at_once


def usual_frame(group: str = EMPTY_GROUP, version: int = 7) -> bytes:
    committed = [
        OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    ]
    request = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name="flights", partitions=committed)]
    )
    return bytes(encode_request(ApiKey.OFFSET_COMMIT, version, 1, "c", request))[4:]


@pytest.mark.parametrize(
    ("groups", "count"),
    [
        ([EMPTY_GROUP] * 3, 3),
        ([EMPTY_GROUP] * 5, 4),
        ([EMPTY_GROUP, EMPTY_GROUP, "another's"], 2),
        ([EMPTY_GROUP, "another's"], 0),
        ([EMPTY_GROUP], 0),
    ],
)
def test_a_run_is_of_one_group_and_has_a_bound(
    groups: list[str], count: int, loop: VirtualTimeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.handlers.short_commit.RUN_RECORDS", 4)

    async def commit() -> None:
        twin = await led_twin()
        frames = [memoryview(usual_frame(name)) for name in groups]
        assert len(twin.dispatcher.dispatch_run(frames, ORIGIN)) == count
        # One batch of them all, or nothing yet.
        assert len(twin.log.partition(0).batches) == (1 if count else 0)

    loop.run_until_complete(commit())


async def led_twin() -> Twin:
    twin = Twin.of(Case(), short=True)
    await asyncio.sleep(1)
    return twin


@pytest.mark.parametrize("version", range(2, 9))
def test_a_usual_commit_takes_the_short_way(version: int, loop: VirtualTimeLoop) -> None:
    async def commit() -> None:
        twin = await led_twin()
        await twin.serve(usual_frame(version=version))
        assert twin.short == 1

    loop.run_until_complete(commit())


@pytest.mark.parametrize(
    ("allowed", "short"),
    [
        ([(Operation.READ, group(EMPTY_GROUP)), (Operation.READ, topic("flights"))], 1),
        ([(Operation.READ, group(EMPTY_GROUP))], 0),
        ([(Operation.READ, topic("flights"))], 0),
    ],
)
def test_a_commit_that_is_not_allowed_goes_the_general_way(
    loop: VirtualTimeLoop, allowed: list[tuple[Operation, Resource]], short: int
) -> None:
    async def commit() -> None:
        twin = await led_twin()
        twin.dispatcher.authorizer = allowing(*allowed)
        await twin.serve(usual_frame())
        assert twin.short == short

    loop.run_until_complete(commit())


def test_a_commit_that_lets_members_join_again_goes_the_general_way(
    loop: VirtualTimeLoop,
) -> None:
    async def commit() -> None:
        twin = await led_twin()
        await twin.join()
        group = twin.coordinator.shard(GROUP).live[GROUP]
        group.held_by = ORIGIN.connection
        joined = group.members
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=group.generation_id,
            member_id=next(iter(joined)),
            topics=[
                OffsetCommitRequestTopic(
                    name="flights",
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=0, committed_offset=1, committed_metadata=""
                        )
                    ],
                )
            ],
        )
        await twin.serve(bytes(encode_request(ApiKey.OFFSET_COMMIT, 7, 1, "c", request))[4:])
        assert twin.short == 0

    loop.run_until_complete(commit())


@pytest.mark.fault("security-5")
@pytest.mark.parametrize("count", [AT_ONCE_ELEMENTS, AT_ONCE_ELEMENTS + 1])
def test_a_commit_that_is_read_in_a_thread_is_not_read_before(
    count: int, loop: VirtualTimeLoop
) -> None:
    one = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name="flights", partitions=[one] * count)]
    request = OffsetCommitRequest(group_id=EMPTY_GROUP, topics=topics)
    frame = encode_request(ApiKey.OFFSET_COMMIT, 7, 1, "c", request)[4:]

    async def commit() -> None:
        twin = await led_twin()
        response = twin.dispatcher.short_ways[ApiKey.OFFSET_COMMIT](memoryview(frame), NOW_MS, None)
        assert (response is not None) == (count <= AT_ONCE_ELEMENTS)

    loop.run_until_complete(commit())


def test_heads_that_are_remembered_have_a_bound_in_number_and_size(
    loop: VirtualTimeLoop,
) -> None:
    async def commit() -> None:
        twin = await led_twin()
        way = twin.dispatcher.short_ways[ApiKey.OFFSET_COMMIT]
        assert isinstance(way, ShortCommit)
        assert way(memoryview(usual_frame("g" * MAX_HEAD_BYTES)), NOW_MS, None) is None
        assert not way._heads

        way._heads = dict.fromkeys((0, number.to_bytes(4)) for number in range(MAX_HEADS))  # type: ignore[arg-type]
        assert isinstance(way(memoryview(usual_frame()), NOW_MS, None), bytes)
        assert len(way._heads) == 1

    loop.run_until_complete(commit())
