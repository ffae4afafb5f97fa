"""Commits one after the other, as the records of `__consumer_offsets` show them. Pure.

A record says what was committed and when. Who committed it follows from the group's record before
it: the member to which the partition was assigned in that generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import attrs

from clients.admin.descriptions import ListedOffset
from clients.groups.recorded_groups import RecordedOffset, VisibleRecord, time_of_commit
from clients.groups.unowned_partitions import Consumed
from groups.coordinator.subscriptions import CONSUMER, topics_of
from offsets.records import NO_TIMESTAMP, CommittedOffset, GroupMetadata, OffsetKey
from protocol.consumer_protocol import decode_assignment
from protocol.primitives import WireError
from protocol.topic_partition import TopicPartition

NEAR_MS = 1000
"""Age of a commit at a look at which the log's end still counts as that of the commit's time."""


class Commit(NamedTuple):
    """A commit, or the deletion of an offset (`offset` None).

    `end_offset` is the log's end when the commit was made, without markers of transactions there;
    None if nobody looked then. The member is the one that owned the partition; None if nobody did,
    or the records do not tell.
    """

    at_ms: int
    group: str
    topic: str
    partition: int
    offset: int | None
    end_offset: int | None = None
    generation: int | None = None
    member_id: str | None = None
    client_id: str | None = None
    host: str | None = None
    place: int = -1
    """Offset of its record in `__consumer_offsets`: two commits may have one time."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition as one value."""
        return TopicPartition(self.topic, self.partition)

    @property
    def lag(self) -> int | None:
        """The records that were left when the commit was made."""
        if self.offset is None or self.end_offset is None:
            return None
        return max(self.end_offset - self.offset, 0)


def with_end(commit: Commit, before: int | None, after: int | None) -> Commit:
    """Return a commit with the end that its log had then, if two looks around it tell that.

    The log did not grow in between, or no further than to the commit's offset.
    """
    is_told = after is not None and after in (before, commit.offset)
    # With the end of the later look each commit seems to be behind by what was written since, the
    # last ones least, so that no lag ever only grows (fault strangers-98, was: after).
    end_offset = after if is_told else None
    return commit._replace(end_offset=end_offset)


def choose_end(
    commit: Commit, listed: ListedOffset | None, bounds: tuple[int, int], now_ms: int
) -> int | None:
    """Return the end of the log at a commit; None if it is not known.

    `listed` is the first record later than the commit, if it could be looked up. `bounds` are the
    ends at the look before the commit, and at this one, which is at `now_ms`.
    """
    before, after = bounds
    if listed is None:
        # What was written since is no lag of the commit (fault strangers-113, was: after).
        return None

    # Clocks differ a little: what was there may seem to have come after the commit.
    is_near = commit.at_ms >= now_ms - NEAR_MS
    unless_told = after if is_near else None
    if listed.offset < 0:
        return after
    # Producers set the times.
    is_within = max(before, commit.offset or 0) <= listed.offset <= after
    if listed.timestamp_ms > now_ms or not is_within or (is_near and listed.offset == before):
        return unless_told
    return listed.offset


class Owner(NamedTuple):
    """The member to which a partition is assigned."""

    member_id: str
    client_id: str
    host: str


Owners = Mapping[TopicPartition, Owner]


def owners_of(metadata: GroupMetadata | None) -> Owners:
    """Return the owner of each partition; none of groups that are not consumers'."""
    if metadata is None or metadata.protocol_type != CONSUMER:
        return {}
    try:
        return {
            partition: Owner(member.member_id, member.client_id, member.client_host)
            for member in metadata.members
            for partition in decode_assignment(member.assignment).partitions
        }
    except WireError:
        return {}


def consumed_by(metadata: GroupMetadata | None) -> Consumed | None:
    """Return the topics that the members of a group subscribe to, or own, and what they own.

    None for a group without members, and where it is not known.
    """
    if metadata is None or not metadata.members:
        return None
    topics = topics_of(
        metadata.protocol_type, (bytes(member.subscription) for member in metadata.members)
    )
    return None if topics is None else Consumed.of(topics, owners_of(metadata))


