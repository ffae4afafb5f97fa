"""`kgroup at-risk`: show which offsets expire and which records are deleted unread."""

import asyncio
import re
from collections.abc import Sequence

import click

from clients.command_line.output import Column, Listing, Target, output_option, show, target_options
from clients.command_line.printing import say
from clients.groups.group_view import LOG_KEYS, RECORD_KEYS, duration, never_negative
from clients.groups.offset_rows import BY_KEY, BY_SIZE
from clients.kgroup.describe import Wanted, describe_groups
from clients.kgroup.events import Age
from clients.watching.offset_risk import count_unjudged, find_risks, judge_risks

COLUMNS = (
    Column("GROUP", 15),
    Column("TOPIC", 15),
    Column("PARTITION", 10),
    Column("RISK", 16),
    Column("IN", 8, key="in_ms", text=duration),
    Column("CURRENT-OFFSET", 15),
    Column("LAG", text=never_negative),
)


@click.command(
    "at-risk",
    epilog="""\b
Examples:
  kgroup at-risk
  kgroup at-risk analytics --within 12h -o json""",
)
@target_options
@click.argument("groups", nargs=-1)
@click.option(
    "--within", type=Age(), default="4h", show_default=True, help="How far to look ahead."
)
@output_option
def command(target: Target, groups: tuple[str, ...], within: int, output: str) -> None:
    """Show what GROUPS, by default all, will lose: offsets that expire, records deleted unread.

    RISK is offset-expires, records-deleted, overtaken where retention has deleted records that
    the group has not consumed, beyond-log-end where its offset is behind the last record (a
    consumer then goes on where its auto.offset.reset says), or no-owner where a topic has got
    partitions that no member owns yet. Times of deletion are the earliest ones
    by retention.ms: a segment is deleted as a whole. Topics with a retention.bytes, or that are
    compacted, which may delete records sooner, are named.
    """
    listing, notes = asyncio.run(risks_of(target, groups, within))
    for note in notes:
        say(note, err=True)
    show(listing, output)


async def risks_of(
    target: Target, groups: Sequence[str], within_ms: int
) -> tuple[Listing, list[str]]:
    """Return what the groups, or all, will lose, and remarks that put it in doubt."""
    keys = RECORD_KEYS | LOG_KEYS
    wanted = Wanted(tuple(groups) or None, re.compile(""), (), keys, False, needs_times=True)
    described, notes = await describe_groups(target, wanted, "offsets")
    risks = find_risks(described.items, within_ms)
    # Whether groups have members is not asked for, and what cannot be read is an error.
    signs = ("clocks differ", BY_SIZE, BY_KEY)
    doubts = [note for note in notes if any(sign in note for sign in signs)]
    verdict = judge_risks(risks, within_ms)
    # Of a log that is not there, or cannot be read, nobody knows what it loses.
    has_unread = any(
        item.get("topic") is not None and item["log_end_offset"] is None for item in described.items
    )
    if doubts or described.errors or has_unread:
        verdict += ", as far as it can be told"
    # Who owns them reads on, and nobody sees where (fault strangers-158, was: 0).
    unjudged = count_unjudged(described.items)
    if unjudged:
        said = "partitions with an owner and no commit, of which nothing is known"
        verdict += f"; {said}: {unjudged}"
    if described.errors and not described.items:
        # Where nothing could be read, nobody is to be calmed (fault users-19, was: verdict).
        verdict = "what is lost is not known: no group could be read"
    listing = Listing("at-risk", COLUMNS, risks, described.errors, verdict=verdict)
    return listing, doubts
