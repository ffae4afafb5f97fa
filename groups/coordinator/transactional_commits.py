"""Commits of offsets in a producer's transaction (TxnOffsetCommit, KIP-98), and its end.

The records go into the log under the producer's id. Replay stages them (`shard`) until the marker
of the transaction, which a coordinator of transactions has written beside them. The log itself
refuses the epoch of a producer that was replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container

from groups.coordinator.commits import Refused, records_of
from groups.coordinator.events import (
    CommitEnded,
    CommitInTransaction,
    EndTransaction,
    TransactionEnded,
)
from groups.coordinator.responses import Done
from groups.coordinator.shard import GroupShard
from groups.runtime.effects import Append, Effect, Reply, Writer
from offsets.records import Record
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from protocol.records.control_record import ABORT, COMMIT

_NO_CONNECTION = -1

MOST_STAGED = 50_000
"""Offsets that a transaction may have here: its end applies them all in one turn of the loop."""


def transactional_records_of(
    request: TxnOffsetCommitRequest,
    known_partitions: Callable[[str], Container[int]],
    refused_topics: Collection[str],
    metadata_max_bytes: int,
    now_ms: int,
) -> tuple[list[Record], Refused]:
    """Return the records of a request, and the partitions that get none, as `records_of` does."""
    plain = OffsetCommitRequest(
        group_id=request.group_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        committed_metadata=partition.committed_metadata,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
    return records_of(plain, known_partitions, refused_topics, metadata_max_bytes, now_ms)


def commit_in_transaction(
    shard: GroupShard, event: CommitInTransaction, now_ms: int
) -> list[Effect]:
    """Write the offsets for the producer, if the committer may. No session begins anew by it."""
    error = refusal(shard, event)
    # It would grow by requests of any size (fault strangers-42).
    if shard.count_staged(event.producer_id) + len(event.records) > MOST_STAGED:
        error = error or ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    # If every partition is refused there is nothing to write.
    if error or not event.records:
        return [Reply(event.request_id, Done(error))]

    ended = CommitEnded(event.request_id, event.group_id, _NO_CONNECTION)
    writer = Writer(event.producer_id, event.producer_epoch)
    return [Append(event.records, then=ended, writer=writer)]


def refusal(shard: GroupShard, event: CommitInTransaction) -> ErrorCode:
    """Return why the committer may not commit for the group; NONE if it may, in any state.

    It may be no member at all (before KIP-447). What it says of itself must be true.
    """
    # No marker can end what such a producer begins (fault groups-9).
    if event.producer_id < 0 or event.producer_epoch < 0:
        return ErrorCode.INVALID_PRODUCER_EPOCH

    member_id = event.member_id
    group = shard.live_group(event.group_id)
    if group is not None:
        # Another client has the same instance id, and came later.
        instance_id = event.group_instance_id or ""
        if group.static_members.get(instance_id, member_id) != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        generation_id = group.generation_id
        is_member = member_id in group.members
    else:
        # A generation is left over from members that are gone.
        record = shard.groups.get(event.group_id)
        generation_id = 0 if record is None else record.generation_id
        is_member = False

    # A wrong member id comes before a wrong generation, as in Kafka.
    if member_id and not is_member:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if event.generation_id >= 0 and event.generation_id != generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.NONE


def write_marker(shard: GroupShard, event: EndTransaction, now_ms: int) -> list[Effect]:
    """Write the marker, whether or not the producer has staged anything."""
    writer = Writer(
        event.producer_id,
        event.producer_epoch,
        ends=COMMIT if event.is_committed else ABORT,
        coordinator_epoch=event.coordinator_epoch,
    )
    return [Append((), then=TransactionEnded(event.request_id, event.producer_id), writer=writer)]


def end_marker(shard: GroupShard, event: TransactionEnded, now_ms: int) -> list[Effect]:
    """Respond to the coordinator of transactions, which knows the log's own errors."""
    return [Reply(event.request_id, Done(event.error))]
