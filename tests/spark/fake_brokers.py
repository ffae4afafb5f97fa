"""Fake brokers in memory, as the source's driver side uses them: the ends of logs, and groups."""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from clients.admin.descriptions import GroupDescription, ListedOffset, TopicDescription
from clients.cluster_view import BrokerEndpoint, PartitionView
from clients.errors import BrokerError, DeadlineExceeded, NoBrokersAvailable
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import (
    DescribeGroupsResponseGroup,
    DescribeGroupsResponseMember,
)
from protocol.special_values import EARLIEST_TIME
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

BROKER = BrokerEndpoint(0, "localhost", 9092)

CALL_S = 10.0
"""Time after which a call to brokers that are away gives up."""


@attrs.define(eq=False)
class FakeBrokers:
    """Brokers to be changed by `logs` (partition: [start, end]), and by the fields below."""

    logs: dict[TopicPartition, list[int]]
    groups: dict[str, dict[TopicPartition, OffsetAndMetadata]] = attrs.field(factory=dict)
    members: dict[str, tuple[str, ...]] = attrs.field(factory=dict)
    """Client ids of a group's members."""
    commits: list[dict[TopicPartition, OffsetAndMetadata]] = attrs.field(factory=list)
    end_listings: int = 0
    times: dict[TopicPartition, list[tuple[int, int]]] = attrs.field(factory=dict)
    """Timestamps in ms, with the first offset since each; ascending."""
    failing: bool = False
    """True while the coordinator is away."""
    away: bool = False
    """True while all brokers are away; a call then takes `CALL_S`."""
    leaderless: set[TopicPartition] = attrs.field(factory=set)
    topic_ids: dict[str, bytes] = attrs.field(factory=dict)
    leader_epoch: int = 3
    """The leader epoch of every partition."""
    now_s: float = 1000.0
    calls: int = 0
    """Number of calls while the brokers were away."""

    def connect(self, settings: Mapping[str, Any]) -> "FakeBrokers":
        assert settings["bootstrap.servers"]
        return self

    def list_topics(self) -> list[str]:
        self._answer()
        return sorted({p.topic for p in self.logs})

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        self._answer()
        described = {}
        for name in names:
            partitions = {
                p.partition: PartitionView(0, self.leader_epoch, (0,), (0,)) for p in self._of(name)
            }
            if not partitions:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
            described[name] = TopicDescription(name, False, partitions, self.topic_ids.get(name))
        return described

    def list_offsets(
        self, times: Mapping[TopicPartition, int], *, isolation: int = 0
    ) -> dict[TopicPartition, ListedOffset]:
        self._answer()
        self.end_listings += any(time != EARLIEST_TIME for time in times.values())
        return {p: self._list(p, time) for p, time in times.items()}

    def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        return {group_id: self._describe(group_id) for group_id in group_ids}

    def group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        self._answer()
        offsets = self.groups.get(group_id, {})
        return {p: offsets[p] for p in partitions if p in offsets}

    def commit_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        self._answer()
        if self.failing:
            raise NoBrokersAvailable("nobody is there")
        self.commits.append(dict(offsets))
        self.groups.setdefault(group_id, {}).update(offsets)

    def close(self) -> None:
        pass

    def _answer(self) -> None:
        if self.away:
            self.calls += 1
            self.now_s += CALL_S
            raise DeadlineExceeded("nobody answers")

    def _list(self, partition: TopicPartition, time: int) -> ListedOffset:
        if partition in self.leaderless:
            return ListedOffset(-1, -1, -1, ErrorCode.LEADER_NOT_AVAILABLE)
        if partition not in self.logs:
            return ListedOffset(-1, -1, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if time >= 0:
            since = [(at, offset) for at, offset in self.times.get(partition, []) if at >= time]
            at, offset = min(since, default=(-1, -1))
            return ListedOffset(offset, at, 0)
        return ListedOffset(self.logs[partition][0 if time == EARLIEST_TIME else 1], -1, 0)

    def _of(self, topic: str) -> list[TopicPartition]:
        return [p for p in self.logs if p.topic == topic]

    def _describe(self, group_id: str) -> GroupDescription:
        members = [
            DescribeGroupsResponseMember(
                member_id=name,
                client_id=name,
                client_host="",
                member_metadata=b"",
                member_assignment=b"",
            )
            for name in self.members.get(group_id, ())
        ]

        group = DescribeGroupsResponseGroup(
            error_code=0,
            group_id=group_id,
            group_state="Stable" if members else "Empty",
            protocol_type="",
            protocol_data="",
            members=members,
        )
        return GroupDescription(BROKER, group)