@attrs.define(eq=False)
class CommitCollector:
    """Collects commits from `since_ms` on; its `take` is a sink of `RecordedGroups`."""

    since_ms: int = 0
    commits: list[Commit] = attrs.field(factory=list)
    # Group -> its last generation, and who owns what in it.
    _generations: dict[str, tuple[int, Owners]] = attrs.field(factory=dict)

    def take(self, _: int, record: VisibleRecord) -> None:
        """Add the commit of a record, or remember the generation that it tells of."""
        key, value = record.key, record.value
        if not isinstance(key, OffsetKey):
            metadata = value if isinstance(value, GroupMetadata) else None
            if metadata is None:
                self._generations.pop(key.group, None)
            else:
                self._generations[key.group] = (metadata.generation_id, owners_of(metadata))
            return

        is_commit = isinstance(value, CommittedOffset)
        offset = value.offset if isinstance(value, CommittedOffset) else None
        at_ms = (
            time_of_commit(record, value)
            if isinstance(value, CommittedOffset)
            else record.written_ms
        )
        if at_ms < self.since_ms:
            return

        # An offset is deleted by its coordinator, or by a tool: never by a member.
        generation, owners = self._generations.get(key.group, (None, {}))
        owner = owners.get(TopicPartition(key.topic, key.partition)) if is_commit else None
        self.commits.append(
            Commit(
                at_ms,
                *key,
                offset,
                generation=generation if owner else None,
                member_id=owner.member_id if owner else None,
                client_id=owner.client_id if owner else None,
                host=owner.host if owner else None,
                place=record.log_offset,
            )
        )

    def add(self, commits: Iterable[Commit]) -> None:
        """Add commits that no record tells of."""
        self.commits += (commit for commit in commits if commit.at_ms >= self.since_ms)

    def drain(self) -> list[Commit]:
        """Return what was collected since the last call."""
        commits, self.commits = self.commits, []
        return commits


def commits_between(
    group_id: str,
    before: Mapping[TopicPartition, RecordedOffset] | None,
    after: Mapping[TopicPartition, RecordedOffset],
    at_ms: int,
) -> list[Commit]:
    """Return the commits that two looks at a group show: the last one of each changed offset.

    At the first look (`before` is None) those count whose times are known.
    """
    commits = [
        Commit(
            committed.committed_at_ms if committed.committed_at_ms >= 0 else at_ms,
            group_id,
            *partition,
            committed.offset,
        )
        for partition, committed in after.items()
        if (before is not None or committed.committed_at_ms >= 0)
        and (before or {}).get(partition) != committed
    ]
    deleted = (before or {}).keys() - after.keys()
    return commits + [Commit(at_ms, group_id, *partition, None) for partition in deleted]


def in_order(commits: Iterable[Commit], newest_place: int) -> list[Commit]:
    """Return the commits of a group in the order in which they were made.

    That is the order of their records. Their times may go back: a clock is set, or the next
    coordinator's is behind the last one's. `newest_place` is that of the group's newest commit in
    the topic; -1 where nobody has read it. What is behind that is of an earlier topic of the name,
    and goes by its time, as what has no place.
    """
    latest_ms = NO_TIMESTAMP
    timed: list[tuple[int, int, Commit]] = []
    for commit in sorted(commits, key=lambda commit: (commit.place, commit.at_ms)):
        at_ms = commit.at_ms
        if 0 <= commit.place <= newest_place:
            at_ms = latest_ms = max(at_ms, latest_ms)
        timed.append((at_ms, commit.place, commit))
    return [commit for *_, commit in sorted(timed, key=lambda place: place[:2])]


def as_of(commits: Iterable[Commit], at_ms: int) -> dict[tuple[str, TopicPartition], Commit]:
    """Return the commit of each group and partition that counted at a time, the last one then.

    Each group's commits are in their order.
    """
    last: dict[tuple[str, TopicPartition], Commit] = {}
    for commit in commits:
        if commit.at_ms <= at_ms:
            last[commit.group, commit.topic_partition] = commit
    return {key: commit for key, commit in last.items() if commit.offset is not None}


def history_items(commits: Sequence[Commit]) -> list[dict[str, Any]]:
    """Return one item for each commit, in their order, with the distance from the one before it."""
    before: dict[tuple[str, TopicPartition], int | None] = {}
    items = []
    for commit in commits:
        key = commit.group, commit.topic_partition
        former = before.get(key)
        moved = None if former is None or commit.offset is None else commit.offset - former
        before[key] = commit.offset
        items.append(commit._asdict() | {"moved": moved, "lag": commit.lag})
    return items
