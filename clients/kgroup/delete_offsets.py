"""`kgroup delete-offsets`: what a group has committed for some topics or partitions."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs
import click

from clients.errors import BrokerError, KgroupError
from clients.kgroup.delete import check_names
from clients.kgroup.describe import Scope, TopicScope
from clients.output import Column, Failure, Listing, Target, output_option, show, target_options
from clients.sessions import Sessions, connected
from groups.zookeeper.deletion import delete_offsets, kept_offsets, owned
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition
from zk.api import ZkError

COLUMNS = (
    Column("GROUP", 30),
    Column("TOPIC", 30),
    Column("PARTITION", 10),
    Column("OFFSET", 15),
    Column("STORE"),
)

Offsets = Mapping[TopicPartition, int | None]
"""None for a node in ZooKeeper that holds no number."""


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
    help="Of this topic, or of these partitions.",
)
@output_option
def command(
    target: Target,
    name: str | None,
    group: str | None,
    topics: tuple[TopicScope, ...],
    output: str,
) -> None:
    """Delete the offsets that GROUP has committed, and leave the group.

    They are deleted where the addresses given lead to: with the coordinator, in ZooKeeper, or in
    both; --zookeeper alone leaves what brokers keep. What a member of the group consumes is left
    alone; members in ZooKeeper are seen when --zookeeper is known. Prints what was deleted.
    """
    if (name is None) == (group is None):
        raise click.UsageError("name one GROUP")
    wanted = group if name is None else name
    assert wanted is not None
    check_names(target, [wanted, *(scope.topic for scope in topics)])
    show(asyncio.run(deleted(target, wanted, topics)), output)


async def deleted(target: Target, group: str, topics: Sequence[TopicScope]) -> Listing:
    """Delete what is held in each store; what could not be deleted is named."""
    has_brokers = target.bootstrap is not None
    async with connected(target, brokers=has_brokers) as sessions:
        deletion = Deletion(sessions, group, topics)
        in_zookeeper = await deletion.held_in_zookeeper()
        in_kafka = await deletion.held_in_kafka() if has_brokers else {}
        deletion.miss(in_zookeeper.keys() | in_kafka.keys())
        busy = await deletion.consumed(in_zookeeper.keys() | in_kafka.keys())
        await deletion.in_zookeeper({p: o for p, o in in_zookeeper.items() if p not in busy})
        await deletion.in_kafka({p: o for p, o in in_kafka.items() if p not in busy})
    items = sorted(deletion.items, key=lambda i: (i["topic"], i["partition"], i["store"]))
    return Listing("delete-offsets", COLUMNS, items, deletion.failures)


@attrs.define(eq=False)
class Deletion:
    """Offsets of a group on their way out: what is gone, and what could not go."""

    sessions: Sessions
    group: str
    topics: Sequence[TopicScope]
    items: list[Mapping[str, Any]] = attrs.field(factory=list)
    failures: list[Failure] = attrs.field(factory=list)

    async def held_in_zookeeper(self) -> Offsets:
        """Of what is to go. Raises ZkError: who consumes it could not be known either."""
        zk = self.sessions.zk
        if zk is None:
            return {}
        found: dict[TopicPartition, int | None] = {}
        for topic in dict.fromkeys(scope.topic for scope in self.topics):
            found |= await kept_offsets(zk, self.group, topic)
        return {tp: offset for tp, offset in found.items() if self._is_meant(tp)}

    async def held_in_kafka(self) -> Offsets:
        """Of what is to go."""
        try:
            found = await self.sessions.admin.group_offsets(self.group)
        except KgroupError as error:
            self._failed("kafka", error)
            return {}
        return {tp: kept.offset for tp, kept in found.items() if self._is_meant(tp)}

    def miss(self, held: Collection[TopicPartition]) -> None:
        """Name what there is nothing of, unless it could not be seen."""
        if self.failures:
            return
        for scope in self.topics:
            if not any(map(scope.holds, held)):
                text = f"group '{self.group}' has no offsets of it"
                self.failures.append(Failure(str(scope), "NoOffsets", text))

    async def consumed(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Those with an owner in ZooKeeper. Raises ZkError."""
        if self.sessions.zk is None:
            return set()
        busy = await owned(self.sessions.zk, self.group, sorted(partitions))
        for tp in sorted(busy):
            text = f"a member of group '{self.group}' consumes it"
            error = BrokerError(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, text)
            self.failures.append(Failure.of(str(tp), error))
        return busy

    async def in_zookeeper(self, offsets: Offsets) -> None:
        """Delete there."""
        if self.sessions.zk is None or not offsets:
            return
        try:
            await delete_offsets(self.sessions.zk, self.group, offsets)
        except ZkError as error:
            self._failed("zookeeper", error)
        else:
            self._done("zookeeper", offsets, offsets)

    async def in_kafka(self, offsets: Offsets) -> None:
        """Delete there."""
        if not offsets:
            return
        try:
            verdicts = await self.sessions.admin.delete_group_offsets(self.group, offsets)
        except KgroupError as error:
            self._failed("kafka", error)
            return
        self.failures += [
            Failure.of(f"{tp} in kafka", error) for tp, error in verdicts.items() if error
        ]
        self._done("kafka", (tp for tp, error in verdicts.items() if error is None), offsets)

    def _is_meant(self, tp: TopicPartition) -> bool:
        return any(scope.holds(tp) for scope in self.topics)

    def _failed(self, store: str, error: Exception) -> None:
        self.failures.append(Failure.of(f"{self.group} in {store}", error))

    def _done(self, store: str, partitions: Iterable[TopicPartition], offsets: Offsets) -> None:
        self.items += [
            {
                "group": self.group,
                "topic": tp.topic,
                "partition": tp.partition,
                "offset": offsets[tp],
                "store": store,
            }
            for tp in partitions
        ]
