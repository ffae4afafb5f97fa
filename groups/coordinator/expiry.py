"""When committed offsets expire, and what is kept of their group with them (KIP-211).

| the group | which of its offsets expire | the retention counts from |
|---|---|---|
| only commits, and never had a member | all | its commit, for each |
| has no members any more | all | when it lost the last; its commit, if the record is too old |
| has members that are consumers | of topics none of them subscribes to (KAFKA-8730) | its commit |
| has other members | none | |

Where a committer asked for a time of its own (OffsetCommit 2-4), that counts in place of the
retention. What is being committed does not expire. A group that has neither members nor offsets is
forgotten altogether.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from groups.coordinator.events import RemovalEnded, RetentionCheck
from groups.coordinator.shard import GroupShard
from groups.coordinator.subscriptions import subscribed_topics
from groups.coordinator.tombstones import tombstones
from groups.runtime.effects import Append, Effect
from offsets.records import NO_TIMESTAMP, GroupKey, GroupMetadata, Key, OffsetKey, times_of

EXPIRY_SLICE = 500
"""Offsets looked at, and tombstones written, between two turns of the loop: up to 4 ms."""

IsExpired = Callable[[str, bytes], bool]
"""By topic and value."""


def group_slices(shard: GroupShard) -> Iterator[list[str]]:
    """All groups, some at a time: those that have EXPIRY_SLICE offsets together, or one more."""
    group_ids = [*shard.groups, *(g for g in shard.offsets.groups() if g not in shard.groups)]
    taken: list[str] = []
    offsets = 0
    for group_id in group_ids:
        taken.append(group_id)
        offsets += 1 + shard.offsets.count_of(group_id)
        if offsets >= EXPIRY_SLICE:
            yield taken
            taken, offsets = [], 0
    if taken:
        yield taken


def expire(shard: GroupShard, event: RetentionCheck, now_ms: int) -> list[Effect]:
    """Write tombstones for what has expired of the event's groups, up to `event.most` of them."""
    effects: list[Effect] = []
    left = event.most
    busy_groups = {key.group for key in shard.in_flight}
    for group_id in event.group_ids:
        expired = _expired_keys(shard, group_id, event, now_ms, is_busy=group_id in busy_groups)
        keys = list(islice(expired, left))
        left -= len(keys)
        effects += _appends(group_id, keys)
    return effects


def _appends(group_id: str, keys: list[Key]) -> list[Append]:
    return tombstones(keys, then=lambda _: RemovalEnded(group_id))


def _expired_keys(
    shard: GroupShard, group_id: str, event: RetentionCheck, now_ms: int, *, is_busy: bool
) -> Iterator[Key]:
    """Go through keys to remove; the group's own comes last, if it has nothing else and nobody."""
    metadata = shard.groups.get(group_id)
    is_expired = _rule(metadata, now_ms, event.retention_ms)
    left = shard.offsets.count_of(group_id)
    if is_expired is not None:
        for topic, partition, value in shard.offsets.values_of(group_id):
            if is_expired(topic, value):
                key = OffsetKey(group_id, topic, partition)
                if key not in shard.in_flight:
                    left -= 1
                    yield key

    if metadata is not None and not metadata.members and not left and not is_busy:
        yield GroupKey(group_id)


def _rule(metadata: GroupMetadata | None, now_ms: int, retention_ms: int) -> IsExpired | None:
    """How to tell what has expired; None where nothing does."""
    since_ms = NO_TIMESTAMP
    subscribed: frozenset[str] = frozenset()
    if metadata is not None and metadata.members:
        found = subscribed_topics(metadata)
        if found is None:
            return None
        subscribed = found
    elif metadata is not None and metadata.protocol_type:
        since_ms = metadata.state_timestamp_ms

    def is_expired(topic: str, value: bytes) -> bool:
        commit_ms, expire_ms = times_of(value)
        if topic in subscribed:
            return False
        if expire_ms is not None:
            return now_ms >= expire_ms
        begins_ms = commit_ms if since_ms == NO_TIMESTAMP else since_ms
        return now_ms - begins_ms >= retention_ms

    return is_expired
