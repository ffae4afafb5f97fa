"""`kgroup health`: say which groups do not consume, and by which numbers."""

import asyncio
import contextlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from clients.command_line.output import Column, Listing, Target, output_option, show, target_options
from clients.command_line.point_in_time import timestamp
from clients.command_line.printing import say
from clients.command_line.progress import showing_progress
from clients.command_line.sessions import connected
from clients.errors import KgroupError
from clients.groups.clock_difference import describe_future, latest_time
from clients.groups.group_reader import find_unknown_groups
from clients.kgroup.events import Age
from clients.watching.asked_offsets import ask_offsets
from clients.watching.health import EXIT_CODES, SEVERITY, UNKNOWN, WINDOW_MS, judge_all
from clients.watching.history import judge_groups, read_history
from clients.watching.history_file import HistoryUnreadable
from protocol.errors import ErrorCode
from protocol.internal_topics import OFFSETS_TOPIC

COLUMNS = (
    Column("GROUP", 15),
    Column("VERDICT", 7),
    Column("TOPIC", 15),
    Column("PARTITION", 9),
    Column("STATUS", 7),
    Column("LAG", 8),
    Column("LAST-COMMIT", 20, key="last_commit_ms", text=timestamp),
    Column("COMMITS", 7),
    Column("WHY"),
)


class HealthCommand(click.Command):
    """Exits with 3 where no verdict could be given, also for wrong usage."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run; failures that are no bug are exit 3."""
        try:
            return super().invoke(ctx)
        except (KgroupError, HistoryUnreadable, OSError) as error:
            say(f"error: {error}", err=True)
            raise click.exceptions.Exit(EXIT_CODES[UNKNOWN]) from None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; wrong usage is exit 3."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.show()
            raise click.exceptions.Exit(EXIT_CODES[UNKNOWN]) from None


@click.command(
    "health",
    cls=HealthCommand,
    epilog="""\b
Examples:
  kgroup health
  kgroup health analytics billing --window 30m""",
)
@target_options
@click.argument("groups", nargs=-1)
@click.option(
    "--window", type=Age(), default="10m", show_default=True, help="Commits that are looked at."
)
@click.option(
    "--data",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of `kgroup record`.",
)
@output_option
def command(
    target: Target, groups: tuple[str, ...], window: int, data: Path | None, output: str
) -> None:
    """Judge GROUPS, or all groups, by their commits.

    A partition is OK, STOP (no commits any more), STALL (commits of one offset), REWIND (the offset
    went back) or WARN (lag only grows); a group is ERR if one of its partitions is STOP, STALL or
    REWIND. A topic that no member subscribes to any longer is DROPPED, which says nothing of its
    group. Fewer than three commits in the window are UNKNOWN: of
    a group in ZooKeeper only a recording knows more than the last one. So it is of all groups where
    __consumer_offsets may not be read.

    Exit code: 0 all OK, 1 the worst is WARN, 2 the worst is ERR, 3 it could not be told.
    """
    listing, worst = asyncio.run(health_of(target, groups, window, data))
    # Its failures are part of the verdict.
    with contextlib.suppress(click.exceptions.Exit):
        show(listing, output)
    sys.exit(EXIT_CODES[worst])


@showing_progress("reading commits")
async def health_of(
    target: Target,
    group_ids: Sequence[str],
    window_ms: int = WINDOW_MS,
    data: Path | None = None,
) -> tuple[Listing, str]:
    """Return a row for each partition, and the worst verdict of a group."""
    async with connected(target, needs_zookeeper=False, waits_for_dead=False) as sessions:
        history = await read_history(sessions, group_ids or None, data)
        if history.is_refused:
            history = await ask_offsets(sessions.admin, history, group_ids or None)
        judged = await judge_groups(sessions.admin, history, window_ms)
        verdicts = {
            group_id: str(items[0]["verdict"]) for group_id, items in judged.items() if items
        }
        # A group without any commit is named, and nothing can be told of it.
        unknown = [group_id for group_id in group_ids if group_id not in verdicts]
        missing = await find_unknown_groups(sessions, unknown)

    verdicts |= dict.fromkeys(unknown, UNKNOWN)
    rows = [item for items in judged.values() for item in items]
    told = {failure.what for failure in history.failures}
    failures = [*history.failures, *(f for f in missing if f.what not in told)]
    absent = {f.what for f in failures if f.error == ErrorCode.GROUP_ID_NOT_FOUND.name}
    unreadable = {failure.what for failure in failures} - absent
    # Which of them has the group's commits is not told.
    is_partly_read = any(what.startswith(f"{OFFSETS_TOPIC}-") for what in unreadable)
    rows += [
        {
            "group": group_id,
            "verdict": UNKNOWN,
            "why": "it does not exist"
            if group_id in absent
            else "its offsets could not be read"
            if is_partly_read or group_id in unreadable
            else "it has no committed offset",
        }
        for group_id in unknown
    ]

    worst, sentence = judge_all(verdicts)
    now_ms = time.time_ns() // 1_000_000
    if remark := describe_future(latest_time(now_ms, history.times_ms()) - now_ms):
        sentence = f"{sentence}; {remark}"
    if history.failures:
        worst = max(worst, UNKNOWN, key=SEVERITY.index)
    if history.is_refused and (reach := history.reach(timestamp)):
        sentence = f"{sentence}; {reach}"
    return Listing("health", COLUMNS, rows, failures, verdict=sentence), worst
