"""`kgroup import`: commit offsets from a file of `kgroup export` or of Kafka's ExportZkOffsets."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import click

from clients.command_line.command_group import CommandFailed
from clients.command_line.interrupts import heeding_interrupts
from clients.command_line.output import (
    Column,
    Failure,
    Listing,
    Target,
    output_option,
    show,
    target_options,
    zookeeper_address,
)
from clients.command_line.sessions import Sessions, connected
from clients.errors import KgroupError, from_zookeeper
from clients.groups.group_facts import GroupFacts, counting_store
from clients.groups.group_reader import GroupReader
from clients.kgroup.reset import print_remarks
from clients.kgroup.stdin_lines import standard_input
from clients.registered_brokers import cluster_id_in
from clients.resets.journal import Journal
from clients.resets.journal_entry import Status
from clients.resets.journalled_offsets import Change, JournalledOffsets, Outcome
from clients.resets.offset_change import OffsetChange
from clients.resets.offset_export import STORES, ExportedOffset, read_export
from clients.resets.reset import ResetPlan, read_logs
from clients.resets.reset_plan import LogRange, PlannedOffset, held_in, in_range, kept_by
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

Logs = Mapping[TopicPartition, LogRange]

COLUMNS = (
    Column("GROUP", 30),
    Column("TOPIC", 30),
    Column("PARTITION", 10),
    Column("NEW-OFFSET", 15),
    Column("STORE"),
)
MOST_ERRORS = 10
"""Errors of a file that are named, at most."""


@click.command(
    "import",
    epilog="""\b
Examples:
  kgroup import offsets.json --zookeeper localhost:2181
  kgroup import --zkconnect localhost:2181 --input-file offsets.txt""",
)
@target_options
@click.argument("file", required=False, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--input-file", type=click.Path(path_type=Path), help="FILE, as Kafka spells it.")
@click.option("--zkconnect", metavar="H:P[/CHROOT]", help="--zookeeper, as Kafka spells it.")
@click.option("--store", type=click.Choice(STORES), help="Write all offsets to this store.")
@click.option("--dry-run", is_flag=True, help="Show what would be written, and write nothing.")
@click.option(
    "--force",
    is_flag=True,
    help="Also write for groups that are being migrated, or have members in ZooKeeper; "
    "coordinators refuse it for theirs.",
)
@click.option("--reason", help="Why, for the journal.")
@output_option
def command(
    target: Target,
    file: Path | None,
    input_file: Path | None,
    zkconnect: str | None,
    store: str | None,
    dry_run: bool,
    force: bool,
    reason: str | None,
    output: str,
) -> None:
    """Commit the offsets in FILE (- is standard input) to the stores they came from.

    The command recognises the format. Nothing is imported of a file in which anything cannot be
    read. An offset that a store refuses, as one of a partition that is not there, is an error, and
    the others are written. One outside of its log is moved to the log's nearest end, with a
    warning. Offsets of a group that has members are not written, because its members would
    overwrite or never read them. The printed offsets have been read back.

    Each group gets an entry in the journal; `kgroup undo ID` takes it back.

    If both stores hold offsets of a partition, both are written, whichever of them FILE names: the
    group's members may use the larger offset. So is the store that the group's members read, where
    they say so or the group was migrated. With --store or --zkconnect only that store is written.
    """
    if (file is None) == (input_file is None):
        raise click.UsageError("name exactly one FILE")
    if zkconnect is not None:
        target = attrs.evolve(target, zookeeper=zookeeper_address(zkconnect))
    path = file or input_file or Path("-")
    name = "standard input" if str(path) == "-" else str(path)
    offsets, errors = read_export(_read_text(path), store, name)

    # This exits: nothing of such a file is imported.
    if errors:
        # A file of another kind has an error in each line.
        more = len(errors) - MOST_ERRORS
        if more > 0:
            errors = [
                *errors[:MOST_ERRORS],
                Failure(name, errors[0].error, f"{more} more such errors"),
            ]
        show(Listing("import", COLUMNS, (), errors), output)
    if not offsets:
        raise CommandFailed(f"{name} contains no offsets")

    # Refused before a broker or ZooKeeper is asked.
    if target.zookeeper is None and any(offset.store == "zookeeper" for offset in offsets):
        raise click.UsageError("--zookeeper is needed: the file contains offsets for it")

    one_store = bool(store or zkconnect)
    job = ImportJob(offsets, one_store=one_store, dry_run=dry_run, force=force, reason=reason)
    show(asyncio.run(import_offsets(target, job)), output)


def _read_text(file: Path) -> str:
    """Read the file, which is UTF-8. Raises OSError, CommandFailed."""
    try:
        if str(file) == "-":
            return standard_input().read().decode()
        return file.read_bytes().decode()

    except UnicodeDecodeError as error:
        raise CommandFailed(f"{file}: not UTF-8: {error}") from None


@frozen
class ImportJob:
    """The offsets to import, and the options of the command."""

    offsets: Sequence[ExportedOffset]
    one_store: bool = False
    """Write only the stores that are named."""
    dry_run: bool = False
    force: bool = False
    reason: str | None = None

    @property
    def needs_brokers(self) -> bool:
        """Return whether Kafka is written, or must be read to find the group's members."""
        return not self.one_store or any(offset.store == "kafka" for offset in self.offsets)


