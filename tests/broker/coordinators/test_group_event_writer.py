"""Rebalances on their way into `__group_events`, past leaders that refuse them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
import pytest

from broker.cluster.metadata_cache import MetadataCache
from broker.coordinators.broker_connection import BrokerConnections
from broker.coordinators.group_event_writer import (
    BATCH_EVENTS,
    MAX_QUEUED,
    SLICE_MEMBERS,
    GroupEventWriter,
    _Event,
)
from broker.settings.config import load_broker_config
from clients.transport.connection import ConnectionFailed
from groups.coordinator.membership.history import Cause, MemberNote, Rebalanced, Trigger
from offsets.topic import partition_for
from protocol.errors import ErrorCode
from protocol.internal_topics import EVENTS_TOPIC
from protocol.messages.produce import (
    ProduceRequest,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)
from protocol.metrics import Metrics
from protocol.records.batch import decode_records
from tests.broker.replication.replicas import update_metadata
from tests.stage.clock import run_in_virtual_time

MAX_BYTES = 1_048_588


def rebalanced(group: str = "orders", generation: int = 1, members: int = 1) -> Rebalanced:
    """A member came, and all were assigned something."""
    noted = tuple(
        MemberNote(f"c-{number}", None, "c", "/127.0.0.1", b"", b"")
        for number in range(1, members + 1)
    )
    return Rebalanced(
        group_id=group,
        protocol_type="consumer",
        trigger=Trigger(Cause.MEMBER_JOINED, "c-1", "c"),
        generation_before=generation - 1,
        generation_after=generation,
        started_ms=1000,
        ended_ms=1250,
        before=(),
        after=noted,
        joined_ms={"c-1": 1000},
        timed_out=(),
        is_assigned=True,
    )


@attrs.define(eq=False)
class Peers:
    """Leaders that take what they are sent, unless they are away or refuse."""

    written: dict[int, list[dict[str, Any]]] = attrs.field(factory=dict)
    refusals: dict[int, ErrorCode] = attrs.field(factory=dict)
    away: set[int] = attrs.field(factory=set)
    refused_partitions: set[int] = attrs.field(factory=set)
    max_bytes: int = MAX_BYTES
    requests: int = 0
    connects: int = 0

    async def connect(self, broker: int) -> Leader:
        self.connects += 1
        if broker < 0 or broker in self.away:
            raise ConnectionFailed("b", broker, "away")
        return Leader(broker, self)


@attrs.define(eq=False)
class Leader:
    number: int
    peers: Peers

    @property
    def closed(self) -> bool:
        return self.number in self.peers.away

    async def call(self, request: ProduceRequest) -> ProduceResponse:
        self.peers.requests += 1
        results = []
        for data in request.topic_data[0].partition_data:
            error = self.peers.refusals.get(self.number, ErrorCode.NONE)
            if data.index in self.peers.refused_partitions:
                error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif len(data.records or b"") > self.peers.max_bytes:
                error = ErrorCode.MESSAGE_TOO_LARGE
            results.append(
                ProduceResponsePartition(index=data.index, error_code=error, base_offset=0)
            )
            if not error:
                records = decode_records(data.records or b"")
                self.peers.written.setdefault(self.number, []).extend(
                    json.loads(record.value or b"") for record in records
                )
        return ProduceResponse(
            responses=[ProduceResponseTopic(name=EVENTS_TOPIC, partition_responses=results)]
        )


@attrs.define(eq=False)
class Desk:
    """A writer, the topic it writes to, and whom it writes to."""

    writer: GroupEventWriter
    cache: MetadataCache
    peers: Peers
    created: list[tuple[str, int, int, Mapping[str, str]]]

    def have_topic(self, leader: int = 1, epoch: int = 0, partitions: int = 1) -> None:
        self.cache.update(update_metadata(EVENTS_TOPIC, partitions, leader=leader, epoch=epoch))

    def count(self, name: str) -> int:
        return self.writer.metrics.counter(f"group_events_{name}_total").count

    def generations(self, leader: int = 1) -> list[int]:
        return [event["generation_after"] for event in self.peers.written.get(leader, ())]


@contextmanager
def writing(known_max_bytes: int = MAX_BYTES, **settings: str) -> Iterator[Desk]:
    """A writer that writes until the end of the block; on a loop."""
    cache, peers, created = MetadataCache(), Peers(), []
    writer = GroupEventWriter(
        load_broker_config({"zookeeper.connect": "zk:1", **settings})[0],
        cache,
        lambda *topic: created.append(topic),
        BrokerConnections(peers.connect),
        lambda: known_max_bytes,
        lambda: 0,
        Metrics(),
    )
    task = asyncio.get_running_loop().create_task(writer.run())
    yield Desk(writer, cache, peers, created)
    task.cancel()


def test_event_is_written_to_the_leader_of_its_group() -> None:
    async def story() -> None:
        with writing() as desk:
            desk.have_topic(leader=2)
            desk.writer.add(rebalanced())
            await asyncio.sleep(0.1)
            (event,) = desk.peers.written[2]
            assert (event["group"], event["trigger"]) == ("orders", "member_joined")
            assert (desk.count("written"), desk.count("dropped")) == (1, 0)

    run_in_virtual_time(story())


def test_topic_is_created_as_the_offsets_topic_is_and_then_written_to() -> None:
    async def story() -> None:
        settings = {"offsets.topic.num.partitions": "7", "kgroup.events.retention.ms": "60000"}
        with writing(**settings) as desk:
            desk.writer.add(rebalanced())
            await asyncio.sleep(0.1)
            properties = {"cleanup.policy": "delete", "retention.ms": "60000"}
            assert desk.created == [(EVENTS_TOPIC, 7, 3, properties)]

            desk.have_topic()
            await asyncio.sleep(2)
            assert desk.generations() == [1]

    run_in_virtual_time(story())


@pytest.mark.parametrize(
    "error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
)
def test_what_a_leader_refuses_is_sent_again_and_once(error: ErrorCode) -> None:
    async def story() -> None:
        with writing() as desk:
            desk.have_topic()
            desk.peers.refusals[1] = error
            desk.writer.add(rebalanced())
            await asyncio.sleep(5)
            assert desk.generations() == []

            desk.peers.refusals.clear()
            await asyncio.sleep(5)
            assert desk.generations() == [1]

    run_in_virtual_time(story())


def test_new_leader_gets_what_the_former_one_did_not_take() -> None:
    async def story() -> None:
        with writing() as desk:
            desk.have_topic(leader=1)
            desk.peers.away.add(1)
            desk.writer.add(rebalanced())
            await asyncio.sleep(5)

            desk.have_topic(leader=2, epoch=1)
            await asyncio.sleep(2)
            assert (desk.generations(1), desk.generations(2)) == ([], [1])

    run_in_virtual_time(story())


def test_what_cannot_be_sent_for_a_minute_is_dropped_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        with writing() as desk:
            desk.writer.add(rebalanced(generation=1))
            await asyncio.sleep(40)
            desk.writer.add(rebalanced(generation=2))
            await asyncio.sleep(25)

            desk.have_topic()
            await asyncio.sleep(2)
            assert desk.generations() == [2]
            assert (desk.count("written"), desk.count("dropped")) == (1, 1)

    run_in_virtual_time(story())
    assert "1 events are dropped" in caplog.text


async def written_in_s(desk: Desk, seconds: float, *events: Rebalanced) -> list[int]:
    """The generations that the leader has, a time after these events."""
    for event in events:
        desk.writer.add(event)
    await asyncio.sleep(seconds)
    return desk.generations()


def test_events_go_in_batches_that_the_topic_takes() -> None:
    async def story() -> None:
        with writing(known_max_bytes=10_000) as desk:
            desk.have_topic()
            desk.peers.max_bytes = 10_000
            large = [rebalanced(generation=number, members=400) for number in range(1, 61)]
            assert await written_in_s(desk, 0.5, *large) == list(range(1, 61))
            assert desk.peers.requests == 30  # two of 4 kB in each, and none was refused

            small = [rebalanced("small", number) for number in range(61, 101)]
            assert await written_in_s(desk, 0.5, *small) == list(range(1, 101))
            assert desk.peers.requests < 35

    run_in_virtual_time(story())


def test_batch_that_its_leader_finds_too_large_is_halved_until_it_is_taken() -> None:
    async def story() -> None:
        with writing() as desk:
            desk.have_topic()
            desk.peers.max_bytes = 10_000
            events = [rebalanced(generation=number, members=100) for number in range(1, 61)]
            assert await written_in_s(desk, 0.5, *events) == list(range(1, 61))
            assert (desk.count("written"), desk.count("dropped")) == (60, 0)

    run_in_virtual_time(story())


def test_event_that_is_too_large_is_dropped_at_once_and_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        with writing() as desk:
            desk.have_topic()
            desk.peers.max_bytes = 10_000
            large = rebalanced("huge", 2, members=2000)
            events = [rebalanced(generation=1), large, rebalanced(generation=3)]
            assert await written_in_s(desk, 0.5, *events) == [1, 3]
            assert (desk.count("written"), desk.count("dropped")) == (2, 1)

    run_in_virtual_time(story())
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "group huge is dropped, its 1" in warning


def test_events_of_other_partitions_do_not_wait_behind_many_that_are_refused() -> None:
    async def story() -> None:
        with writing() as desk:
            desk.have_topic(partitions=2)
            desk.peers.refused_partitions = {partition_for("orders", 2)}
            other = next(
                name for name in "abc" if partition_for(name, 2) != partition_for("orders", 2)
            )
            refused = [rebalanced(generation=n) for n in range(1, 2 * BATCH_EVENTS)]
            assert await written_in_s(desk, 0.5, *refused, rebalanced(other, 1000)) == [1000]

            desk.peers.refused_partitions.clear()
            assert await written_in_s(desk, 2) == [1000, *range(1, 2 * BATCH_EVENTS)]

    run_in_virtual_time(story())


def test_leader_that_is_away_is_asked_once_for_all_its_partitions() -> None:
    async def story() -> None:
        with writing() as desk:
            desk.have_topic(partitions=50)
            desk.peers.away.add(1)
            events = [rebalanced(f"g{number}") for number in range(3 * BATCH_EVENTS)]
            await written_in_s(desk, 0.5, *events)
            assert desk.peers.connects == 1

            desk.peers.away.clear()
            assert len(await written_in_s(desk, 1)) == len(events)

    run_in_virtual_time(story())


def test_oldest_events_make_room_beyond_the_bound() -> None:
    async def story() -> None:
        with writing() as desk:
            for generation in range(1, MAX_QUEUED + 3):
                desk.writer.add(rebalanced(generation=generation))
            desk.have_topic()
            await asyncio.sleep(5)
            assert desk.generations() == list(range(3, MAX_QUEUED + 3))
            assert desk.count("dropped") == 2
            assert desk.peers.requests == MAX_QUEUED / BATCH_EVENTS

    run_in_virtual_time(story())


def test_events_may_be_switched_off() -> None:
    async def story() -> None:
        with writing(**{"kgroup.events.enable": "false"}) as desk:
            desk.writer.add(rebalanced())
            await asyncio.sleep(5)
            assert not desk.created

    run_in_virtual_time(story())


def test_log_says_what_became_of_the_group(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        with writing() as desk:
            desk.writer.add(rebalanced(generation=4))

    caplog.set_level(logging.INFO)
    run_in_virtual_time(story())
    (line,) = caplog.messages
    assert line == (
        "group orders: generation 4 with 1 members was assigned, 250 ms after member_joined "
        "of member c-1: no reason was sent"
    )


def test_events_of_large_groups_are_described_in_turns_of_their_own() -> None:
    async def story() -> None:
        with writing() as desk:
            events = [_Event(rebalanced(members=SLICE_MEMBERS), 0.0) for _ in range(3)]
            events += [_Event(rebalanced(), 0.0) for _ in range(3)]
            described: list[int] = []

            async def look() -> None:
                while len(described) < 6:
                    described.append(sum(bool(event.body) for event in events))
                    await asyncio.sleep(0)

            looking = asyncio.ensure_future(look())
            await desk.writer._describe(events)
            await looking
            assert described == [1, 2, 3, 6, 6, 6]

    run_in_virtual_time(story())
