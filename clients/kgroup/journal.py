"""`kgroup journal`: show what resets have written, and end what a crash has left open."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import click

from clients.command_line.interrupts import heeding_interrupts
from clients.command_line.output import (
    Column,
    Failure,
    Listing,
    Target,
    is_table,
    output_option,
    show,
    target_options,
)
from clients.command_line.point_in_time import timestamp
from clients.command_line.printing import plain, say
from clients.command_line.sessions import connected
from clients.errors import KgroupError
from clients.resets.journal import Journal, JournalLog
from clients.resets.journal_entry import JournalEntry, Status
from clients.resets.journalled_offsets import JournalledOffsets, Outcome
from clients.resets.offset_change import offset_of, stores_of_changes
from protocol.errors import ErrorCode

AT_WORK_MS = 60_000
"""Time for which a command that has begun an entry may still be writing."""


def _words(stores: object) -> str:
    return ",".join(stores) if isinstance(stores, list) else plain(stores)


COLUMNS = (
    Column("ID", 4),
    Column("AT", 20, key="at_ms", text=timestamp),
    Column("WHO", 15),
    Column("ACTION", 6),
    Column("GROUP", 20),
    Column("STATUS", 9),
    Column("PARTITIONS", 10),
    Column("STORES", 9, text=_words),
    Column("REASON"),
    Column("UNDOES", wide=True),
    Column("UNDONE-BY", wide=True),
    Column("COMMAND", wide=True),
    Column("JOURNAL", wide=True),
)

ROW_COLUMNS = (
    Column("GROUP", 20),
    Column("TOPIC", 30),
    Column("PARTITION", 10),
    Column("STORE", 9),
    Column("OLD-OFFSET", 15),
    Column("NEW-OFFSET", 15),
    Column("OLD-METADATA", wide=True),
    Column("NEW-METADATA", wide=True),
    *(Column(c.title, wide=True, key=c.key, text=c.text) for c in COLUMNS if c.title != "GROUP"),
)


@click.command(
    "journal",
    epilog="""\b
