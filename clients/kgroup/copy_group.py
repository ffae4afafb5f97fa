"""`kgroup copy`: give a group the offsets of another one."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, nullcontext
from typing import Any, TypeVar

import attrs
import click

from clients.command_line.interrupts import NOTHING_DONE, Interrupts, heeding_interrupts
from clients.command_line.output import (
    INTERRUPTED,
    Failure,
    Listing,
    Target,
    output_option,
    show,
    target_options,
)
from clients.command_line.printing import say
from clients.command_line.sessions import Sessions, connected
from clients.groups.group_facts import GroupFacts
from clients.groups.group_reader import GroupReader
from clients.kgroup.delete import check_names
from clients.kgroup.reset import listing_of, print_remarks
from clients.resets.group_copy import (
    current_offsets,
    is_migrated,
    plan_copy,
    plan_copy_to_cluster,
    read_source,
)
from clients.resets.journal import Journal
from clients.resets.journalled_offsets import Change, JournalledOffsets, Outcome
from clients.resets.reset import ResetPlan
from clients.resets.reset_plan import refusal, stores_of
from protocol.errors import ErrorCode
from protocol.frozen import frozen

F = TypeVar("F", bound=Callable[..., Any])


@frozen
class CopyJob:
    """A copy of one group; `to_bootstrap` is None for the same cluster."""

    source: str
    target: str
    to_bootstrap: str | None
    by_timestamp: bool
    force: bool
    dry_run: bool
    reason: str
    removes_source: bool = False


@frozen
class Copied:
    """The source as it was, the plan, and what was written of it; None if nothing was.

    `advice` is what its members need in another cluster; "" for nothing.
    """

    facts: GroupFacts
    plan: ResetPlan
    outcome: Outcome | None
    advice: str


def copy_options(command: F) -> F:
    """Add the arguments and options that copy and rename have in common."""
    for option in reversed(COPY_OPTIONS):
        command = option(command)
    return command


COPY_OPTIONS = (
    click.argument("source", metavar="FROM"),
    click.argument("to", metavar="TO"),
    click.option(
        "--to-bootstrap-server", metavar="H:P[,…]", help="Write to this other cluster's brokers."
    ),
    click.option(
        "--by",
        type=click.Choice(["offset", "timestamp"]),
        default="offset",
        show_default=True,
        help="In another cluster: by the same offset, or by the time of the next message.",
    ),
    click.option("--force", is_flag=True, help="Overwrite offsets that TO has."),
    click.option("--dry-run", is_flag=True, help="Show what would be written, and write nothing."),
    click.option("--reason", help="Why, for the journal."),
)


@click.command(
    "copy",
    epilog="""\b
