"""Take a reset back by its entry in the journal."""

from clients.command_line.output import Failure
from clients.groups.group_facts import GroupFacts
from clients.groups.group_reader import GroupReader
from clients.resets.journal_entry import JournalEntry, Status
from clients.resets.journalled_offsets import Change, JournalledOffsets, Outcome
from clients.resets.offset_change import OffsetChange, compare, moved_text, reverse
from clients.resets.reset_plan import find_twins, held_in, refusal
from protocol.errors import ErrorCode
from protocol.frozen import frozen


@frozen
class Undone:
    """The offsets that an undo has written, or would write in a dry run.

    The outcome is None if nothing was written; then the failures say why.
    """

    entry: JournalEntry
    """The entry that is taken back."""
    changes: tuple[OffsetChange, ...]
    failures: tuple[Failure, ...] = ()
    outcome: Outcome | None = None


async def undo(
    offsets: JournalledOffsets,
    entry_id: int,
    *,
    force: bool = False,
    dry_run: bool = False,
    reason: str | None = None,
    online: bool = False,
) -> Undone:
    """Write the offsets that were there before an entry.

    If an offset is no longer what the entry wrote, nothing is written unless `force` is given; nor
    if the group has members, unless `online` removes them. Raises NoSuchEntry, CannotUndo,
    ClientError.
    """
    entry = await offsets.journal.find(entry_id)
    changes, failures = await offsets.find_undo(entry, force=force)

    # Its members would overwrite what is written.
    reader = GroupReader(offsets.sessions)
    facts = await reader.group(entry.group)
    failures += reader.failures
    # Members read another store since a migration (fault strangers-74).
    changes += _changes_where_it_counts(facts, entry, failures, force=force)
    if text := refusal(facts, online=online):
        failures.append(Failure(entry.group, ErrorCode.NON_EMPTY_GROUP.name, text))

    if dry_run:
        return Undone(entry, tuple(changes), tuple(failures))
    if failures:
        return Undone(entry, (), tuple(failures))

    outcome = await offsets.change(Change(entry.group, "undo", changes, reason, entry_id, online))
    is_written = outcome.entry.status is Status.DONE
    written = tuple(outcome.entry.changes) if is_written else ()
    return Undone(entry, written, outcome.failures, outcome)


def _changes_where_it_counts(
    facts: GroupFacts, entry: JournalEntry, failures: list[Failure], *, force: bool
) -> list[OffsetChange]:
    """Return what takes an entry back in stores that count now, and did not then.

    An offset that moved there is added to `failures`, unless `force` is given.
    """
    twins = find_twins(facts, entry.changes)
    held = {
        twin.place: committed
        for twin in twins
        if (committed := held_in(facts, twin.store, twin.partition)) is not None
    }
    # What is there already need not be taken back.
    found = compare(twins, held)
    if not force:
        failures += [
            Failure(str(twin.partition), "OffsetMoved", moved_text(twin, held))
            for twin in found.moved
        ]
    return reverse([*found.at_new, *found.moved], held)
