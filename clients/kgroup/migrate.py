"""`kgroup migrate`: a live group's offsets from one store to the other, proven at each step."""

import asyncio
from collections.abc import Mapping
from typing import Any

import attrs
import click

from clients.group_facts import host_of
from clients.migrator import Migrator
from clients.output import Column, Failure, Listing, Target, output_option, show, target_options
from clients.sessions import connected
from offsets.migration import Command, Finish, Run, is_settled
from offsets.migration_observation import Observation
from offsets.migration_words import step_of
from protocol.topic_partition import TopicPartition
from zk.migration_znodes import OffsetStorage

COLUMNS = (
    Column("GROUP", 15),
    Column("STEP", 12),
    Column("TOPIC", 15),
    Column("PARTITION", 10),
    Column("ZK-OFFSET", 15),
    Column("KAFKA-OFFSET", 15),
    Column("STATE", 10),
    Column("COMMITS", 8),
    Column("CONSUMER-ID", 15),
    Column("OBEYS"),
    Column("HOST", wide=True),
    Column("TARGET", wide=True),
    Column("MODE", wide=True),
    Column("EPOCH", wide=True),
)

WAIT_S = {
    Command.PLAN: 3,
    Command.STATUS: 0,
    Command.START: 20,
    Command.VERIFY: 60,
    Command.FINALIZE: 20,
    Command.ROLLBACK: 60,
}
"""How long members and proof are waited for, unless the user says; see `--wait`."""


@click.group(
    "migrate",
    epilog="""\b
Examples:
  kgroup migrate plan analytics --zookeeper localhost:2181
  kgroup migrate start analytics --zookeeper localhost:2181""",
)
def command() -> None:
    """Move a group's offsets from ZooKeeper to Kafka, or from Kafka to ZooKeeper.

    plan, start, verify, finalize: in this order, while the group goes on consuming. rollback turns
    back at any point. Each may be repeated, and carries on where it was cut off. Members of this
    library follow without a restart; all others are named, with the settings they need.
    """


to_option = click.option(
    "--to",
    "target_store",
    type=click.Choice([store.value for store in (OffsetStorage.KAFKA, OffsetStorage.ZOOKEEPER)]),
    default=OffsetStorage.KAFKA.value,
    show_default=True,
    help="Where the offsets shall be kept.",
)
overwrite_option = click.option(
    "--overwrite", is_flag=True, help="Larger offsets in the new store are leftovers."
)
commits_option = click.option(
    "--commits",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="So many commits of a partition that moves must be seen in both stores.",
)
seconds_option = click.option(
    "--seconds",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="So long the stores must be in step.",
)
trust_option = click.option(
    "--trust",
    "trusted",
    multiple=True,
    metavar="CONSUMER-ID",
    help="A member that is not ours, of which you know that it writes both stores.",
)
wait_option = click.option(
    "--wait",
    type=click.IntRange(min=0),
    metavar="SECONDS",
    help="How long to wait for members and commits; for verify and rollback, besides --seconds.",
)


@command.command(
    "plan",
    epilog="""\b
Example:
  kgroup migrate plan analytics --to kafka --zookeeper localhost:2181""",
)
@click.argument("group")
@target_options
@to_option
@overwrite_option
@wait_option
@output_option
def plan(target: Target, group: str, output: str, **given: Any) -> None:
    """What start would do for GROUP, and what forbids it (exit code 1). Changes nothing."""
    carry_out(Command.PLAN, target, group, output, given)


@command.command(
    "start",
    epilog="""\b
Example:
  kgroup migrate start analytics --to kafka --zookeeper localhost:2181""",
)
@click.argument("group")
@target_options
@to_option
@overwrite_option
@wait_option
@output_option
def start(target: Target, group: str, output: str, **given: Any) -> None:
    """Have the members of GROUP write both stores, and bring the new one up to date.

    They go on reading the old one. Exit code 1 if a member does not obey; it is named.
    """
    carry_out(Command.START, target, group, output, given)


@command.command(
    "status",
    epilog="""\b
Example:
  kgroup migrate status analytics --zookeeper localhost:2181 -o json""",
)
@click.argument("group")
@target_options
@output_option
def status(target: Target, group: str, output: str, **given: Any) -> None:
    """Where the migration of GROUP stands, and both stores side by side."""
    carry_out(Command.STATUS, target, group, output, given)


@command.command(
    "verify",
    epilog="""\b
Example:
  kgroup migrate verify analytics --commits 5 --zookeeper localhost:2181""",
)
@click.argument("group")
@target_options
@commits_option
@seconds_option
@trust_option
@wait_option
@output_option
def verify(target: Target, group: str, output: str, **given: Any) -> None:
    """Watch until both stores are proven to be in step, and write that down for finalize.

    Exit code 1, with the partitions and members in question, if they are not.
    """
    carry_out(Command.VERIFY, target, group, output, given)


