"""Plan to give a group the offsets of another one, in the same cluster or in another."""

import asyncio
from collections.abc import Mapping

import attrs

from clients.command_line.output import Failure
from clients.command_line.sessions import Sessions
from clients.errors import BrokerError
from clients.groups.group_facts import GroupFacts
from clients.groups.group_reader import GroupReader
from clients.resets.offset_change import OffsetChange
from clients.resets.offset_export import STORES
from clients.resets.reset import ResetPlan, plan_reset, read_logs
from clients.resets.reset_plan import LogRange, PlannedOffset, ToOffsets, held_in, refusal
from protocol.errors import ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition


async def read_source(sessions: Sessions, group_id: str) -> tuple[GroupFacts, list[Failure]]:
    """Return the group that is copied; without offsets that is a failure."""
    reader = GroupReader(sessions)
    facts = await reader.group(group_id)
    failures = list(reader.failures)
    if not failures and not current_offsets(facts):
        text = f"Consumer group '{group_id}' has no committed offsets."
        failures.append(Failure(group_id, ErrorCode.GROUP_ID_NOT_FOUND.name, text))
    return facts, failures


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
    """Plan a copy in the same cluster: each store gets what it has of the source."""
    reader = GroupReader(sessions)
    facts = await reader.group(group_id)
    rows = []
    for partition, committed in current_offsets(source).items():
        changes = tuple(
            OffsetChange(partition, store, held_in(facts, store, partition), held)
            for store in STORES
            if (held := held_in(source, store, partition)) is not None
        )
        old = facts.current_offset(partition)
        rows.append(PlannedOffset(partition, old, committed.offset, changes))
    return ResetPlan(group_id, tuple(rows), tuple(reader.failures), refusal(facts, online=False))


async def plan_copy_to_cluster(
    source_sessions: Sessions,
    source: GroupFacts,
    target_sessions: Sessions,
    group_id: str,
    *,
    by_timestamp: bool,
) -> ResetPlan:
    """Plan a copy to the coordinator of another cluster.

    By timestamp, the copy goes on with the first message there that is as young as the one with
    which the source goes on: for logs whose offsets differ.
    """
    offsets = current_offsets(source)
    failures: list[Failure] = []
    if by_timestamp:
        offsets, failures = await _by_timestamp(source_sessions, target_sessions, offsets)

    # Leader epochs are of a cluster.
    foreign = {
        partition: attrs.evolve(committed, leader_epoch=-1)
        for partition, committed in offsets.items()
    }
    plan = await plan_reset(target_sessions, group_id, ToOffsets(foreign))
    return attrs.evolve(plan, failures=(*failures, *plan.failures))


async def _by_timestamp(
    source_sessions: Sessions,
    target_sessions: Sessions,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> tuple[dict[TopicPartition, OffsetAndMetadata], list[Failure]]:
    """Return where the other cluster has the same times, and what cannot be said."""
    (logs, failures), (targets, unknown) = await asyncio.gather(
        read_logs(source_sessions.admin, list(offsets)),
        read_logs(target_sessions.admin, list(offsets)),
    )
    both = logs.keys() & targets.keys()

    # A group at the end of a log is at the end of the other one, too.
    times = await source_sessions.admin.first_timestamps(
        {
            partition: max(logs[partition].start, offsets[partition].offset)
            for partition in both
            if offsets[partition].offset < logs[partition].end
        }
    )
    listed = await target_sessions.admin.list_offsets(times)

    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for partition in sorted(both):
        committed, log, end = offsets[partition], logs[partition], targets[partition].end
        if committed.offset >= log.end:
            found[partition] = attrs.evolve(committed, offset=end)
        elif partition not in times or listed[partition].error:
            failures.append(_unread(partition, log))
        else:
            # No message there is that young: all of it is consumed.
            at_time = listed[partition].offset
            found[partition] = attrs.evolve(committed, offset=end if at_time < 0 else at_time)
    return found, [*failures, *unknown]


def _unread(partition: TopicPartition, log: LogRange) -> Failure:
    text = f"the message that the group reads next cannot be read ({log.start} to {log.end})"
    return Failure.of(str(partition), BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, text))
