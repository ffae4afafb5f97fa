"""What DeleteGroups (KIP-229) and OffsetDelete (KIP-496) remove: a group, or some of its offsets.

| the group | DeleteGroups | OffsetDelete |
|---|---|---|
| of which nothing is kept | GROUP_ID_NOT_FOUND | GROUP_ID_NOT_FOUND |
| has no members | all that is kept of it goes | the offsets go |
| has members that are consumers | NON_EMPTY_GROUP | GROUP_SUBSCRIBED_TO_TOPIC for their topics |
| has other members | NON_EMPTY_GROUP | NON_EMPTY_GROUP |

What is being committed is there already: its tombstone comes behind it. A commit that arrives later
stays, and a group is there again with it. The request is answered once the last tombstone is
replicated, or when one could not be written: what that one was to remove is kept.
"""

from __future__ import annotations

from collections.abc import Mapping

from groups.coordinator.commits import APPEND_ERRORS
from groups.coordinator.effects import Append, Effect, Reply
from groups.coordinator.events import DeleteGroup, DeleteOffsets, Removed
from groups.coordinator.shard import Shard
from groups.coordinator.subscriptions import subscribed_topics
from groups.coordinator.tombstones import tombstones
from offsets.records import GroupKey, Key, OffsetKey
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition


def delete_group(shard: Shard, event: DeleteGroup) -> list[Effect]:
    """A tombstone for each offset, and the last for the group itself."""
    group_id, metadata = event.group_id, shard.groups.get(event.group_id)
    if metadata is not None and metadata.members:
        return [Reply(event.request_id, ErrorCode.NON_EMPTY_GROUP)]
    keys: list[Key] = [*sorted(_offset_keys(shard, group_id, event.under_way))]
    if metadata is not None:
        keys.append(GroupKey(group_id))
    if not keys:
        return [Reply(event.request_id, ErrorCode.GROUP_ID_NOT_FOUND)]
    return [*_appends(event, keys)]


def delete_offsets(shard: Shard, event: DeleteOffsets) -> list[Effect]:
    """A tombstone for each of the offsets that is there; none is needed for the others."""
    group_id, metadata = event.group_id, shard.groups.get(event.group_id)
    there = _offset_keys(shard, group_id, event.under_way)
    if metadata is None and not there:
        return [Reply(event.request_id, ErrorCode.GROUP_ID_NOT_FOUND)]
    topics: frozenset[str] | None = frozenset()
    if metadata is not None and metadata.members:
        topics = subscribed_topics(metadata)
    if topics is None:
        return [Reply(event.request_id, ErrorCode.NON_EMPTY_GROUP)]
    refused = {
        tp: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC for tp in event.partitions if tp.topic in topics
    }
    wanted = {OffsetKey(group_id, *tp) for tp in event.partitions if tp not in refused}
    keys: list[Key] = [*sorted(there & wanted)]
    if not keys:
        return [Reply(event.request_id, ErrorCode.NONE, refused)]
    return [*_appends(event, keys, refused)]


def removed(shard: Shard, event: Removed) -> list[Effect]:
    """Answer a request whose last write came to its end, or any with an error."""
    if not event.error and not event.is_last:
        return []
    error = APPEND_ERRORS.get(event.error, event.error)
    return [Reply(event.request_id, error, event.refused)]


def _offset_keys(shard: Shard, group_id: str, under_way: frozenset[OffsetKey]) -> set[OffsetKey]:
    kept = shard.offsets.values_of(group_id)
    return {OffsetKey(group_id, topic, partition) for topic, partition, _ in kept} | under_way


def _appends(
    event: DeleteGroup | DeleteOffsets,
    keys: list[Key],
    refused: Mapping[TopicPartition, ErrorCode] | None = None,
) -> list[Append]:
    return tombstones(
        keys,
        then=lambda taken: Removed(
            event.request_id, event.group_id, taken[-1] == keys[-1], refused or {}
        ),
    )
