"""Change a group's offsets so that it can be taken back: each change is written to the journal.

The entry is written before the first offset is. When the offsets are written and read back, the
entry is written again without what was refused. A command that is killed in between leaves an
entry that is `begun`, and `settle` compares it with what the stores hold.
"""

import getpass
import shlex
import socket
import sys
import time
import uuid
from collections.abc import Callable, Collection, Sequence

import attrs

from clients.command_line.output import Failure
from clients.command_line.sessions import Sessions
from clients.errors import ClientError, KgroupError
from clients.groups.group_reader import GroupReader
from clients.resets.journal import KEEP_MS, Journal
from clients.resets.journal_entry import JournalEntry, Status
from clients.resets.offset_change import (
    Held,
    OffsetChange,
    by_store,
    compare,
    deletions,
    moved_text,
    partitions_by_store,
    reverse,
)
from clients.resets.offset_writing import delete_held_offsets, read_offsets, write_offsets
from clients.resets.online_commit import OnlineCommit
from clients.resets.reset import ResetPlan
from clients.resets.reset_plan import find_twins, refusal
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition


class CannotUndo(ClientError):
    """An entry that is not `done` cannot be taken back."""


@frozen
class Change:
    """A change that is asked for, and its reason. `online`: live members are removed for it."""

    group: str
    action: str
    changes: Sequence[OffsetChange]
    reason: str | None = None
    undoes: int | None = None
    online: bool = False

    @classmethod
    def of(
        cls, plan: ResetPlan, action: str, reason: str | None = None, *, online: bool = False
    ) -> "Change":
        """Return the change that a plan asks for."""
        changes = [change for row in plan.rows for change in row.changes]
        return cls(plan.group, action, changes, reason, online=online)


@frozen
class Outcome:
    """The journal's entry with what was written, the name of the journal, and what failed.

    `options` are for the next command about it: they say in which cluster it is.
    """

    entry: JournalEntry
    journal: str
    failures: tuple[Failure, ...] = ()
    options: str = ""


