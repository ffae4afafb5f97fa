"""Read groups of both kinds into the facts of `clients.groups.group_facts`.

An unreadable part (a broker that is down, a znode that is not an offset) becomes a `Failure` with
its name, and reading goes on. If ZooKeeper does not respond, ZooKeeperError ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import attrs

from clients.admin import EARLIEST_TIME, LATEST_TIME, Admin
from clients.admin.descriptions import (
    CLASSIC_GROUP,
    GroupDescription,
    GroupListing,
    ListedOffset,
)
from clients.admin.verdicts import unless_error
from clients.arguments import list_names, list_partitions
from clients.command_line.missing_rights import find_hidden_groups
from clients.command_line.output import Failure
from clients.command_line.sessions import Sessions
from clients.errors import KgroupError
from clients.groups.group_facts import (
    CoordinatorFacts,
    GroupFacts,
    LogOffsets,
    MemberFacts,
)
from clients.groups.group_view import unknown_group
from clients.groups.marker_tails import MarkerTails
from clients.groups.unowned_partitions import Consumed, find_unowned
from groups.coordinator.subscriptions import topics_of
from protocol.consumer_protocol import Assignment, decode_assignment
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.messages.describe_groups import DescribeGroupsResponseMember
from protocol.primitives import WireError
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from clients.groups.zookeeper_groups import ZooKeeperGroups
    from zk.api import Stat

T = TypeVar("T")

CONSUMER_PROTOCOL_TYPES = ("consumer", "")
"""Protocol types of the groups that are listed: consumers, and groups that only commit."""


@frozen
class GroupName:
    """An existing group, the side that coordinates it, and its state if the lists tell it."""

    group: str
    coordination: str
    state: str | None = None
    type: str = "zookeeper"
    """`zookeeper`, or the type that its coordinator knows: classic, consumer."""


@attrs.define(eq=False)
class GroupReader:
    """Reads groups for one command; `failures` has what could not be read.

    With an isolation of 1 (read_committed) a log ends at its last stable offset.
    """

    sessions: Sessions
    failures: list[Failure] = attrs.field(factory=list)
    hidden: list[Failure] = attrs.field(factory=list)
    """Those of them which say that lists of groups may lack some."""
    unread: list[Failure] = attrs.field(factory=list)
    """What times need and could not be read. A table without them is shown with a remark."""
    isolation: int = 0
    tails: MarkerTails = attrs.field()
    """What was seen of the ends of logs, for those who look again and again."""

    @tails.default
    def _no_tails(self) -> MarkerTails:
        return MarkerTails(self.isolation)

    def __attrs_post_init__(self) -> None:
        if self.sessions.zk_failure is not None:
            self.failures.append(Failure.of("ZooKeeper", self.sessions.zk_failure))

    async def names(self) -> list[GroupName]:
        """Return all groups of both kinds, sorted."""
        with_ids, listings = await asyncio.gather(self._member_lists(), self._listings())

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
        self.hidden = await find_hidden_groups(self.sessions.admin)
        self.failures += self.hidden
        return listings

    async def groups(self, names: Iterable[str]) -> list[GroupFacts]:
        """Return the facts of each group, also of unknown ones.

        Each coordinator is asked for many groups at once.
        """
        groups = list_names(names, "group")
        at_coordinators, in_zookeeper = await asyncio.gather(
            self._read_coordinators(groups), self.groups_in_zookeeper(groups)
        )
        return [
            attrs.evolve(facts, coordinator=at_coordinators.get(facts.group))
            for facts in in_zookeeper
        ]

    async def with_unowned(self, groups: Sequence[GroupFacts]) -> list[GroupFacts]:
        """Return the facts with the partitions that no member owns at each coordinator."""
        consumed = {
            facts.group: Consumed.of(topics, (p for m in facts.members for p in m.partitions))
            for facts in groups
            if (topics := facts.subscribed_topics)
        }
        found = find_unowned(self.sessions.admin.cluster, consumed)
        unowned = await self._or_failure("partitions of topics", found) or {}
        return [
            facts
            if facts.coordinator is None or facts.group not in unowned
            else attrs.evolve(
                facts, coordinator=attrs.evolve(facts.coordinator, unowned=unowned[facts.group])
            )
            for facts in groups
        ]

    async def log_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LogOffsets]:
        """Return the start and end of each log; each leader gets a request for either."""
        partition_list = list_partitions(partitions)
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
            Failure.of(str(partition), listed.failure())
            for partition, listed in (ends or {}).items()
            if listed.error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        ]
        return {
            partition: LogOffsets(_offset(starts, partition), _offset(ends, partition))
            for partition in partition_list
        }

    async def logs_of(
        self, groups: Collection[GroupFacts], partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, LogOffsets]:
        """Return the logs of the groups' partitions, with what their lags need of them.

        Of all partitions, or of those that are named.
        """
        if partitions is None:
            partitions = set().union(*(group.partitions for group in groups))
        logs = await self.log_offsets(sorted(partitions))
        committed = [
            (partition, group.current_offset(partition))
            for group in groups
            for partition in group.partitions & logs.keys()
        ]

        # Behind the last stable offset a log may go on, or end.
        if self.isolation:
            behind = {
                partition
                for partition, offset in committed
                if (end := logs[partition].end) is not None and (offset or 0) > end
            }
            ends = await self._or_failure("high watermarks", self._high_watermarks(behind))
            logs |= {
                partition: attrs.evolve(logs[partition], high_watermark=_offset(ends, partition))
                for partition in behind
            }
        return await self.tails.look(self.sessions.admin.cluster, logs, committed)

    async def _high_watermarks(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ListedOffset]:
        times = dict.fromkeys(partitions, LATEST_TIME)
        return await self.sessions.admin.list_offsets(times, waits_for_topics=False)

    def note_unknown(self, groups: Iterable[GroupFacts]) -> None:
        """Add a failure for each of these groups that does not exist."""
        # Whether one exists that could not be read, or without ZooKeeper, nobody knows.
        unreadable = {failure.what for failure in self.failures}
        if self.sessions.zk_failure is None:
            self.failures += [
                unknown_group(group.group)
                for group in groups
                if not group.exists and group.group not in unreadable
            ]

    async def group(self, group: str) -> GroupFacts:
        """Return the facts of one group, also of an unknown one."""
        (facts,) = await self.groups([group])
        return facts

    async def group_in_zookeeper(self, group: str) -> GroupFacts:
        """Return the facts in ZooKeeper alone, without a request to brokers."""
        (facts,) = await self.groups_in_zookeeper([group])
        return facts

    async def groups_in_zookeeper(self, names: Iterable[str]) -> list[GroupFacts]:
        """Return the facts in ZooKeeper of each group, also of unknown ones."""
        groups = list_names(names, "group")
        in_zookeeper = self._zookeeper()
        if in_zookeeper is None:
            return [GroupFacts(group) for group in groups]
        return await in_zookeeper.facts(groups)

    async def zookeeper_names(self) -> dict[str, str]:
        """Return the groups below `/consumers`, and the side that coordinates each."""
        return _sides(await self._member_lists())

    async def _member_lists(self) -> dict[str, Stat | None]:
        in_zookeeper = self._zookeeper()
        return {} if in_zookeeper is None else await in_zookeeper.member_lists()

    def _zookeeper(self) -> ZooKeeperGroups | None:
        """Return the reader of groups in ZooKeeper, with our failures; None if none was given."""
        if self.sessions.zk is None:
            return None

        from clients.groups.zookeeper_groups import ZooKeeperGroups

        return ZooKeeperGroups(self.sessions.zk, self.failures)

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

    async def _or_failure(self, what: str, call: Awaitable[T]) -> T | None:
        try:
            return await call
        except KgroupError as error:
            self.failures.append(Failure.of(what, error))
            return None


async def find_unknown_groups(sessions: Sessions, group_ids: Collection[str]) -> list[Failure]:
    """Return a failure for each of these groups that does not exist, or cannot be read."""
    if not group_ids:
        return []
    reader = GroupReader(sessions)
    reader.note_unknown(await reader.groups(dict.fromkeys(group_ids)))
    return [failure for failure in reader.failures if failure.what in group_ids]


def _offset(
    offsets: Mapping[TopicPartition, ListedOffset] | None, partition: TopicPartition
) -> int | None:
    listed = (offsets or {}).get(partition)
    return None if listed is None or listed.error or listed.offset < 0 else listed.offset


def _sides(with_ids: Mapping[str, Stat | None]) -> dict[str, str]:
    return {group: "none" if ids is None else "zookeeper" for group, ids in with_ids.items()}