Examples:
  kgroup journal
  kgroup journal 17 -o json
  kgroup journal --settle 17""",
)
@target_options
@click.argument("entry_id", metavar="[ID]", required=False, type=click.IntRange(min=1))
@click.option(
    "--settle",
    is_flag=True,
    help="End entries that a command has begun and not ended; without ID all that are older than a "
    "minute.",
)
@output_option
def command(target: Target, entry_id: int | None, settle: bool, output: str) -> None:
    """List the journal of resets, or show what entry ID has written.

    An entry that stays `begun` is left of a command that was killed. --settle compares it with the
    offsets that the group has now. If some of them are written, it writes the others, and the entry
    is `done`; if none is, the entry is `abandoned`.
    """
    if settle:
        show(asyncio.run(settle_entries(target, entry_id)), output)
        return

    entries, refusals = asyncio.run(read_journal(target))
    if entry_id is None:
        items = [entry_item(*found) for found in entries.values()]
        show(Listing("journal", COLUMNS, items, refusals), output)
        return

    if entry_id not in entries:
        failure = Failure(f"journal entry {entry_id}", "NoSuchEntry", "there is none with this id")
        show(Listing("journal", ROW_COLUMNS, (), [failure, *refusals]), output)
        return

    entry, log = entries[entry_id]
    if is_table(output):
        for sentence in describe(entry):
            say(sentence)
        say()
    show(Listing("journal", ROW_COLUMNS, row_items(entry, log)), output)


async def read_journal(
    target: Target,
) -> tuple[Mapping[int, tuple[JournalEntry, JournalLog]], list[Failure]]:
    """Return all entries, and a failure for a log not read. Raises KgroupError, OSError."""
    async with connected(target, asks_brokers=True) as sessions:
        journal = await Journal.of(sessions.admin)
        return await journal.entries(), refusals_of(journal)


def refusals_of(journal: Journal) -> list[Failure]:
    """Return a failure for each log of the journal that may not be read."""
    text = "you may not read it, and its entries are not shown; ask for DESCRIBE and READ on it"
    return [
        Failure(name, error.code.name, text)
        if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        else Failure.of(name, error)
        for name, error in journal.refusals.items()
    ]


async def settle_entries(target: Target, entry_id: int | None) -> Listing:
    """End one entry, or all that were begun some time ago."""
    async with connected(target) as sessions:
        offsets = JournalledOffsets(sessions, await Journal.of(sessions.admin))
        entries = await offsets.journal.entries()
        failures = refusals_of(offsets.journal)
        if entry_id is not None:
            chosen = [await offsets.journal.find(entry_id)]
        else:
            before_ms = time.time_ns() // 1_000_000 - AT_WORK_MS
            chosen = [
                entry
                for entry, _ in entries.values()
                if entry.status is Status.BEGUN and entry.at_ms < before_ms
            ]

        items = []
        by_name = {f"journal entry {entry.id}": entry for entry in chosen}
        with heeding_interrupts() as interrupts:
            for name in interrupts.until_asked(by_name):
                entry = by_name[name]
                try:
                    outcome = await offsets.settle(entry)
                except (KgroupError, OSError) as error:
                    # Those before it are settled.
                    failures.append(Failure.of(name, error))
                    continue
                failures += outcome.failures
                items.append(entry_item(outcome.entry, entries[entry.id][1]))
                say(verdict(entry, outcome), err=True)
        return Listing("journal", COLUMNS, items, [*failures, *interrupts.not_done])


# --- what is printed


def verdict(entry: JournalEntry, outcome: Outcome) -> str:
    """Say what has become of an entry."""
    status = outcome.entry.status
    if entry.status is not Status.BEGUN:
        return f"entry {entry.id} had ended: it is {status}"
    if status is Status.ABANDONED:
        return f"entry {entry.id} is abandoned: none of its offsets is what the group has"
    if status is Status.BEGUN:
        return f"entry {entry.id} is still begun"

    written = len(outcome.entry.changes)
    left = len(entry.changes) - written
    rest = f"; {left} others were committed by somebody since, and are left out" if left else ""
    return f"entry {entry.id} is done: {written} offsets are written{rest}"


def describe(entry: JournalEntry) -> list[str]:
    """Return sentences about an entry."""
    lines = [
        f"Entry {entry.id}: {entry.action} of group {entry.group}, {entry.status}, by "
        f"{entry.who} at {timestamp(entry.at_ms)}",
        f"Command: {entry.command}",
    ]
    lines += [f"Reason: {entry.reason}"] if entry.reason else []
    lines += [f"It undoes entry {entry.undoes}"] if entry.undoes else []
    lines += [f"It was undone by entry {entry.undone_by}"] if entry.undone_by else []
    return lines


def entry_item(entry: JournalEntry, log: JournalLog) -> dict[str, Any]:
    """Return an entry under the keys of the columns."""
    return {
        "id": entry.id,
        "at_ms": entry.at_ms,
        "who": entry.who,
        "action": entry.action,
        "group": entry.group,
        "status": str(entry.status),
        "partitions": len({change.partition for change in entry.changes}),
        "stores": stores_of_changes(entry.changes),
        "reason": entry.reason,
        "undoes": entry.undoes,
        "undone_by": entry.undone_by,
        "command": entry.command,
        "journal": log.name,
    }


def row_items(entry: JournalEntry, log: JournalLog) -> list[dict[str, Any]]:
    """Return a row for each offset of an entry."""
    return [
        {
            **entry_item(entry, log),
            "topic": change.partition.topic,
            "partition": change.partition.partition,
            "store": change.store,
            "old_offset": offset_of(change.old),
            "new_offset": offset_of(change.new),
            "old_metadata": change.old.metadata if change.old else None,
            "new_metadata": change.new.metadata if change.new else None,
        }
        for change in entry.changes
    ]
