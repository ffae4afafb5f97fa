"""Read groups of both kinds into the facts of `clients.groups.group_facts`.

An unreadable part (a broker that is down, a znode that is not an offset) becomes a `Failure` with
its name, and reading goes on. If ZooKeeper does not respond, ZooKeeperError ends it.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import attrs

from clients.admin import EARLIEST_TIME, LATEST_TIME, Admin
from clients.admin.descriptions import CLASSIC_GROUP, GroupDescription, ListedOffset
from clients.admin.verdicts import unless_error
from clients.command_line.output import Failure
from clients.command_line.sessions import Sessions
from clients.errors import BrokerError, KgroupError, from_zookeeper
from clients.groups.group_facts import (
    CoordinatorFacts,
    GroupFacts,
    LogOffsets,
    MemberFacts,
    ZooKeeperFacts,
    ZooKeeperOffset,
    zookeeper_members,
)
from groups.coordinator.subscriptions import topics_of
from groups.zookeeper.registration import STATIC, consumer_of
from protocol.consumer_protocol import Assignment, decode_assignment
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribeGroupsResponseMember
from protocol.primitives import WireError
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
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
CONSUMER_PROTOCOL_TYPES = ("consumer", "")
"""Protocol types of the groups that are listed: consumers, and groups that only commit."""


@attrs.frozen
class GroupName:
    """An existing group, the side that coordinates it, and its state if the lists tell it."""

    group: str
    coordination: str
    state: str | None = None
    type: str = "zookeeper"
    """`zookeeper`, or the type that its coordinator knows: classic, consumer."""


@attrs.define(eq=False)
class GroupReader:
    """Reads groups for one command; `failures` has what could not be read."""

    sessions: Sessions
    failures: list[Failure] = attrs.field(factory=list)

    async def names(self) -> list[GroupName]:
        """Return all groups of both kinds, sorted."""
        with_ids, listings = await asyncio.gather(
            self._ids_nodes(), self._or_failure("brokers", self.sessions.admin.list_groups())
        )

        # A coordinator outranks ZooKeeper; a group that only commits there does not.
        coordination = _sides(with_ids)
        types = {group.group_id: group.type or CLASSIC_GROUP for group in listings or ()}
        for group in listings or ():
            if group.protocol_type == "consumer":
                coordination[group.group_id] = "coordinator"
            elif group.protocol_type in CONSUMER_PROTOCOL_TYPES:
                coordination.setdefault(group.group_id, "none")

        # Members that were at the coordinator may be in ZooKeeper now.
        both = [
            name
            for name, ids in with_ids.items()
            if ids is not None and ids.num_children and coordination[name] == "coordinator"
        ]
        facts_of = {facts.group: facts for facts in await self.groups(both)}
        coordination |= {name: facts.coordination for name, facts in facts_of.items()}

        # The state of a group in ZooKeeper is in its owners.
        states = {
            group.group_id: group.state
            for group in listings or ()
            if coordination.get(group.group_id) != "zookeeper"
        }
        states |= {name: facts.state for name, facts in facts_of.items()}
        return [
            GroupName(
                group,
                side,
                states.get(group),
                "zookeeper" if side == "zookeeper" else types.get(group, "zookeeper"),
            )
            for group, side in sorted(coordination.items())
        ]

    async def groups(self, names: Iterable[str]) -> list[GroupFacts]:
        """Return the facts of each group, also of unknown ones.

        Each coordinator is asked for many groups at once.
        """
        groups = list(names)
        with from_zookeeper():
            at_coordinators, in_zookeeper, storage = await asyncio.gather(
                self._read_coordinators(groups),
                asyncio.gather(*map(self._read_zookeeper, groups)),
                asyncio.gather(*map(self._read_storage, groups)),
            )
        return [
            GroupFacts(group, in_zookeeper[place], at_coordinators.get(group), storage[place])
            for place, group in enumerate(groups)
        ]

    async def log_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LogOffsets]:
        """Return the start and end of each log; each leader gets a request for either."""
        partition_list = list(partitions)
        admin = self.sessions.admin

        starts, ends = await asyncio.gather(
            self._or_failure(
                "log start offsets",
                admin.list_offsets(dict.fromkeys(partition_list, EARLIEST_TIME)),
            ),
            self._or_failure(
                "log end offsets", admin.list_offsets(dict.fromkeys(partition_list, LATEST_TIME))
            ),
        )

        # An unknown topic is no failure: its offsets outlive it.
        self.failures += [
            Failure.of(str(partition), BrokerError(listed.error))
            for partition, listed in (ends or {}).items()
            if listed.error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        ]
        return {
            partition: LogOffsets(_offset(starts, partition), _offset(ends, partition))
            for partition in partition_list
        }

    # --- coordinator --------------------------------------------------------------------------

    async def group(self, group: str) -> GroupFacts:
        """Return the facts of one group, also of an unknown one."""
        (facts,) = await self.groups([group])
        return facts

    async def group_in_zookeeper(self, group: str) -> GroupFacts:
        """Return the facts in ZooKeeper alone, without a request to brokers."""
        with from_zookeeper():
            in_zookeeper, storage = await asyncio.gather(
                self._read_zookeeper(group), self._read_storage(group)
            )
        return GroupFacts(group, in_zookeeper, storage=storage)

    async def _read_coordinators(self, groups: Sequence[str]) -> dict[str, CoordinatorFacts]:
        """Read groups at their coordinators. What cannot be read is a failure, and left out."""
        admin: Admin = self.sessions.admin
        descriptions = await admin.describe_each_group(groups)
        offsets = await admin.offsets_of_each_group(
            group for group in groups if isinstance(descriptions[group], GroupDescription)
        )

        facts = {}
        for group in groups:
            try:
                facts[group] = self._at_coordinator(
                    unless_error(descriptions[group]), unless_error(offsets[group])
                )
            except KgroupError as error:
                self.failures.append(Failure.of(group, error))
        return facts

    def _at_coordinator(
        self, description: GroupDescription, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> CoordinatorFacts:
        protocol_type = description.group.protocol_type
        return CoordinatorFacts(
            state=description.group.group_state,
            coordinator=f"{description.coordinator} ({description.coordinator.node_id})",
            coordinator_id=description.coordinator.node_id,
            type=description.type,
            protocol_type=protocol_type,
            assignment_strategy=description.group.protocol_data,
            members=tuple(
                self._member(member, protocol_type) for member in description.group.members
            ),
            offsets=offsets,
        )

    def _member(self, member: DescribeGroupsResponseMember, protocol_type: str) -> MemberFacts:
        facts = MemberFacts(
            member.member_id,
            member.client_host,
            member.client_id,
            group_instance_id=member.group_instance_id,
        )
        assigned = bytes(member.member_assignment)
        if protocol_type not in CONSUMER_PROTOCOL_TYPES:
            return attrs.evolve(facts, foreign_assignment=assigned)

        try:
            assignment = decode_assignment(assigned)
        except WireError as error:
            # An unreadable assignment hides the partitions, not the member.
            self.failures.append(Failure.of(member.member_id, error))
            assignment = Assignment()
        return attrs.evolve(
            facts,
            partitions=tuple(sorted(assignment.partitions)),
            topics=topics_of(protocol_type, [bytes(member.member_metadata)]),
        )

    # --- ZooKeeper ----------------------------------------------------------------------------

    async def zookeeper_names(self) -> dict[str, str]:
        """Return the groups below `/consumers`, and the side that coordinates each."""
        return _sides(await self._ids_nodes())

    async def _ids_nodes(self) -> dict[str, Stat | None]:
        """Return the groups below `/consumers`; None for one that never had members there."""
        zk = self.sessions.zk
        if zk is None:
            return {}

        with from_zookeeper():
            groups = await children_if_there(zk, ConsumerGroup.directory())
            with_ids = await asyncio.gather(
                *(zk.exists(ConsumerGroup.ids_path(group)) for group in groups)
            )
        return dict(zip(groups, with_ids, strict=True))

    async def _read_zookeeper(self, group: str) -> ZooKeeperFacts | None:
        zk = self.sessions.zk
        if zk is None or await zk.exists(ConsumerGroup.path(group)) is None:
            return None

        # What depends on the group's name alone is read at once.
        has_ids, ids, threads, offsets = await asyncio.gather(
            zk.exists(ConsumerGroup.ids_path(group)),
            children_if_there(zk, ConsumerGroup.ids_path(group)),
            self._threads(zk, group),
            self.offsets(zk, group),
        )

        # Partitions without an owner count too, so read the topics of members and owners.
        registrations = await self._registrations(zk, group, ids)
        topics = _subscribed(registrations.values()) | {partition.topic for partition in threads}

        partitions = await asyncio.gather(*(self._partitions(zk, topic) for topic in topics))

        owners = {partition: _consumer_of(thread) for partition, thread in threads.items()}
        return ZooKeeperFacts(
            has_ids=has_ids is not None,
            members=zookeeper_members(group, ids, owners, registrations),
            owners=owners,
            streams={
                partition: int(number)
                for partition, thread in threads.items()
                if STREAM_NUMBER.fullmatch(number := thread.rpartition("-")[2])
            },
            partitions=frozenset().union(*partitions),
            offsets=offsets,
        )

    async def _read_storage(self, group: str) -> str | None:
        """Return the mode of the group's migration, or the settings that all members agree on."""
        zk = self.sessions.zk
        if zk is None:
            return None

        def read_mode(data: bytes | None, _: Stat, path: str) -> str | None:
            return None if data is None else GroupMigration.decode(data, path).mode.value

        def read_settings(data: bytes | None, _: Stat, path: str) -> str:
            return MigrationMember.decode(data, path).settings

        # A migration's mode outranks the members' settings.
        modes = await self._read_all(zk, {group: GroupMigration.path(group)}, read_mode)
        if mode := modes.get(group):
            return mode

        # Without a migration: the stores that the members publish.
        ids = await children_if_there(zk, ConsumerGroup.ids_path(group))
        settings_of = await self._read_all(
            zk,
            {consumer_id: MigrationMember.path(group, consumer_id) for consumer_id in ids},
            read_settings,
        )

        # A member that publishes nothing may have any settings, so all must agree.
        agreed = set(settings_of.values())
        return agreed.pop() if len(agreed) == 1 and len(settings_of) == len(ids) else None

    async def owners(self, zk: ZkSession, group: str) -> dict[TopicPartition, str]:
        """Return the consumer id of each partition's owner."""
        with from_zookeeper():
            threads = await self._threads(zk, group)
        return {partition: _consumer_of(thread) for partition, thread in threads.items()}

    async def _threads(self, zk: ZkSession, group: str) -> dict[TopicPartition, str]:
        def read(data: bytes | None, _: Stat, path: str) -> str:
            return PartitionOwner.decode(data, path).consumer_thread_id

        partitions = await self._partition_nodes(zk, ConsumerGroup.owners_path(group))
        paths = {
            partition: PartitionOwner.path(group, partition.topic, partition.partition)
            for partition in partitions
        }
        return await self._read_all(zk, paths, read)

    async def offsets(self, zk: ZkSession, group: str) -> dict[TopicPartition, ZooKeeperOffset]:
        """Return the offsets committed in ZooKeeper, without negative ones."""

        def read(data: bytes | None, stat: Stat, path: str) -> ZooKeeperOffset:
            # The node's last change is the time of the commit.
            return ZooKeeperOffset(ConsumerOffset.decode(data, path).offset, stat.mtime_ms)

        with from_zookeeper():
            partitions = await self._partition_nodes(zk, ConsumerGroup.offsets_path(group))
            paths = {
                partition: ConsumerOffset.path(group, partition.topic, partition.partition)
                for partition in partitions
            }
            offsets = await self._read_all(zk, paths, read)
        return {
            # A negative offset is no position; old consumers wrote some.
            partition: committed
            for partition, committed in offsets.items()
            if committed.offset >= 0
        }

    async def _registrations(
        self, zk: ZkSession, group: str, ids: Sequence[str]
    ) -> dict[str, ConsumerRegistration]:
        def read(data: bytes | None, _: Stat, path: str) -> ConsumerRegistration:
            return ConsumerRegistration.decode(data, path)

        paths = {consumer_id: ConsumerRegistration.path(group, consumer_id) for consumer_id in ids}
        return await self._read_all(zk, paths, read)

    async def _partitions(self, zk: ZkSession, topic: str) -> set[TopicPartition]:
        def read(data: bytes | None, _: Stat, path: str) -> set[TopicPartition]:
            assignment = TopicAssignment.decode(data, path)
            return {TopicPartition(topic, partition_id) for partition_id in assignment.partitions}

        partitions = await self._read_all(zk, {topic: TopicAssignment.path(topic)}, read)
        return partitions.get(topic, set())

    async def _partition_nodes(self, zk: ZkSession, directory: str) -> list[TopicPartition]:
        """Return the partitions with a node `<topic>/<partition>`; other names are not ours.

        A number that no partition can have is a failure: brokers could not be asked about it.
        """
        topics = await children_if_there(zk, directory)
        names = await asyncio.gather(
            *(children_if_there(zk, f"{directory}/{topic}") for topic in topics)
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

    async def _read_all(
        self,
        zk: ZkSession,
        paths: Mapping[K, str],
        read: Callable[[bytes | None, Stat, str], T],
    ) -> dict[K, T]:
        """Read znodes, a thousand per request. Missing ones are left out; unreadable ones are
        failures."""
        contents = await zk.get_many(list(paths.values()))
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

    async def _or_failure(self, what: str, call: Awaitable[T]) -> T | None:
        try:
            return await call
        except KgroupError as error:
            self.failures.append(Failure.of(what, error))
            return None


def _offset(
    offsets: Mapping[TopicPartition, ListedOffset] | None, partition: TopicPartition
) -> int | None:
    listed = (offsets or {}).get(partition)
    return None if listed is None or listed.error or listed.offset < 0 else listed.offset


def _subscribed(registrations: Iterable[ConsumerRegistration]) -> set[str]:
    """Return the topics that members name. Topics of filters are known by their owners."""
    static = (
        registration.subscription
        for registration in registrations
        if registration.pattern == STATIC
    )
    return {topic for subscription in static for topic in subscription}


def _sides(with_ids: Mapping[str, Stat | None]) -> dict[str, str]:
    return {group: "none" if ids is None else "zookeeper" for group, ids in with_ids.items()}


def _consumer_of(thread_id: str) -> str:
    """Return the consumer id of a thread id; any other text unchanged."""
    return consumer_of(thread_id) or thread_id
