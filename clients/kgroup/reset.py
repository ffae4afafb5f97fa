"""`kgroup reset`: set a group's offsets back or forward, and note it in the journal."""

import asyncio
import csv
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs
import click

from clients.command_line.command_group import CommandFailed
from clients.command_line.interrupts import heeding_interrupts
from clients.command_line.output import (
    Column,
    Failure,
    Listing,
    Target,
    exit_code,
    output_option,
    report,
    show,
    target_options,
)
from clients.command_line.printing import plain, print_text, say
from clients.command_line.progress import showing_progress
from clients.command_line.sessions import Sessions, connected
from clients.command_line.topic_scope import TopicScope
from clients.errors import KgroupError
from clients.groups.group_reader import GroupReader
from clients.kgroup.delete import without_impossible_zookeeper
from clients.kgroup.offsets import Time
from clients.kgroup.scope import Scope
from clients.kgroup.stdin_lines import standard_input
from clients.resets.journal import Journal
from clients.resets.journal_entry import Status
from clients.resets.journalled_offsets import Change, JournalledOffsets, Outcome
from clients.resets.offset_export import MAX_OFFSET, MAX_PARTITION
from clients.resets.reset import ResetPlan, plan_reset, plan_resets
from clients.resets.reset_plan import (
    Named,
    PlannedOffset,
    Position,
    ShiftBy,
    ToOffset,
    ToOffsets,
    ToTime,
    csv_rows,
)
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

F = TypeVar("F", bound=Callable[..., Any])

_DURATION = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)
_UNITS_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}


def span(duration_ms: int | None) -> str:
    """Return a duration as people say it: `42 s`, `12 min`, `5 h`, `3 d`."""
    if duration_ms is None:
        return plain(None)
    for unit_ms, name in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min")):
        # Two of a unit: `90 min` says more than `1 h`.
        if duration_ms >= 2 * unit_ms:
            return f"{duration_ms // unit_ms} {name}"
    return f"{duration_ms / 1000:g} s"


COLUMNS = (
    Column("GROUP", 30),
    Column("TOPIC", 30),
    Column("PARTITION", 10),
    Column("NEW-OFFSET", 15),
    Column("OLD-OFFSET", 15),
    Column("SKIPS", 10),
    Column("REPEATS", 10),
    Column("TIME", 8, key="span_ms", text=span),
    Column("STORE", 9, wide=True),
    Column("JOURNAL-ID", 10, optional=True),
    Column("NOTE", wide=True, optional=True),
)


# --- the options


class Duration(click.ParamType):  # type: ignore[type-arg]
    """Java's duration, `PnDTnHnMnS`, in ms."""

    name = "PnDTnHnMnS"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Read the duration. Raises UsageError."""
        if isinstance(value, int):
            return value
        match = _DURATION.fullmatch(str(value))
        if match is None or not any(match[name] for name in _UNITS_MS):
            self.fail(f"{value!r} is not a duration as PT90M, P1D or P1DT2H", param, ctx)

        total_ms = sum(float(match[name] or 0) * unit for name, unit in _UNITS_MS.items())
        if total_ms >= 1 << 63:
            self.fail(f"{value!r} is longer than 64 bits of ms", param, ctx)
        return round(total_ms) * (-1 if match["sign"] == "-" else 1)


class DateTime(Time):
    """A time; its place may not be named, as `--to-latest` and `--to-earliest` do that."""

    name = "TIME"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Convert to ms since 1970. Raises UsageError."""
        time_ms = super().convert(value, param, ctx)
        if time_ms < 0:
            self.fail(f"{value!r} is not a time", param, ctx)
        return time_ms


def position_options(command: F) -> F:
    """Add Kafka's options that say where to."""
    for option in reversed(POSITION_OPTIONS):
        command = option(command)
    return command


POSITION_OPTIONS = (
    click.option("--to-earliest", is_flag=True, help="To the first message of each log."),
    click.option("--to-latest", is_flag=True, help="To the end of each log."),
    click.option("--to-current", is_flag=True, help="To where the group is: commit it once more."),
    click.option(
        "--to-offset", type=click.IntRange(0, MAX_OFFSET), metavar="N", help="To this offset."
    ),
    click.option(
        "--shift-by", type=int, metavar="±N", help="By so many messages, back with a minus sign."
    ),
    click.option(
        "--to-datetime",
        type=DateTime(),
        metavar="TIME",
        help="To the first message since then: YYYY-MM-DDTHH:mm:SS.sss, in UTC without a zone.",
    ),
    click.option(
        "--by-duration",
        type=Duration(),
        metavar="PnDTnHnMnS",
        help="To the first message since so long ago.",
    ),
    click.option(
        "--from-file",
        type=click.Path(path_type=Path, allow_dash=True),
        help="To the offsets of a CSV file, as --export writes it.",
    ),
)


