"""`kgroup migrate`: a live group's offsets from one store to the other, proven at each step."""

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import click

from clients.group_facts import host_of
from clients.migrator import Migrator
from clients.output import Column, Failure, Listing, Target, output_option, show, target_options
from clients.sessions import connected
from offsets.migration import Command, Finish, Run, is_settled
from offsets.migration_observation import Observation
from offsets.migration_words import next_command, settings_wanted, step_of
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
    Column("WANTS", wide=True),
    Column("LOG-START-OFFSET", wide=True),
    Column("LOG-END-OFFSET", wide=True),
    Column("NEXT", wide=True),
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


class Steps(click.Group):
    """Its sub-commands in the order in which they are taken, and not by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """As they were added."""
        return list(self.commands)


@click.group(
    "migrate",
    cls=Steps,
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


Option = Callable[[Callable[..., None]], Callable[..., None]]

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


VERBS: Mapping[Command, tuple[str, str, Sequence[Option]]] = {
    Command.PLAN: (
        "What start would do for GROUP, and what forbids it (exit code 1). Changes nothing.",
        "--to kafka",
        (to_option, overwrite_option, wait_option),
    ),
    Command.START: (
        """Have the members of GROUP write both stores, and bring the new one up to date.

        They go on reading the old one. Exit code 1 if a member does not obey; it is named.
        """,
        "--to kafka",
        (to_option, overwrite_option, wait_option),
    ),
    Command.STATUS: (
        "Where the migration of GROUP stands, and both stores side by side.",
        "-o json",
        (),
    ),
    Command.VERIFY: (
        """Watch until both stores are proven to be in step, and write that down for finalize.

        Exit code 1, with the partitions and members in question, if they are not.
        """,
        "--commits 5",
        (commits_option, seconds_option, trust_option, wait_option),
    ),
    Command.FINALIZE: (
        "Have the members of GROUP read the new store, and stop writing the old one.",
        "--wait 60",
        (trust_option, wait_option),
    ),
    Command.ROLLBACK: (
        "Turn back: to the old store alone, once it is up to date and proven so.",
        "--seconds 30",
        (commits_option, seconds_option, trust_option, wait_option),
    ),
}
"""Each sub-command's help, what its example shows, and the options it has besides the shared."""


def verb(name: Command) -> click.Command:
    """The sub-command of that name."""
    text, shown, options = VERBS[name]

    def run(target: Target, group: str, output: str, **given: Any) -> None:
        carry_out(name, target, group, output, given)

    made: Any = run
    group: Option = click.argument("group")
    inside_out: list[Option] = [output_option, *reversed(options), target_options, group]
    for option in inside_out:
        made = option(made)
    example = f"kgroup migrate {name.value} analytics {shown} --zookeeper localhost:2181"
    epilog = f"\b\nExample:\n  {example}"
    return click.command(name.value, help=inspect.cleandoc(text), epilog=epilog)(made)


for each in VERBS:
    command.add_command(verb(each))


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
        "next": next_command(seen),
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
        "log_start_offset": seen.log_starts.get(p),
        "log_end_offset": seen.log_ends.get(p),
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
        is_dual = seen.migration is not None and seen.migration.mode.is_dual
        obeys = "proven" if is_dual and member in seen.proven else "not ours"
    elif seen.migration is not None:
        obeys = "no" if member in seen.not_obeying else "yes"
    return {
        "consumer_id": member,
        "obeys": obeys,
        "host": host_of(seen.group, member),
        "wants": settings_wanted(seen, member),
    }
