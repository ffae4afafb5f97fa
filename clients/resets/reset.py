"""Ask brokers and ZooKeeper what a reset has to know, and plan it."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

import attrs

from clients.admin import EARLIEST_TIME, LATEST_TIME, Admin
from clients.admin.descriptions import ListedOffset
from clients.command_line.output import Failure
from clients.command_line.sessions import Sessions
from clients.command_line.topic_scope import TopicScope
from clients.errors import BrokerError, KgroupError
from clients.groups.group_facts import GroupFacts
from clients.groups.group_reader import GroupReader
from clients.groups.partition_rounds import partition_rounds
from clients.resets.reset_plan import (
    LogRange,
    Named,
    PlannedOffset,
    Position,
    ToOffsets,
    ToTime,
    plan_rows,
    refusal,
)
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition


@frozen
class ResetPlan:
    """The rows of one group, and what could not be planned.

    `refusal` says why the rows may not be written now; None if they may.
    """

    group: str
    rows: tuple[PlannedOffset, ...]
    failures: tuple[Failure, ...] = ()
    refusal: str | None = None

    @property
    def notes(self) -> list[str]:
        """Return what differs from what was asked for."""
        return [row.note for row in self.rows if row.note]


async def plan_reset(
    sessions: Sessions,
    group_id: str,
    position: Position,
    scopes: Collection[TopicScope] | None = None,
    *,
    online: bool | None = None,
) -> ResetPlan:
    """Plan a reset of these topics; None: of all partitions that have a committed offset.

    Nothing is changed. What cannot be read is a failure, and the rest is planned. `online`: see
    `refusal`.
    """
    (plan,) = await plan_resets(sessions, {group_id: position}, scopes, online=online)
    return plan


async def plan_resets(
    sessions: Sessions,
    positions: Mapping[str, Position],
    scopes: Collection[TopicScope] | None = None,
    *,
    online: bool | None = None,
) -> list[ResetPlan]:
    """Plan resets of several groups; all of their logs are asked together.

    Of times there may be one in `positions`.
    """
    admin, reader = sessions.admin, GroupReader(sessions)
    groups = await reader.groups(positions)
    scoped = None if scopes is None else await _scoped(admin, scopes)

    wanted: dict[str, list[TopicPartition]] = {}
    for facts in groups:
        # Without its coordinator a group's members and offsets are not known.
        if facts.coordinator is not None:
            wanted[facts.group] = _partitions(facts, positions[facts.group], scoped)
    partitions = sorted({partition for own in wanted.values() for partition in own})
    time = next((p for p in positions.values() if isinstance(p, ToTime)), Named.CURRENT)
    logs, unread = await read_logs(admin, partitions, time)

    plans = []
    for facts in groups:
        # What concerns no group is said with each, and printed once.
        failures = [f for f in reader.failures if f.what == facts.group or f.what not in positions]
        if facts.group not in wanted:
            plans.append(ResetPlan(facts.group, (), tuple(failures)))
            continue

        own = wanted[facts.group]
        is_by_topic = scoped is not None and not isinstance(positions[facts.group], ToOffsets)
        failures += scoped[1] if scoped is not None and is_by_topic else []
        if not own and not failures:
            text = f"Consumer group '{facts.group}' has no committed offsets."
            failures.append(Failure(facts.group, ErrorCode.GROUP_ID_NOT_FOUND.name, text))

        own_logs = {partition: logs[partition] for partition in own if partition in logs}
        rows, unplanned = plan_rows(facts, positions[facts.group], own_logs)
        names = {str(partition) for partition in own}
        failures += [f for f in unread if f.what in names]
        plans.append(
            ResetPlan(
                facts.group,
                tuple(rows),
                (*failures, *unplanned),
                refusal(facts, online=online),
            )
        )
    return await _with_times(admin, plans, logs)


def _partitions(
    facts: GroupFacts, position: Position, scoped: tuple[list[TopicPartition], object] | None
) -> list[TopicPartition]:
    """Return the partitions of a group to plan."""
    if isinstance(position, ToOffsets):
        return sorted(position.offsets)
    if scoped is not None:
        return scoped[0]
    return sorted(p for p in facts.partitions if facts.winner(p) is not None)


async def _scoped(
    admin: Admin, scopes: Collection[TopicScope]
) -> tuple[list[TopicPartition], list[Failure]]:
    """Return the partitions of these topics, and a failure for each topic that is not there."""
    partitions: set[TopicPartition] = set()
    failures: list[Failure] = []
    for scope in scopes:
        # One topic's error must not hide the others.
        try:
            topics = await admin.describe_topics([scope.topic])
        except KgroupError as error:
            failures.append(Failure.of(scope.topic, error))
            continue
        existing = topics[scope.topic].partitions.keys()
        numbers = existing if scope.partitions is None else scope.partitions
        partitions |= {TopicPartition(scope.topic, number) for number in numbers & existing}
        failures += [
            Failure.of(f"{scope.topic}-{number}", _unknown_partition(scope.topic, number))
            for number in sorted(numbers - existing)
        ]
    return sorted(partitions), failures


def _unknown_partition(topic: str, number: int) -> BrokerError:
    text = f"topic {topic} has no partition {number}"
    return BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


async def read_logs(
    admin: Admin, partitions: Sequence[TopicPartition], position: Position = Named.CURRENT
) -> tuple[dict[TopicPartition, LogRange], list[Failure]]:
    """Return where the logs begin and end, and a failure for each that cannot be asked."""
    times = [EARLIEST_TIME, LATEST_TIME]
    times += [position.time_ms] if isinstance(position, ToTime) else []

    # At once, so that a broker that hangs costs its time only once.
    starts, ends, *rest = await asyncio.gather(
        *(admin.list_offsets(dict.fromkeys(partitions, time)) for time in times)
    )
    at_times: Mapping[TopicPartition, ListedOffset] = rest[0] if rest else {}

    logs: dict[TopicPartition, LogRange] = {}
    failures: list[Failure] = []
    for partition in partitions:
        answers = [starts[partition], ends[partition]]
        answers += [at_times[partition]] if partition in at_times else []
        failed = next((answer for answer in answers if answer.error), None)
        if failed is not None:
            failures.append(Failure.of(str(partition), failed.failure()))
            continue

        at_time = at_times[partition].offset if partition in at_times else -1
        logs[partition] = LogRange(
            starts[partition].offset, ends[partition].offset, None if at_time < 0 else at_time
        )
    return logs, failures


async def _with_times(
    admin: Admin, plans: Sequence[ResetPlan], logs: Mapping[TopicPartition, LogRange]
) -> list[ResetPlan]:
    """Return the plans with the timestamps of the messages at both offsets of each row."""
    moving = [
        row for plan in plans for row in plan.rows if row.old is not None and row.old != row.new
    ]
    places = {(row.partition, row.old or 0) for row in moving}
    places |= {(row.partition, row.new) for row in moving}

    times: dict[tuple[TopicPartition, int], int] = {}
    for asked in partition_rounds(sorted(places)):
        found = await first_timestamps(admin, asked, logs)
        times |= {(partition, asked[partition]): ms for partition, ms in found.items()}

    def dated(row: PlannedOffset) -> PlannedOffset:
        if row.old is None or row.old == row.new:
            return row
        return attrs.evolve(
            row,
            old_ms=times.get((row.partition, row.old)),
            new_ms=times.get((row.partition, row.new)),
        )

    return [attrs.evolve(plan, rows=tuple(map(dated, plan.rows))) for plan in plans]


async def first_timestamps(
    admin: Admin,
    offsets: Mapping[TopicPartition, int],
    logs: Mapping[TopicPartition, LogRange],
) -> dict[TopicPartition, int]:
    """Return the timestamps at these offsets; at the end of a log, that of its last message."""
    within = {
        partition: max(logs[partition].start, min(offset, logs[partition].end - 1))
        for partition, offset in offsets.items()
        if logs[partition].start < logs[partition].end
    }
    try:
        return await admin.first_timestamps(within)
    except KgroupError:
        # A reset does not need them.
        return {}
