"""Read groups in ZooKeeper into the facts of `clients.groups.group_facts`.

Commands that were given no ZooKeeper do without this module, whose znodes take long to import.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import attrs

from clients.command_line.output import Failure
from clients.errors import from_zookeeper
from clients.groups.group_facts import (
    GroupFacts,
    ZooKeeperFacts,
    ZooKeeperOffset,
    zookeeper_members,
)
from groups.zookeeper.registration import STATIC, consumer_of
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition
from zk.api import Stat, ZkSession, children_if_there
from zk.consumer_znodes import ConsumerGroup, ConsumerOffset, ConsumerRegistration, PartitionOwner
from zk.migration_znodes import GroupMigration, MigrationMember
from zk.topic_znodes import TopicAssignment
from zk.znode_json import ZnodeError

K = TypeVar("K")
T = TypeVar("T")

# As in Kafka's paths: no sign, no leading zero.
PARTITION_NUMBER = re.compile("0|[1-9][0-9]*")
STREAM_NUMBER = re.compile("[0-9]{1,9}")
MAX_PARTITION = 2**31 - 1


@frozen
class _Nodes:
    """The nodes below a group's znode."""

    has_ids: bool
    ids: list[str]
    owned: list[TopicPartition]
    committed: list[TopicPartition]


