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
from broker.coordinators.group_event_writer import BATCH_EVENTS, MAX_QUEUED, GroupEventWriter
from broker.settings.config import load_broker_config
from clients.transport.connection import ConnectionFailed
from groups.coordinator.membership.history import Cause, MemberNote, Rebalanced, Trigger
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


def rebalanced(group: str = "orders", generation: int = 1) -> Rebalanced:
    """A member came, and was assigned something."""
    member = MemberNote("c-1", None, "c", "/127.0.0.1", b"", b"")
    return Rebalanced(
        group_id=group,
        protocol_type="consumer",
        trigger=Trigger(Cause.MEMBER_JOINED, "c-1", "c"),
        generation_before=generation - 1,
        generation_after=generation,
        started_ms=1000,
        ended_ms=1250,
        before=(),
        after=(member,),
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
    requests: int = 0

    async def connect(self, broker: int) -> Leader:
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
        error = self.peers.refusals.get(self.number, ErrorCode.NONE)
        results = []
        for data in request.topic_data[0].partition_data:
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

    def have_topic(self, leader: int = 1, epoch: int = 0) -> None:
        self.cache.update(update_metadata(EVENTS_TOPIC, 1, leader=leader, epoch=epoch))

    def count(self, name: str) -> int:
        return self.writer.metrics.counter(f"group_events_{name}_total").count

    def generations(self, leader: int = 1) -> list[int]:
        return [event["generation_after"] for event in self.peers.written.get(leader, ())]


@contextmanager
def writing(**settings: str) -> Iterator[Desk]:
    """A writer that writes until the end of the block; on a loop."""
    cache, peers, created = MetadataCache(), Peers(), []
    writer = GroupEventWriter(
        load_broker_config({"zookeeper.connect": "zk:1", **settings})[0],
        cache,
        lambda *topic: created.append(topic),
        peers.connect,
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
