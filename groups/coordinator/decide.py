"""The coordinator's decision function: (shard, event, now_ms) -> effects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from groups.coordinator.commits import commit, end_commit
from groups.coordinator.events import (
    BeginDeletion,
    CommitEnded,
    CommitInTransaction,
    CommitOffsets,
    DeletedPartitionsSlice,
    DeleteGroup,
    DeleteOffsets,
    DeletionEnded,
    DeletionSlice,
    EndDeletion,
    EndTransaction,
    GroupsLoaded,
    OffsetEvent,
    OffsetsOutdated,
    PartitionsDeleted,
    PartitionsSwept,
    RemovalEnded,
    RetentionCheck,
    RetryDeletions,
    TransactionEnded,
)
from groups.coordinator.expiry import expire
from groups.coordinator.group_deletion import (
    begin_deletion,
    delete_group,
    delete_offsets,
    delete_some,
    end_deletion,
    stop_slices,
)
from groups.coordinator.membership.events import (
    AssignmentStored,
    Disconnected,
    EmptyGroupStored,
    Heartbeat,
    HoldEnded,
    Join,
    Leave,
    MemberEvent,
    ReplacementStored,
    SessionExpired,
    Sync,
    WaitEnded,
)
from groups.coordinator.membership.heartbeat import beat, end_parked, expire_session
from groups.coordinator.membership.join import join
from groups.coordinator.membership.leave import end_hold, leave
from groups.coordinator.membership.loading import end_empty, load, unload
from groups.coordinator.membership.static_members import end_replacement
from groups.coordinator.membership.sync import end_store, sync
from groups.coordinator.membership.waiting import end_wait
from groups.coordinator.partition_deletion import (
    begin_sweep,
    delete_outdated,
    delete_slice,
    end_removal,
    end_sweep,
    retry_deletions,
)
from groups.coordinator.shard import GroupShard
from groups.coordinator.transactional_commits import (
    commit_in_transaction,
    end_marker,
    write_marker,
)
from groups.runtime.effects import Effect
from groups.runtime.events import Unloaded

Event = OffsetEvent | MemberEvent | Unloaded


def decide(shard: GroupShard, event: Event, now_ms: int) -> Sequence[Effect]:
    """Return the effects of `event`.

    Stored state does not change: that is left to replay. `now_ms` is the wall clock.
    """
    return DECIDE[type(event)](shard, event, now_ms)


DECIDE: dict[type[Event], Callable[[GroupShard, Any, int], Sequence[Effect]]] = {
    # Offsets.
    CommitOffsets: commit,
    CommitInTransaction: commit_in_transaction,
    CommitEnded: end_commit,
    EndTransaction: write_marker,
    TransactionEnded: end_marker,
    DeleteGroup: delete_group,
    DeleteOffsets: delete_offsets,
    DeletionEnded: end_deletion,
    BeginDeletion: begin_deletion,
    DeletionSlice: delete_some,
    EndDeletion: stop_slices,
    PartitionsDeleted: begin_sweep,
    DeletedPartitionsSlice: delete_slice,
    PartitionsSwept: end_sweep,
    OffsetsOutdated: delete_outdated,
    RetryDeletions: retry_deletions,
    RetentionCheck: expire,
    RemovalEnded: end_removal,
    # Members.
    Join: join,
    Sync: sync,
    Heartbeat: beat,
    Leave: leave,
    Disconnected: end_parked,
    SessionExpired: expire_session,
    WaitEnded: end_wait,
    HoldEnded: end_hold,
    AssignmentStored: end_store,
    EmptyGroupStored: end_empty,
    ReplacementStored: end_replacement,
    # The shard as a whole.
    GroupsLoaded: load,
    Unloaded: unload,
}
