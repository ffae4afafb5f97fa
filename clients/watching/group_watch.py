"""Keep all groups of a cluster in memory: their offsets, members, and the ends of their logs.

`__consumer_offsets` is tailed: after the first reading a refresh costs a few requests for each
broker, however many groups there are. Where the topic may not be read, each group is asked for its
offsets, at a bounded rate. So are groups in ZooKeeper, at each look.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice

import attrs

from clients.admin import EARLIEST_TIME, LATEST_TIME, Admin
from clients.admin.descriptions import ListedOffset
from clients.command_line.missing_rights import find_hidden_groups, hidden_among
from clients.command_line.output import Failure
from clients.errors import BrokerError, KgroupError, ZooKeeperError
from clients.groups.clock_difference import measure_ahead
from clients.groups.group_facts import LogOffsets
from clients.groups.group_records import read_group_records
from clients.groups.marker_tails import MarkerTails
from clients.groups.partition_rounds import partition_rounds
from clients.groups.recorded_groups import RecordedGroup, RecordedGroups, RecordedOffset
from clients.groups.unowned_partitions import Consumed, find_unowned
from clients.paced import paced
from clients.watching.commit_history import (
    Commit,
    CommitCollector,
    choose_end,
    commits_between,
    consumed_by,
    with_end,
)
from clients.watching.zookeeper_watch import ZooKeeperWatch
from offsets.records import NO_TIMESTAMP, GroupMetadata
from offsets.topic import offsets_partition
from protocol.errors import ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from zk.api import ZkError

MAX_REQUESTS_PER_SECOND = 200
MOST_ROUNDS = 10
"""Times that are looked up in one partition at a look, at most."""


@attrs.define(eq=False)
class GroupWatch:
    """The groups of a cluster as of `read_at_ms`; `refresh` brings them up to date.

    What a refresh could not read is in `failures`, and stays as it was. `new_commits` are those
    that the last refresh saw.
    """

    admin: Admin
    since_ms: int = 0
    """Commits from before are not collected."""
    max_requests_per_second: int = MAX_REQUESTS_PER_SECOND
    logs: dict[TopicPartition, LogOffsets] = attrs.field(factory=dict)
    failures: list[Failure] = attrs.field(factory=list)
    new_commits: list[Commit] = attrs.field(factory=list)
    read_at_ms: int = 0
    ahead_ms: int = 0
    """How far the brokers' clocks are ahead of this machine's, by the records that were seen."""
    zookeeper: ZooKeeperWatch | None = None
    """Groups in ZooKeeper, where they are watched too."""
    groups: dict[str, RecordedGroup] = attrs.field(factory=dict)
    """All groups by their ids."""
    is_tailing: bool = True
    """False where the topic may not be read."""
    group_read_at_ms: dict[str, int] = attrs.field(factory=dict)
    """When each group was read, if they are read one by one."""
    unowned: dict[str, frozenset[TopicPartition]] = attrs.field(factory=dict)
    """The partitions of groups that members subscribe to, and none owns."""
    # Group -> its record, and what its members consume by it.
    _consumed: dict[str, tuple[GroupMetadata | None, Consumed | None]] = attrs.field(factory=dict)
    _read_at_s: float = 0.0
    _tails: MarkerTails = attrs.field(factory=MarkerTails)
    _collector: CommitCollector = attrs.field(init=False)
    records: RecordedGroups = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._collector = CommitCollector(self.since_ms)
        self.records = RecordedGroups(sink=self._collector.take)

    @property
    def brokers_time_ms(self) -> int:
        """Return when the groups were read, by the brokers' clocks; 0 before that."""
        return self.read_at_ms + self.ahead_ms if self.read_at_ms else 0

    async def refresh(self) -> None:
        """Read what is new. Raises KgroupError if no broker can be asked."""
        started_ms, before_ms = _now_ms(), self.brokers_time_ms
        started_s = time.monotonic()
        failures: list[Failure] = []
        try:
            await read_group_records(self.admin, None, so_far=self.records)
            failures += [
                Failure.of(str(offsets_partition(partition_id)), error)
                for partition_id, error in self.records.errors.items()
            ]
            self.is_tailing = True
        except BrokerError as error:
            if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            self.is_tailing = False
            failures += await self._ask_groups()

        groups = dict(self.records.groups)
        if self.zookeeper is not None:
            failures += await self._read_zookeeper(self.zookeeper, started_ms)
            groups |= {name: known.group for name, known in self.zookeeper.groups.items()}

        # A group is shown when the ends of its logs are known.
        former_logs = self.logs
        failures += await self._find_unowned(groups)
        failures += await self._read_logs(groups)
        self.groups = groups

        # The times of records are the brokers'. What could not be read before may be old, as is all
        # at the first look: that tells nothing. The commit of a transaction may have waited for its
        # marker, which is a record too.
        commits = self._collector.drain()
        newest_ms, self.records.newest_ms = self.records.newest_ms, NO_TIMESTAMP
        if before_ms and not self.failures:
            elapsed_ms = (started_s - self._read_at_s) * 1000
            ahead_ms = measure_ahead(newest_ms, started_ms, elapsed_ms)
            if ahead_ms is not None and ahead_ms != self.ahead_ms:
                before_ms += ahead_ms - self.ahead_ms
                self.ahead_ms = ahead_ms

        # The ends of two looks tell of the commits between them, and not of older ones.
        self.new_commits = await self._with_ends(commits, before_ms, former_logs)
        self.failures, self.read_at_ms, self._read_at_s = failures, started_ms, started_s

    async def _with_ends(
        self,
        commits: Sequence[Commit],
        since_ms: int,
        former_logs: Mapping[TopicPartition, LogOffsets],
    ) -> list[Commit]:
        """Return the commits; those since the last look with the ends of their logs, if known.

        The last one of each group and partition is looked up by its time, and believed within what
        both looks have seen: producers set the times.
        """
        if not since_ms:
            return list(commits)
        with_ends = list(commits)
        last: dict[tuple[str, TopicPartition], int] = {}
        bounds: dict[TopicPartition, tuple[int, int]] = {}
        for index, commit in enumerate(commits):
            partition = commit.topic_partition
            before = former_logs.get(partition, LogOffsets()).records_end
            after = self.logs.get(partition, LogOffsets()).records_end
            if commit.at_ms < since_ms or commit.offset is None:
                continue
            with_ends[index] = with_end(commit, before, after)
            last.pop((commit.group, partition), None)
            if before is not None and after is not None and with_ends[index].end_offset is None:
                last[commit.group, partition] = index
                bounds[partition] = before, after

        found: dict[tuple[TopicPartition, int], ListedOffset] = {}
        # A record of the same millisecond was there.
        times = {
            (commits[index].topic_partition, commits[index].at_ms + 1) for index in last.values()
        }
        for asked in islice(partition_rounds(times), MOST_ROUNDS):
            try:
                listed_at = await self.admin.list_offsets(asked, waits_for_topics=False)
            except KgroupError:
                break
            found |= {
                (partition, asked[partition]): listed
                for partition, listed in listed_at.items()
                if not listed.error
            }
        now_ms = _now_ms() + self.ahead_ms
        for index in last.values():
            commit = commits[index]
            listed = found.get((commit.topic_partition, commit.at_ms + 1))
            end = choose_end(commit, listed, bounds[commit.topic_partition], now_ms)
            with_ends[index] = commit._replace(end_offset=end)
        return with_ends

    def consumed(self, group_id: str) -> Consumed | None:
        """Return what a group's members at its coordinator consume; None if it is not known."""
        if self.zookeeper is not None and self.zookeeper.has_members(group_id):
            return None
        # During a look it may be a group of the last one, which is gone by now.
        _, consumed = self._consumed.get(group_id, (None, None))
        return consumed

    async def _find_unowned(self, groups: Mapping[str, RecordedGroup]) -> list[Failure]:
        """Read which partitions nobody owns; they stay as they were where it cannot be read."""
        # Records change seldom, and there may be thousands.
        for group_id, group in groups.items():
            known = self._consumed.get(group_id)
            if known is None or known[0] is not group.metadata:
                self._consumed[group_id] = (group.metadata, consumed_by(group.metadata))
        self._consumed = {group_id: self._consumed[group_id] for group_id in groups}

        consumed = {group_id: own for group_id in groups if (own := self.consumed(group_id))}
        try:
            self.unowned = await find_unowned(self.admin.cluster, consumed)
        except KgroupError as error:
            return [Failure.of("partitions of topics", error)]
        return []

    async def _read_logs(self, groups: Mapping[str, RecordedGroup]) -> list[Failure]:
        """Read the ends and starts of the logs with commits; logs without a leader stay."""
        partitions = {partition for group in groups.values() for partition in group.offsets}
        partitions = partitions.union(*self.unowned.values())
        # Members read all of it, and may not have committed yet (fault strangers-102, was: {}).
        owned = self.owned(groups)
        partitions = partitions.union(*owned.values())
        starts, ends = await asyncio.gather(
            *(
                self.admin.list_offsets(dict.fromkeys(partitions, time), waits_for_topics=False)
                for time in (EARLIEST_TIME, LATEST_TIME)
            )
        )
        failures = []
        logs = {}
        for partition in partitions:
            start, end = starts[partition], ends[partition]
            failed = start if start.error else end
            if failed.error:
                # An unknown topic is no failure: its offsets outlive it.
                if failed.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    failures.append(Failure.of(str(partition), failed.failure()))
                    if (former := self.logs.get(partition)) is not None:
                        # What was committed since has been read: the log was so long.
                        newest = max(
                            (
                                group.offsets[partition].offset
                                for group in groups.values()
                                if partition in group.offsets
                            ),
                            default=0,
                        )
                        known_end = None if former.end is None else max(former.end, newest)
                        logs[partition] = LogOffsets(former.start, known_end)
                continue
            logs[partition] = LogOffsets(start.offset, end.offset)

        committed = [
            (partition, committed.offset)
            for group in groups.values()
            for partition, committed in group.offsets.items()
        ]
        self.logs = await self._tails.look(self.admin.cluster, logs, committed)
        return failures

    def owned(self, groups: Iterable[str]) -> dict[str, Collection[TopicPartition]]:
        """Return the partitions that the members of each group own, here or there."""
        owned: dict[str, Collection[TopicPartition]] = {}
        for group_id in groups:
            if (consumed := self.consumed(group_id)) is not None:
                owned[group_id] = consumed.partitions
            elif self.zookeeper is not None and group_id in self.zookeeper.groups:
                owned[group_id] = self.zookeeper.groups[group_id].owners.keys()
        return owned

    async def _read_zookeeper(self, zookeeper: ZooKeeperWatch, now_ms: int) -> list[Failure]:
        """Read the groups in ZooKeeper; where it does not respond they stay as they were."""
        rate = self.max_requests_per_second
        try:
            commits, failures = await zookeeper.look(self.records.groups, now_ms, rate)
        except ZooKeeperError as error:
            # The name of ZooKeeper is in its text, and not in its cause's.
            cause = error.__cause__
            return [Failure.of("ZooKeeper", cause if isinstance(cause, ZkError) else error)]
        self._collector.add(commits)
        return failures

    async def _ask_groups(self) -> list[Failure]:
        """Ask for the offsets of each group, in turn. Changed ones are commits of this look.

        What brokers leave out is deleted, or may not be described any more: that stays.
        """
        failures: list[Failure] = []
        groups = self.records.groups
        listed: set[str] = set()
        for broker, result in (await self.admin.groups_of_each_broker()).items():
            if isinstance(result, KgroupError):
                failures.append(Failure.of(f"broker {broker.node_id}", result))
            else:
                listed |= {group.group_id for group in result}

        # A broker that did not respond may still have groups that were read before.
        asked = listed if failures else listed | groups.keys()
        failures += await find_hidden_groups(self.admin)

        # Brokers before 3.0 get a request for each of them.
        async for some in paced(sorted(asked), self.max_requests_per_second):
            offsets_of = await self.admin.offsets_of_each_group(some)
            hidden = await hidden_among(self.admin, self._topics_left_out(offsets_of))
            for group_id, offsets in offsets_of.items():
                if isinstance(offsets, KgroupError):
                    failures.append(Failure.of(group_id, offsets))
                elif group_id in listed or offsets:
                    self._take_offsets(group_id, offsets, hidden)
                else:
                    del groups[group_id]
                    self.group_read_at_ms.pop(group_id, None)
        return failures

    def _topics_left_out(
        self, offsets_of: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata] | KgroupError]
    ) -> set[str]:
        """Return the topics of offsets that were there at the last look, and are not any more."""
        return {
            partition.topic
            for group_id, offsets in offsets_of.items()
            if group_id in self.records.groups and not isinstance(offsets, KgroupError)
            for partition in self.records.groups[group_id].offsets.keys() - offsets.keys()
        }

    def _take_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        hidden: Collection[str],
    ) -> None:
        """Replace a group's offsets, but for those of hidden topics."""
        read_at_ms, before = _now_ms(), self.records.groups.get(group_id)
        own = dict(map(_unrecorded, offsets.items()))
        if before is not None:
            kept = {p: known for p, known in before.offsets.items() if p.topic in hidden}
            own = kept | own
        self.records.groups[group_id] = RecordedGroup(own)
        self.group_read_at_ms[group_id] = read_at_ms
        offsets_before = before.offsets if before else None
        self._collector.add(commits_between(group_id, offsets_before, own, read_at_ms))


def _unrecorded(
    item: tuple[TopicPartition, OffsetAndMetadata],
) -> tuple[TopicPartition, RecordedOffset]:
    """Return an offset as a coordinator tells it: without its time."""
    partition, committed = item
    return partition, RecordedOffset(
        committed.offset, committed.leader_epoch, committed.metadata, -1, None, -1
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
