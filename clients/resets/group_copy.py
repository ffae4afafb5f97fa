"""Plan to give a group the offsets of another one, in the same cluster or in another."""

import contextlib
from collections.abc import Mapping

import attrs

from clients.admin import Admin
from clients.command_line.output import Failure
from clients.command_line.sessions import Sessions
from clients.errors import BrokerError, DeadlineExceeded, KgroupError, from_zookeeper
from clients.fetch_requests import Isolation
from clients.first_timestamps import FirstRecords, read_first_records
from clients.groups.group_facts import GroupFacts
from clients.groups.group_reader import GroupReader
from clients.resets.offset_change import OffsetChange
from clients.resets.offset_export import STORES
from clients.resets.reset import ResetPlan, plan_reset, read_logs
from clients.resets.reset_plan import (
    LogRange,
    PlannedOffset,
    ToOffsets,
    held_in,
    kept_by,
    refusal,
    stores_of,
)
from protocol.errors import ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from zk.api import get_if_there
from zk.consumer_znodes import ConsumerGroup
from zk.migration_znodes import GroupMigration
from zk.znode_json import ZnodeError


async def read_source(sessions: Sessions, group_id: str) -> tuple[GroupFacts, list[Failure]]:
    """Return the group that is copied; none, or open, offsets are a failure."""
    # What an open transaction commits later would be lost to the copy (fault strangers-41).
    open_transaction = await _find_unstable(sessions, group_id)
    reader = GroupReader(sessions)
    facts = await reader.group(group_id)
    failures = list(reader.failures)
    if not failures and not current_offsets(facts):
        text = f"Consumer group '{group_id}' has no committed offsets."
        failures.append(Failure(group_id, ErrorCode.GROUP_ID_NOT_FOUND.name, text))
    return facts, [*open_transaction, *failures]


async def _find_unstable(sessions: Sessions, group_id: str) -> list[Failure]:
    """Return a failure if a transaction that has offsets of the group stays open."""
    try:
        await sessions.admin.group_offsets(group_id, require_stable=True)
    except DeadlineExceeded as late:
        error = late.__cause__
        if isinstance(error, BrokerError) and error.code is ErrorCode.UNSTABLE_OFFSET_COMMIT:
            text = f"a transaction is open that has offsets of group '{group_id}': wait for its end"
            return [Failure(group_id, error.code.name, text)]
    except KgroupError:
        # Whoever reads all of the group meets it again, and tells of it.
        pass
    return []


