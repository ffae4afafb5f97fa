"""Events of groups, as values that `decide` takes.

A request arrives, an append ended, partitions that a group consumed are deleted, or it is time to
find out what has expired. Each request has an id, and each id gets one response.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from groups.runtime.effects import RequestId
from offsets.records import OffsetKey, Record
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

# ---- commits


@frozen
class CommitOffsets:
    """OffsetCommit, as records. Generation -1 and member "" mean a group without members.

    `connection` is the number of the client's connection.
    """

    request_id: RequestId
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    records: Sequence[Record]
    connection: int = 0


@frozen
class CommitInTransaction:
    """TxnOffsetCommit, as records that count once the producer's transaction is committed."""

    request_id: RequestId
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    records: Sequence[Record]
    producer_id: int
    producer_epoch: int


@frozen
class CommitEnded:
    """The append of a commit is replicated and replayed; or it failed with `error`."""

    request_id: RequestId
    group_id: str
    connection: int = 0
    error: ErrorCode = ErrorCode.NONE


# ---- transactions


@frozen
class EndTransaction:
    """WriteTxnMarkers, of one partition: what a producer has staged counts, or never will.

    The marker is of a coordinator of transactions, in its `coordinator_epoch`.
    """

    request_id: RequestId
    producer_id: int
    producer_epoch: int
    is_committed: bool
    coordinator_epoch: int


@frozen
class TransactionEnded:
    """The append of a marker is replicated and replayed; or it failed with `error`."""

    request_id: RequestId
    producer_id: int
    error: ErrorCode = ErrorCode.NONE


# ---- deletion on request


@frozen
class DeleteGroup:
    """DeleteGroups, of one group."""

    request_id: RequestId
    group_id: str


@frozen
class DeleteOffsets:
    """OffsetDelete, of partitions that exist."""

    request_id: RequestId
    group_id: str
    partitions: Sequence[TopicPartition]


@frozen
class DeletionEnded:
    """One of the appends of a DeleteGroup or DeleteOffsets ended.

    `refused`: partitions whose offsets stay, and why.
    """

    request_id: RequestId
    group_id: str
    is_last: bool
    refused: Mapping[TopicPartition, ErrorCode] = attrs.field(factory=dict)
    error: ErrorCode = ErrorCode.NONE


@frozen
class BeginDeletion:
    """Begin to delete many offsets of a group, a slice at a time: a DeleteGroups or OffsetDelete.

    `is_whole`: the group is deleted, which must have no members.
    """

    request_id: RequestId
    group_id: str
    is_whole: bool


@frozen
class DeletionSlice:
    """Some of the offsets of a deletion that has begun."""

    request_id: RequestId
    group_id: str
    partitions: Sequence[TopicPartition]


@frozen
class EndDeletion:
    """All slices of a deletion are decided; or it is given up, with `error`."""

    request_id: RequestId
    group_id: str
    error: ErrorCode = ErrorCode.NONE


# ---- offsets of deleted partitions


@frozen
class PartitionsDeleted:
    """These partitions are deleted. Their commits in flight are undone at once."""

    partitions: frozenset[TopicPartition]


@frozen
class DeletedPartitionsSlice:
    """Some of the offsets that groups had committed for deleted partitions."""

    keys: Sequence[OffsetKey]


@frozen
class PartitionsSwept:
    """The sweep over all offsets of deleted partitions has ended."""

    partitions: frozenset[TopicPartition]


@frozen
class OffsetsOutdated:
    """These offsets are of earlier topics, of the same names as those that exist.

    Each has its value, None if it was left out when the log was loaded.
    """

    values: Mapping[OffsetKey, bytes | None]


@frozen
class RetryDeletions:
    """Time to retry deletions that could not be written, up to `max_offsets` of them."""

    max_offsets: int


# ---- loading


@frozen
class GroupsLoaded:
    """These groups are loaded, and served from now on."""

    group_ids: Sequence[str]


# ---- expiry


@frozen
class RetentionCheck:
    """Time to remove what has expired of these groups; of `keys` alone if they are given."""

    group_ids: Sequence[str]
    retention_ms: int
    keys: Sequence[OffsetKey] | None = None


@frozen
class RemovalEnded:
    """An append that removes a group's offsets ended; no request waits for it.

    `deleted`: their keys if their partitions were deleted. Expired offsets are found again.
    """

    group_id: str
    deleted: Sequence[OffsetKey] = ()
    error: ErrorCode = ErrorCode.NONE


AppendEnded = CommitEnded | TransactionEnded | DeletionEnded | RemovalEnded
"""The events that follow an append of offsets."""
OffsetEvent = (
    CommitOffsets
    | CommitInTransaction
    | EndTransaction
    | DeleteGroup
    | DeleteOffsets
    | BeginDeletion
    | DeletionSlice
    | EndDeletion
    | AppendEnded
    | GroupsLoaded
    | PartitionsDeleted
    | DeletedPartitionsSlice
    | PartitionsSwept
    | OffsetsOutdated
    | RetryDeletions
    | RetentionCheck
)
"""The events that `decide` takes, beside those of members (`membership.events`)."""
