"""What becomes of committed offsets when the partitions they are of are deleted (KAFKA-2000).

They are removed as they were written, by records. Without that, groups would begin in the middle of
a topic that is created anew under the old name. Where that cannot be written it is tried again, for
those offsets that are still the same: the topic may be there again, and its offsets be true ones.
"""

from __future__ import annotations

from functools import partial

from groups.coordinator.effects import Append, DropLater, Effect
from groups.coordinator.events import Dropped, PartitionsDeleted, StaleOffsets
from groups.coordinator.shard import Shard
from groups.coordinator.tombstones import tombstones
from offsets.records import OffsetKey


def drop(shard: Shard, event: PartitionsDeleted) -> list[Effect]:
    """A tombstone for each offset of the partitions.

    What is under way gets one too: it will be replayed before.
    """
    return [*_appends({key for key in event.keys if key not in event.spared})]


def drop_stale(shard: Shard, event: StaleOffsets) -> list[Effect]:
    """Once more, for what nobody has committed anew."""
    same = {key for key, value in event.values.items() if shard.offsets.value(key) == value}
    return [*_appends(same - event.under_way)]


def dropped(shard: Shard, event: Dropped) -> list[Effect]:
    """Nobody waits for it; what was not written of a deletion is for later."""
    if not event.error:
        return []
    kept = {key: shard.offsets.value(key) for key in event.deleted}
    stale = {key: value for key, value in kept.items() if value is not None}
    return [DropLater(stale)] if stale else []


def _appends(keys: set[OffsetKey]) -> list[Append]:
    by_group: dict[str, list[OffsetKey]] = {}
    for key in sorted(keys):
        by_group.setdefault(key.group, []).append(key)
    appends: list[Append] = []
    for group_id, of_group in by_group.items():
        appends += tombstones(of_group, then=partial(Dropped, group_id))
    return appends
