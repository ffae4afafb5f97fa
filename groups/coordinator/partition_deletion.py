"""Committed offsets of partitions that are deleted (KAFKA-2000).

They are removed as they were written, by records. Without that, groups would begin in the middle of
a topic that is created again under the old name. The removal goes a slice at a time. An offset that
is committed for such a partition meanwhile stays, because the topic exists again.

A removal that cannot be written is retried later, for the offsets that are still the same.

Offsets of a topic that was deleted and created again while nobody heard of it are found otherwise
(`broker.coordinators.earlier_topics`), and removed likewise.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import islice

from groups.coordinator.events import (
    DeletedPartitionsSlice,
    OffsetsOutdated,
    PartitionsDeleted,
    PartitionsSwept,
    RemovalEnded,
    RetryDeletions,
)
from groups.coordinator.shard import GroupShard
from groups.coordinator.tombstones import tombstones
from groups.runtime.effects import Append, Effect
from offsets.records import OffsetKey
from protocol.topic_partition import TopicPartition


def begin_sweep(shard: GroupShard, event: PartitionsDeleted, now_ms: int) -> list[Effect]:
    """Remove the commits in flight, and in transactions: each is replayed before its tombstone."""
    # Deleted once more: what was committed between the two deletions is not spared.
    shard.recommitted = {key for key in shard.recommitted if not _is_of(key, event.partitions)}
    shard.deleting.append(event.partitions)
    return _appends(key for key in shard.unstable_offsets() if _is_of(key, event.partitions))


def delete_slice(shard: GroupShard, event: DeletedPartitionsSlice, now_ms: int) -> list[Effect]:
    """Remove offsets, except those with a tombstone in flight and those committed again."""
    return _appends(
        key for key in event.keys if key not in shard.in_flight and key not in shard.recommitted
    )


def end_sweep(shard: GroupShard, event: PartitionsSwept, now_ms: int) -> list[Effect]:
    """Remove the keys that were committed again, unless another sweep must spare them."""
    assert event.partitions in shard.deleting, "a sweep ends once"
    shard.deleting.remove(event.partitions)
    shard.recommitted = {key for key in shard.recommitted if shard.is_deleting(key)}
    return []


def delete_outdated(shard: GroupShard, event: OffsetsOutdated, now_ms: int) -> list[Effect]:
    """Remove offsets of earlier topics, unless there is a commit for the present one."""
    for key in event.values:
        shard.hidden.pop(key, None)
    return _appends(
        key
        for key, value in event.values.items()
        if shard.offsets.value(key) == value and not shard.is_unstable(key)
    )


def retry_deletions(shard: GroupShard, event: RetryDeletions, now_ms: int) -> list[Effect]:
    """Remove some of the stale offsets, if they are still the same."""
    retried = dict(islice(shard.stale.items(), event.max_offsets))

    # A retry that fails puts its keys back (`end_removal`).
    for key in retried:
        del shard.stale[key]

    return _appends(
        key
        for key, value in retried.items()
        if shard.offsets.value(key) == value and not shard.is_unstable(key)
    )


def end_removal(shard: GroupShard, event: RemovalEnded, now_ms: int) -> list[Effect]:
    """Keep the offsets of a deletion that was not written, for a retry."""
    shard.release_group(event.group_id)
    if event.error:
        for key in event.deleted:
            # A key without a value is gone already.
            value = shard.offsets.value(key)
            if value is not None:
                shard.stale[key] = value
    return []


def _is_of(key: OffsetKey, partitions: frozenset[TopicPartition]) -> bool:
    return TopicPartition(key.topic, key.partition) in partitions


def _appends(keys: Iterable[OffsetKey]) -> list[Effect]:
    by_group: dict[str, list[OffsetKey]] = {}
    for key in sorted(set(keys)):
        by_group.setdefault(key.group, []).append(key)

    appends: list[Append] = []
    for group_id, group_keys in by_group.items():
        appends += tombstones(group_keys, then=partial(RemovalEnded, group_id))
    return [*appends]
