"""Ten thousand groups: what is asked for, what is shown, and that others have their turns."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from clients.admin import EARLIEST_TIME, Admin
from clients.admin.calls import MAX_KEYS
from clients.command_line.output import Target
from clients.command_line.sessions import Sessions
from clients.groups.group_reader import GroupReader
from clients.kgroup.list import Wanted, list_groups
from clients.serve.app import App
from clients.serve.monitor import SLICE, Monitor
from offsets.records import CommittedOffset, OffsetKey, encode_key, encode_value
from protocol.api_key import ApiKey
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.messages.describe_groups import DescribeGroupsResponse, DescribeGroupsResponseGroup
from protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)
from protocol.messages.list_groups import ListGroupsResponse, ListGroupsResponseGroup
from protocol.messages.list_offsets import (
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from protocol.records.batch import encode_batch
from tests.clients.scripted_broker import ScriptedBroker
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import ConsumerGroup

MANY = 10_000
FEWER = 500
NAMES = [f"group-{number:05}" for number in range(MANY)]
BATCH = 1000
END, COMMITTED = 9, 5
KEPT_MS = 30 * 86_400_000
NOW_MS = 1_700_000_000_000
GET = Request({"type": "http", "query_string": b""})


class CrowdedBroker(ScriptedBroker):
    """Has ten thousand groups, each with an offset of t-0 in the log of the offsets topic."""

    def __init__(self) -> None:
        super().__init__({OFFSETS_TOPIC: 1, "t": 1})
        listed = [
            ListGroupsResponseGroup(group_id=name, protocol_type="", group_state="Empty")
            for name in NAMES
        ]
        self.batches = [
            encode_batch(
                [
                    (NOW_MS, encode_key(OffsetKey(name, "t", 0)), _committed(), ())
                    for name in NAMES[start : start + BATCH]
                ],
                base_offset=start,
            )
            for start in range(0, MANY, BATCH)
        ]
        self.answers |= {
            ApiKey.LIST_GROUPS: lambda request: ListGroupsResponse(error_code=0, groups=listed),
            ApiKey.DESCRIBE_GROUPS: self.describe,
            ApiKey.OFFSET_FETCH: self.fetch_offsets,
            ApiKey.LIST_OFFSETS: self.list_offsets,
            ApiKey.FETCH: self.fetch,
        }

    def describe(self, request: Any) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(
            groups=[
                DescribeGroupsResponseGroup(
                    error_code=0,
                    group_id=group_id,
                    group_state="Empty",
                    protocol_type="",
                    protocol_data="",
                    members=[],
                )
                for group_id in request.groups
            ]
        )

    def fetch_offsets(self, request: Any) -> OffsetFetchResponse:
        partition = OffsetFetchResponsePartition(
            partition_index=0, committed_offset=COMMITTED, metadata="", error_code=0
        )
        topics = [OffsetFetchResponseTopic(name="t", partitions=[partition])]
        groups = [
            OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)
            for group in request.groups
        ]
        return OffsetFetchResponse(topics=topics, groups=groups)

    def list_offsets(self, request: Any) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            end = MANY if topic.name == OFFSETS_TOPIC else END
            partitions = [
                ListOffsetsResponsePartition(
                    partition_index=asked.partition_index,
                    error_code=0,
                    offset=0 if asked.timestamp == EARLIEST_TIME else end,
                )
                for asked in topic.partitions
            ]
            topics.append(ListOffsetsResponseTopic(name=topic.name, partitions=partitions))
        return ListOffsetsResponse(topics=topics)

    def fetch(self, request: FetchRequest) -> FetchResponse:
        """Return some batches of the offsets topic, or the first unread record of t-0."""
        (topic,) = request.topics
        (asked,) = topic.partitions
        if topic.topic == OFFSETS_TOPIC:
            first = asked.fetch_offset // BATCH
            records, end = b"".join(self.batches[first : first + 3]), MANY
        else:
            record = (NOW_MS, None, b"v", ())
            records, end = encode_batch([record], base_offset=asked.fetch_offset), END
        partition = FetchResponsePartition(
            partition_index=asked.partition, error_code=0, high_watermark=end, records=records
        )
        fetched = FetchResponseTopic(topic=topic.topic, partitions=[partition])
        return FetchResponse(responses=[fetched])

    def counts(self) -> Counter[ApiKey]:
        """Return the number of requests of each API, but those of connections."""
        keys = Counter(ApiKey(header.api_key) for header, _ in self.requests)
        del keys[ApiKey.API_VERSIONS]
        return keys


def _committed() -> bytes | None:
    return encode_value(CommittedOffset(COMMITTED, commit_timestamp_ms=NOW_MS))


async def list_all(broker: CrowdedBroker, keys: Collection[str] = ()) -> Sequence[Any]:
    target = Target(broker.bootstrap, None, {}, timeout_ms=60_000)
    wanted = Wanted(re.compile(""), set(), set(), (), keys, only_with_lag=False)
    listing = await list_groups(target, wanted)
    assert listing.errors == []
    assert [item["group"] for item in listing.items] == NAMES
    return listing.items


@pytest.mark.parametrize("keys", [(), ("state",)], ids=["names", "states"])
async def test_list_asks_each_broker_once(keys: Collection[str]) -> None:
    async with CrowdedBroker() as broker:
        items = await list_all(broker, keys)
        assert {item["state"] for item in items} == ({"Empty"} if keys else {None})
        # Once more whether it lists all of them.
        once = (ApiKey.METADATA, ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS)
        assert broker.counts() == dict.fromkeys(once, 1)


async def test_list_with_lag_asks_for_hundreds_of_groups_at_once() -> None:
    async with CrowdedBroker() as broker:
        items = await list_all(broker, ("lag",))
        assert {item["lag"] for item in items} == {END - COMMITTED}
        counts = broker.counts()
        # Coordinators are those that listed the groups.
        assert counts[ApiKey.FIND_COORDINATOR] == 0
        assert counts[ApiKey.OFFSET_FETCH] == MANY // MAX_KEYS
        # One of them asks whether all are listed.
        assert counts[ApiKey.DESCRIBE_GROUPS] == MANY // MAX_KEYS + 1
        assert counts[ApiKey.LIST_OFFSETS] == 2
        # Whether there are records behind a small lag is asked for each log, not for each group.
        assert counts[ApiKey.FETCH] == 1


async def test_groups_in_zookeeper_are_named_by_two_reads_however_many_they_are() -> None:
    class CountedSession(MemorySession):
        reads = 0

        async def children(self, *arguments: Any) -> Any:
            self.reads += 1
            return await super().children(*arguments)

        async def get_many(self, paths: Sequence[str]) -> Any:
            self.reads += 1
            return await super().get_many(paths)

        async def exists(self, *arguments: Any) -> Any:
            raise AssertionError("a request for a single group")

    # The twin takes a while to create nodes.
    some = NAMES[:FEWER]
    zookeeper = MemoryZooKeeper()
    writer = zookeeper.session()
    await writer.start()
    for name in some:
        await writer.ensure_path(ConsumerGroup.ids_path(name))
    session = CountedSession(zookeeper, 6000)
    await session.start()
    async with ScriptedBroker() as broker, Admin(broker.bootstrap) as admin:
        names = await GroupReader(Sessions(admin, session)).zookeeper_names()
    assert names == dict.fromkeys(some, "zookeeper")
    assert session.reads == 2


# --- serve


@asynccontextmanager
async def watching(directory: Path) -> AsyncIterator[tuple[CrowdedBroker, App]]:
    """A server that has looked at all groups twice."""
    async with CrowdedBroker() as broker, Admin(broker.bootstrap) as admin:
        target = Target(broker.bootstrap, None, {}, timeout_ms=60_000)
        monitor = Monitor(Sessions(admin), directory / "h", KEPT_MS, 1)
        await monitor.look()
        await monitor.look()
        try:
            yield broker, App(monitor, target)
        finally:
            monitor.close()


async def test_page_and_metrics_show_all_without_a_request(tmp_path: Path) -> None:
    async with watching(tmp_path) as (broker, app):
        broker.requests.clear()
        listing = json.loads(bytes((await app.groups(GET)).body))
        assert [item["group"] for item in listing["items"]] == NAMES
        assert {(item["lag"], len(item["trend"])) for item in listing["items"]} == {(4, 2)}

        text = bytes((await app.metrics(GET)).body).decode()
        assert f"kgroup_groups {MANY}.0\n" in text
        assert text.count("\nkgroup_group_lag{") == MANY
        # Series of partitions are left out of so many groups.
        assert "kgroup_partition_lag{" not in text
        assert broker.requests == []

        # A look asks for what is new alone.
        await app.monitor.look()
        assert app.monitor.failures == []
        assert broker.counts()[ApiKey.FETCH] == 0
        assert broker.counts().total() < 10


async def test_others_have_their_turns_while_items_are_made(tmp_path: Path) -> None:
    async with watching(tmp_path) as (_, app):
        turns = 0

        async def take_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        others = asyncio.create_task(take_turns())
        assert len(await app.monitor.group_items()) == MANY
        others.cancel()
        assert turns >= MANY // SLICE