Examples:
  kgroup copy analytics analytics-test
  kgroup copy analytics analytics --to-bootstrap-server other:9092 --by timestamp""",
)
@target_options
@copy_options
@output_option
def command(target: Target, output: str, **options: Any) -> None:
    """Commit for TO what FROM has committed, and note it in the journal.

    Each store, ZooKeeper or Kafka, gets what it has of FROM. TO may have no members, and no
    offsets unless --force is given. In another cluster all offsets go to TO's coordinator; what
    lies outside of a log there is moved to its nearest end.
    """
    job = job_of(target, **options)
    copied = asyncio.run(copy(target, job))
    print_copy(copied, job)
    show(listing(copied, job, "copy"), output)


def job_of(
    target: Target,
    *,
    source: str,
    to: str,
    to_bootstrap_server: str | None,
    by: str,
    force: bool,
    dry_run: bool,
    reason: str | None,
) -> CopyJob:
    """Return what the options ask for. Raises UsageError."""
    check_names(target, (source, to))
    if source == to and to_bootstrap_server is None:
        raise click.UsageError("FROM and TO are the same group")
    if by == "timestamp" and to_bootstrap_server is None:
        raise click.UsageError("--by timestamp is for another cluster: add --to-bootstrap-server")

    reason = reason or f"copy of {source}"
    return CopyJob(source, to, to_bootstrap_server, by == "timestamp", force, dry_run, reason)


async def copy(target: Target, job: CopyJob, interrupts: Interrupts | None = None) -> Copied:
    """Plan the copy, and write it unless something speaks against it.

    What is being written is finished at an interrupt. A caller that heeds interrupts itself gives
    its own.
    """
    async with AsyncExitStack() as stack:
        sessions = await stack.enter_async_context(connected(target))
        facts, failures = await read_source(sessions, job.source)
        advice = ""
        # Members of a group that is renamed would go on under the old name.
        if job.removes_source and (text := refusal(facts)):
            failures.append(Failure(job.source, ErrorCode.NON_EMPTY_GROUP.name, text))

        if job.to_bootstrap is None:
            there = sessions
            plan = await plan_copy(sessions, facts, job.target)
        else:
            other = target.elsewhere(job.to_bootstrap)
            there = await stack.enter_async_context(connected(other))
            advice = _advise(facts, job, has_migration=await is_migrated(sessions, job.source))
            plan = await plan_copy_to_cluster(
                sessions, facts, there, job.target, by_timestamp=job.by_timestamp
            )
        if failures:
            plan = attrs.evolve(plan, rows=(), failures=tuple(failures), refusal=None)
        elif not job.force and plan.refusal is None and plan.rows:
            plan = attrs.evolve(plan, refusal=await _find_offsets(there, job.target))

        if job.dry_run or plan.refusal is not None or plan.failures or not plan.rows:
            return Copied(facts, plan, None, advice)
        with nullcontext(interrupts) if interrupts else heeding_interrupts() as heeded:
            # Nothing is written yet, so nothing is to be finished.
            if heeded.is_asked:
                plan = attrs.evolve(plan, rows=(), failures=(not_begun(job.target),))
                return Copied(facts, plan, None, advice)
            return Copied(facts, plan, await _write(there, plan, job), advice)


async def _find_offsets(sessions: Sessions, group_id: str) -> str | None:
    """Return why a group that has offsets, of whatever partitions, is not copied to."""
    facts = await GroupReader(sessions).group(group_id)
    text = f"group '{group_id}' has offsets already: --force overwrites them, and keeps the others"
    # Two groups would become one, of which nobody is told (fault strangers-128, was: None).
    return text if current_offsets(facts) else None


async def _write(sessions: Sessions, plan: ResetPlan, job: CopyJob) -> Outcome:
    offsets = JournalledOffsets(sessions, await Journal.of(sessions.admin))
    return await offsets.change(Change.of(plan, "copy", job.reason))


def not_begun(group_id: str) -> Failure:
    """Return the failure of a group with which nothing was begun, because of an interrupt."""
    return Failure(group_id, INTERRUPTED, NOTHING_DONE)


def listing(copied: Copied, job: CopyJob, kind: str, *failures: Failure) -> Listing:
    """Return what was written, or would be."""
    plan, outcome = copied.plan, copied.outcome
    outcomes = {} if outcome is None else {plan.group: outcome}
    return listing_of(kind, [plan], outcomes, failures, executed=not job.dry_run)


def print_copy(copied: Copied, job: CopyJob) -> None:
    """Print warnings, and where the journal is."""
    outcomes = {} if copied.outcome is None else {copied.plan.group: copied.outcome}
    print_remarks([copied.plan], outcomes)
    if copied.advice:
        say(copied.advice, err=True)


def _advise(facts: GroupFacts, job: CopyJob, *, has_migration: bool) -> str:
    """Warn where members would not find the offsets in the other cluster; "" if they do."""
    how = ""
    if _reads_zookeeper(facts):
        # They would find nothing there, and skip what is unread (fault strangers-53, was: "").
        how = "read offsets in ZooKeeper"
    if has_migration:
        # Which store their settings name is not known (fault strangers-71).
        how = "follow its migration here, and their own settings there"
    return how and (
        f"warning: {job.target}: members of {job.source} {how}, and these offsets are in Kafka "
        "alone there: start them with offsets.storage=kafka, or move the group by kgroup export "
        "and import, which keep the stores"
    )


def _reads_zookeeper(facts: GroupFacts) -> bool:
    """Return whether members of the group look for its offsets in ZooKeeper, as far as is known."""
    return any("zookeeper" in stores_of(facts, partition) for partition in facts.partitions)


def is_whole(copied: Copied) -> bool:
    """Return whether all offsets of the source were written and read back."""
    return copied.outcome is not None and not copied.outcome.failures