def current_user() -> str:
    """Return user@host; an account without a name by its number."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def command_line() -> str:
    """Return the command line of this process."""
    return shlex.join(["kgroup", *sys.argv[1:]])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@attrs.define(eq=False)
class JournalledOffsets:
    """Changes offsets, and writes each change to the journal."""

    sessions: Sessions
    journal: Journal
    keep_ms: int = KEEP_MS
    who: str = attrs.field(factory=current_user)
    command: str = attrs.field(factory=command_line)
    now_ms: Callable[[], int] = _now_ms

    async def change(self, change: Change) -> Outcome:
        """Write offsets, or delete them. Raises KgroupError, OSError if nothing was begun."""
        entry, log = await self.journal.begin(
            JournalEntry(
                at_ms=self.now_ms(),
                who=self.who,
                reason=change.reason,
                command=self.command,
                cluster=self.journal.cluster_id,
                group=change.group,
                action=change.action,
                undoes=change.undoes,
                token=uuid.uuid4().hex,
                changes=tuple(change.changes),
            )
        )
        try:
            await self.journal.trim(self.now_ms() - self.keep_ms)
            if change.online:
                outcome = await self._commit_online(entry)
            else:
                outcome = await self._close(entry, *await self._write(entry.group, entry.changes))
        except (KgroupError, OSError) as error:
            # Offsets may be written by now, and the entry says how to find out.
            failures = (Failure.of(entry.group, error), self._left_begun(entry))
            outcome = Outcome(entry, "", failures)
        return attrs.evolve(outcome, journal=log.name, options=self.sessions.options)

    async def held(self, group_id: str, changes: Collection[OffsetChange]) -> Held:
        """Return what the stores hold. Raises ClientError for what cannot be read."""
        held, failures = await read_offsets(self.sessions, group_id, partitions_by_store(changes))
        if failures:
            raise ClientError(f"{failures[0].what}: {failures[0].message}")
        return held

    async def find_undo(
        self, entry: JournalEntry, *, force: bool = False
    ) -> tuple[list[OffsetChange], list[Failure]]:
        """Return the changes that take an entry back, and a failure for each offset that moved.

        With `force`, what moved is no failure. Raises CannotUndo, ClientError.
        """
        if entry.status is not Status.DONE:
            why = _WHY_NOT[entry.status].format(entry, options=self.sessions.options)
            raise CannotUndo(f"journal entry {entry.id} {why}")

        held = await self.held(entry.group, entry.changes)
        now = compare(entry.changes, held)
        moved = [] if force else [*now.at_old, *now.moved]
        failures = [
            Failure(str(change.partition), "OffsetMoved", moved_text(change, held))
            for change in sorted(moved, key=lambda change: change.place)
        ]
        return reverse(entry.changes, held), failures

    async def settle(self, entry: JournalEntry) -> Outcome:
        """Finish an entry that a command has left begun, or abandon it.

        If some of its offsets are written, the others are written too, but for those that somebody
        has committed since. Raises ClientError, OSError.
        """
        if entry.status is not Status.BEGUN:
            return Outcome(entry, "")

        reader = GroupReader(self.sessions)
        facts = await reader.group(entry.group)
        # Members read another store since a migration (fault strangers-81, was: []).
        twins = find_twins(facts, entry.changes)
        changes = [*entry.changes, *twins]
        now = compare(changes, await self.held(entry.group, changes))
        has_written = any(change.is_move for change in now.at_new)
        if not has_written and (now.at_old or now.moved):
            return await self._end(entry, (), ())

        failures: list[Failure] = []
        may_follow = False
        if now.at_old:
            if reason := refusal(facts):
                failure = Failure(entry.group, ErrorCode.NON_EMPTY_GROUP.name, reason)
                return Outcome(entry, "", (*reader.failures, failure))
            failures, may_follow = await self._write(entry.group, now.at_old)

        # What moved is not ours to take back any more.
        left = attrs.evolve(entry, changes=(*now.at_new, *now.at_old))
        return await self._close(left, failures, may_follow)

    # --- parts

    async def _write(
        self, group_id: str, changes: Collection[OffsetChange]
    ) -> tuple[list[Failure], bool]:
        """Write and delete. Returns failures, and whether something may still be written."""
        failures, may_follow = await write_offsets(self.sessions, group_id, by_store(changes))
        refused, may_go = await delete_held_offsets(self.sessions, group_id, deletions(changes))
        return [*failures, *refused], may_follow or may_go

    async def _close(
        self, entry: JournalEntry, failures: Sequence[Failure], may_follow: bool
    ) -> Outcome:
        """Read the offsets back, and keep in the entry those that are written."""
        held, unread = await read_offsets(
            self.sessions, entry.group, partitions_by_store(entry.changes)
        )
        if unread:
            return Outcome(entry, "", (*failures, *unread, self._left_begun(entry)))

        # A commit that was not answered may be performed after this look.
        now = compare(entry.changes, held)
        if may_follow and now.at_old:
            return Outcome(entry, "", (*failures, self._left_begun(entry)))
        if len(now.at_new) < len(entry.changes) and not failures:
            failures = [
                Failure(str(change.partition), "OffsetsChanged", moved_text(change, held))
                for change in (*now.moved, *now.at_old)
            ]
        # A commit that was refused leaves what was to stay the same as it is, too.
        written = [change for change in now.at_new if change.is_move or not failures]
        return await self._end(entry, written, failures)

    def _left_begun(self, entry: JournalEntry) -> Failure:
        text = (
            "it is not known what was written: `kgroup journal --settle "
            f"{entry.id}{self.sessions.options}` compares and ends it"
        )
        return Failure(f"journal entry {entry.id}", ErrorCode.REQUEST_TIMED_OUT.name, text)

    async def _commit_online(self, entry: JournalEntry) -> Outcome:
        offsets, deleted = by_store(entry.changes), deletions(entry.changes)
        reason = entry.reason or f"{entry.who}, journal entry {entry.id}"
        online = OnlineCommit(self.sessions.admin, entry.group, reason)
        try:
            await online.write(offsets["kafka"], deleted["kafka"])
        except KgroupError as error:
            failure = Failure.of(entry.group, error)
            if error.retriable:
                return Outcome(entry, "", (failure, self._left_begun(entry)))
            return await self._end_early(entry, failure, online.deleted)

        # Members at a coordinator do not stop a write there.
        failures: list[Failure] = []
        in_zookeeper = [change for change in entry.changes if change.store == "zookeeper"]
        if in_zookeeper:
            failures, _ = await self._write(entry.group, in_zookeeper)

        written: Sequence[OffsetChange] = entry.changes
        # What was acknowledged and is as before was not written.
        written, failures = await self._written_online(entry, failures)
        return await self._end(entry, written, failures)

    async def _end_early(
        self, entry: JournalEntry, failure: Failure, deleted: Collection[TopicPartition]
    ) -> Outcome:
        """Keep in the entry what was deleted, or committed, before the failure."""
        held, unread = await read_offsets(
            self.sessions, entry.group, partitions_by_store(entry.changes)
        )
        if unread:
            return Outcome(entry, "", (failure, *unread, self._left_begun(entry)))

        at_new = compare(entry.changes, held).at_new
        written = {change.place for change in at_new if change.is_move}
        # A member that came between may have committed over a deletion.
        written |= {("kafka", partition) for partition in deleted}
        changes = [change for change in entry.changes if change.place in written]
        return await self._end(entry, changes, [failure])

    async def _written_online(
        self, entry: JournalEntry, failures: Sequence[Failure]
    ) -> tuple[list[OffsetChange], list[Failure]]:
        """Return the changes that are no longer as before, and the failures.

        Members that come back commit at once, so another offset is as good as the new one.
        """
        held, unread = await read_offsets(
            self.sessions, entry.group, partitions_by_store(entry.changes)
        )
        at_old = compare(entry.changes, held).at_old
        kept = [
            Failure(str(change.partition), "OffsetsChanged", moved_text(change, held))
            for change in at_old
        ]
        written = [change for change in entry.changes if unread or change not in at_old]
        return written, [*failures, *unread, *([] if failures else kept)]

    async def _end(
        self,
        entry: JournalEntry,
        written: Sequence[OffsetChange],
        failures: Sequence[Failure],
    ) -> Outcome:
        """Write the entry as done, or as abandoned if nothing was written."""
        # First the entry that is taken back: a crash after it leaves this one begun.
        if written and entry.undoes is not None:
            undone = await self.journal.find(entry.undoes)
            await self.journal.replace(_taken_back(undone, entry.id, written))

        if 0 < len(written) < len(entry.changes):
            failures = [*failures, _partly_changed(entry, len(written), self.sessions.options)]
        status = Status.DONE if written else Status.ABANDONED
        changes = tuple(written) or entry.changes
        entry = attrs.evolve(entry, status=status, changes=changes)
        await self.journal.replace(entry)
        return Outcome(entry, "", tuple(failures))


_WHY_NOT = {
    Status.BEGUN: "was begun and not ended: `kgroup journal --settle {0.id}{options}` ends it",
    Status.UNDONE: "was undone by {0.undone_by}: `kgroup undo {0.undone_by}{options}` takes that "
    "back",
    Status.ABANDONED: "was abandoned: none of its offsets was written",
}


def _taken_back(
    undone: JournalEntry, undone_by: int, written: Sequence[OffsetChange]
) -> JournalEntry:
    """Return the entry without what was taken back of it; it is undone if nothing is left."""
    places = {change.place for change in written}
    left = tuple(change for change in undone.changes if change.place not in places)
    if left and undone.status is Status.DONE:
        return attrs.evolve(undone, changes=left)
    return attrs.evolve(undone, status=Status.UNDONE, undone_by=undone_by)


def _partly_changed(entry: JournalEntry, number: int, options: str) -> Failure:
    text = f"{number} of {len(entry.changes)} offsets were changed, the others were not"
    if entry.undoes is not None:
        text += f": `kgroup undo {entry.undoes}{options}` takes them back"
    return Failure(f"journal entry {entry.id}", "PartlyChanged", text)
