"""`kgroup describe`: show the owners, committed offsets and lag of groups."""

import asyncio
import re
from collections.abc import Collection, Sequence
from pathlib import Path

import attrs
import click

from clients.command_line.isolation_option import LEVELS, isolation_option
from clients.command_line.listing_choice import (
    choose_columns,
    columns_option,
    find_column,
    match_pattern,
    sort_listing,
    sort_option,
)
from clients.command_line.missing_rights import find_hidden_offsets
from clients.command_line.output import (
    Column,
    Failure,
    Listing,
    Target,
    output_option,
    show,
    target_options,
)
from clients.command_line.printing import say
from clients.command_line.progress import showing_progress
from clients.command_line.sessions import connected
from clients.command_line.topic_scope import TopicScope
from clients.groups.group_facts import GroupFacts, without_offsets
from clients.groups.group_reader import GroupReader
from clients.groups.group_view import (
    MEMBER_COLUMNS,
    OFFSET_COLUMNS,
    OUR_MEMBER_COLUMNS,
    STATE_COLUMNS,
    has_lag,
    member_items,
    position_remarks,
    remark,
    state_item,
    summary,
    unowned_remarks,
)
from clients.groups.offset_rows import read_offset_rows
from clients.kgroup.scope import Scope
from clients.kgroup.watch import repeat, watch_option
from protocol.frozen import frozen


@click.command(
    "describe",
    epilog="""\b
Examples:
  kgroup describe analytics --zookeeper localhost:2181
  kgroup describe --all-groups --topic flights:0,1 -o json
  kgroup describe --all-groups --only-with-lag --columns group,topic,partition,lag,time-lag
  kgroup --bootstrap-server localhost:9092 --describe --group analytics --members --verbose""",
)
@target_options
@click.argument("groups", nargs=-1)
@click.option("--group", "more_groups", multiple=True, help="A group, as Kafka spells it.")
@click.option("--all-groups", is_flag=True, help="Describe all groups.")
@click.option(
    "--topic", "topics", type=Scope(), multiple=True, help="Only these topics or partitions."
)
@click.option("--offsets", is_flag=True, help="Show partitions, which is the default.")
@click.option("--members", is_flag=True, help="Show members, not partitions.")
@click.option("--state", is_flag=True, help="Show the state of the group.")
@click.option(
    "--verbose",
    is_flag=True,
    help="Show more columns: those of -o wide, or the members' assignments.",
)
@click.option("--time-lag", is_flag=True, help="Show TIME-LAG: the age of the next record.")
@click.option("--only-with-lag", is_flag=True, help="Show only partitions with lag.")
@click.option(
    "--match", metavar="REGEX", default=None, help="Describe groups whose name contains a match."
)
@isolation_option("Count lag to the last stable offset with read_committed.", default=LEVELS[0])
@columns_option
@sort_option
@watch_option
@click.option("--as-of", metavar="AGE|TIME", help="Show the offsets that were committed then.")
@click.option(
    "--data",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of `kgroup record`, for --as-of.",
)
@output_option
def command(
    target: Target,
    groups: tuple[str, ...],
    more_groups: tuple[str, ...],
    all_groups: bool,
    topics: tuple[TopicScope, ...],
    offsets: bool,
    members: bool,
    state: bool,
    verbose: bool,
    time_lag: bool,
    only_with_lag: bool,
    match: str | None,
    isolation: str,
    columns: str | None,
    sort: str | None,
    watch: float | None,
    as_of: str | None,
    data: Path | None,
    output: str,
) -> None:
    """Show each partition of GROUPS with its owner, committed offset and lag.

    Groups whose members register in ZooKeeper need --zookeeper to be seen. A group that has only
    committed offsets is shown too. --verbose adds the owner's stream, the offsets in both stores
    (ZK-OFFSET, KAFKA-OFFSET), the one that WINS, and DIVERGED where the two should be equal and
    are not; when each offset was committed and when it expires; how old the next record is
    (TIME-LAG), and when retention deletes it at the earliest (DELETED-IN). To --state it adds the
    store of the members' offsets (STORAGE), if they publish it. With --members, --verbose adds
    each member's assignment, as Kafka's tool does, and -o wide also its number of streams and its
    subscription.
    """
    group_ids = (*groups, *more_groups)
    if bool(group_ids) + all_groups + (match is not None) != 1:
        raise click.UsageError(
            "name at least one group, or use --all-groups or --match, and only one of these"
        )
    if offsets + members + state > 1:
        raise click.UsageError("give one of --offsets, --members and --state")
    view = "members" if members else "state" if state else "offsets"
    if view != "offsets" and (time_lag or only_with_lag):
        raise click.UsageError("--time-lag and --only-with-lag are for --offsets")

    if as_of is not None:
        # What it needs is imported only for it, since a table of now is to be quick.
        from clients.kgroup.as_of import show_as_of

        if view != "offsets" or not group_ids or watch is not None:
            raise click.UsageError("--as-of shows the offsets of groups that are named")
        show_as_of(target, group_ids, topics, as_of, data, output)
        return
    if data is not None:
        raise click.UsageError("--data is for --as-of")

    known = COLUMNS[view]
    chosen = choose_columns(known, columns)
    if columns is None:
        # Kafka's --verbose adds the assignment alone; our columns are for -o wide.
        if view == "members" and output == "table":
            chosen = list(MEMBER_COLUMNS)
        if time_lag:
            chosen = [shown_always(c) if c.key in TIME_LAG_KEYS else c for c in chosen]
    is_wide = verbose or output in ("wide", "json")
    keys = {column.key for column in chosen if is_wide or not column.wide}
    if sort is not None:
        keys.add(find_column(known, sort.removeprefix("-")).key)
    wanted = Wanted(
        None if group_ids == () else group_ids,
        match_pattern(match),
        topics,
        keys,
        only_with_lag,
        LEVELS.index(isolation),
    )

    def print_once() -> None:
        listing, notes = asyncio.run(describe_groups(target, wanted, view))
        for note in notes:
            say(note, err=True)
        listing = attrs.evolve(sort_listing(listing, known, sort), columns=chosen)
        show(listing, output, verbose=verbose)

    repeat(watch, print_once)