@click.command(
    "reset",
    epilog="""\b
Examples:
  kgroup reset analytics --topic flights --to-earliest
  kgroup reset analytics --topic flights:0,1 --shift-by -100 --execute --reason 'bad deploy'
  kgroup reset analytics --all-topics --to-datetime 2013-06-01T12:00:00.000 --execute
  kgroup --reset-offsets --group analytics --all-topics --by-duration PT90M --export > plan.csv""",
)
@target_options
@click.argument("groups", nargs=-1)
@click.option("--group", "more_groups", multiple=True, help="A group, as Kafka spells it.")
@click.option("--all-groups", is_flag=True, help="Reset all groups.")
@click.option(
    "--topic", "topics", type=Scope(), multiple=True, help="This topic, or these partitions of it."
)
@click.option("--all-topics", is_flag=True, help="All partitions that have a committed offset.")
@position_options
@click.option("--dry-run", is_flag=True, help="Show what would be written; this is the default.")
@click.option("--execute", is_flag=True, help="Write the offsets.")
@click.option("--export", is_flag=True, help="Print the new offsets as Kafka's CSV.")
@click.option("--reason", help="Why, for the journal.")
@click.option(
    "--online",
    is_flag=True,
    help="Also reset groups with members at a coordinator: they are removed, and join again.",
)
@click.option(
    "--keep",
    "keep_days",
    type=click.IntRange(min=1),
    default=90,
    show_default=True,
    metavar="DAYS",
    help="Age of journal entries that are deleted.",
)
@output_option
def command(
    target: Target,
    groups: tuple[str, ...],
    more_groups: tuple[str, ...],
    all_groups: bool,
    topics: tuple[TopicScope, ...],
    all_topics: bool,
    from_file: Path | None,
    dry_run: bool,
    execute: bool,
    export: bool,
    reason: str | None,
    online: bool,
    keep_days: int,
    output: str,
    **wanted: Any,
) -> None:
    """Set committed offsets of GROUPS to another place, or show what that would do.

    Nothing is written without --execute. The table has the new and the old offset of each
    partition, the messages that the group would skip or repeat, and the time between both. What
    lies outside of a log is moved to its nearest end.

    Each group that is reset gets an entry in the journal; `kgroup undo ID` takes it back. A group
    with members is refused, unless --online is given.
    """
    group_ids = tuple(dict.fromkeys((*groups, *more_groups)))
    if bool(group_ids) == all_groups:
        raise click.UsageError("name at least one group, or use --all-groups, and not both")
    if dry_run and execute:
        raise click.UsageError("give one of --dry-run and --execute")
    target = without_impossible_zookeeper(target, group_ids)

    position = position_of(from_file is not None, **wanted)
    if from_file is None and bool(topics) == all_topics:
        raise click.UsageError("name topics with --topic, or use --all-topics, and not both")
    by_group: Mapping[str, Position] | None = None
    if from_file is not None:
        by_group = read_csv(from_file, group_ids)

    job = ResetJob(
        None if all_groups else group_ids,
        position,
        by_group,
        None if all_topics or from_file is not None else topics,
        execute=execute,
        online=online,
        reason=reason,
        keep_ms=keep_days * 86_400_000,
    )
    resets = asyncio.run(reset_groups(target, job))
    listing = listing_of("reset", resets.plans, resets.outcomes, resets.failures, executed=execute)
    print_remarks([plan for plan in resets.plans if plan.group not in resets.outcomes], {})
    if export:
        print_csv(resets.plans, listing.errors)
    else:
        show(listing, output)

    if not execute and output in ("table", "wide") and not export:
        say(err=True)
        say("Nothing was written: that was a dry run. Add --execute to write.", err=True)


