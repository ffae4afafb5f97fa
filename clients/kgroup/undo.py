"""`kgroup undo`: take a reset back, unless the group has moved since."""

import asyncio
from typing import Any

import click

from clients.command_line.interrupts import heeding_interrupts
from clients.command_line.output import Column, Listing, Target, output_option, show, target_options
from clients.command_line.printing import say
from clients.command_line.sessions import connected
from clients.kgroup.reset import print_remarks
from clients.resets.journal import Journal
from clients.resets.journalled_offsets import JournalledOffsets
from clients.resets.offset_change import offset_of
from clients.resets.undo import Undone, undo

COLUMNS = (
    Column("GROUP", 30),
    Column("TOPIC", 30),
    Column("PARTITION", 10),
    Column("NEW-OFFSET", 15),
    Column("OLD-OFFSET", 15),
    Column("STORE", 9),
    Column("UNDOES", 8, wide=True),
    Column("JOURNAL-ID", 10, optional=True),
)


@click.command(
    "undo",
    epilog="""\b
Examples:
  kgroup undo 17 --dry-run
  kgroup undo 17
  kgroup undo 17 --force --reason 'the group ran on, and is to start again'""",
)
@target_options
@click.argument("entry_id", metavar="ID", type=click.IntRange(min=1))
@click.option("--force", is_flag=True, help="Also where the group has moved since.")
@click.option("--dry-run", is_flag=True, help="Show what would be written, and write nothing.")
@click.option("--execute", is_flag=True, help="Write the offsets; this is the default.")
@click.option("--reason", help="Why, for the journal.")
@click.option(
    "--online",
    is_flag=True,
    help="Also if the group has members at a coordinator: they are removed, and join again.",
)
@output_option
def command(
    target: Target,
    entry_id: int,
    force: bool,
    dry_run: bool,
    execute: bool,
    reason: str | None,
    online: bool,
    output: str,
) -> None:
    """Write the offsets that were there before journal entry ID.

    If an offset is no longer what the entry wrote, nothing is written, and the command says what
    moved and by how much; --force writes anyway. An offset that the entry was the first to commit
    is deleted. The undo is an entry of its own, so it can be undone too.
    """
    if dry_run and execute:
        raise click.UsageError("give one of --dry-run and --execute")
    undone = asyncio.run(
        take_back(target, entry_id, force=force, dry_run=dry_run, reason=reason, online=online)
    )
    if undone.outcome is not None:
        print_remarks([], {undone.outcome.entry.group: undone.outcome})
    elif not dry_run:
        has_moved = any(failure.error == "OffsetMoved" for failure in undone.failures)
        advice = "; --force writes all the same" if has_moved else ""
        say(f"nothing was written{advice}", err=True)
    show(undo_listing(undone), output)


async def take_back(
    target: Target, entry_id: int, *, force: bool, dry_run: bool, reason: str | None, online: bool
) -> Undone:
    """Take an entry back."""
    async with connected(target) as sessions:
        offsets = JournalledOffsets(sessions, await Journal.of(sessions.admin))
        with heeding_interrupts():
            return await undo(
                offsets, entry_id, force=force, dry_run=dry_run, reason=reason, online=online
            )


def undo_listing(undone: Undone) -> Listing:
    """Return a row for each offset that is written, or would be."""
    journal_id = None if undone.outcome is None else undone.outcome.entry.id
    items: list[dict[str, Any]] = [
        {
            "group": undone.entry.group,
            "topic": change.partition.topic,
            "partition": change.partition.partition,
            "new_offset": offset_of(change.new),
            "old_offset": offset_of(change.old),
            "store": change.store,
            "undoes": undone.entry.id,
            "journal_id": journal_id,
        }
        for change in undone.changes
    ]
    return Listing("undo", COLUMNS, items, undone.failures)
