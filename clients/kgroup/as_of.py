"""`kgroup describe --as-of`: show which offsets counted at a time that is over."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import click

from clients.command_line.output import Listing, Target, show
from clients.command_line.point_in_time import timestamp
from clients.command_line.progress import showing_progress
from clients.command_line.sessions import connected
from clients.command_line.topic_scope import TopicScope
from clients.groups.group_reader import find_unknown_groups
from clients.kgroup.events import Since
from clients.kgroup.history import COLUMNS
from clients.watching.commit_history import Commit, as_of
from clients.watching.history import read_history


def show_as_of(
    target: Target,
    group_ids: Sequence[str],
    topics: Sequence[TopicScope],
    when: str,
    data: Path | None,
    output: str,
) -> None:
    """Print the commits that counted at a time or an age ago, and how far back all are known."""
    at_ms = Since().convert(when, None, None)
    # The names of --since, latest and earliest, are no times.
    if at_ms < 0 or at_ms > time.time_ns() // 1_000_000:
        raise click.UsageError(f"--as-of {when} is no time that is over; leave it out for now")
    show(asyncio.run(offsets_as_of(target, group_ids, topics, at_ms, data)), output)


@showing_progress("reading commits")
async def offsets_as_of(
    target: Target,
    group_ids: Sequence[str],
    topics: Sequence[TopicScope],
    at_ms: int,
    data: Path | None,
) -> Listing:
    """Return the commits of groups that counted at a time."""
    async with connected(target, needs_zookeeper=False, waits_for_dead=False) as sessions:
        history = await read_history(sessions, group_ids, data)
        without = [group_id for group_id in group_ids if not history.commits.get(group_id)]
        unknown = await find_unknown_groups(sessions, without)
    commits = [commit for group in history.commits.values() for commit in group]
    items = [
        commit._asdict() | {"lag": commit.lag}
        for (_, partition), commit in sorted(as_of(commits, at_ms).items())
        if not topics or any(scope.holds(partition) for scope in topics)
    ]
    columns = [column for column in COLUMNS if column.key != "moved"]
    verdict = history.reach(timestamp)
    if not items and not history.failures:
        verdict = "; ".join(filter(None, [_explain_none(commits, at_ms), verdict]))
    failures = [*history.failures, *unknown]
    return Listing("history", columns, items, failures, table_key="group", verdict=verdict)


def _explain_none(commits: Sequence[Commit], at_ms: int) -> str:
    """Say why no commit counted at a time."""
    first_ms = min((commit.at_ms for commit in commits), default=None)
    none = f"no commit counted at {timestamp(at_ms)}"
    if first_ms is None or first_ms <= at_ms:
        return none
    return f"{none}: the first that is known is of {timestamp(first_ms)}"