@attrs.define(eq=False)
class ZooKeeperGroups:
    """Reads groups in ZooKeeper; what cannot be read is added to `failures`.

    Each call raises ZooKeeperError if ZooKeeper does not respond.
    """

    zk: ZkSession
    failures: list[Failure] = attrs.field(factory=list)

    async def member_lists(self) -> dict[str, Stat | None]:
        """Return the groups below `/consumers`, each with the stat of the znode that lists members.

        None for a group that never had members there.
        """
        with from_zookeeper():
            groups = await children_if_there(self.zk, ConsumerGroup.directory())
            nodes = await self.zk.get_many([ConsumerGroup.ids_path(group) for group in groups])
        return {
            group: None if node is None else node[1]
            for group, node in zip(groups, nodes, strict=True)
        }

    async def facts(self, groups: Sequence[str]) -> list[GroupFacts]:
        """Return the facts of each group, also of unknown ones.

        Directories are listed one by one; what the nodes of all groups hold is read together.
        """
        with from_zookeeper():
            listed = await asyncio.gather(*(self._list_nodes(group) for group in groups))
            nodes = dict(zip(groups, listed, strict=True))
            in_zookeeper, storage = await asyncio.gather(
                self._read_zookeeper({group: names for group, names in nodes.items() if names}),
                self._read_storage(nodes),
            )
        return [
            GroupFacts(group, in_zookeeper.get(group), storage=storage[group]) for group in groups
        ]

    async def owners(self, group: str) -> dict[TopicPartition, str]:
        """Return the consumer id of each partition's owner."""
        if not ConsumerGroup.can_hold(group):
            return {}
        with from_zookeeper():
            partitions = await self._partition_nodes(ConsumerGroup.owners_path(group))
            threads = await self._threads({group: partitions})
        return {partition: _consumer_of(thread) for partition, thread in threads[group].items()}

    async def offsets(
        self, groups: Iterable[str]
    ) -> dict[str, dict[TopicPartition, ZooKeeperOffset]]:
        """Return the offsets that each group has committed in ZooKeeper, without negative ones."""
        every = list(groups)
        names = [group for group in every if ConsumerGroup.can_hold(group)]
        with from_zookeeper():
            listed = await asyncio.gather(
                *(self._partition_nodes(ConsumerGroup.offsets_path(group)) for group in names)
            )
            found = await self._offsets(dict(zip(names, listed, strict=True)))
        return {group: found.get(group, {}) for group in every}

    async def _list_nodes(self, group: str) -> _Nodes | None:
        """Return the names below a group's znode; None if there is no such group."""
        # A name that no node can have would end the command for all groups (fault strangers-1).
        if not ConsumerGroup.can_hold(group):
            return None
        if await self.zk.exists(ConsumerGroup.path(group)) is None:
            return None

        has_ids, ids, owned, committed = await asyncio.gather(
            self.zk.exists(ConsumerGroup.ids_path(group)),
            children_if_there(self.zk, ConsumerGroup.ids_path(group)),
            self._partition_nodes(ConsumerGroup.owners_path(group)),
            self._partition_nodes(ConsumerGroup.offsets_path(group)),
        )
        return _Nodes(has_ids is not None, ids, owned, committed)

    async def _read_zookeeper(self, nodes: Mapping[str, _Nodes]) -> dict[str, ZooKeeperFacts]:
        threads_of, offsets_of, registrations_of = await asyncio.gather(
            self._threads({group: names.owned for group, names in nodes.items()}),
            self._offsets({group: names.committed for group, names in nodes.items()}),
            self._registrations({group: names.ids for group, names in nodes.items()}),
        )

        # Partitions without an owner count too, so read the topics of members and owners.
        topics_of_groups = {
            group: _subscribed(registrations_of[group].values())
            | {partition.topic for partition in threads_of[group]}
            for group in nodes
        }
        partitions_of = await self._partitions(set().union(*topics_of_groups.values()))

        facts = {}
        for group, names in nodes.items():
            threads = threads_of[group]
            owners = {partition: _consumer_of(thread) for partition, thread in threads.items()}
            partitions = (partitions_of.get(topic, ()) for topic in topics_of_groups[group])
            facts[group] = ZooKeeperFacts(
                has_ids=names.has_ids,
                members=zookeeper_members(group, names.ids, owners, registrations_of[group]),
                owners=owners,
                streams={
                    partition: int(number)
                    for partition, thread in threads.items()
                    if STREAM_NUMBER.fullmatch(number := thread.rpartition("-")[2])
                },
                partitions=frozenset().union(*partitions),
                offsets=offsets_of[group],
            )
        return facts

    async def migration_modes(self, groups: Iterable[str]) -> dict[str, str | None]:
        """Return the mode of the migration of each group that has one."""

        def read_mode(data: bytes | None, _: Stat, path: str) -> str | None:
            return None if data is None else GroupMigration.decode(data, path).mode.value

        paths = {
            group: GroupMigration.path(group) for group in groups if ConsumerGroup.can_hold(group)
        }
        with from_zookeeper():
            return await self._read_all(paths, read_mode)

    async def _read_storage(self, nodes: Mapping[str, _Nodes | None]) -> dict[str, str | None]:
        """Return the mode of each group's migration, or the settings that all members agree on."""

        def read_settings(data: bytes | None, _: Stat, path: str) -> str:
            return MigrationMember.decode(data, path).settings

        # A migration's mode outranks the members' settings.
        modes = await self.migration_modes(nodes)

        # Without a migration: the stores that the members publish.
        ids_of = {
            group: names.ids
            for group, names in nodes.items()
            if names is not None and not modes.get(group)
        }
        settings_of = await self._read_groups(ids_of, MigrationMember.path, read_settings)
        return {
            group: modes.get(group) or _agreed(ids_of.get(group, ()), settings_of.get(group, {}))
            for group in nodes
        }

    async def _threads(
        self, partitions_of: Mapping[str, Iterable[TopicPartition]]
    ) -> dict[str, dict[TopicPartition, str]]:
        def path(group: str, partition: TopicPartition) -> str:
            return PartitionOwner.path(group, *partition)

        def read(data: bytes | None, _: Stat, path: str) -> str:
            return PartitionOwner.decode(data, path).consumer_thread_id

        return await self._read_groups(partitions_of, path, read)

    async def _offsets(
        self, partitions_of: Mapping[str, Iterable[TopicPartition]]
    ) -> dict[str, dict[TopicPartition, ZooKeeperOffset]]:
        def path(group: str, partition: TopicPartition) -> str:
            return ConsumerOffset.path(group, *partition)

        def read(data: bytes | None, stat: Stat, path: str) -> ZooKeeperOffset:
            # The node's last change is the time of the commit.
            offset = ConsumerOffset.decode(data, path).offset
            return ZooKeeperOffset(offset, stat.mtime_ms, stat.ctime_ms)

        offsets_of = await self._read_groups(partitions_of, path, read)
        return {
            group: {
                # A negative offset is no position; old consumers wrote some.
                partition: committed
                for partition, committed in offsets.items()
                if committed.offset >= 0
            }
            for group, offsets in offsets_of.items()
        }

    async def _registrations(
        self, ids_of: Mapping[str, Iterable[str]]
    ) -> dict[str, dict[str, ConsumerRegistration]]:
        def read(data: bytes | None, _: Stat, path: str) -> ConsumerRegistration:
            return ConsumerRegistration.decode(data, path)

        return await self._read_groups(ids_of, ConsumerRegistration.path, read)

    async def _partitions(self, topics: Iterable[str]) -> dict[str, set[TopicPartition]]:
        """Return the partitions of each topic; topics that do not exist are left out."""

        def read(data: bytes | None, _: Stat, path: str) -> Iterable[int]:
            return TopicAssignment.decode(data, path).partitions

        paths = {topic: TopicAssignment.path(topic) for topic in topics}
        ids_of = await self._read_all(paths, read)
        return {
            topic: {TopicPartition(topic, partition_id) for partition_id in ids}
            for topic, ids in ids_of.items()
        }

    async def _partition_nodes(self, directory: str) -> list[TopicPartition]:
        """Return the partitions with a node `<topic>/<partition>`; other names are not ours.

        A number that no partition can have is a failure: brokers could not be asked about it.
        """
        topics = await children_if_there(self.zk, directory)
        names = await asyncio.gather(
            *(children_if_there(self.zk, f"{directory}/{topic}") for topic in topics)
        )

        partitions = []
        for topic, children in zip(topics, names, strict=True):
            for number in filter(PARTITION_NUMBER.fullmatch, children):
                # Count digits first: `int` refuses numbers of thousands of digits.
                if len(number) <= 10 and int(number) <= MAX_PARTITION:
                    partitions.append(TopicPartition(topic, int(number)))
                else:
                    path = f"{directory}/{topic}/{number}"
                    self.failures.append(Failure(path, "ZnodeError", "is beyond 32 bits"))
        return partitions

    async def _read_groups(
        self,
        keys_of: Mapping[str, Iterable[K]],
        path: Callable[[str, K], str],
        read: Callable[[bytes | None, Stat, str], T],
    ) -> dict[str, dict[K, T]]:
        """Read a znode for each key of each group, those of all groups together."""
        paths = {(group, key): path(group, key) for group, keys in keys_of.items() for key in keys}
        values_of: dict[str, dict[K, T]] = {group: {} for group in keys_of}

        for (group, key), value in (await self._read_all(paths, read)).items():
            values_of[group][key] = value
        return values_of

    async def _read_all(
        self,
        paths: Mapping[K, str],
        read: Callable[[bytes | None, Stat, str], T],
    ) -> dict[K, T]:
        """Read znodes, a thousand per request. Missing ones are left out; unreadable ones are
        failures."""
        contents = await self.zk.get_many(list(paths.values()))
        values: dict[K, T] = {}

        for (key, path), content in zip(paths.items(), contents, strict=True):
            # The node was deleted after its directory was listed.
            if content is None:
                continue
            try:
                values[key] = read(*content, path)
            except ZnodeError as error:
                self.failures.append(Failure(path, type(error).__name__, error.reason))

        return values


def _subscribed(registrations: Iterable[ConsumerRegistration]) -> set[str]:
    """Return the topics that members name. Topics of filters are known by their owners."""
    static = (
        registration.subscription
        for registration in registrations
        if registration.pattern == STATIC
    )
    return {topic for subscription in static for topic in subscription}


def _agreed(ids: Sequence[str], settings_of: Mapping[str, str]) -> str | None:
    """Return the settings that all members publish; None if one differs, or publishes none."""
    # A member that publishes nothing may have any settings.
    agreed = set(settings_of.values())
    return agreed.pop() if len(agreed) == 1 and len(settings_of) == len(ids) else None


def _consumer_of(thread_id: str) -> str:
    """Return the consumer id of a thread id; any other text unchanged."""
    return consumer_of(thread_id) or thread_id
