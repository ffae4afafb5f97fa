"""What can happen to a group: a request arrives, what it consumed is deleted, or something
written came to its end, or it is time to look whether something has expired.

A request that cannot be answered at once is known by its id, which the shell maps to whoever
asked; every id is answered, and the first answer counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import attrs

from offsets.records import Key, OffsetKey, Record
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition

RequestId = int


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
class Committed:
    """What was appended for a commit is replicated and replayed; or was not, because of `error`."""

    request_id: RequestId
    group_id: str
    error: ErrorCode = ErrorCode.NONE


@attrs.frozen
class DeleteGroup:
    """DeleteGroups, of one group. `under_way` are its keys that are written and not replayed."""

    request_id: RequestId
    group_id: str
    under_way: frozenset[OffsetKey] = frozenset()


@attrs.frozen
class DeleteOffsets:
    """OffsetDelete, of partitions that exist; `under_way` as above."""

    request_id: RequestId
    group_id: str
    partitions: Sequence[TopicPartition]
    under_way: frozenset[OffsetKey] = frozenset()


@attrs.frozen
class Removed:
    """One of the appends that answer a deletion is replicated and replayed; or was not.

    `refused` are partitions whose offsets stay, and why.
    """

    request_id: RequestId
    group_id: str
    is_last: bool
    refused: Mapping[TopicPartition, ErrorCode] = attrs.field(factory=dict)
    error: ErrorCode = ErrorCode.NONE


@attrs.frozen
class PartitionsDeleted:
    """The partitions of these offsets are gone, and with them what groups have committed.

    It comes a slice at a time. `spared` are keys that stay: a tombstone is on its way already, or
    they were committed anew for a topic that was made again.
    """

    keys: Sequence[OffsetKey]
    spared: Set[OffsetKey]


@attrs.frozen
class StaleOffsets:
    """These, of partitions that were deleted, could not be dropped; it is time to try again.

    `values` are what was committed then; `under_way` are the keys of what is written and not
    replayed yet.
    """

    values: Mapping[OffsetKey, bytes]
    under_way: frozenset[OffsetKey]


@attrs.frozen
class RetentionCheck:
    """Time to look what has expired of these groups; `most` is how much to remove at once.

    `under_way` are the keys of what is written and not replayed yet.
    """

    group_ids: Sequence[str]
    now_ms: int
    retention_ms: int
    most: int
    under_way: frozenset[Key] = frozenset()


@attrs.frozen
class Dropped:
    """What was appended to drop a group's offsets is replicated and replayed; or was not.

    `deleted` are their keys if their partitions were deleted; what expires will be found again.
    """

    group_id: str
    deleted: Sequence[OffsetKey] = ()
    error: ErrorCode = ErrorCode.NONE


Request = CommitOffsets | DeleteGroup | DeleteOffsets
"""What is answered."""
Ended = Committed | Removed | Dropped
"""What may follow an append."""
Event = Request | Ended | PartitionsDeleted | StaleOffsets | RetentionCheck
"""What `decide` takes."""