@command.command(
    "finalize",
    epilog="""\b
Example:
  kgroup migrate finalize analytics --zookeeper localhost:2181""",
)
@click.argument("group")
@target_options
@trust_option
@wait_option
@output_option
def finalize(target: Target, group: str, output: str, **given: Any) -> None:
    """Have the members of GROUP read the new store, and stop writing the old one."""
    carry_out(Command.FINALIZE, target, group, output, given)


@command.command(
    "rollback",
    epilog="""\b
Example:
  kgroup migrate rollback analytics --zookeeper localhost:2181""",
)
@click.argument("group")
@target_options
@commits_option
@seconds_option
@trust_option
@wait_option
@output_option
def rollback(target: Target, group: str, output: str, **given: Any) -> None:
    """Turn back: to the old store alone, once it is up to date and proven so."""
    carry_out(Command.ROLLBACK, target, group, output, given)


def carry_out(
    name: Command, target: Target, group: str, output: str, given: Mapping[str, Any]
) -> None:
    """Carry out one command; its text goes to stderr. Exit code 1 if something is in the way."""
    if target.zookeeper is None:
        raise click.UsageError("--zookeeper is needed: the group's members meet there")
    if not group or "/" in group:
        raise click.UsageError(f"{group!r} is no group")
    run, finish = asyncio.run(carried_out(target, group, run_of(name, given)))
    click.echo(finish.said, err=True)
    faults = [Failure(fault.what, fault.error, fault.message) for fault in finish.faults]
    show(Listing("migration", COLUMNS, items(run), faults), output)


def run_of(name: Command, given: Mapping[str, Any]) -> Run:
    """The run a command line asks for."""
    run = Run(command=name)
    if (store := given.get("target_store")) is not None:
        run = attrs.evolve(run, target=OffsetStorage(store), overwrite=given["overwrite"])
    if "commits" in given:
        run = attrs.evolve(run, commits=given["commits"], seconds=given["seconds"])
    wait_s = given.get("wait")
    wait_s = WAIT_S[name] if wait_s is None else wait_s
    wait_s += run.seconds if "seconds" in given else 0
    return attrs.evolve(run, trusted=frozenset(given.get("trusted", ())), wait_ms=wait_s * 1000)


async def carried_out(target: Target, group: str, run: Run) -> tuple[Run, Finish]:
    """The run as it ended, and how."""
    async with connected(target) as sessions:
        assert sessions.zk is not None
        name = f"kgroup migrate {run.command}"
        return await Migrator(sessions.zk, sessions.admin, group, name).carry_out(run)


def items(run: Run) -> list[dict[str, Any]]:
    """Of what was seen last, one for each partition, then one for each member that owns none."""
    seen = run.last_seen
    assert seen is not None, "it has looked once at least"
    whole = {
        "group": seen.group,
        "step": step_of(seen.migration),
        "target": seen.migration.target.value if seen.migration else None,
        "mode": seen.migration.mode.value if seen.migration else None,
        "epoch": seen.migration.epoch if seen.migration else None,
    }
    partitions = [
        whole | _partition_columns(run, seen, p) | _member_columns(seen, seen.owners.get(p))
        for p in sorted(seen.kafka.keys() | seen.zookeeper.keys() | seen.owners.keys())
    ]
    idle = seen.members.keys() - seen.owners.values()
    members = [whole | _member_columns(seen, member) for member in sorted(idle)]
    return partitions + members or [whole]


def _partition_columns(run: Run, seen: Observation, p: TopicPartition) -> dict[str, Any]:
    in_zookeeper, in_kafka = seen.pair(p)
    evidence = run.evidence.partitions.get(p) if run.evidence else None
    return {
        "topic": p.topic,
        "partition": p.partition,
        "zk_offset": in_zookeeper,
        "kafka_offset": in_kafka,
        "state": _state(seen, p),
        "commits": evidence.commits if evidence else None,
    }


def _state(seen: Observation, p: TopicPartition) -> str | None:
    in_zookeeper, in_kafka = seen.pair(p)
    if p in seen.lost:
        return "LOST"
    if in_zookeeper == in_kafka:
        return "equal"
    if seen.migration is None or is_settled(seen.migration):
        return None  # one of them is not written
    return "DIVERGED"


def _member_columns(seen: Observation, member: str | None) -> dict[str, Any]:
    if member is None:
        return {}
    obeys = None
    if member in seen.strangers:
        obeys = "not ours"
    elif seen.migration is not None:
        obeys = "no" if member in seen.not_obeying else "yes"
    return {"consumer_id": member, "obeys": obeys, "host": host_of(seen.group, member)}
