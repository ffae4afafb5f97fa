"""OffsetCommit 0 and OffsetFetch 0: a group's offsets in ZooKeeper, through any broker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import attrs
import pytest

from broker.handlers import offset_commit, offset_fetch
from broker.network.purgatory import Purgatory, Wait
from protocol.errors import ApiError, ErrorCode
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.broker.replication.replicas import context
from tests.broker.zookeeper_twin import TIMEOUT_MS, zookeeper_offsets
from tests.stage.coordinator import coordinator_of_nothing
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import ConsumerOffset

KNOWN = {"flights": range(2), "weather": range(1)}
Answers = list[tuple[Any, ...]]


@attrs.define(eq=False)
class Site:
    """Handlers that serve version 0, and their ZooKeeper."""

    zookeeper: MemoryZooKeeper
    session: MemorySession
    purgatory: Purgatory = attrs.field(factory=Purgatory)

    async def commit(self, *offsets: tuple[str, int, int], group: str = "g", note: str = "") -> Any:
        request = OffsetCommitRequest(
            group_id=group,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata=note
                        )
                    ],
                )
                for topic, index, offset in offsets
            ],
        )
        nobody = coordinator_of_nothing()
        response = await self._ended(
            offset_commit.handle(nobody, self._offsets(), self._known, request, context(0))
        )
        return [
            (t.name, p.partition_index, p.error_code) for t in response.topics for p in t.partitions
        ]

    async def fetch(self, *partitions: tuple[str, int], group: str = "g") -> Answers:
        request = OffsetFetchRequest(
            group_id=group,
            topics=[OffsetFetchRequestTopic(name=t, partition_indexes=[p]) for t, p in partitions],
        )
        response = await self._ended(
            offset_fetch.handle(coordinator_of_nothing(), self._offsets(), request, context(0))
        )
        return [
            (t.name, p.partition_index, p.committed_offset, p.metadata, p.error_code)
            for t in response.topics
            for p in t.partitions
        ]

    def _offsets(self) -> Any:
        return zookeeper_offsets(self.session, self.purgatory, self._known)

    @staticmethod
    def _known(topic: str) -> range:
        return KNOWN.get(topic, range(0))

    async def _ended(self, wait: Wait) -> Any:
        assert isinstance(wait, Wait)
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.purgatory.park(wait, done.set_result)
        return await done

    async def node(self, topic: str, partition: int, group: str = "g") -> bytes | None:
        data, _ = await self.session.get(ConsumerOffset.path(group, topic, partition))
        return data


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[Site]:
    zookeeper = MemoryZooKeeper()
    session = zookeeper.session()
    await session.start()
    yield Site(zookeeper, session)
    await session.close()


async def test_commit_is_written_where_consumers_of_zookeeper_look() -> None:
    async with opened() as site:
        assert await site.commit(("flights", 0, 42), ("flights", 1, 43), ("weather", 0, 7)) == [
            ("flights", 0, 0),
            ("flights", 1, 0),
            ("weather", 0, 0),
        ]
        assert await site.node("flights", 1) == b"43"
        assert await site.commit(("flights", 1, 44)) == [("flights", 1, 0)]
        assert await site.node("flights", 1) == b"44"


async def test_commit_is_written_though_another_has_written_since() -> None:
    async with opened() as site:
        await site.commit(("flights", 0, 42))
        await site.session.set(ConsumerOffset.path("g", "flights", 0), b"5")

        await site.commit(("flights", 0, 42))

        assert await site.node("flights", 0) == b"42"


async def test_what_was_committed_is_fetched_without_its_metadata() -> None:
    async with opened() as site:
        await site.commit(("flights", 0, 42), note="dropped")
        assert await site.fetch(("flights", 0)) == [("flights", 0, 42, "", 0)]


async def test_partition_without_an_offset_or_unknown_is_an_error_of_its_own() -> None:
    async with opened() as site:
        await site.session.create("/consumers/g/offsets/gone/0", b"5", make_parents=True)
        await site.commit(("flights", 0, 42))

        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await site.fetch(("flights", 1), ("gone", 0), ("flights", 0)) == [
            ("flights", 1, -1, "", unknown),
            ("gone", 0, -1, "", unknown),
            ("flights", 0, 42, "", 0),
        ]
        assert await site.commit(("gone", 0, 6), ("weather", 0, 7)) == [
            ("gone", 0, unknown),
            ("weather", 0, 0),
        ]
        assert await site.node("gone", 0) == b"5"


async def test_metadata_too_long_is_refused_though_it_would_be_dropped() -> None:
    async with opened() as site:
        answers = await site.commit(("flights", 0, 42), note="x" * 4097)
        assert answers == [("flights", 0, ErrorCode.OFFSET_METADATA_TOO_LARGE)]


async def test_offset_that_is_no_number_is_an_error_and_not_nothing() -> None:
    async with opened() as site:
        await site.session.create("/consumers/g/offsets/flights/0", b"much", make_parents=True)
        assert await site.fetch(("flights", 0)) == [
            ("flights", 0, -1, "", ErrorCode.UNKNOWN_SERVER_ERROR)
        ]


@pytest.mark.parametrize("group", ["", "a/b", "../brokers"])
async def test_group_whose_name_leads_elsewhere_is_refused(group: str) -> None:
    async with opened() as site:
        for call in (site.commit(("flights", 0, 42), group=group), site.fetch(group=group)):
            with pytest.raises(ApiError, match="INVALID_GROUP_ID"):
                await call


@pytest.mark.virtual_time
async def test_zookeeper_that_does_not_answer_ends_in_a_time_out() -> None:
    async with opened() as site:
        site.zookeeper.suspend(site.session)
        started = asyncio.get_running_loop().time()

        committed = await site.commit(("flights", 0, 42), ("gone", 0, 1))
        fetched = await site.fetch(("flights", 0))

        waited_ms = (asyncio.get_running_loop().time() - started) * 1000
        assert waited_ms <= 2 * TIMEOUT_MS
        assert committed[0][2] in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR)
        assert committed[1][2] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert fetched[0][2] == -1
        assert fetched[0][4] in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR)
