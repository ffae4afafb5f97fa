"""What becomes of committed offsets when the partitions they are of are deleted (KAFKA-2000).

They are removed as they were written, by records. Without that, groups would begin in the middle of
a topic that is created anew under the old name.
"""

from __future__ import annotations

from groups.coordinator.effects import Append, Effect
from groups.coordinator.events import Dropped, PartitionsDeleted
from groups.coordinator.shard import Shard
from offsets.records import Record


def drop(shard: Shard, event: PartitionsDeleted) -> list[Effect]:
    """A tombstone for each offset of the partitions, in one append for each group.

    What is under way gets one too: it will be replayed before.
    """
    under_way = [key for key in event.under_way if key[1:] in event.partitions]
    tombstones: dict[str, list[Record]] = {}
    for key in sorted({*shard.offsets.keys_of(event.partitions), *under_way}):
        tombstones.setdefault(key.group, []).append((key, None))
    return [Append(records, then=Dropped(group)) for group, records in tombstones.items()]


def dropped(shard: Shard, event: Dropped) -> list[Effect]:
    """Nobody waits for it."""
    return []