async def import_offsets(target: Target, job: ImportJob) -> Listing:
    """Write the offsets, group by group. A group that fails does not stop the others."""
    written: list[ExportedOffset] = []
    failures: list[Failure] = []
    by_group: dict[str, list[ExportedOffset]] = {}
    for offset in sorted(job.offsets, key=_place):
        by_group.setdefault(offset.group, []).append(offset)

    async with connected(target, brokers=job.needs_brokers) as sessions:
        reader = GroupReader(sessions)
        logs: Logs | None = None
        journalled: JournalledOffsets | None = None
        several = len(by_group) > 1 and not job.dry_run
        with heeding_interrupts(several=several) as interrupts:
            for group_id in interrupts.until_asked(by_group):
                try:
                    offsets = by_group[group_id]
                    # Do not ask brokers if only ZooKeeper is written: there may be none.
                    if job.needs_brokers:
                        facts = await reader.group(group_id)
                    else:
                        facts = await reader.group_in_zookeeper(group_id)

                    if refusal := _refusal(facts, job, reader.failures):
                        failures.append(refusal)
                        continue

                    # All of them together, once it is known that something is written.
                    if logs is None and job.needs_brokers:
                        partitions = sorted({offset.partition for offset in job.offsets})
                        logs, unread = await read_logs(sessions.admin, partitions)
                        failures += unread

                    # Members may read the larger of both stores, so both must get the offset.
                    if not job.one_store:
                        offsets += twins(facts, offsets)
                    offsets, plan = plan_import(facts, offsets, logs)
                    if job.dry_run:
                        print_remarks([plan], {})
                        written += offsets
                        continue

                    if plan.rows:
                        journalled = journalled or await _open_journal(sessions, job)
                        change = Change.of(plan, "import", job.reason)
                        outcome = await journalled.change(change)
                        failures += outcome.failures
                        offsets = _written(offsets, outcome)
                        print_remarks([plan], {group_id: outcome})
                        if offsets:
                            interrupts.say(f"written: {group_id}, {len(offsets)} offsets")
                        written += offsets
                except KgroupError as error:
                    # Other groups may be written already.
                    failures.append(Failure.of(group_id, error))
        failures += interrupts.not_done

    items = [{**offset.item, "new_offset": offset.committed.offset} for offset in written]
    return Listing("import", COLUMNS, items, list(dict.fromkeys(failures)))


# --- which offsets, and whether


def _place(offset: ExportedOffset) -> tuple[str, str, TopicPartition]:
    return offset.group, offset.store, offset.partition


