"""`kgroup list`: list the groups in ZooKeeper and with coordinators."""

import asyncio
import re

import click

from clients.group_reader import GroupReader
from clients.output import Column, Listing, Target, output_option, show, target_options
from clients.sessions import connected

COLUMNS = (
    Column("GROUP", 25),
    Column("COORDINATION", 15, wide=True),
    Column("STATE", wide=True),
)

STATES = ("stable", "preparingrebalance", "completingrebalance", "empty", "dead", "unknown")
"""The states of Kafka's groups, in lower case; the command ignores case."""

STATE_COLUMNS = (Column("GROUP", 15), Column("STATE"), Column("COORDINATION", wide=True))


@click.command(
    "list",
    epilog="""\b
Examples:
  kgroup list --zookeeper localhost:2181
  kgroup list --state stable,empty -o json""",
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
    "--match", metavar="REGEX", default="", help="Show only groups whose name contains a match."
)
@output_option
def command(target: Target, state: str | None, match: str, output: str) -> None:
    """List all groups: those with coordinators, and those in ZooKeeper if --zookeeper is known."""
    try:
        pattern = re.compile(match)
    except re.error as error:
        raise click.UsageError(f"--match {match!r}: {error}") from None

    # A table without --state needs no request to each coordinator.
    with_state = state is not None or output != "table"
    chosen_states = {word.strip().lower() for word in (state or "").split(",") if word.strip()}
    if unknown := ", ".join(sorted(chosen_states.difference(STATES))):
        raise click.UsageError(f"--state {unknown}: not one of {', '.join(STATES)}")

    listing = asyncio.run(list_groups(target, pattern, with_state))

    # `--state` shows states in the plain table, too.
    if state is not None:
        items = [
            i
            for i in listing.items
            if not chosen_states or str(i["state"]).lower() in chosen_states
        ]
        listing = Listing("groups", STATE_COLUMNS, items, listing.errors)

    show(listing, output)


async def list_groups(target: Target, pattern: re.Pattern[str], with_state: bool) -> Listing:
    """Return the groups that match. Their states take further requests."""
    async with connected(target) as sessions:
        reader = GroupReader(sessions)
        # The pattern is matched first: only what is shown is asked for its state.
        names = [name for name in await reader.names() if pattern.search(name.group)]
        states = {name.group: name.state for name in names if name.state is not None}
        if with_state:
            facts = await reader.groups([n.group for n in names if n.group not in states])
            states |= {group.group: group.state for group in facts}

    items = [
        {
            "group": name.group,
            "coordination": name.coordination,
            "state": states.get(name.group) if with_state else None,
        }
        for name in names
    ]
    return Listing("groups", COLUMNS, items, reader.failures, header=False)