def current_offsets(facts: GroupFacts) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets that count, with their metadata."""
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    for partition in sorted(facts.partitions):
        winner = facts.winner(partition)
        committed = None if winner is None else held_in(facts, winner, partition)
        if committed is not None:
            offsets[partition] = committed
    return offsets


async def plan_copy(sessions: Sessions, source: GroupFacts, group_id: str) -> ResetPlan:
    """Plan a copy in the same cluster: each store gets what it has of the source.

    Where it is known which store counts, as after a migration, the others get the offset that does:
    the members of the copy need not follow the source's migration. So does a store that the copy's
    own members read, if it exists already.
    """
    reader = GroupReader(sessions)
    facts = await reader.group(group_id)
    has_migration = await is_migrated(sessions, source.group)
    is_known = source.storage is not None or facts.storage is not None
    rows = []
    for partition, committed in current_offsets(source).items():
        changes = []
        for store in _stores_of_copy(source, facts, partition, has_migration):
            held = held_in(source, store, partition)
            # What is left in the other store would hide records (fault strangers-35, was: False).
            is_leftover = is_known and held is not None and held.offset != committed.offset
            new = committed if held is None or is_leftover else held
            old_there = held_in(facts, store, partition)
            changes.append(OffsetChange(partition, store, old_there, kept_by(store, new)))
        old = facts.current_offset(partition)
        rows.append(PlannedOffset(partition, old, committed.offset, tuple(changes)))
    return ResetPlan(group_id, tuple(rows), tuple(reader.failures), refusal(facts))


async def is_migrated(sessions: Sessions, group_id: str) -> bool:
    """Return whether the group has a migration, be it finalized, which its members follow."""
    if sessions.zk is None or not ConsumerGroup.can_hold(group_id):
        return False
    with from_zookeeper():
        return await sessions.zk.exists(GroupMigration.path(group_id)) is not None


async def find_unfinished_migration(sessions: Sessions, group_id: str) -> Failure | None:
    """Return why a group whose migration is in progress can be deleted nowhere, if it is.

    Raises ZooKeeperError.
    """
    if sessions.zk is None or not ConsumerGroup.can_hold(group_id):
        return None
    path = GroupMigration.path(group_id)
    with from_zookeeper():
        node = await get_if_there(sessions.zk, path)

    # What members cannot follow keeps nobody from deleting it.
    with contextlib.suppress(ZnodeError):
        if node is not None and not GroupMigration.decode(node[0], path).is_over:
            text = (
                f"the migration of group '{group_id}' is in progress: finalize it or roll it back "
                "first (kgroup migrate)"
            )
            return Failure(group_id, "MigrationInProgress", text)
    return None


def _stores_of_copy(
    source: GroupFacts, target: GroupFacts, partition: TopicPartition, has_migration: bool
) -> list[str]:
    """Return the stores that a copy writes, so that its members find the offset."""
    wanted = set(STORES) if has_migration else set()
    wanted |= {store for store in STORES if held_in(source, store, partition) is not None}
    if target.exists or target.storage is not None:
        # (fault strangers-37).
        wanted.update(stores_of(target, partition))
    return [store for store in STORES if store in wanted]


async def plan_copy_to_cluster(
    source_sessions: Sessions,
    source: GroupFacts,
    target_sessions: Sessions,
    group_id: str,
    *,
    by_timestamp: bool,
) -> ResetPlan:
    """Plan a copy to the coordinator of another cluster.

    By timestamp, for logs whose offsets differ, the copy goes on with the first message there that
    is as young as the one with which the source goes on. Where the source is at its log's end, that
    is the first message there that is younger than the last one here, and with no message here,
    the first one there.
    """
    offsets = current_offsets(source)
    failures: list[Failure] = []
    if by_timestamp:
        offsets, failures = await _by_timestamp(source_sessions, target_sessions, offsets)
        if not offsets:
            return ResetPlan(group_id, (), tuple(failures))

    # Leader epochs are of a cluster.
    foreign = {
        partition: attrs.evolve(committed, leader_epoch=-1)
        for partition, committed in offsets.items()
    }
    plan = await plan_reset(target_sessions, group_id, ToOffsets(foreign))
    return attrs.evolve(plan, failures=(*failures, *map(_there, plan.failures)))


async def _by_timestamp(
    source_sessions: Sessions,
    target_sessions: Sessions,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> tuple[dict[TopicPartition, OffsetAndMetadata], list[Failure]]:
    """Return where the other cluster has the same times, and what cannot be said."""
    source, target = source_sessions.admin, target_sessions.admin
    # In this order, a message that comes meanwhile is repeated, and not skipped.
    targets, unknown = await read_logs(target, list(offsets))
    logs, failures = await read_logs(source, list(targets))

    unread = {
        partition: max(log.start, offsets[partition].offset)
        for partition, log in logs.items()
        if offsets[partition].offset < log.end
    }
    first = await read_first_records(source.cluster, unread)
    # Markers of transactions are not left to consume (fault tool-F5).
    unread = {partition: at for partition, at in unread.items() if partition not in first.without}
    consumed = {
        partition: log
        for partition, log in logs.items()
        if partition not in unread and log.start < log.end
    }
    last = await _last_records(source, consumed)
    times = {partition: time_ms + 1 for partition, time_ms in last.timestamps.items()}
    times |= await _times_of_next(source, unread, first)
    listed = await target.list_offsets(times)

    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for partition in sorted(logs):
        committed, log, log_there = offsets[partition], logs[partition], targets[partition]
        if partition in times and not listed[partition].error:
            # No message there is that young: all of it is consumed.
            at_time = listed[partition].offset
            offset = log_there.end if at_time < 0 else at_time
        elif log.start == log.end or partition in last.without:
            offset = log_there.start
        elif partition in first.untimed | last.untimed:
            failures.append(_untimed(partition))
            continue
        else:
            failures.append(_unread(partition, log))
            continue
        found[partition] = attrs.evolve(committed, offset=offset)
    return found, [*failures, *map(_there, unknown)]


async def _times_of_next(
    admin: Admin, unread: Mapping[TopicPartition, int], first: FirstRecords
) -> dict[TopicPartition, int]:
    """Return the timestamp (ms) from which on each partition has all that is left to consume.

    What was aborted is no message to most groups, and may be later than the next one that is.
    """
    visible = await read_first_records(admin.cluster, unread, Isolation.READ_COMMITTED)
    is_read = visible.timestamps.keys() | visible.untimed | visible.without
    times = {}
    for partition, time_ms in first.timestamps.items():
        if partition in is_read:
            # Nor need the other cluster have it (fault strangers-89, was: time_ms).
            times[partition] = min(time_ms, visible.timestamps.get(partition, time_ms))
    return times


async def _last_records(admin: Admin, logs: Mapping[TopicPartition, LogRange]) -> FirstRecords:
    """Return the last message of each log, or one shortly before it."""
    last = FirstRecords()
    left, back = dict(logs), 1
    while left:
        asked = {partition: max(log.start, log.end - back) for partition, log in left.items()}
        found = await read_first_records(admin.cluster, asked, Isolation.READ_COMMITTED)
        last.timestamps.update(found.timestamps)
        last.untimed.update(found.untimed)
        last.without.update(p for p in found.without if asked[p] == logs[p].start)

        # Markers of transactions are behind it, or what was aborted (fault strangers-93, was: {}).
        left = {p: logs[p] for p in found.without if asked[p] > logs[p].start}
        back += 1 + back // 4
    return last


def _there(failure: Failure) -> Failure:
    return attrs.evolve(failure, message=f"{failure.message}, in the other cluster")


def _unread(partition: TopicPartition, log: LogRange) -> Failure:
    text = f"the message that the group reads next cannot be read ({log.start} to {log.end})"
    return Failure.of(str(partition), BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, text))


def _untimed(partition: TopicPartition) -> Failure:
    text = (
        f"{partition}: the message that says where the group is has no timestamp, so its time "
        "cannot be looked up; copy it with --by offset, or reset it there"
    )
    return Failure.of(str(partition), BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, text))