def _refusal(facts: GroupFacts, job: ImportJob, unread: Sequence[Failure]) -> Failure | None:
    """Return the reason why no offsets of this group may be written; None if they may."""
    group_id = facts.group

    # Members of a group at a coordinator are seen only there.
    if job.needs_brokers and facts.coordinator is None:
        reason = next(
            (failure.message for failure in unread if failure.what == group_id), "no response"
        )
        text = f"Kafka's offsets are not known ({reason}); --store zookeeper writes only ZooKeeper"
        return Failure(group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE.name, text)

    # Members would overwrite the offsets, or never read them.
    if facts.members and not job.force:
        text = (
            f"Offsets can only be imported if the group '{group_id}' is inactive, but the current "
            f"state is {facts.state}."
        )
        return Failure(group_id, ErrorCode.NON_EMPTY_GROUP.name, text)

    if _is_being_migrated(facts) and not job.force:
        text = f"group '{group_id}' is being migrated ({facts.storage}): finish that first"
        return Failure(group_id, "MigrationUnderWay", text)

    return None


def _is_being_migrated(facts: GroupFacts) -> bool:
    """Return whether a migration makes members write both stores."""
    return facts.storage is not None and facts.storage.startswith("dual-")


def twins(facts: GroupFacts, named: Sequence[ExportedOffset]) -> list[ExportedOffset]:
    """Return copies of the named offsets for the other store, where it is in use."""
    places = {(offset.partition, offset.store) for offset in named}
    # Members may read another one since the export (fault strangers-75, was: None).
    counting = counting_store(facts.storage)
    others = [attrs.evolve(offset, store=_OTHER_STORE[offset.store]) for offset in named]
    return [
        other
        for other in others
        if (other.partition, other.store) not in places
        and (other.store == counting or facts.is_dual(other.partition))
    ]


_OTHER_STORE = {"zookeeper": "kafka", "kafka": "zookeeper"}


def plan_import(
    facts: GroupFacts, offsets: Sequence[ExportedOffset], logs: Logs | None
) -> tuple[list[ExportedOffset], ResetPlan]:
    """Return the offsets that can be written, each within its log, and their plan.

    Offsets of logs that could not be read are left out; None for `logs`: none was asked for.
    """
    imported: list[ExportedOffset] = []
    rows: list[PlannedOffset] = []
    noted: set[str] = set()
    for offset in offsets:
        committed, note = offset.committed, None
        if logs is not None:
            log = logs.get(offset.partition)
            if log is None:
                continue
            # A member would begin anew by its settings (fault tool-F12, was: (committed, note)).
            committed, note = in_range(committed, offset.partition, log)

        # It is said once for both stores.
        note = None if note in noted else note
        noted.update(filter(None, [note]))
        held = held_in(facts, offset.store, offset.partition)
        new = kept_by(offset.store, committed)
        change = OffsetChange(offset.partition, offset.store, held, new)
        old = None if held is None else held.offset
        rows.append(PlannedOffset(offset.partition, old, new.offset, (change,), note))
        imported.append(attrs.evolve(offset, committed=committed))
    return imported, ResetPlan(facts.group, tuple(rows))


# --- writing


async def _open_journal(sessions: Sessions, job: ImportJob) -> JournalledOffsets:
    """Open the journal. Raises KgroupError, OSError: if it cannot be read, nothing is written."""
    if job.needs_brokers:
        journal = await Journal.of(sessions.admin)
    else:
        assert sessions.zk is not None, "ZooKeeper alone is written"
        with from_zookeeper():
            journal = Journal.beside_brokers(await cluster_id_in(sessions.zk))
    await journal.entries()
    return JournalledOffsets(sessions, journal)


def _written(offsets: Sequence[ExportedOffset], outcome: Outcome) -> list[ExportedOffset]:
    """Return the offsets that the stores have taken."""
    if outcome.entry.status is not Status.DONE:
        return []
    places = {change.place for change in outcome.entry.changes}
    return [offset for offset in offsets if (offset.store, offset.partition) in places]
