"""`kgroup list`: list the groups in ZooKeeper and with coordinators."""

import asyncio
import re
from collections.abc import Collection, Sequence
from typing import Any

import attrs
import click

from clients.command_line.listing_choice import (
    choose_columns,
    columns_option,
    find_column,
    match_pattern,
    sort_listing,
    sort_option,
)
from clients.command_line.missing_rights import find_hidden_offsets
from clients.command_line.output import Column, Listing, Target, output_option, show, target_options
from clients.command_line.progress import showing_progress
from clients.command_line.sessions import connected
from clients.command_line.topic_scope import TopicScope
from clients.groups.group_facts import GroupFacts, without_offsets
from clients.groups.group_reader import GroupName, GroupReader
from clients.groups.group_view import offset_items, total_lag
from clients.kgroup.scope import Scope
from clients.kgroup.watch import repeat, watch_option
from protocol.frozen import frozen

COLUMNS = (
    Column("GROUP", 25),
    Column("COORDINATION", 15, wide=True),
    Column("TYPE", 10, wide=True),
    Column("STATE", 20, wide=True),
    Column("LAG", wide=True),
)

STATES = (
    "stable",
    "preparingrebalance",
    "completingrebalance",
    "assigning",
    "reconciling",
    "empty",
    "dead",
    "unknown",
)
"""The states of Kafka's groups, in lower case; the command ignores case."""
TYPES = ("classic", "consumer", "zookeeper")


@click.command(
    "list",
    epilog="""\b
Examples:
  kgroup list --zookeeper localhost:2181
  kgroup list --state stable,empty -o json
  kgroup list --only-with-lag --sort -lag""",
)
@target_options
@click.option(
    "--state",
    is_flag=False,
    flag_value="",
    metavar="[STATE,…]",
    help="Show states, and only groups in one of the given states.",
)
@click.option(
    "--type",
    "type_",
    is_flag=False,
    flag_value="",
    metavar="[TYPE,…]",
    help="Show types, and only groups of the given ones: classic, consumer, zookeeper.",
)
@click.option(
    "--match", metavar="REGEX", default="", help="Show only groups whose name contains a match."
)
@click.option("--topic", "topics", type=Scope(), multiple=True, help="Only groups on this topic.")
@click.option("--only-with-lag", is_flag=True, help="Show only groups with lag, and how much.")
@columns_option
@sort_option
@watch_option
@output_option
def command(
    target: Target,
    state: str | None,
    type_: str | None,
    match: str,
    topics: tuple[TopicScope, ...],
    only_with_lag: bool,
    columns: str | None,
    sort: str | None,
    watch: float | None,
    output: str,
) -> None:
    """List all groups: those with coordinators, and those in ZooKeeper if --zookeeper is known."""
    states = words_of("--state", state, STATES)
    types = words_of("--type", type_, TYPES)

    # A plain table of names needs no request to each coordinator.
    if columns is not None:
        chosen = choose_columns(COLUMNS, columns)
    else:
        titles = {"GROUP"}
        titles |= {"STATE"} if state is not None else set()
        titles |= {"TYPE"} if type_ is not None else set()
        titles |= {"LAG"} if only_with_lag else set()
        chosen = [attrs.evolve(c, wide=c.wide and c.title not in titles) for c in COLUMNS]
    keys = {column.key for column in chosen if not column.wide or output in ("wide", "json")}
    if output in ("wide", "json") and columns is None and not only_with_lag:
        # To sum the lag of all groups takes many requests: only who asks for it gets it.
        chosen = [column for column in chosen if column.key != "lag"]
        keys.discard("lag")
    if sort is not None:
        keys.add(find_column(COLUMNS, sort.removeprefix("-")).key)
    wanted = Wanted(match_pattern(match), states, types, topics, keys, only_with_lag)
    header = columns is not None or state is not None or type_ is not None or only_with_lag

    def print_once() -> None:
        listing = asyncio.run(list_groups(target, wanted))
        listing = sort_listing(listing, COLUMNS, sort)
        show(attrs.evolve(listing, columns=chosen, header=header), output)

    repeat(watch, print_once)


def words_of(option: str, text: str | None, known: Collection[str]) -> set[str]:
    """Return the words of an option in lower case. Raises UsageError for an unknown one."""
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    if unknown := ", ".join(word for word in words if word.lower() not in known):
        raise click.UsageError(f"{option} {unknown}: not one of {', '.join(known)}")
    return {word.lower() for word in words}


@frozen
class Wanted:
    """The groups to list; empty sets of states, types and topics are all of them."""

    pattern: re.Pattern[str]
    states: Collection[str]
    types: Collection[str]
    topics: Sequence[TopicScope]
    keys: Collection[str]
    only_with_lag: bool


@showing_progress("reading groups")
async def list_groups(target: Target, wanted: Wanted) -> Listing:
    """Return the groups. What the columns do not need is not asked for."""
    async with connected(target, needs_zookeeper=False, waits_for_dead=False) as sessions:
        reader = GroupReader(sessions)
        # The pattern is matched first: only what is shown is asked for more.
        names = [
            name
            for name in await reader.names()
            if wanted.pattern.search(name.group) and (not wanted.types or name.type in wanted.types)
        ]
        states = {name.group: name.state for name in names if name.state is not None}
        needs_lag = "lag" in wanted.keys or wanted.only_with_lag
        needs_state = "state" in wanted.keys or bool(wanted.states)
        facts: dict[str, GroupFacts] = {}
        if needs_lag or wanted.topics or needs_state:
            # States alone are in the lists of newer brokers.
            every = needs_lag or bool(wanted.topics)
            asked = [n.group for n in names if every or n.group not in states]
            facts = {group.group: group for group in await reader.groups(asked)}
            states |= {name: group.state for name, group in facts.items()}
        lags = {}
        if needs_lag:
            lags = await sum_lags(reader, list(facts.values()))
            hidden = without_offsets(facts.values())
            reader.failures += await find_hidden_offsets(sessions.admin, hidden)

    def is_wanted(name: GroupName) -> bool:
        group = facts.get(name.group)
        if wanted.states and str(states.get(name.group)).lower() not in wanted.states:
            return False
        if wanted.topics and not any(
            scope.holds(partition)
            for scope in wanted.topics
            for partition in (group.partitions if group is not None else ())
        ):
            return False
        return not wanted.only_with_lag or bool(lags.get(name.group))

    items: list[dict[str, Any]] = [
        {
            "group": name.group,
            "coordination": name.coordination,
            "type": name.type,
            "state": states.get(name.group) if needs_state else None,
            "lag": lags.get(name.group),
        }
        for name in names
        if is_wanted(name)
    ]
    # Who has rights on some groups sees these, as with Kafka's tool; who sees none should know why.
    noted = reader.hidden if names else []
    failures = [failure for failure in reader.failures if failure not in noted]
    notes = [f"note: {failure.message}" for failure in noted]
    return Listing("groups", COLUMNS, items, failures, summaries=notes)


async def sum_lags(reader: GroupReader, groups: Sequence[GroupFacts]) -> dict[str, int]:
    """Return the lag of each group over all its partitions."""
    logs = await reader.logs_of(groups)
    return {
        group.group: total_lag(offset_items(group, group.partitions, logs, now_ms=0))
        for group in groups
    }
