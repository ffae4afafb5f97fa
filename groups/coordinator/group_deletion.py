"""Deletion of groups (DeleteGroups, KIP-229) and of single offsets (OffsetDelete, KIP-496).

| the group | DeleteGroups | OffsetDelete |
|---|---|---|
| is unknown | GROUP_ID_NOT_FOUND | GROUP_ID_NOT_FOUND |
| has no members | the group and its offsets are deleted | the offsets are deleted |
| has consumers | NON_EMPTY_GROUP | GROUP_SUBSCRIBED_TO_TOPIC for their topics, or all if unknown |
| has other members | NON_EMPTY_GROUP | NON_EMPTY_GROUP |

A commit in flight counts as committed: its tombstone comes behind it. So does one in an open
transaction, which commits nothing of what is deleted here. A commit that arrives later
stays, and the group exists again with it. The response is sent when the last tombstone is
replicated, or when one could not be written. Then the offsets of that one are kept. A group without
members whose last offset is deleted goes too.

More than `DELETED_AT_ONCE` offsets are deleted a slice at a time, between turns of the event loop.
Members that come meanwhile end the deletion of their group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

from groups.coordinator.append_errors import COMMIT_ERRORS
from groups.coordinator.events import (
    BeginDeletion,
    DeleteGroup,
    DeleteOffsets,
    DeletionEnded,
    DeletionSlice,
    EndDeletion,
)
from groups.coordinator.membership.state import GroupState
from groups.coordinator.responses import Done
from groups.coordinator.shard import Deletion, GroupShard
from groups.coordinator.subscriptions import CONSUMER, topics_of
from groups.coordinator.tombstones import tombstones
from groups.runtime.effects import Append, Effect, Reply
from offsets.records import GroupKey, Key, OffsetKey
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition

DELETED_AT_ONCE = 1_000
"""Offsets that one event deletes: some 10 ms."""


def delete_group(shard: GroupShard, event: DeleteGroup, now_ms: int) -> list[Effect]:
    """Write a tombstone for each offset, and the last one for the group itself."""
    group_id = event.group_id
    group = shard.live_group(group_id)
    if group is not None and group.state is not GroupState.EMPTY:
        return [Reply(event.request_id, Done(ErrorCode.NON_EMPTY_GROUP))]

    # Clients that were given an id begin anew.
    if group is not None:
        group.take_back_all()
        shard.release_group(group_id)

    # The group's own record last: until then the group can be found, and deleted again.
    keys: list[Key] = [*sorted(set(_offset_keys(shard, group_id)))]
    key = GroupKey(group_id)
    if group_id in shard.groups or key in shard.in_flight:
        keys.append(key)
    if not keys:
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else ErrorCode.NONE
        return [Reply(event.request_id, Done(error))]
    return [*_appends(event, keys)]


def delete_offsets(shard: GroupShard, event: DeleteOffsets, now_ms: int) -> list[Effect]:
    """Write a tombstone for each of the partitions that has an offset."""
    group_id = event.group_id
    group = shard.live_group(group_id)
    if group_id not in shard.groups and group is None and not _has_offsets(shard, group_id):
        return [Reply(event.request_id, Done(ErrorCode.GROUP_ID_NOT_FOUND))]

    # Offsets of topics that a member subscribes to must stay.
    topics: frozenset[str] | None = frozenset()
    if group is not None and group.state is not GroupState.EMPTY:
        if group.protocol_type != CONSUMER:
            return [Reply(event.request_id, Done(ErrorCode.NON_EMPTY_GROUP))]
        topics = topics_of(group.protocol_type, group.subscriptions)

    refused = {
        topic_partition: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        for topic_partition in event.partitions
        # A subscription that nobody can read may be to any topic.
        if topics is None or topic_partition.topic in topics
    }
    deletable = {
        OffsetKey(group_id, *topic_partition)
        for topic_partition in event.partitions
        if topic_partition not in refused
    }
    keys: list[Key] = [*sorted(key for key in deletable if _is_kept(shard, key))]

    # It was listed until the next check of retention (fault outside-O12, was: False).
    is_forgotten = _has_nothing(shard, group_id, besides=deletable)
    if is_forgotten:
        keys.append(GroupKey(group_id))

    # As in Kafka, a partition that has no offset is no error.
    if not keys:
        return [Reply(event.request_id, Done(ErrorCode.NONE, refused))]
    return [*_appends(event, keys, refused)]


# ---- many offsets, a slice at a time


def begin_deletion(shard: GroupShard, event: BeginDeletion, now_ms: int) -> list[Effect]:
    """Note a deletion; from now on what is committed for the group stays."""
    group_id = event.group_id
    group = shard.live_group(group_id)
    has_members = group is not None and group.state is not GroupState.EMPTY
    if has_members and event.is_whole:
        return [Reply(event.request_id, Done(ErrorCode.NON_EMPTY_GROUP))]
    if not shard.knows(group_id) and not _has_offsets(shard, group_id):
        return [Reply(event.request_id, Done(ErrorCode.GROUP_ID_NOT_FOUND))]

    # Clients that were given an id begin anew.
    if event.is_whole and group is not None:
        group.take_back_all()
        shard.release_group(group_id)
    shard.deletions[event.request_id] = Deletion(group_id, event.is_whole)
    return []


def delete_some(shard: GroupShard, event: DeletionSlice, now_ms: int) -> list[Effect]:
    """Write tombstones for some offsets of a deletion that goes on."""
    deletion = shard.deletions.get(event.request_id)
    if deletion is None:
        return []

    # Members may have come since it began.
    group_id = event.group_id
    group = shard.live_group(group_id)
    topics: frozenset[str] | None = frozenset()
    if group is not None and group.state is not GroupState.EMPTY:
        if deletion.is_whole or group.protocol_type != CONSUMER:
            del shard.deletions[event.request_id]
            return [Reply(event.request_id, Done(ErrorCode.NON_EMPTY_GROUP))]
        topics = topics_of(group.protocol_type, group.subscriptions)

    keys = []
    for topic_partition in event.partitions:
        key = OffsetKey(group_id, *topic_partition)
        if topics is None or topic_partition.topic in topics:
            deletion.refused[topic_partition] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        elif key not in deletion.spared and _is_kept(shard, key):
            keys.append(key)
    return [*_append_slice(deletion, event, keys)]


def stop_slices(shard: GroupShard, event: EndDeletion, now_ms: int) -> list[Effect]:
    """Delete the group's own record last, and respond when all is written."""
    deletion = shard.deletions.get(event.request_id)
    if deletion is None:
        return []
    if event.error:
        del shard.deletions[event.request_id]
        return [Reply(event.request_id, Done(event.error))]

    deletion.is_over = True
    key = GroupKey(event.group_id)
    group = shard.live_group(event.group_id)
    if deletion.is_whole and group is not None and group.state is not GroupState.EMPTY:
        del shard.deletions[event.request_id]
        return [Reply(event.request_id, Done(ErrorCode.NON_EMPTY_GROUP))]
    is_recorded = event.group_id in shard.groups or key in shard.in_flight
    if deletion.is_whole and is_recorded:
        return [*_append_slice(deletion, event, [key])]
    return _go_on(shard, event, deletion)


