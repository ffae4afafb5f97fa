"""`kgroup history`: show the commits of a group one after the other, and who made them."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click

from clients.command_line.output import Column, Listing, Target, output_option, show, target_options
from clients.command_line.point_in_time import timestamp
from clients.command_line.progress import showing_progress
from clients.command_line.sessions import connected
from clients.command_line.topic_scope import TopicScope
from clients.groups.group_reader import find_unknown_groups
from clients.kgroup.events import Since
from clients.kgroup.scope import Scope
from clients.watching.commit_history import history_items
from clients.watching.history import read_history

COLUMNS = (
    Column("COMMITTED-AT", 20, key="at_ms", text=timestamp),
    Column("GROUP", 15),
    Column("TOPIC", 15),
    Column("PARTITION", 9),
    Column("OFFSET", 10),
    Column("MOVED", 8),
    Column("LAG", 8),
    Column("CLIENT-ID", 10),
    Column("HOST", 10),
    Column("GENERATION", 10),
    Column("END-OFFSET", wide=True),
    Column("MEMBER-ID", wide=True),
)


@click.command(
    "history",
    epilog="""\b
Examples:
  kgroup history analytics --since 2h
  kgroup history analytics --topic flights:0 -o json""",
)
@target_options
@click.argument("group")
@click.option(
    "--topic", "topics", type=Scope(), multiple=True, help="Only these topics or partitions."
)
@click.option("--since", type=Since(), default="earliest", help="Show commits from then on.")
@click.option(
    "--data",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of `kgroup record`.",
)
@output_option
def command(
    target: Target,
    group: str,
    topics: tuple[TopicScope, ...],
    since: int,
    data: Path | None,
    output: str,
) -> None:
    """Show each commit of GROUP: when, where, how far it moved, and who made it.

    An offset of - was deleted. The commits are those of a recording (`kgroup record`, `kgroup
    serve`) and those that __consumer_offsets still holds; the last line says how far back all are
    there. Of a group in ZooKeeper they are the last ones, and those that a recording saw: of
    several between two looks the last. The member is the one that owned the partition in that
    generation; commits of tools and of groups without members have none. LAG is what was left
    then, if a recording saw it. Where __consumer_offsets may not be read, a recording is all.
    """
    show(asyncio.run(history_of(target, group, topics, max(since, 0), data)), output)


@showing_progress("reading commits")
async def history_of(
    target: Target, group: str, topics: Sequence[TopicScope], since_ms: int, data: Path | None
) -> Listing:
    """Return the commits of a group."""
    async with connected(target, needs_zookeeper=False, waits_for_dead=False) as sessions:
        history = await read_history(sessions, [group], data, since_ms)
        without = () if history.commits.get(group) else (group,)
        unknown = await find_unknown_groups(sessions, without)
    commits = [
        commit
        for commit in history.commits.get(group, ())
        if not topics or any(scope.holds(commit.topic_partition) for scope in topics)
    ]
    # A sentence on its commits would say that it is there (fault users-17, was: False).
    is_unknown = bool(unknown) and not history.commits.get(group)
    reach = None if is_unknown else history.reach(timestamp)
    failures = [*history.failures, *unknown]
    return Listing("history", COLUMNS, history_items(commits), failures, verdict=reach)
