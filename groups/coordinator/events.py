"""What can happen to a group, as values that `decide` takes.

A request arrives, an append ended, partitions that it consumed are deleted, or it is time to look
what has expired. Each request has an id, and each id gets one response.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from groups.runtime.effects import RequestId
from offsets.records import OffsetKey, Record
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition


@attrs.frozen
class CommitOffsets:
    """OffsetCommit, as records. Generation -1 and member "" mean a group without members."""

    request_id: RequestId
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    records: Sequence[Record]


@attrs.frozen
class CommitEnded:
    """The append of a commit is replicated and replayed; or it failed with `error`."""

    request_id: RequestId
    group_id: str
    error: ErrorCode = ErrorCode.NONE


@attrs.frozen
class DeleteGroup:
    """DeleteGroups, of one group."""

    request_id: RequestId
    group_id: str


@attrs.frozen
class DeleteOffsets:
    """OffsetDelete, of partitions that exist."""

    request_id: RequestId
    group_id: str
    partitions: Sequence[TopicPartition]


@attrs.frozen
class DeletionEnded:
    """One of the appends of a DeleteGroup or DeleteOffsets ended.

    `refused`: partitions whose offsets stay, and why.
    """

    request_id: RequestId
    group_id: str
    is_last: bool
    refused: Mapping[TopicPartition, ErrorCode] = attrs.field(factory=dict)
    error: ErrorCode = ErrorCode.NONE


@attrs.frozen
class PartitionsDeleted:
    """These partitions are deleted. Commits for them that are in flight are undone at once."""

    partitions: frozenset[TopicPartition]


@attrs.frozen
class DeletedPartitionsSlice:
    """Some of the offsets that groups had committed for deleted partitions."""

    keys: Sequence[OffsetKey]


@attrs.frozen
class PartitionsSwept:
    """All offsets of deleted partitions have been looked at."""

    partitions: frozenset[TopicPartition]


@attrs.frozen
class RetryDeletions:
    """Time to try again what could not be deleted, up to `most` offsets of it."""

    most: int


@attrs.frozen
class RetentionCheck:
    """Time to look what has expired of these groups, and to remove up to `most` keys."""

    group_ids: Sequence[str]
    retention_ms: int
    most: int


@attrs.frozen
class RemovalEnded:
    """An append that removes a group's offsets ended; nobody asked for it.

    `deleted`: their keys if their partitions were deleted. What expired is found again.
    """

    group_id: str
    deleted: Sequence[OffsetKey] = ()
    error: ErrorCode = ErrorCode.NONE


Request = CommitOffsets | DeleteGroup | DeleteOffsets
"""What gets a response."""
AppendEnded = CommitEnded | DeletionEnded | RemovalEnded
"""What may follow an append."""
Event = (
    Request
    | AppendEnded
    | PartitionsDeleted
    | DeletedPartitionsSlice
    | PartitionsSwept
    | RetryDeletions
    | RetentionCheck
)
"""What `decide` takes."""
