"""`kgroup rename`: copy a group under another name, and delete it when the copy is proven."""

import asyncio
from typing import Any

import attrs
import click

from clients.command_line.interrupts import Interrupts, heeding_interrupts
from clients.command_line.output import (
    INTERRUPTED,
    Failure,
    Target,
    output_option,
    show,
    target_options,
)
from clients.command_line.printing import say
from clients.command_line.sessions import connected
from clients.errors import KgroupError
from clients.groups.group_facts import GroupFacts
from clients.kgroup.copy_group import (
    Copied,
    CopyJob,
    copy,
    copy_options,
    is_whole,
    job_of,
    listing,
    print_copy,
)
from clients.kgroup.delete import delete_from_stores
from clients.kgroup.reset import print_remarks
from clients.resets.group_copy import (
    current_offsets,
    find_unfinished_migration,
    is_migrated,
    read_source,
)
from clients.resets.journal import Journal
from clients.resets.journalled_offsets import Change, JournalledOffsets, Outcome
from clients.resets.offset_change import OffsetChange
from clients.resets.offset_export import STORES
from clients.resets.reset_plan import held_in, kept_by, refusal
from protocol.errors import ErrorCode
from zk.api import ZkError


@click.command(
    "rename",
    epilog="""\b
Examples:
  kgroup rename analytics analytics-v2
  kgroup rename analytics analytics --to-bootstrap-server other:9092 --by timestamp""",
)
@target_options
@copy_options
@output_option
def command(target: Target, output: str, **options: Any) -> None:
    """Copy FROM to TO as `kgroup copy` does, and delete FROM when all of it is read back.

    FROM may have no members. Both steps are entries in the journal: undone in the reverse order,
    they bring FROM back.
    """
    job = attrs.evolve(job_of(target, **options), removes_source=True)
    copied, deleted, failures = asyncio.run(rename(target, job))
    if deleted is not None:
        print_remarks([], {job.source: deleted})
        if not failures and copied.outcome is not None:
            first, then = deleted.entry.id, copied.outcome.entry.id
            # The other way round there is neither group for a while.
            say(f"to take the renaming back, undo entry {first} first, and then {then}", err=True)
    show(listing(copied, job, "rename", *failures), output)


async def rename(target: Target, job: CopyJob) -> tuple[Copied, Outcome | None, list[Failure]]:
    """Copy, and delete the source. Returns the copy, the entry of the deletion, and failures.

    The copy is said when it is done.
    """
    # The copy is said at an interrupt behind it, too.
    with heeding_interrupts() as interrupts:
        copied = await copy(target, job, interrupts)
        print_copy(copied, job)
        if not is_whole(copied):
            return copied, None, []

        try:
            outcome, failures = await _delete_source(target, job, copied, interrupts)
        except (KgroupError, ZkError, OSError) as error:
            text = f"group '{job.source}' is kept, beside its copy: {error}"
            return copied, None, [attrs.evolve(Failure.of(job.source, error), message=text)]
        return copied, outcome, failures


async def _delete_source(
    target: Target, job: CopyJob, copied: Copied, interrupts: Interrupts
) -> tuple[Outcome | None, list[Failure]]:
    """Delete the group that was copied. Raises KgroupError, ZkError, OSError if nothing was."""
    async with connected(target) as sessions:
        # Somebody may have used the group while it was copied.
        facts, failures = await read_source(sessions, job.source)
        if not failures and current_offsets(facts) != current_offsets(copied.facts):
            text = f"group '{job.source}' was used meanwhile, and is kept: copy it again"
            failures.append(Failure(job.source, "OffsetsChanged", text))
        if reason := refusal(facts):
            failures.append(Failure(job.source, ErrorCode.NON_EMPTY_GROUP.name, reason))
        if unfinished := await find_unfinished_migration(sessions, job.source):
            failures.append(unfinished)
        # Two things are done, and an interrupt ends the command between them (fault scale-C3).
        if interrupts.is_asked:
            text = f"group '{job.source}' is kept: the command was interrupted before"
            failures.append(Failure(job.source, INTERRUPTED, text))
        if failures:
            return None, failures

        offsets = JournalledOffsets(sessions, await Journal.of(sessions.admin))
        has_migration = await is_migrated(sessions, job.source)
        deletions = deletions_of(facts, has_migration=has_migration)
        deletion = Change(job.source, "delete", deletions, f"renamed to {job.target}")
        outcome = await offsets.change(deletion)
        if outcome.failures:
            return outcome, list(outcome.failures)

        # The offsets are gone; what is left is the group's name.
        _, errors = await delete_from_stores(sessions, job.source, has_brokers=True)
        return outcome, errors


def deletions_of(facts: GroupFacts, *, has_migration: bool = False) -> list[OffsetChange]:
    """Return the deletion of every offset of the group, in each store that has it.

    A migration ends with the group: of one that has it both stores are said to have had what
    counts, and no more, so that an undo brings that back wherever members look then.
    """
    # What was left in the other store did not count (fault strangers-77).
    if has_migration:
        return [
            OffsetChange(partition, store, kept_by(store, committed), None)
            for partition, committed in current_offsets(facts).items()
            for store in STORES
        ]
    return [
        OffsetChange(partition, store, held, None)
        for partition in sorted(facts.partitions)
        for store in STORES
        if (held := held_in(facts, store, partition)) is not None
    ]
