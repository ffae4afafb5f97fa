"""Reads groups of both kinds: the facts of `clients.group_facts`.

What cannot be read (a broker that is down, a znode that is no offset) becomes a `Failure` that
names it, and the rest goes on. A ZooKeeper that does not answer ends it with ZooKeeperError.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import attrs

from clients.admin import EARLIEST_TIME, LATEST_TIME, Admin
from clients.admin.descriptions import ListedOffset
from clients.errors import BrokerError, KgroupError, from_zookeeper
from clients.group_facts import (
    CoordinatorFacts,
    GroupFacts,
    LogOffsets,
    Member,
    ZooKeeperFacts,
    ZooKeeperOffset,
    zookeeper_members,
)
from clients.output import Failure
from clients.sessions import Sessions
from groups.zookeeper.registration import STATIC, consumer_of
from protocol.consumer_protocol import decode_assignment
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribeGroupsResponseMember
from protocol.primitives import WireError
from protocol.topic_partition import TopicPartition
from zk.api import Stat, ZkSession, children_if_there
from zk.migration_znodes import GroupMigration, MigrationMember
from zk.znodes import (
    ConsumerGroup,
    ConsumerOffset,
    ConsumerRegistration,
    PartitionOwner,
    TopicAssignment,
    ZnodeError,
)

K = TypeVar("K")
T = TypeVar("T")

PARTITION_NUMBER = re.compile("0|[1-9][0-9]*")
STREAM_NUMBER = re.compile("[0-9]{1,9}")
MAX_PARTITION = 2**31 - 1
CONSUMER_PROTOCOL_TYPES = ("consumer", "")
"""Of groups we list: consumers, and groups that only commit."""


@attrs.frozen
class GroupName:
    """A group that is there, and who coordinates it."""

    group: str
    coordination: str


@attrs.define(eq=False)
class GroupReader:
    """Reads for one command; `failures` gathers what could not be read."""

    sessions: Sessions
    failures: list[Failure] = attrs.field(factory=list)

    async def names(self) -> list[GroupName]:
        """All groups of both kinds, sorted."""
        in_zookeeper, listed = await asyncio.gather(
            self.zookeeper_names(), self._or_failure("brokers", self.sessions.admin.list_groups())
        )
        found = dict(in_zookeeper)
        for group in listed or ():
            if group.protocol_type == "consumer":
                found[group.group_id] = "coordinator"
            elif group.protocol_type in CONSUMER_PROTOCOL_TYPES:
                found.setdefault(group.group_id, "none")
        return [GroupName(group, found[group]) for group in sorted(found)]

    async def groups(self, names: Iterable[str]) -> list[GroupFacts]:
        """The facts of each group, whether it exists or not."""
        return list(await asyncio.gather(*map(self.group, names)))

    async def log_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LogOffsets]:
        """Where the logs start and end; leaders are asked once for each."""
        wanted = list(partitions)
        admin = self.sessions.admin
        starts, ends = await asyncio.gather(
            self._or_failure(
                "log start offsets", admin.list_offsets(dict.fromkeys(wanted, EARLIEST_TIME))
            ),
            self._or_failure(
                "log end offsets", admin.list_offsets(dict.fromkeys(wanted, LATEST_TIME))
            ),
        )
        self.failures += [
            Failure.of(str(tp), BrokerError(listed.error))
            for tp, listed in (ends or {}).items()
            if listed.error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        ]
        return {tp: LogOffsets(_offset(starts, tp), _offset(ends, tp)) for tp in wanted}

    # --- coordinator --------------------------------------------------------------------------

    async def group(self, group: str) -> GroupFacts:
        """The facts of one group, whether it exists or not."""
        with from_zookeeper():
            in_zookeeper, coordinator, storage = await asyncio.gather(
                self._zookeeper(group),
                self._or_failure(group, self._coordinator(group)),
                self._storage(group),
            )
        return GroupFacts(group, in_zookeeper, coordinator, storage)

    async def group_in_zookeeper(self, group: str) -> GroupFacts:
        """What ZooKeeper alone knows of a group; no broker is asked."""
        with from_zookeeper():
            in_zookeeper, storage = await asyncio.gather(
                self._zookeeper(group), self._storage(group)
            )
        return GroupFacts(group, in_zookeeper, storage=storage)

    async def _coordinator(self, group: str) -> CoordinatorFacts:
        admin: Admin = self.sessions.admin
        described = (await admin.describe_groups([group]))[group]
        offsets = await admin.group_offsets(group)
        return CoordinatorFacts(
            state=described.group.group_state,
            coordinator=f"{described.coordinator} ({described.coordinator.node_id})",
            protocol_type=described.group.protocol_type,
            assignment_strategy=described.group.protocol_data,
            members=tuple(map(self._member, described.group.members)),
            offsets=offsets,
        )

    def _member(self, member: DescribeGroupsResponseMember) -> Member:
        try:
            partitions = decode_assignment(member.member_assignment)
        except WireError as error:
            self.failures.append(Failure.of(member.member_id, error))
            partitions = ()
        return Member(member.member_id, member.client_host, member.client_id, partitions)

    # --- ZooKeeper ----------------------------------------------------------------------------

    async def zookeeper_names(self) -> dict[str, str]:
        """Groups below `/consumers`, and who coordinates them."""
        zk = self.sessions.zk
        if zk is None:
            return {}
        with from_zookeeper():
            groups = await children_if_there(zk, ConsumerGroup.directory())
            with_ids = await asyncio.gather(
                *(zk.exists(ConsumerGroup.ids_path(group)) for group in groups)
            )
        return {
            group: "none" if ids is None else "zookeeper"
            for group, ids in zip(groups, with_ids, strict=True)
        }

    async def _zookeeper(self, group: str) -> ZooKeeperFacts | None:
        zk = self.sessions.zk
        if zk is None or await zk.exists(ConsumerGroup.path(group)) is None:
            return None
        has_ids, ids, threads, offsets = await asyncio.gather(
            zk.exists(ConsumerGroup.ids_path(group)),
            children_if_there(zk, ConsumerGroup.ids_path(group)),
            self._threads(zk, group),
            self.offsets(zk, group),
        )
        registrations = await self._registrations(zk, group, ids)
        topics = _subscribed(registrations.values()) | {tp.topic for tp in threads}
        partitions = await asyncio.gather(*(self._partitions(zk, topic) for topic in topics))
        owners = {tp: _consumer_of(thread) for tp, thread in threads.items()}
        return ZooKeeperFacts(
            has_ids=has_ids is not None,
            members=zookeeper_members(group, ids, owners, registrations),
            owners=owners,
            streams={
                tp: int(number)
                for tp, thread in threads.items()
                if STREAM_NUMBER.fullmatch(number := thread.rpartition("-")[2])
            },
            partitions=frozenset().union(*partitions),
            offsets=offsets,
        )

    async def _storage(self, group: str) -> str | None:
        """The mode of the group's migration, else what all members say of their settings."""
        zk = self.sessions.zk
        if zk is None:
            return None

        def migration(data: bytes | None, _: Stat, path: str) -> str | None:
            return None if data is None else GroupMigration.decode(data, path).mode.value

        def settings(data: bytes | None, _: Stat, path: str) -> str:
            return MigrationMember.decode(data, path).settings

        found = await self._read_all(zk, {group: GroupMigration.path(group)}, migration)
        if mode := found.get(group):
            return mode
        ids = await children_if_there(zk, ConsumerGroup.ids_path(group))
        said = await self._read_all(
            zk, {id_: MigrationMember.path(group, id_) for id_ in ids}, settings
        )
        agreed = set(said.values())
        return agreed.pop() if len(agreed) == 1 and len(said) == len(ids) else None

    async def owners(self, zk: ZkSession, group: str) -> dict[TopicPartition, str]:
        """Partition to consumer id of its owner."""
        with from_zookeeper():
            threads = await self._threads(zk, group)
        return {tp: _consumer_of(thread) for tp, thread in threads.items()}

    async def _threads(self, zk: ZkSession, group: str) -> dict[TopicPartition, str]:
        def read(data: bytes | None, _: Stat, path: str) -> str:
            return PartitionOwner.decode(data, path).consumer_thread_id

        owned = await self._partition_nodes(zk, ConsumerGroup.owners_path(group))
        paths = {tp: PartitionOwner.path(group, tp.topic, tp.partition) for tp in owned}
        return await self._read_all(zk, paths, read)

    async def offsets(self, zk: ZkSession, group: str) -> dict[TopicPartition, ZooKeeperOffset]:
        """What is committed in ZooKeeper, without what is negative."""

        def read(data: bytes | None, stat: Stat, path: str) -> ZooKeeperOffset:
            return ZooKeeperOffset(ConsumerOffset.decode(data, path).offset, stat.mtime_ms)

        with from_zookeeper():
            kept = await self._partition_nodes(zk, ConsumerGroup.offsets_path(group))
            paths = {tp: ConsumerOffset.path(group, tp.topic, tp.partition) for tp in kept}
            found = await self._read_all(zk, paths, read)
        return {tp: committed for tp, committed in found.items() if committed.offset >= 0}

    async def _registrations(
        self, zk: ZkSession, group: str, ids: Sequence[str]
    ) -> dict[str, ConsumerRegistration]:
        def read(data: bytes | None, _: Stat, path: str) -> ConsumerRegistration:
            return ConsumerRegistration.decode(data, path)

        paths = {id_: ConsumerRegistration.path(group, id_) for id_ in ids}
        return await self._read_all(zk, paths, read)

    async def _partitions(self, zk: ZkSession, topic: str) -> set[TopicPartition]:
        def read(data: bytes | None, _: Stat, path: str) -> set[TopicPartition]:
            return {TopicPartition(topic, p) for p in TopicAssignment.decode(data, path).partitions}

        return (await self._read_all(zk, {topic: TopicAssignment.path(topic)}, read)).get(
            topic, set()
        )

    async def _partition_nodes(self, zk: ZkSession, directory: str) -> list[TopicPartition]:
        """The `<topic>/<partition>` below a directory; other names are not ours.

        A number that no partition can have is named: brokers could not be asked about it.
        """
        topics = await children_if_there(zk, directory)
        numbers = await asyncio.gather(
            *(children_if_there(zk, f"{directory}/{topic}") for topic in topics)
        )
        found = []
        for topic, of_topic in zip(topics, numbers, strict=True):
            for number in filter(PARTITION_NUMBER.fullmatch, of_topic):
                if len(number) <= 10 and int(number) <= MAX_PARTITION:
                    found.append(TopicPartition(topic, int(number)))
                else:
                    path = f"{directory}/{topic}/{number}"
                    self.failures.append(Failure(path, "ZnodeError", "is beyond 32 bits"))
        return found

    async def _read_all(
        self,
        zk: ZkSession,
        paths: Mapping[K, str],
        read: Callable[[bytes | None, Stat, str], T],
    ) -> dict[K, T]:
        """Read znodes, a thousand in a request; one that is gone is left out, an unreadable one
        named."""
        contents = await zk.get_many(list(paths.values()))
        found: dict[K, T] = {}
        for (key, path), content in zip(paths.items(), contents, strict=True):
            if content is None:
                continue
            try:
                found[key] = read(*content, path)
            except ZnodeError as error:
                self.failures.append(Failure(path, type(error).__name__, error.reason))
        return found

    async def _or_failure(self, what: str, asked: Awaitable[T]) -> T | None:
        try:
            return await asked
        except KgroupError as error:
            self.failures.append(Failure.of(what, error))
            return None


def _offset(listed: Mapping[TopicPartition, ListedOffset] | None, tp: TopicPartition) -> int | None:
    found = (listed or {}).get(tp)
    return None if found is None or found.error or found.offset < 0 else found.offset


def _subscribed(registrations: Iterable[ConsumerRegistration]) -> set[str]:
    """Topics that members name; what a member's filter matches shows by its owners."""
    static = (known.subscription for known in registrations if known.pattern == STATIC)
    return {topic for subscription in static for topic in subscription}


def _consumer_of(thread_id: str) -> str:
    """Of what is no thread id, the whole: it is all there is to show."""
    return consumer_of(thread_id) or thread_id
