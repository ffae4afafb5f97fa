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
    online: bool = False,
) -> ResetPlan:
    """Plan a reset of these topics; None: of all partitions that have a committed offset.

    Nothing is changed. What cannot be read is a failure, and the rest is planned.
    """
    reader = GroupReader(sessions)
    facts = await reader.group(group_id)

    # Without its coordinator a group's members and offsets are not known.
    if facts.coordinator is None:
        return ResetPlan(group_id, (), tuple(reader.failures))

    partitions, missing = await _partitions(sessions.admin, facts, position, scopes)
    failures = [*reader.failures, *missing]
    if not partitions and not failures:
        text = f"Consumer group '{group_id}' has no committed offsets."
        failures.append(Failure(group_id, ErrorCode.GROUP_ID_NOT_FOUND.name, text))

    logs, unread = await read_logs(sessions.admin, partitions, position)
    rows, unplanned = plan_rows(facts, position, logs)
    dated = await _with_times(sessions.admin, rows, logs)
    return ResetPlan(
        group_id,
        tuple(dated),
        (*failures, *unread, *unplanned),
        refusal(facts, online=online),
    )


async def _partitions(
    admin: Admin,
    facts: GroupFacts,
    position: Position,
    scopes: Collection[TopicScope] | None,
) -> tuple[list[TopicPartition], list[Failure]]:
    """Return the partitions to plan, and a failure for each topic that is not there."""
    if isinstance(position, ToOffsets):
        return sorted(position.offsets), []
    if scopes is None:
        return sorted(p for p in facts.partitions if facts.winner(p) is not None), []

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
        error = next((answer.error for answer in answers if answer.error), None)
        if error is not None:
            failures.append(Failure.of(str(partition), BrokerError(error, str(partition))))
            continue

        at_time = at_times[partition].offset if partition in at_times else -1
        logs[partition] = LogRange(
            starts[partition].offset, ends[partition].offset, None if at_time < 0 else at_time
        )
    return logs, failures


async def _with_times(
    admin: Admin, rows: Sequence[PlannedOffset], logs: Mapping[TopicPartition, LogRange]
) -> list[PlannedOffset]:
    """Return the rows with the timestamps of the messages at both offsets."""
    moving = [row for row in rows if row.old is not None and row.old != row.new]
    old_ms = await first_timestamps(admin, {row.partition: row.old or 0 for row in moving}, logs)
    new_ms = await first_timestamps(admin, {row.partition: row.new for row in moving}, logs)
    return [
        attrs.evolve(row, old_ms=old_ms.get(row.partition), new_ms=new_ms.get(row.partition))
        for row in rows
    ]


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
