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
replicated, or when one could not be written. Then the offsets of that one are kept.
"""

from __future__ import annotations

from collections.abc import Mapping

from groups.coordinator.append_errors import COMMIT_ERRORS
from groups.coordinator.events import DeleteGroup, DeleteOffsets, DeletionEnded
from groups.coordinator.membership.state import GroupState
from groups.coordinator.responses import Done
from groups.coordinator.shard import GroupShard
from groups.coordinator.subscriptions import CONSUMER, topics_of
from groups.coordinator.tombstones import tombstones
from groups.runtime.effects import Append, Effect, Reply
from offsets.records import GroupKey, Key, OffsetKey
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition


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
    keys: list[Key] = [*sorted(_offset_keys(shard, group_id))]
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
    committed = _offset_keys(shard, group_id)
    if group_id not in shard.groups and group is None and not committed:
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
    keys: list[Key] = [*sorted(committed & deletable)]

    # As in Kafka, a partition that has no offset is no error.
    if not keys:
        return [Reply(event.request_id, Done(ErrorCode.NONE, refused))]
    return [*_appends(event, keys, refused)]


def end_deletion(shard: GroupShard, event: DeletionEnded, now_ms: int) -> list[Effect]:
    """Respond when the last append ended, or one failed; the first response counts."""
    shard.release_group(event.group_id)
    if not event.error and not event.is_last:
        return []
    error = COMMIT_ERRORS.get(event.error, event.error)
    return [Reply(event.request_id, Done(error, event.refused))]


def _offset_keys(shard: GroupShard, group_id: str) -> set[OffsetKey]:
    """Return the keys of all offsets that are committed, in flight, or in a transaction."""
    committed = {
        OffsetKey(group_id, topic, partition)
        for topic, partition, _ in shard.offsets.values_of(group_id)
    }
    return committed | shard.offsets_in_flight(group_id) | shard.staged_offsets(group_id)


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
