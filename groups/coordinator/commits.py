"""Offset commits: the records of a request, the right to commit, and the errors of an append.

A group without members belongs to nobody: anyone may commit for it with generation -1. Once a group
has members only they may, and only in its current generation (KAFKA-2596, KAFKA-2557).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container

from groups.coordinator.append_errors import COMMIT_ERRORS
from groups.coordinator.events import CommitEnded, CommitOffsets
from groups.coordinator.membership.events import HoldEnded
from groups.coordinator.membership.group import Group
from groups.coordinator.membership.leave import end_hold
from groups.coordinator.membership.rebalance import restart_session
from groups.coordinator.membership.state import GroupState
from groups.coordinator.membership.static_members import refusal as member_refusal
from groups.coordinator.responses import Done
from groups.coordinator.shard import GroupShard
from groups.runtime.effects import Append, Effect, Reply
from offsets.records import CommittedOffset, OffsetKey, Record
from offsets.requests import Committer
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import OffsetCommitRequest

Refused = dict[tuple[str, int], ErrorCode]
"""(topic, partition) -> the error why it is not committed."""

_NOT_GIVEN = -1

MAX_TIME_MS = 2**63 - 1
"""The last time on the wire. A commit that is to be kept for Long.MAX_VALUE expires then."""


def records_of(
    request: OffsetCommitRequest,
    known_partitions: Callable[[str], Container[int]],
    refused_topics: Collection[str],
    metadata_max_bytes: int,
    now_ms: int,
) -> tuple[list[Record], Refused]:
    """Return the records of a request, and the partitions that get none.

    The committer may not read `refused_topics`. v1 brings the time of the commit, v2-4 how long to
    keep it; -1 leaves both to the broker. Offsets are not checked: Kafka keeps negative ones too.
    What is named again counts as it is named last, as in Kafka.
    """
    group_id = request.group_id

    # A retention of the committer's own outranks the broker's (v2-4).
    expire_ms = None
    if request.retention_time_ms != _NOT_GIVEN:
        expire_ms = min(now_ms + request.retention_time_ms, MAX_TIME_MS)

    existing_of = {topic.name: known_partitions(topic.name) for topic in request.topics}
    # One that was named very often made a batch that no log takes (fault strangers-10).
    named = {
        (topic.name, partition.partition_index): partition
        for topic in request.topics
        for partition in topic.partitions
    }

    records: list[Record] = []
    refused: Refused = {}
    for (name, partition_id), partition in named.items():
        metadata = partition.committed_metadata or ""
        if refused_topics and name in refused_topics:
            refused[name, partition_id] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        # No offsets for partitions that do not exist (KAFKA-1852).
        elif partition_id not in existing_of[name]:
            refused[name, partition_id] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif metadata and _utf16_units(metadata) > metadata_max_bytes:
            refused[name, partition_id] = ErrorCode.OFFSET_METADATA_TOO_LARGE
        else:
            commit_ms = partition.commit_timestamp
            # v1 alone brings a time of the commit.
            if commit_ms == _NOT_GIVEN:
                commit_ms = now_ms
            value = CommittedOffset(
                partition.committed_offset,
                partition.committed_leader_epoch,
                metadata,
                commit_ms,
                expire_ms,
            )
            records.append((OffsetKey(group_id, name, partition_id), value))
    return records, refused


def commit(shard: GroupShard, event: CommitOffsets, now_ms: int) -> list[Effect]:
    """Write the offsets, if the committer may."""
    group = shard.live_group(event.group_id)
    committer = Committer(event.generation_id, event.member_id, event.group_instance_id)
    error = refusal(shard, group, event.group_id, committer)
    if error:
        return [Reply(event.request_id, Done(error))]

    # A commit shows that the member is alive (KAFKA-3470).
    effects: list[Effect] = []
    if group is not None and event.generation_id >= 0:
        effects.append(restart_session(group.members[event.member_id]))

    # If every partition is refused there is nothing to write. A reset that has deleted offsets, and
    # has none to commit, lets members join again in this way.
    if not event.records:
        if group is not None and group.held_by == event.connection:
            end_hold(shard, HoldEnded(event.group_id), now_ms)
        return [*effects, Reply(event.request_id, Done())]
    ended = CommitEnded(event.request_id, event.group_id, event.connection)
    return [*effects, Append(event.records, then=ended)]


def end_commit(shard: GroupShard, event: CommitEnded, now_ms: int) -> list[Effect]:
    """Respond to a commit whose append ended. That of a reset lets members join again."""
    group = shard.live.get(event.group_id)
    is_held_for_it = group is not None and group.held_by == event.connection
    if is_held_for_it and not event.error:
        end_hold(shard, HoldEnded(event.group_id), now_ms)
    return [Reply(event.request_id, Done(COMMIT_ERRORS.get(event.error, event.error)))]


def may_commit_plainly(shard: GroupShard, group_id: str, committer: Committer) -> bool:
    """Return whether the committer may commit, and the commit concerns nothing but offsets.

    That of a reset lets members join again, and one for a topic that was created again is spared
    while the offsets of the old one are deleted, as is one behind a deletion that goes on.
    """
    group = shard.live_group(group_id)
    if shard.deleting or shard.deletions or (group is not None and group.held_by is not None):
        return False
    return not refusal(shard, group, group_id, committer)


def refusal(
    shard: GroupShard, group: Group | None, group_id: str, committer: Committer
) -> ErrorCode:
    """Return why the committer may not commit for the group; NONE if it may."""
    # A group without members belongs to nobody. Ids do not count here (KAFKA-14201).
    if group is None or group.state is GroupState.EMPTY:
        if committer.generation_id < 0:
            return ErrorCode.NONE
        # A generation is left over from members that are gone.
        if shard.knows(group_id):
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.ILLEGAL_GENERATION

    # A wrong member id comes before a wrong generation, as in Kafka.
    error = member_refusal(group, committer.member_id, committer.group_instance_id)
    if error:
        return error
    if committer.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    # The generation has not begun to consume: what is committed is of the one before.
    if group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _utf16_units(text: str) -> int:
    # Java's String.length(): a character beyond U+FFFF counts as two.
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def refused_beside(refused: Refused, error: ErrorCode) -> Refused:
    """Return the partitions with an error of their own in a response whose other ones get `error`.

    Kafka looks at the member before it looks at the size of metadata: a zombie must hear that it is
    one.
    """
    beside = refused
    if error in _OF_MEMBERS:
        too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
        # A member that was replaced would go on as one (fault groups-9).
        beside = {key: code for key, code in refused.items() if code is not too_large}
    return beside


_OF_MEMBERS = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
