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
from clients.admin.descriptions import (
    CLASSIC_GROUP,
    GroupDescription,
    GroupListing,
    ListedOffset,
)
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


@attrs.frozen
class _Nodes:
    """What a group has below its znode."""

    has_ids: bool
    ids: list[str]
    owned: list[TopicPartition]
    committed: list[TopicPartition]


@attrs.define(eq=False)
class GroupReader:
    """Reads groups for one command; `failures` has what could not be read.

    With an isolation of 1 (read_committed) a log ends at its last stable offset.
    """

    sessions: Sessions
    failures: list[Failure] = attrs.field(factory=list)
    isolation: int = 0

    def __attrs_post_init__(self) -> None:
        if self.sessions.zk_failure is not None:
            self.failures.append(Failure.of("ZooKeeper", self.sessions.zk_failure))

    async def names(self) -> list[GroupName]:
        """Return all groups of both kinds, sorted."""
        with_ids, listings = await asyncio.gather(self._ids_nodes(), self._listings())

        # A coordinator outranks ZooKeeper; a group that only commits there does not.
        coordination = _sides(with_ids)
        types = {group.group_id: group.type or CLASSIC_GROUP for group in listings}
        for group in listings:
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
            for group in listings
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

    async def _listings(self) -> list[GroupListing]:
        """Return the groups of all coordinators; one that does not respond is a failure."""
        each = self.sessions.admin.groups_of_each_broker()
        listings: list[GroupListing] = []
        for broker, result in (await self._or_failure("brokers", each) or {}).items():
            if isinstance(result, KgroupError):
                self.failures.append(Failure.of(f"broker {broker.node_id}", result))
            else:
                listings += result
        return listings

    async def groups(self, names: Iterable[str]) -> list[GroupFacts]:
        """Return the facts of each group, also of unknown ones.

        Each coordinator is asked for many groups at once.
        """
        groups = list(names)
        at_coordinators, in_zookeeper = await asyncio.gather(
            self._read_coordinators(groups), self.groups_in_zookeeper(groups)
        )
        return [
            attrs.evolve(facts, coordinator=at_coordinators.get(facts.group))
            for facts in in_zookeeper
        ]

    async def log_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LogOffsets]:
        """Return the start and end of each log; each leader gets a request for either."""
        partition_list = list(partitions)
        admin = self.sessions.admin

        async def listed_at(time: int, what: str) -> dict[TopicPartition, ListedOffset] | None:
            times = dict.fromkeys(partition_list, time)
            listing = admin.list_offsets(times, isolation=self.isolation, waits_for_topics=False)
            return await self._or_failure(what, listing)

        starts, ends = await asyncio.gather(
            listed_at(EARLIEST_TIME, "log start offsets"),
            listed_at(LATEST_TIME, "log end offsets"),
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
        (facts,) = await self.groups_in_zookeeper([group])
        return facts

    async def groups_in_zookeeper(self, names: Iterable[str]) -> list[GroupFacts]:
        """Return the facts in ZooKeeper of each group, also of unknown ones.

        Directories are listed one by one; what the nodes of all groups hold is read together.
        """
        groups = list(names)
        zk = self.sessions.zk
        if zk is None:
            return [GroupFacts(group) for group in groups]

        with from_zookeeper():
            listed = await asyncio.gather(*(self._list_nodes(zk, group) for group in groups))
            nodes = dict(zip(groups, listed, strict=True))
            in_zookeeper, storage = await asyncio.gather(
                self._read_zookeeper(zk, {group: names for group, names in nodes.items() if names}),
                self._read_storage(zk, nodes),
            )
        return [
            GroupFacts(group, in_zookeeper.get(group), storage=storage[group]) for group in groups
        ]

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
            nodes = await zk.get_many([ConsumerGroup.ids_path(group) for group in groups])
        return {
            group: None if node is None else node[1]
            for group, node in zip(groups, nodes, strict=True)
        }

    async def _list_nodes(self, zk: ZkSession, group: str) -> _Nodes | None:
        """Return the names below a group's znode; None if there is no such group."""
        if await zk.exists(ConsumerGroup.path(group)) is None:
            return None

        has_ids, ids, owned, committed = await asyncio.gather(
            zk.exists(ConsumerGroup.ids_path(group)),
            children_if_there(zk, ConsumerGroup.ids_path(group)),
            self._partition_nodes(zk, ConsumerGroup.owners_path(group)),
            self._partition_nodes(zk, ConsumerGroup.offsets_path(group)),
        )
        return _Nodes(has_ids is not None, ids, owned, committed)

    async def _read_zookeeper(
        self, zk: ZkSession, nodes: Mapping[str, _Nodes]
    ) -> dict[str, ZooKeeperFacts]:
        threads_of, offsets_of, registrations_of = await asyncio.gather(
            self._threads(zk, {group: names.owned for group, names in nodes.items()}),
            self._offsets(zk, {group: names.committed for group, names in nodes.items()}),
            self._registrations(zk, {group: names.ids for group, names in nodes.items()}),
        )

        # Partitions without an owner count too, so read the topics of members and owners.
        topics_of_groups = {
            group: _subscribed(registrations_of[group].values())
            | {partition.topic for partition in threads_of[group]}
            for group in nodes
        }
        partitions_of = await self._partitions(zk, set().union(*topics_of_groups.values()))

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

    async def _read_storage(
        self, zk: ZkSession, nodes: Mapping[str, _Nodes | None]
    ) -> dict[str, str | None]:
        """Return the mode of each group's migration, or the settings that all members agree on."""

        def read_mode(data: bytes | None, _: Stat, path: str) -> str | None:
            return None if data is None else GroupMigration.decode(data, path).mode.value

        def read_settings(data: bytes | None, _: Stat, path: str) -> str:
            return MigrationMember.decode(data, path).settings

        # A migration's mode outranks the members' settings.
        modes = await self._read_all(
            zk, {group: GroupMigration.path(group) for group in nodes}, read_mode
        )

        # Without a migration: the stores that the members publish.
        ids_of = {
            group: names.ids
            for group, names in nodes.items()
            if names is not None and not modes.get(group)
        }
        settings_of = await self._read_groups(zk, ids_of, MigrationMember.path, read_settings)
        return {
            group: modes.get(group) or _agreed(ids_of.get(group, ()), settings_of.get(group, {}))
            for group in nodes
        }

    async def owners(self, zk: ZkSession, group: str) -> dict[TopicPartition, str]:
        """Return the consumer id of each partition's owner."""
        with from_zookeeper():
            partitions = await self._partition_nodes(zk, ConsumerGroup.owners_path(group))
            threads = await self._threads(zk, {group: partitions})
        return {partition: _consumer_of(thread) for partition, thread in threads[group].items()}

    async def offsets(
        self, zk: ZkSession, groups: Iterable[str]
    ) -> dict[str, dict[TopicPartition, ZooKeeperOffset]]:
        """Return the offsets that each group has committed in ZooKeeper, without negative ones."""
        names = list(groups)
        with from_zookeeper():
            listed = await asyncio.gather(
                *(self._partition_nodes(zk, ConsumerGroup.offsets_path(group)) for group in names)
            )
            return await self._offsets(zk, dict(zip(names, listed, strict=True)))

    async def _threads(
        self, zk: ZkSession, partitions_of: Mapping[str, Iterable[TopicPartition]]
    ) -> dict[str, dict[TopicPartition, str]]:
        def path(group: str, partition: TopicPartition) -> str:
            return PartitionOwner.path(group, *partition)

        def read(data: bytes | None, _: Stat, path: str) -> str:
            return PartitionOwner.decode(data, path).consumer_thread_id

        return await self._read_groups(zk, partitions_of, path, read)

    async def _offsets(
        self, zk: ZkSession, partitions_of: Mapping[str, Iterable[TopicPartition]]
    ) -> dict[str, dict[TopicPartition, ZooKeeperOffset]]:
        def path(group: str, partition: TopicPartition) -> str:
            return ConsumerOffset.path(group, *partition)

        def read(data: bytes | None, stat: Stat, path: str) -> ZooKeeperOffset:
            # The node's last change is the time of the commit.
            return ZooKeeperOffset(ConsumerOffset.decode(data, path).offset, stat.mtime_ms)

        offsets_of = await self._read_groups(zk, partitions_of, path, read)
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
        self, zk: ZkSession, ids_of: Mapping[str, Iterable[str]]
    ) -> dict[str, dict[str, ConsumerRegistration]]:
        def read(data: bytes | None, _: Stat, path: str) -> ConsumerRegistration:
            return ConsumerRegistration.decode(data, path)

        return await self._read_groups(zk, ids_of, ConsumerRegistration.path, read)

    async def _partitions(
        self, zk: ZkSession, topics: Iterable[str]
    ) -> dict[str, set[TopicPartition]]:
        """Return the partitions of each topic; topics that do not exist are left out."""

        def read(data: bytes | None, _: Stat, path: str) -> Iterable[int]:
            return TopicAssignment.decode(data, path).partitions

        paths = {topic: TopicAssignment.path(topic) for topic in topics}
        ids_of = await self._read_all(zk, paths, read)
        return {
            topic: {TopicPartition(topic, partition_id) for partition_id in ids}
            for topic, ids in ids_of.items()
        }

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

    async def _read_groups(
        self,
        zk: ZkSession,
        keys_of: Mapping[str, Iterable[K]],
        path: Callable[[str, K], str],
        read: Callable[[bytes | None, Stat, str], T],
    ) -> dict[str, dict[K, T]]:
        """Read a znode for each key of each group, those of all groups together."""
        paths = {(group, key): path(group, key) for group, keys in keys_of.items() for key in keys}
        values_of: dict[str, dict[K, T]] = {group: {} for group in keys_of}

        for (group, key), value in (await self._read_all(zk, paths, read)).items():
            values_of[group][key] = value
        return values_of

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


def _agreed(ids: Sequence[str], settings_of: Mapping[str, str]) -> str | None:
    """Return the settings that all members publish; None if one differs, or publishes none."""
    # A member that publishes nothing may have any settings.
    agreed = set(settings_of.values())
    return agreed.pop() if len(agreed) == 1 and len(settings_of) == len(ids) else None


def _sides(with_ids: Mapping[str, Stat | None]) -> dict[str, str]:
    return {group: "none" if ids is None else "zookeeper" for group, ids in with_ids.items()}


def _consumer_of(thread_id: str) -> str:
    """Return the consumer id of a thread id; any other text unchanged."""
    return consumer_of(thread_id) or thread_id
