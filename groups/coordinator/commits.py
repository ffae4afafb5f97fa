"""Offset commits: the records of a request, the right to commit, and the errors of an append.

A group without members belongs to nobody: anyone may commit for it with generation -1. Once a group
has members only they may, and only in its current generation (KAFKA-2596, KAFKA-2557).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container

from groups.coordinator.events import CommitEnded, CommitOffsets
from groups.coordinator.responses import Done
from groups.coordinator.shard import GroupShard
from groups.runtime.effects import Append, Effect, Reply
from offsets.records import CommittedOffset, GroupMetadata, OffsetKey, Record
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import OffsetCommitRequest

Refused = dict[tuple[str, int], ErrorCode]
"""(topic, partition) -> the error why it is not committed."""

_NOT_GIVEN = -1

MAX_TIME_MS = 2**63 - 1
"""The last time on the wire. A commit that is to be kept for Long.MAX_VALUE expires then."""

APPEND_ERRORS: dict[ErrorCode, ErrorCode] = {
    # The log is not there yet, or has too few replicas: try again.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    # Another broker leads it, or will: look for that one.
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    # It fits into no batch, and will not next time either.
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""Error of an append -> the error for the client, one that it knows of commits. Others stay."""


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
    """
    group_id = request.group_id

    # A retention of the committer's own outranks the broker's (v2-4).
    expire_ms = None
    if request.retention_time_ms != _NOT_GIVEN:
        expire_ms = min(now_ms + request.retention_time_ms, MAX_TIME_MS)

    records: list[Record] = []
    refused: Refused = {}
    for topic in request.topics:
        name = topic.name
        # No offsets for partitions that do not exist (KAFKA-1852).
        existing = known_partitions(name)
        for partition in topic.partitions:
            partition_id = partition.partition_index
            metadata = partition.committed_metadata or ""
            if refused_topics and name in refused_topics:
                refused[name, partition_id] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif partition_id not in existing:
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
    error = refusal(shard, event)

    # If every partition is refused there is nothing to write.
    if error or not event.records:
        return [Reply(event.request_id, Done(error))]
    return [Append(event.records, then=CommitEnded(event.request_id, event.group_id))]


def end_commit(shard: GroupShard, event: CommitEnded, now_ms: int) -> list[Effect]:
    """Respond to a commit whose append ended."""
    return [Reply(event.request_id, Done(APPEND_ERRORS.get(event.error, event.error)))]


def refusal(shard: GroupShard, event: CommitOffsets) -> ErrorCode:
    """Return why the committer may not commit for the group; NONE if it may."""
    group = shard.groups.get(event.group_id)
    if group is not None and group.members:
        return _member_refusal(group, event)

    # A group without members: a generation is left over from members that are gone.
    if event.generation_id < 0:
        return ErrorCode.NONE
    if shard.knows(event.group_id):
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.ILLEGAL_GENERATION


def _member_refusal(group: GroupMetadata, event: CommitOffsets) -> ErrorCode:
    # Another member has taken the place of this static one (KIP-345).
    instance = event.group_instance_id
    if instance is not None and any(
        member.group_instance_id == instance and member.member_id != event.member_id
        for member in group.members
    ):
        return ErrorCode.FENCED_INSTANCE_ID

    # A wrong member id comes before a wrong generation, as in Kafka.
    if all(member.member_id != event.member_id for member in group.members):
        return ErrorCode.UNKNOWN_MEMBER_ID
    if event.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.NONE


def _utf16_units(text: str) -> int:
    # Java's String.length(): a character beyond U+FFFF counts as two.
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