def position_of(
    has_file: bool,
    *,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: int | None,
    by_duration: int | None,
) -> Position:
    """Return the one position that the options name. Raises UsageError."""
    positions: list[Position] = []
    positions += [Named.EARLIEST] if to_earliest else []
    positions += [Named.LATEST] if to_latest else []
    positions += [Named.CURRENT] if to_current else []
    positions += [ToOffset(to_offset)] if to_offset is not None else []
    positions += [ShiftBy(shift_by)] if shift_by is not None else []
    positions += [ToTime(to_datetime)] if to_datetime is not None else []
    if by_duration is not None:
        positions.append(ToTime(max(0, time.time_ns() // 1_000_000 - by_duration)))
    positions += [ToOffsets({})] if has_file else []

    if len(positions) != 1:
        raise click.UsageError(
            "say where to with exactly one of --to-earliest, --to-latest, --to-current, "
            "--to-offset, --shift-by, --to-datetime, --by-duration and --from-file"
        )
    return positions[0]


def read_csv(file: Path, group_ids: Sequence[str]) -> dict[str, Position]:
    """Return the offsets of each group; a file without groups is of the one that is named.

    Raises CommandFailed for a line that is no offset, OSError.
    """
    try:
        text = standard_input().read().decode() if str(file) == "-" else file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise CommandFailed(f"{file}: not UTF-8: {error}") from None

    offsets: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
    for number, fields in enumerate(csv.reader(text.splitlines(keepends=True)), 1):
        if not fields:
            continue
        # One group: topic,partition,offset. Several: group,topic,partition,offset.
        if len(fields) == 3 and len(group_ids) == 1:
            fields = [group_ids[0], *fields]
        if len(fields) != 4:
            expected = "topic,partition,offset" if len(group_ids) == 1 else "group,topic,…"
            raise CommandFailed(f"{file}: line {number}: {','.join(fields)!r} is not {expected}")

        group_id, topic, partition_text, offset_text = fields
        partition = _number(partition_text, MAX_PARTITION, f"{file}: line {number}: partition")
        offset = _number(offset_text, MAX_OFFSET, f"{file}: line {number}: offset")
        # Lines of other groups are not asked for.
        if not group_ids or group_id in group_ids:
            group_offsets = offsets.setdefault(group_id, {})
            group_offsets[TopicPartition(topic, partition)] = OffsetAndMetadata(offset)

    if not offsets:
        raise CommandFailed(f"{file}: no offsets of the groups that are named")
    return {group_id: ToOffsets(group_offsets) for group_id, group_offsets in offsets.items()}


def _number(text: str, most: int, what: str) -> int:
    # Nineteen digits hold every 64-bit number.
    if not (text.strip().isdecimal() and len(text.strip()) < 20 and int(text) <= most):
        raise CommandFailed(f"{what} {text!r} is not a number from 0 to {most}")
    return int(text)


# --- the work


@frozen
class ResetJob:
    """The groups to reset. `groups` is None for all; `by_group` has the positions of a file."""

    groups: Sequence[str] | None
    position: Position
    by_group: Mapping[str, Position] | None
    scopes: Sequence[TopicScope] | None
    execute: bool
    online: bool
    reason: str | None
    keep_ms: int


@attrs.define
class Resets:
    """The plans, what was written, and what failed beside them."""

    plans: list[ResetPlan] = attrs.field(factory=list)
    outcomes: dict[str, Outcome] = attrs.field(factory=dict)
    failures: list[Failure] = attrs.field(factory=list)


@showing_progress("resetting groups")
async def reset_groups(target: Target, job: ResetJob) -> Resets:
    """Plan each group, and write it if that is wanted. A group that fails does not stop others."""
    resets = Resets()
    async with connected(target) as sessions:
        group_ids = job.groups
        if group_ids is None:
            reader = GroupReader(sessions)
            group_ids = [name.group for name in await reader.names()]
            resets.failures += reader.failures
        if job.by_group is not None:
            group_ids = [group_id for group_id in group_ids if group_id in job.by_group]

        # A journal that cannot be read is a reason to write nothing.
        offsets = None
        if job.execute:
            offsets = JournalledOffsets(sessions, await Journal.of(sessions.admin), job.keep_ms)
            await offsets.journal.entries()

        # Nothing is written, so all may be read before the first one is planned.
        if offsets is None:
            positions = {group_id: _position(group_id, job) for group_id in group_ids}
            try:
                resets.plans += await plan_resets(
                    sessions, positions, job.scopes, online=job.online
                )
            except KgroupError as error:
                resets.failures.append(Failure.of("groups", error))
            return resets

        with heeding_interrupts() as interrupts:
            for group_id in interrupts.until_asked(group_ids):
                await _reset_group(sessions, group_id, job, offsets, resets)
        resets.failures += interrupts.not_done
    return resets


async def _reset_group(
    sessions: Sessions,
    group_id: str,
    job: ResetJob,
    offsets: JournalledOffsets,
    resets: Resets,
) -> None:
    """Plan one group, and write it with `offsets`. What was written is said at once."""
    try:
        plan = await _plan(sessions, group_id, job)
        resets.plans.append(plan)
        if plan.rows and plan.refusal is None:
            outcome = await offsets.change(Change.of(plan, "reset", job.reason, online=job.online))
            resets.outcomes[group_id] = outcome
            print_remarks([plan], {group_id: outcome})
    except KgroupError as error:
        resets.failures.append(Failure.of(group_id, error))


async def _plan(sessions: Sessions, group_id: str, job: ResetJob) -> ResetPlan:
    position = _position(group_id, job)
    return await plan_reset(sessions, group_id, position, job.scopes, online=job.online)


def _position(group_id: str, job: ResetJob) -> Position:
    return job.position if job.by_group is None else job.by_group[group_id]


# --- what is printed


def listing_of(
    kind: str,
    plans: Sequence[ResetPlan],
    outcomes: Mapping[str, Outcome],
    failures: Sequence[Failure] = (),
    *,
    executed: bool,
) -> Listing:
    """Return the rows of all groups: what is planned, or (`executed`) what was written."""
    items = []
    errors = list(failures)
    for plan in plans:
        outcome = outcomes.get(plan.group)
        errors += plan.failures
        if plan.refusal is not None:
            errors.append(Failure(plan.group, ErrorCode.NON_EMPTY_GROUP.name, plan.refusal))
        errors += () if outcome is None else outcome.failures

        if executed:
            items += [] if outcome is None else _written_items(plan, outcome)
        else:
            items += [row_item(plan.group, row, None) for row in plan.rows]
    return Listing(kind, COLUMNS, items, list(dict.fromkeys(errors)))


def _written_items(plan: ResetPlan, outcome: Outcome) -> list[dict[str, Any]]:
    """Return the rows that the stores have taken."""
    entry = outcome.entry
    if entry.status is not Status.DONE:
        return []
    written = {change.partition for change in entry.changes}
    return [row_item(plan.group, row, entry.id) for row in plan.rows if row.partition in written]


def row_item(group_id: str, row: PlannedOffset, journal_id: int | None) -> dict[str, Any]:
    """Return a row under the keys of the columns."""
    return {
        "group": group_id,
        "topic": row.partition.topic,
        "partition": row.partition.partition,
        "new_offset": row.new,
        "old_offset": row.old,
        "skips": row.skips,
        "repeats": row.repeats,
        "span_ms": row.span_ms,
        "store": "dual" if len(row.changes) > 1 else row.changes[0].store,
        "journal_id": journal_id,
        "note": row.note,
    }


def print_remarks(plans: Sequence[ResetPlan], outcomes: Mapping[str, Outcome]) -> None:
    """Print warnings on stderr, and where the journal is."""
    for plan in plans:
        for note in plan.notes:
            say(f"warning: {plan.group}: {note}", err=True)
    for group_id, outcome in outcomes.items():
        say(
            f"journal: {group_id} is entry {outcome.entry.id} ({outcome.entry.status}) in "
            f"{outcome.journal}"
            + _WAY_BACK[outcome.entry.status].format(f"{outcome.entry.id}{outcome.options}"),
            err=True,
        )


_WAY_BACK = {
    Status.BEGUN: "; `kgroup journal --settle {}` ends it",
    Status.DONE: "; `kgroup undo {}` takes it back",
    Status.UNDONE: "",
    Status.ABANDONED: ": nothing was written",
}


def print_csv(plans: Sequence[ResetPlan], failures: Sequence[Failure]) -> None:
    """Print the new offsets as Kafka's CSV, with the groups' names if there are several."""
    failures = [*failures]
    for plan in plans:
        # The file would name another group (fault security-12, was: False).
        is_unnameable = len(plans) > 1 and not plan.group.isprintable()
        if is_unnameable:
            text = "no line of CSV can have its name: export it alone, or use kgroup export"
            failures.append(Failure(plan.group, "InvalidName", text))
            continue
        print_text(csv_rows(plan.rows, plan.group if len(plans) > 1 else None), newline=False)

    report(failures)
    if failures:
        raise click.exceptions.Exit(exit_code(failures))
