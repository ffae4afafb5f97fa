"""Expiry of committed offsets, and of their groups (KIP-211).

| the group | which of its offsets expire | the retention counts from |
|---|---|---|
| only commits, and never had a member | all | its commit, for each |
| has lost its members | all | when it lost the last; its commit, if the record is too old |
| has members that are consumers | of topics none of them subscribes to (KAFKA-8730) | its commit |
| has other members, or is rebalancing | none | |

Where a committer asked for a retention of its own (OffsetCommit 2-4), that one counts. An offset
with a commit in flight does not expire. A group with neither members nor offsets is deleted.
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
"""Offsets examined, and tombstones written, between two turns of the loop: up to 4 ms."""

IsExpired = Callable[[str, bytes], bool]
"""Returns whether an offset has expired, by its topic and encoded value."""


def group_slices(shard: GroupShard) -> Iterator[list[str]]:
    """Go through all groups in slices of about EXPIRY_SLICE offsets."""
    # A copy: groups come and go between two slices.
    only_commit = [group_id for group_id in shard.offsets.groups() if group_id not in shard.groups]
    taken: list[str] = []
    offsets = 0
    for group_id in [*shard.groups, *only_commit]:
        taken.append(group_id)
        # A group without offsets takes its time too.
        offsets += 1 + shard.offsets.count_of(group_id)
        if offsets >= EXPIRY_SLICE:
            yield taken
            taken = []
            offsets = 0
    if taken:
        yield taken


def expire(shard: GroupShard, event: RetentionCheck, now_ms: int) -> list[Effect]:
    """Write tombstones for what has expired of the event's groups, up to `event.max_keys`."""
    effects: list[Effect] = []
    left = event.max_keys
    busy_groups = {key.group for key in shard.in_flight}
    for group_id in event.group_ids:
        # A group with any record in flight is not deleted yet.
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
        for topic, partition, value in shard.offsets.values_of(group_id):
            if is_expired(topic, value):
                key = OffsetKey(group_id, topic, partition)
                if key not in shard.in_flight:
                    left -= 1
                    yield key

    # The group itself, when nothing of it is left or in flight.
    if is_recorded and is_empty and not left and not is_busy:
        yield GroupKey(group_id)


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
