"""Ask coordinators where groups stand, for a history that cannot read `__consumer_offsets`."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence

import attrs

from clients.admin import Admin
from clients.command_line.missing_rights import (
    find_hidden_groups,
    find_hidden_offsets,
    hidden_among,
)
from clients.command_line.output import Failure
from clients.errors import KgroupError
from clients.paced import paced
from clients.watching.commit_history import Commit
from clients.watching.history import MAX_GROUPS_PER_SECOND, History
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

UNKNOWN_TIME_MS = -1
"""Time of a commit that nobody saw being made."""


async def ask_offsets(
    admin: Admin, history: History, group_ids: Collection[str] | None = None
) -> History:
    """Return the history with the offsets of now as each group's last commits; None: all groups.

    Groups in ZooKeeper stay as they are. Of the others, what cannot be read is among `failures`.
    Raises KgroupError if no broker can be asked.
    """
    failures = list(history.failures)
    if group_ids is None:
        group_ids = set()
        failures += await find_hidden_groups(admin)
        for broker, result in (await admin.groups_of_each_broker()).items():
            if isinstance(result, KgroupError):
                failures.append(Failure.of(f"broker {broker.node_id}", result))
            else:
                group_ids |= {group.group_id for group in result}
    asked = set(group_ids) - history.in_zookeeper

    # A recording has groups too that were deleted since.
    kept = asked | history.in_zookeeper
    commits = {name: own for name, own in history.commits.items() if name in kept}
    bare = []
    async for some in paced(sorted(asked), MAX_GROUPS_PER_SECOND):
        for group_id, offsets in (await admin.offsets_of_each_group(some)).items():
            if isinstance(offsets, KgroupError):
                failures.append(Failure.of(group_id, offsets))
                continue
            bare += [] if offsets else [group_id]
            known = commits.get(group_id, ())
            now_ms = time.time_ns() // 1_000_000
            since = commits_since(known, group_id, offsets, now_ms)
            deleted = {commit.topic for commit in since if commit.offset is None}
            hidden = await hidden_among(admin, deleted)
            commits[group_id] = [
                *known,
                *(commit for commit in since if commit.topic not in hidden),
            ]
    failures += await find_hidden_offsets(admin, bare)
    return attrs.evolve(history, commits=commits, failures=failures)


def commits_since(
    known: Sequence[Commit],
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    now_ms: int,
) -> list[Commit]:
    """Return the commits that lead from the known ones to the offsets of now."""
    last = {commit.topic_partition: commit.offset for commit in known}
    moved = [
        Commit(
            now_ms if partition in last else UNKNOWN_TIME_MS, group_id, *partition, committed.offset
        )
        for partition, committed in offsets.items()
        if last.get(partition) != committed.offset
    ]
    deleted = [partition for partition, offset in last.items() if offset is not None]
    return moved + [
        Commit(now_ms, group_id, *partition, None)
        for partition in deleted
        if partition not in offsets
    ]