TIME_LAG_KEYS = {"time_lag_ms"}
COLUMNS = {
    "offsets": OFFSET_COLUMNS,
    "members": (*MEMBER_COLUMNS, *OUR_MEMBER_COLUMNS),
    "state": STATE_COLUMNS,
}


def shown_always(column: Column) -> Column:
    """Return the column for the plain table too."""
    return attrs.evolve(column, wide=False)


@frozen
class Wanted:
    """The groups to describe. `group_ids` is None for all that `pattern` matches."""

    group_ids: Sequence[str] | None
    pattern: re.Pattern[str]
    topics: Sequence[TopicScope]
    keys: Collection[str]
    """The columns that will be shown: what they do not need is not read."""
    only_with_lag: bool
    isolation: int = 0
    """1: count lag to the last stable offset."""
    needs_times: bool = False
    """True: times that cannot be read are failures, as is all else."""


@showing_progress("reading groups")
async def describe_groups(target: Target, wanted: Wanted, view: str) -> tuple[Listing, list[str]]:
    """Return the listing of one view of the groups, and notes for people."""
    async with connected(target, needs_zookeeper=False, waits_for_dead=False) as sessions:
        reader = GroupReader(sessions, isolation=wanted.isolation)
        group_ids = wanted.group_ids
        if group_ids is None:
            names = await reader.names()
            group_ids = [name.group for name in names if wanted.pattern.search(name.group)]

        # A group that is named twice is shown once.
        facts = await reader.groups(dict.fromkeys(group_ids))
        groups = [group for group in facts if group.exists]

        reader.note_unknown(facts)

        hidden = await find_hidden_offsets(sessions.admin, without_offsets(groups))
        reader.failures += hidden

        # Kafka's tool prints its remarks on stderr.
        notes = [text for group in groups if (text := remark(group))]
        listing, more = await VIEWS[view](reader, groups, wanted)
        return listing, notes + more


async def offsets_view(
    reader: GroupReader, groups: Sequence[GroupFacts], wanted: Wanted
) -> tuple[Listing, list[str]]:
    """Return a row for each partition, and a summary of each group."""
    groups = await reader.with_unowned(groups)
    rows_of, remarks = await read_offset_rows(reader, groups, wanted.topics, wanted.keys)
    # A group that is asked for by its name alone is expected to have what is named.
    if wanted.group_ids is not None and not reader.failures:
        reader.failures += [
            Failure(f"{group.group}: {missing}", "NoOffsets", "the group has nothing of it")
            for group in groups
            for scope in wanted.topics
            if (missing := scope.without(group.partitions)) is not None
        ]
    summaries = [summary(group, rows_of[group.group]) for group in groups]
    if wanted.needs_times:
        reader.failures += reader.unread
    for group_id, rows in rows_of.items():
        more = [*position_remarks(group_id, rows), *unowned_remarks(group_id, rows)]
        remarks = [*remarks, *more]
    items = [
        item
        for rows in rows_of.values()
        for item in rows
        if not wanted.only_with_lag or has_lag(item)
    ]
    listing = Listing(
        "group",
        OFFSET_COLUMNS,
        items,
        reader.failures,
        table_key="group",
        summaries=summaries,
    )
    return listing, remarks


async def members_view(
    reader: GroupReader, groups: Sequence[GroupFacts], wanted: Wanted
) -> tuple[Listing, list[str]]:
    """Return a row for each member."""
    items = [item for group in groups for item in member_items(group)]
    return Listing("members", COLUMNS["members"], items, reader.failures, table_key="group"), []


async def state_view(
    reader: GroupReader, groups: Sequence[GroupFacts], wanted: Wanted
) -> tuple[Listing, list[str]]:
    """Return a row for each group."""
    items = list(map(state_item, groups))
    return Listing("group", STATE_COLUMNS, items, reader.failures, table_key="group"), []


VIEWS = {"offsets": offsets_view, "members": members_view, "state": state_view}
