"""The one function a group is: what an event makes of it, as effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from groups.coordinator.commits import commit, committed
from groups.coordinator.deletions import drop, drop_stale, dropped
from groups.coordinator.effects import Effect
from groups.coordinator.events import (
    CommitOffsets,
    Committed,
    DeleteGroup,
    DeleteOffsets,
    Dropped,
    Event,
    PartitionsDeleted,
    Removed,
    RetentionCheck,
    StaleOffsets,
)
from groups.coordinator.expiry import expire
from groups.coordinator.group_deletion import delete_group, delete_offsets, removed
from groups.coordinator.shard import Shard


def decide(shard: Shard, event: Event) -> list[Effect]:
    """Say what `event` leads to. Does nothing itself, and changes nothing."""
    return DECIDE[type(event)](shard, event)


DECIDE: dict[type[Event], Callable[[Shard, Any], list[Effect]]] = {
    CommitOffsets: commit,
    Committed: committed,
    DeleteGroup: delete_group,
    DeleteOffsets: delete_offsets,
    Removed: removed,
    PartitionsDeleted: drop,
    StaleOffsets: drop_stale,
    RetentionCheck: expire,
    Dropped: dropped,
}
