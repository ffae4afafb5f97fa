"""`kgroup delete-offsets`: delete a group's committed offsets of some topics or partitions."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

import attrs
import click

from clients.admin.verdicts import Verdicts
from clients.command_line.interrupts import Interrupts, heeding_interrupts
from clients.command_line.output import (
    Column,
    Failure,
    Listing,
    Target,
    output_option,
    show,
    target_options,
)
from clients.command_line.sessions import Sessions, connected
from clients.command_line.topic_scope import TopicScope
from clients.errors import BrokerError, KgroupError, from_zookeeper
from clients.kgroup.delete import check_names, without_impossible_zookeeper
from clients.kgroup.scope import Scope
from groups.zookeeper.deletion import delete_offsets, find_owned, read_offsets
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition

COLUMNS = (
    Column("GROUP", 30),
    Column("TOPIC", 30),
    Column("PARTITION", 10),
    Column("OFFSET", 15),
    Column("STORE"),
)

PORTION = 100
"""Number of offsets that are deleted by one request."""

Offsets = Mapping[TopicPartition, int | None]
"""Offset of each partition; None for a node in ZooKeeper that holds no number."""


@click.command(
    "delete-offsets",
    epilog="""\b
Examples:
  kgroup delete-offsets analytics --topic flights
  kgroup delete-offsets analytics --topic flights:0,1 --zookeeper localhost:2181
  kgroup -b localhost:9092 --delete-offsets --group analytics --topic flights""",
)
@target_options
@click.argument("name", metavar="GROUP", required=False)
@click.option("--group", help="The group, as Kafka spells it.")
@click.option(
    "--topic",
    "topics",
    type=Scope(),
    multiple=True,
    required=True,
    help="Delete the offsets of this topic, or of these partitions of it.",
)
@output_option
def command(
    target: Target,
    name: str | None,
    group: str | None,
    topics: tuple[TopicScope, ...],
    output: str,
) -> None:
    """Delete committed offsets of GROUP.

    At its coordinator a group without members goes with its last offset, as in Kafka.
    Offsets are deleted wherever the given addresses lead: at the coordinator, in ZooKeeper, or in
    both. With --zookeeper alone, brokers keep their offsets. Offsets of a partition that a member
    consumes are kept; members in ZooKeeper are seen if --zookeeper is known. Prints what was
    deleted; a named topic or partition without an offset is an error.
    """
    if (name is None) == (group is None):
        raise click.UsageError("name exactly one group")

    group_id = group if name is None else name
    assert group_id is not None
    # Checked before anything is deleted: a name is part of a path in ZooKeeper.
    check_names(target, [scope.topic for scope in topics])
    # (fault strangers-145, was: check_names(target, [group_id])).
    target = without_impossible_zookeeper(target, [group_id])
    show(asyncio.run(delete_offsets_of(target, group_id, topics)), output)


async def delete_offsets_of(target: Target, group_id: str, topics: Sequence[TopicScope]) -> Listing:
    """Delete offsets in each store. The listing has failures for what cannot be deleted."""
    # With ZooKeeper alone the brokers are left out, though they are registered there.
    has_brokers = target.bootstrap is not None
    async with connected(target, brokers=has_brokers) as sessions:
        deletion = Deletion(sessions, group_id, topics)
        in_zookeeper = await deletion.fetch_from_zookeeper()
        in_kafka = await deletion.fetch_from_kafka() if has_brokers else {}

        # A wrong name must not pass for offsets that were deleted.
        deletion.report_missing(in_zookeeper.keys() | in_kafka.keys())

        # Offsets of partitions that a member consumes stay in both stores.
        owned = await deletion.find_owned(in_zookeeper.keys() | in_kafka.keys())
        in_zookeeper = {p: in_zookeeper[p] for p in sorted(in_zookeeper.keys() - owned)}
        in_kafka = {p: in_kafka[p] for p in sorted(in_kafka.keys() - owned)}
        with heeding_interrupts(several=len(in_zookeeper) + len(in_kafka) > PORTION) as interrupts:
            await deletion.delete_from_zookeeper(in_zookeeper, interrupts)
            await deletion.delete_from_kafka(in_kafka, interrupts)

    # In an order that does not depend on which store was first.
    items = sorted(
        deletion.items, key=lambda item: (item["topic"], item["partition"], item["store"])
    )
    return Listing("delete-offsets", COLUMNS, items, deletion.failures)


@attrs.define(eq=False)
class Deletion:
    """Deletes offsets of one group, and collects what was deleted and what failed."""

    sessions: Sessions
    group_id: str
    topics: Sequence[TopicScope]
    items: list[Mapping[str, Any]] = attrs.field(factory=list)
    failures: list[Failure] = attrs.field(factory=list)

    async def fetch_from_zookeeper(self) -> Offsets:
        """Return the offsets in scope. Raises ZkError, since owners could not be read either."""
        zk = self.sessions.zk
        if zk is None:
            return {}

        offsets: dict[TopicPartition, int | None] = {}

        # A topic that several scopes name is read once.
        for topic in dict.fromkeys(scope.topic for scope in self.topics):
            offsets |= await read_offsets(zk, self.group_id, topic)
        return {
            partition: offset
            for partition, offset in offsets.items()
            if self._is_in_scope(partition)
        }

    async def fetch_from_kafka(self) -> Offsets:
        """Return the offsets in scope. An error becomes a failure."""
        try:
            offsets = await self.sessions.admin.group_offsets(self.group_id)
        except KgroupError as error:
            self._add_failure("kafka", error)
            return {}

        return {
            partition: committed.offset
            for partition, committed in offsets.items()
            if self._is_in_scope(partition)
        }

    def report_missing(self, held: Collection[TopicPartition]) -> None:
        """Add a failure for what has no offset in each scope, unless a store could not be read."""
        # An offset that could not be read may be there.
        if self.failures:
            return

        for scope in self.topics:
            missing = scope.without(held)
            if missing is not None:
                text = f"group '{self.group_id}' has no committed offsets of it"
                self.failures.append(Failure(str(missing), "NoOffsets", text))

    async def find_owned(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions that have an owner in ZooKeeper. Raises ZkError."""
        if self.sessions.zk is None:
            return set()

        # A member would commit the offset again, so it stays.
        owned = await find_owned(self.sessions.zk, self.group_id, sorted(partitions))
        for partition in sorted(owned):
            text = f"a member of group '{self.group_id}' consumes it"
            error = BrokerError(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, text)
            self.failures.append(Failure.of(str(partition), error))

        return owned

    async def delete_from_zookeeper(self, offsets: Offsets, interrupts: Interrupts) -> None:
        """Delete the offsets in ZooKeeper."""
        zk = self.sessions.zk
        if zk is None:
            return

        async def delete(
            portion: Sequence[TopicPartition],
        ) -> Mapping[TopicPartition, Exception | None]:
            verdicts: dict[TopicPartition, Exception | None] = {}
            error: KgroupError | None = None
            for partition in portion:
                # What is deleted before a failure is deleted, and the rest is not asked for.
                try:
                    if error is None:
                        with from_zookeeper():
                            await delete_offsets(zk, self.group_id, [partition])
                except KgroupError as failed:
                    error = failed
                verdicts[partition] = error
            deleted = [partition for partition, failed in verdicts.items() if failed is None]
            self._add_deleted("zookeeper", deleted, offsets, interrupts)
            return verdicts

        await self._delete("zookeeper", offsets, delete, interrupts)

    async def delete_from_kafka(self, offsets: Offsets, interrupts: Interrupts) -> None:
        """Delete the offsets at the coordinator."""

        async def delete(portion: Sequence[TopicPartition]) -> Verdicts[TopicPartition]:
            errors = await self.sessions.admin.delete_group_offsets(self.group_id, portion)
            deleted = [partition for partition, error in errors.items() if error is None]
            self._add_deleted("kafka", deleted, offsets, interrupts)
            return errors

        await self._delete("kafka", offsets, delete, interrupts)

    async def _delete(
        self,
        store: str,
        offsets: Offsets,
        delete: Callable[
            [Sequence[TopicPartition]], Awaitable[Mapping[TopicPartition, Exception | None]]
        ],
        interrupts: Interrupts,
    ) -> None:
        try:
            verdicts = await interrupts.in_portions(list(offsets), delete, PORTION)
        except KgroupError as error:
            self._add_failure(store, error)
            return

        # Some partitions may be refused while others are deleted.
        self.failures += [
            Failure.of(f"{partition} in {store}", error)
            for partition, error in verdicts.items()
            if error
        ]

    def _is_in_scope(self, partition: TopicPartition) -> bool:
        return any(scope.holds(partition) for scope in self.topics)

    def _add_failure(self, store: str, error: Exception) -> None:
        self.failures.append(Failure.of(f"{self.group_id} in {store}", error))

    def _add_deleted(
        self,
        store: str,
        partitions: Collection[TopicPartition],
        offsets: Offsets,
        interrupts: Interrupts,
    ) -> None:
        for partition in partitions:
            interrupts.say(f"deleted: {partition} in {store}")
        self.items += [
            {
                "group": self.group_id,
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": offsets[partition],
                "store": store,
            }
            for partition in partitions
        ]
