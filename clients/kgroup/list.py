"""`kgroup list`: groups of both kinds."""

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

STATES = ("stable", "preparingrebalance", "completingrebalance", "empty", "dead")
"""Kafka's words, in which case does not count."""

STATE_COLUMNS = (Column("GROUP", 25), Column("STATE"), Column("COORDINATION", wide=True))


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
    help="Show states too, and only groups in one of those named.",
)
@click.option("--match", metavar="REGEX", default="", help="Only groups whose name has a match.")
@output_option
def command(target: Target, state: str | None, match: str, output: str) -> None:
    """Names of all groups: in ZooKeeper when --zookeeper is known, and with coordinators."""
    try:
        pattern = re.compile(match)
    except re.error as error:
        raise click.UsageError(f"--match {match!r}: {error}") from None
    with_state = state is not None or output != "table"
    wanted = {word.strip().lower() for word in (state or "").split(",") if word.strip()}
    if unknown := ", ".join(sorted(wanted.difference(STATES))):
        raise click.UsageError(f"--state {unknown}: none of {', '.join(STATES)}")
    listing = asyncio.run(listed(target, pattern, with_state))
    if state is not None:
        items = [i for i in listing.items if not wanted or str(i["state"]).lower() in wanted]
        listing = Listing("groups", STATE_COLUMNS, items, listing.errors)
    show(listing, output)


async def listed(target: Target, pattern: re.Pattern[str], with_state: bool) -> Listing:
    """The groups that match; their states cost a question for each."""
    async with connected(target) as sessions:
        reader = GroupReader(sessions)
        names = [name for name in await reader.names() if pattern.search(name.group)]
        states = {}
        if with_state:
            facts = await reader.groups([name.group for name in names])
            states = {group.group: group.state for group in facts}
    items = [
        {"group": n.group, "coordination": n.coordination, "state": states.get(n.group)}
        for n in names
    ]
    return Listing("groups", COLUMNS, items, reader.failures, header=False)