def _append_slice(
    deletion: Deletion, event: DeletionSlice | EndDeletion | DeletionEnded, keys: Sequence[Key]
) -> list[Append]:
    appends = tombstones(
        keys, then=lambda removed: DeletionEnded(event.request_id, event.group_id, is_last=False)
    )
    deletion.begun += len(appends)
    return appends


def _go_on(
    shard: GroupShard, event: EndDeletion | DeletionEnded, deletion: Deletion
) -> list[Effect]:
    """Respond if all is written, the record of a group that has nothing left among it."""
    if not deletion.is_over or deletion.ended < deletion.begun:
        return []

    if not deletion.is_whole and _has_nothing(shard, event.group_id):
        return [*_append_slice(deletion, event, [GroupKey(event.group_id)])]
    del shard.deletions[event.request_id]
    return [Reply(event.request_id, Done(ErrorCode.NONE, deletion.refused))]


def _has_nothing(shard: GroupShard, group_id: str, besides: Set[OffsetKey] = frozenset()) -> bool:
    """Return whether a group has a record, but neither members nor offsets besides these."""
    group = shard.live_group(group_id)
    is_empty = group is None or group.state is GroupState.EMPTY
    if not is_empty or group_id not in shard.groups:
        return False
    keys = _offset_keys(shard, group_id)
    # The first that is left is enough (fault strangers-148, was: not set(keys) - besides).
    return all(key in besides for key in keys)


def _has_offsets(shard: GroupShard, group_id: str) -> bool:
    return next(_offset_keys(shard, group_id), None) is not None


def _is_kept(shard: GroupShard, key: OffsetKey) -> bool:
    return shard.offsets.value(key) is not None or shard.is_unstable(key)


def end_deletion(shard: GroupShard, event: DeletionEnded, now_ms: int) -> list[Effect]:
    """Respond when the last append ended, or one failed; the first response counts."""
    shard.release_group(event.group_id)
    deletion = shard.deletions.get(event.request_id)
    if deletion is not None and not event.error:
        deletion.ended += 1
        return _go_on(shard, event, deletion)
    shard.deletions.pop(event.request_id, None)
    if not event.error and not event.is_last:
        return []
    error = COMMIT_ERRORS.get(event.error, event.error)
    return [Reply(event.request_id, Done(error, event.refused))]


def _offset_keys(shard: GroupShard, group_id: str) -> Iterator[OffsetKey]:
    """Yield the keys of all offsets that are committed, in flight, or in a transaction.

    A key may come twice. Whoever looks for a few need not go through all: `kgroup delete-offsets`
    sends a request for each hundred.
    """
    yield from shard.offsets.keys_of(group_id)
    yield from shard.offsets_in_flight(group_id)
    yield from shard.staged_offsets(group_id)


def _appends(
    event: DeleteGroup | DeleteOffsets,
    keys: list[Key],
    refused: Mapping[TopicPartition, ErrorCode] | None = None,
) -> list[Append]:
    # The append that has the last key is the last of them.
    return tombstones(
        keys,
        then=lambda removed: DeletionEnded(
            event.request_id, event.group_id, removed[-1] == keys[-1], refused or {}
        ),
    )
