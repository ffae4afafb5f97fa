"""Expiry of committed offsets, and of their groups (KIP-211).

| the group | which of its offsets expire | the retention counts from |
|---|---|---|
| only commits, and never had a member | all | its commit, for each |
| has lost its members | all | when it lost the last; its commit, if the record is too old |
| has members that are consumers | of topics none of them subscribes to (KAFKA-8730) | its commit |
| has other members, or is rebalancing | none | |

Where a committer asked for a retention of its own (OffsetCommit 2-4), that one counts. An offset
with a commit in flight, or in an open transaction, does not expire. A group with neither members
nor offsets is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from groups.coordinator.events import RemovalEnded, RetentionCheck
from groups.coordinator.membership.group import Group
from groups.coordinator.membership.state import GroupState
from groups.coordinator.shard import GroupShard
from groups.coordinator.subscriptions import topics_of
from groups.coordinator.tombstones import tombstones
from groups.runtime.effects import Append, Effect
from offsets.records import NO_TIMESTAMP, GroupKey, GroupMetadata, Key, OffsetKey, times_of

EXPIRY_SLICE = 500
"""Groups and offsets examined between two turns of the loop: up to 4 ms."""

IsExpired = Callable[[str, bytes], bool]
"""Returns whether an offset has expired, by its topic and encoded value."""


def retention_checks(shard: GroupShard, retention_ms: int) -> Iterator[RetentionCheck]:
    """Go through all groups, EXPIRY_SLICE of them and their offsets at a time.

    A larger group comes by itself, a part of its offsets after the other.
    """
    # A copy: groups come and go between two slices.
    only_commit = [group_id for group_id in shard.offsets.groups() if group_id not in shard.groups]
    taken: list[str] = []
    left = EXPIRY_SLICE
    for group_id in [*shard.groups, *only_commit]:
        # A group without offsets takes its time too.
        size = 1 + shard.offsets.count_of(group_id)
        if size > left and taken:
            yield RetentionCheck(taken, retention_ms)
            taken = []
            left = EXPIRY_SLICE

        if size <= left:
            taken.append(group_id)
            left -= size
        else:
            keys = shard.offsets.keys_of(group_id)
            while part := list(islice(keys, EXPIRY_SLICE)):
                yield RetentionCheck([group_id], retention_ms, part)

    if taken:
        yield RetentionCheck(taken, retention_ms)


def expire(shard: GroupShard, event: RetentionCheck, now_ms: int) -> list[Effect]:
    """Write tombstones for what has expired of the event's groups, or of its keys."""
    effects: list[Effect] = []
    for group_id in event.group_ids:
        # A group with any record in flight is not deleted yet.
        keys = _expired_keys(shard, group_id, event, now_ms, is_busy=shard.has_in_flight(group_id))
        effects += _appends(group_id, list(keys))
    return effects


def _appends(group_id: str, keys: list[Key]) -> list[Append]:
    return tombstones(keys, then=lambda _: RemovalEnded(group_id))


def _expired_keys(
    shard: GroupShard, group_id: str, event: RetentionCheck, now_ms: int, *, is_busy: bool
) -> Iterator[Key]:
    """Go through keys to remove; the group's own comes last, if no offset and no member is left."""
    group = shard.live_group(group_id)
    is_empty = group is None or group.state is GroupState.EMPTY
    is_recorded = group_id in shard.groups
    # What a live group has is not read from its record, which would have to be decoded.
    metadata = shard.groups[group_id] if is_recorded and group is None else None
    is_expired = _rule(metadata, group, now_ms, event.retention_ms)
    left = shard.offsets.count_of(group_id)

    # Offsets that have expired.
    if is_expired is not None:
        for topic, partition, value in _examined(shard, group_id, event):
            if is_expired(topic, value):
                key = OffsetKey(group_id, topic, partition)
                if not shard.is_unstable(key):
                    left -= 1
                    yield key

    # The group itself, when nothing of it is left, in flight or in a transaction.
    is_busy = is_busy or shard.has_staged(group_id)
    if is_recorded and is_empty and not left and not is_busy:
        yield GroupKey(group_id)


def _examined(
    shard: GroupShard, group_id: str, event: RetentionCheck
) -> Iterator[tuple[str, int, bytes]]:
    """Go through a group's offsets, or those of them that the event names and that are left."""
    if event.keys is None:
        yield from shard.offsets.values_of(group_id)
        return
    for key in event.keys:
        value = shard.offsets.value(key)
        if value is not None:
            yield key.topic, key.partition, value


def _rule(
    metadata: GroupMetadata | None, group: Group | None, now_ms: int, retention_ms: int
) -> IsExpired | None:
    """Return the rule for a group's offsets (see the table above); None if none of them expires."""
    since_ms = NO_TIMESTAMP
    subscribed: frozenset[str] = frozenset()

    # Members: what they subscribe to stays, however old (KAFKA-8730). It is known of a stable
    # group alone (KAFKA-13636).
    if group is not None and group.state is not GroupState.EMPTY:
        topics = topics_of(group.protocol_type, group.subscriptions) if group.is_stable else None
        if topics is None:
            return None
        subscribed = topics
    elif group is not None and group.protocol_type:
        since_ms = group.state_since_ms
    elif metadata is not None and metadata.protocol_type:
        # When the last member left. A record before v2 does not say it: -1.
        since_ms = metadata.state_timestamp_ms

    def is_expired(topic: str, value: bytes) -> bool:
        commit_ms, expire_ms = times_of(value)

        # A subscribed topic keeps its offsets; a time of the committer's own comes next.
        if topic in subscribed:
            return False
        if expire_ms is not None:
            return now_ms >= expire_ms

        begins_ms = commit_ms if since_ms == NO_TIMESTAMP else since_ms
        return now_ms - begins_ms >= retention_ms

    return is_expired
