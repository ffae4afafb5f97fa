"""An operator who runs kgroup against a simulated cluster, and the groups that are there."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, TypeVar

import attrs

from clients.admin import Admin
from clients.command_line.output import Listing, Target
from clients.high_level.connector import ConsumerConnector
from clients.kgroup.describe import Wanted, describe_groups
from clients.producer.producer import Producer
from kgroup.testing.simulation import CLIENT, Cluster, Process
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

R = TypeVar("R")

TIMEOUT_MS = 3000
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
TIMES = frozenset({"time_lag_ms", "committed_at_ms", "age_ms", "expires_in_ms", "deleted_in_ms"})
"""Columns for which logs and `__consumer_offsets` are read too."""


@attrs.frozen
class Operator:
    """The machine of an operator, whose commands ask `target`."""

    process: Process
    target: Target

    @classmethod
    def of(cls, cluster: Cluster, bootstrap: str | None = None) -> Operator:
        target = Target(bootstrap or cluster.bootstrap, None, {}, TIMEOUT_MS)
        return cls(cluster.client("operator"), target)

    async def run(self, work: Callable[[], Awaitable[R]]) -> R:
        """Await `work()` on that machine."""
        return await self.process.run(work)

    async def describe(
        self, groups: Collection[str] | None, keys: Collection[str] = ()
    ) -> tuple[Listing, list[str]]:
        """Describe groups as the command does; None: all. Returns its remarks too."""
        names = None if groups is None else tuple(groups)
        wanted = Wanted(names, re.compile(""), (), keys, only_with_lag=False)
        return await self.run(lambda: describe_groups(self.target, wanted, "offsets"))


async def commit(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit as a group without members does."""
    committed = {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()}
    async with Admin(CLIENT | {"bootstrap.servers": cluster.bootstrap}) as admin:
        await admin.commit_group_offsets(group, committed)


async def commit_as_old_client(
    cluster: Cluster, group: str, partition: TopicPartition, offset: int, at_ms: int
) -> None:
    """Commit with OffsetCommit 1, in which the client says what time it is."""
    topic = OffsetCommitRequestTopic(
        name=partition.topic,
        partitions=[
            OffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=offset,
                commit_timestamp=at_ms,
                committed_metadata="",
            )
        ],
    )
    async with Admin(CLIENT | {"bootstrap.servers": cluster.bootstrap}) as admin:
        coordinator = await admin.cluster.coordinator(group)
        connection = await admin.cluster.connection(coordinator)
        request = OffsetCommitRequest(group_id=group, topics=[topic])
        response = await connection.call(request, version=1)
        assert [p.error_code for t in response.topics for p in t.partitions] == [0]


async def produce(cluster: Cluster, partition: TopicPartition, values: list[bytes]) -> None:
    """Append one record after the other."""
    async with Producer(CLIENT | {"bootstrap.servers": cluster.bootstrap}) as producer:
        for value in values:
            await producer.send_and_wait(partition.topic, value, partition=partition.partition)


async def consume(cluster: Cluster, *, pause_s: float = 0.0, **settings: str) -> None:
    """Consume topic t as a member of group g at its coordinator, from the beginning.

    `settings` are named with underscores for dots; each message takes `pause_s`.
    """
    given = {name.replace("_", "."): value for name, value in settings.items()}
    member = {"membership": "coordinator", "group.id": "g", "auto.offset.reset": "earliest"}
    config = CLIENT | {"bootstrap.servers": cluster.bootstrap} | member | given
    async with ConsumerConnector(config) as consumer:
        (stream,) = (await consumer.create_message_streams({"t": 1}))["t"]
        async for _ in stream:
            await asyncio.sleep(pause_s)


def errors_of(listing: Listing) -> dict[str, str]:
    """Return what could not be read, and why."""
    return {failure.what: failure.error for failure in listing.errors}


def rows_of(listing: Listing, key: str) -> dict[tuple[str, str], Any]:
    """Return one column of a listing's rows by group and partition."""
    return {
        (item["group"], f"{item['topic']}-{item['partition']}"): item[key] for item in listing.items
    }
