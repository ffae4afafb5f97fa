"""`kgroup undo`: take a reset back, unless the group has moved since."""

import asyncio

import click

from clients.command_line.output import (
    Column,
    Failure,
    Listing,
    Target,
    output_option,
    show,
    target_options,
)
from clients.command_line.sessions import connected
from clients.groups.group_reader import GroupReader
from clients.kgroup.reset import print_remarks
from clients.resets.journal import Journal
from clients.resets.journal_entry import Status
from clients.resets.journalled_offsets import Change, JournalledOffsets, Outcome
from clients.resets.offset_change import OffsetChange, offset_of
from clients.resets.reset_plan import refusal
from protocol.errors import ErrorCode

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
    listing, outcome = asyncio.run(
        undo(target, entry_id, force=force, dry_run=dry_run, reason=reason, online=online)
    )
    if outcome is None and not dry_run:
        click.echo("nothing was written", err=True)
    elif outcome is not None:
        print_remarks([], {outcome.entry.group: outcome})
    show(listing, output)


async def undo(
    target: Target, entry_id: int, *, force: bool, dry_run: bool, reason: str | None, online: bool
) -> tuple[Listing, Outcome | None]:
    """Connect, and take an entry back. The outcome is None if nothing was written."""
    async with connected(target) as sessions:
        offsets = JournalledOffsets(sessions, await Journal.of(sessions.admin))
        return await take_back(
            offsets, entry_id, force=force, dry_run=dry_run, reason=reason, online=online
        )


async def take_back(
    offsets: JournalledOffsets,
    entry_id: int,
    *,
    dry_run: bool,
    reason: str | None,
    force: bool = False,
    online: bool = False,
) -> tuple[Listing, Outcome | None]:
    """Take an entry back. The outcome is None if nothing was written. Raises KgroupError."""
    entry = await offsets.journal.find(entry_id)
    changes, failures = await offsets.find_undo(entry, force=force)

    # Its members would overwrite what is written.
    reader = GroupReader(offsets.sessions)
    facts = await reader.group(entry.group)
    failures += reader.failures
    if text := refusal(facts, online=online):
        failures.append(Failure(entry.group, ErrorCode.NON_EMPTY_GROUP.name, text))

    outcome = None
    if not failures and not dry_run:
        outcome = await offsets.change(
            Change(entry.group, "undo", changes, reason, entry_id, online)
        )
        failures += outcome.failures
        is_written = outcome.entry.status is Status.DONE
        changes = list(outcome.entry.changes) if is_written else []
    elif not dry_run:
        changes = []

    journal_id = None if outcome is None else outcome.entry.id
    items = [
        {
            "group": entry.group,
            "topic": change.partition.topic,
            "partition": change.partition.partition,
            **_offsets(change),
            "store": change.store,
            "undoes": entry_id,
            "journal_id": journal_id,
        }
        for change in changes
    ]
    return Listing("undo", COLUMNS, items, failures), outcome


def _offsets(change: OffsetChange) -> dict[str, int | None]:
    return {"new_offset": offset_of(change.new), "old_offset": offset_of(change.old)}
