"""`kgroup migrate`: move a live group's offsets to the other store, with proof at each step."""

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import click

from clients.command_line.interrupts import heeding_interrupts
from clients.command_line.output import (
    Column,
    Failure,
    Listing,
    Target,
    output_option,
    show,
    target_options,
)
from clients.command_line.printing import say
from clients.command_line.sessions import connected
from clients.groups.group_facts import host_of
from clients.migrator import Migrator
from offsets.migration import Command, Finish, Run, is_settled
from offsets.migration_observation import Observation
from offsets.migration_words import next_command, settings_wanted, step_of
from protocol.topic_partition import TopicPartition
from zk.consumer_znodes import ConsumerGroup
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
"""Time to wait for members and for proof, unless --wait is given."""


READ_ONLY = (Command.PLAN, Command.STATUS)
"""The commands that write nothing: an interrupt ends them at once."""


class Steps(click.Group):
    """A command group that lists its sub-commands in the order in which users take them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which they were added."""
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

    Run plan, start, verify and finalize in this order, while the group goes on consuming. rollback
    goes back from any step. Each command may be repeated, and continues where it was interrupted.
    Members that use this library follow without a restart. All other members are reported, with
    the settings they need.
    """


Option = Callable[[Callable[..., None]], Callable[..., None]]

to_option = click.option(
    "--to",
    "target_store",
    type=click.Choice([store.value for store in (OffsetStorage.KAFKA, OffsetStorage.ZOOKEEPER)]),
    default=OffsetStorage.KAFKA.value,
    show_default=True,
    help="Store that the offsets move to.",
)
overwrite_option = click.option(
    "--overwrite",
    is_flag=True,
    help="Overwrite larger offsets in the new store: they are leftovers.",
)
commits_option = click.option(
    "--commits",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Commits that both stores must show of each partition that moves within --seconds.",
)
seconds_option = click.option(
    "--seconds",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Time for which both stores must be in step.",
)
trust_option = click.option(
    "--trust",
    "trusted",
    multiple=True,
    metavar="CONSUMER-ID",
    help="Trust this member, which is not ours, to write both stores.",
)
wait_option = click.option(
    "--wait",
    type=click.IntRange(min=0),
    metavar="SECONDS",
    help="Time to wait for members and commits; verify and rollback add --seconds to it.",
)


VERBS: Mapping[Command, tuple[str, str, Sequence[Option]]] = {
    Command.PLAN: (
        "Show what start would do for GROUP and what prevents it (exit code 1). Changes nothing.",
        "--to kafka",
        (to_option, overwrite_option, wait_option),
    ),
    Command.START: (
        """Let the members of GROUP write both stores, and bring the new store up to date.

        Members still read the old store. If a member does not follow, it is reported, and the exit
        code is 1.
        """,
        "--to kafka",
        (to_option, overwrite_option, wait_option),
    ),
    Command.STATUS: (
        "Show the state of GROUP's migration, and the offsets in both stores.",
        "-o json",
        (),
    ),
    Command.VERIFY: (
        """Watch until both stores are proven to be in step, and store the proof for finalize.

        If they are not, the partitions and members concerned are reported, and the exit code is 1.
        """,
        "--commits 5",
        (commits_option, seconds_option, trust_option, wait_option),
    ),
    Command.FINALIZE: (
        "Let the members of GROUP read the new store and stop writing the old one.",
        "--wait 60",
        (trust_option, wait_option),
    ),
    Command.ROLLBACK: (
        "Go back to the old store alone, as soon as it is proven to be up to date.",
        "--seconds 30",
        (commits_option, seconds_option, trust_option, wait_option),
    ),
}
"""Help, options in the example, and options besides the shared ones, of each sub-command."""


# --- from the command line to a run


def make_command(name: Command) -> click.Command:
    """Make the sub-command of that name."""
    text, example_options, options = VERBS[name]

    def run(target: Target, group: str, output: str, **option_values: Any) -> None:
        carry_out(name, target, group, output, option_values)

    # Options are decorators, so the innermost is applied first.
    decorated: Any = run
    group: Option = click.argument("group")
    inside_out: list[Option] = [output_option, *reversed(options), target_options, group]
    for option in inside_out:
        decorated = option(decorated)

    example = f"kgroup migrate {name.value} analytics {example_options} --zookeeper localhost:2181"
    epilog = f"\b\nExample:\n  {example}"
    return click.command(name.value, help=inspect.cleandoc(text), epilog=epilog)(decorated)


for name in VERBS:
    command.add_command(make_command(name))


def carry_out(
    name: Command, target: Target, group_id: str, output: str, option_values: Mapping[str, Any]
) -> None:
    """Carry out one command. Its text goes to stderr. Exits with 1 if there are failures."""
    if target.zookeeper is None:
        raise click.UsageError("--zookeeper is needed: the group's members register there")
    # `/` and `..` would lead to another node.
    if not ConsumerGroup.can_hold(group_id):
        raise click.UsageError(f"{group_id!r} cannot be the name of a group in ZooKeeper")

    run, finish = asyncio.run(run_migration(target, group_id, parse_run(name, option_values)))
    # The text is for people; scripts read the listing. No znode's name has a line break.
    for line in finish.text.split("\n"):
        say(line, err=True)
    failures = [
        Failure(obstacle.what, obstacle.error, obstacle.message) for obstacle in finish.obstacles
    ]
    show(Listing("migration", COLUMNS, items(run), failures), output)


def parse_run(name: Command, option_values: Mapping[str, Any]) -> Run:
    """Return the run that the command line asks for."""
    run = Run(command=name)

    # Each sub-command has options of its own; what it lacks keeps the default.
    if (store := option_values.get("target_store")) is not None:
        run = attrs.evolve(run, target=OffsetStorage(store), overwrite=option_values["overwrite"])
    if "commits" in option_values:
        run = attrs.evolve(run, commits=option_values["commits"], seconds=option_values["seconds"])

    # Proof takes time by itself: both stores must be in step for --seconds.
    wait_s = option_values.get("wait")
    if wait_s is None:
        wait_s = WAIT_S[name]
    if "seconds" in option_values:
        wait_s += run.seconds
    return attrs.evolve(
        run, trusted=frozenset(option_values.get("trusted", ())), wait_ms=wait_s * 1000
    )


async def run_migration(target: Target, group_id: str, run: Run) -> tuple[Run, Finish]:
    """Carry out the run. Returns its last state, and how it finished."""
    async with connected(target) as sessions:
        assert sessions.zk is not None
        name = f"kgroup migrate {run.command}"
        migrator = Migrator(sessions.zk, sessions.admin, group_id, name, options=sessions.options)
        if run.command in READ_ONLY:
            return await migrator.carry_out(run)

        with heeding_interrupts(several=True) as interrupts:
            migrator.pause = interrupts.pause
            migrator.is_interrupted = lambda: interrupts.is_asked
            migrator.say = interrupts.say
            return await migrator.carry_out(run)


# --- what is printed


def items(run: Run) -> list[dict[str, Any]]:
    """Return one item for each partition in the last observation, then the members without any."""
    observation = run.last_observation
    assert observation is not None, "a run looks at least once"

    # Every row has what holds for the group.
    whole = {
        "group": observation.group,
        "step": step_of(observation.migration),
        "target": observation.migration.target.value if observation.migration else None,
        "mode": observation.migration.mode.value if observation.migration else None,
        "epoch": observation.migration.epoch if observation.migration else None,
        "next": next_command(observation),
    }

    partitions = [
        whole
        | _partition_columns(run, observation, partition)
        | _member_columns(observation, observation.owners.get(partition))
        for partition in sorted(
            observation.kafka.keys() | observation.zookeeper.keys() | observation.owners.keys()
        )
    ]

    # A member without a partition has a row of its own.
    idle = observation.members.keys() - observation.owners.values()
    members = [whole | _member_columns(observation, member) for member in sorted(idle)]

    # A group without partitions and members still has its state.
    return partitions + members or [whole]


def _partition_columns(
    run: Run, observation: Observation, partition: TopicPartition
) -> dict[str, Any]:
    in_zookeeper, in_kafka = observation.pair(partition)
    evidence = run.evidence.partitions.get(partition) if run.evidence else None
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "zk_offset": in_zookeeper,
        "kafka_offset": in_kafka,
        "state": _state(observation, partition),
        "log_start_offset": observation.log_starts.get(partition),
        "log_end_offset": observation.log_ends.get(partition),
        "commits": evidence.commits if evidence else None,
    }


def _state(observation: Observation, partition: TopicPartition) -> str | None:
    in_zookeeper, in_kafka = observation.pair(partition)
    if partition in observation.lost:
        return "LOST"

    # Equal, or missing in both.
    if in_zookeeper == in_kafka:
        return "equal"
    if observation.migration is None or is_settled(observation.migration):
        return None  # members write only one of them
    return "DIVERGED"


def _member_columns(observation: Observation, member: str | None) -> dict[str, Any]:
    if member is None:
        return {}

    obeys = None

    # A member of another library is trusted only while both stores are written.
    if member in observation.foreign_members:
        is_dual = observation.migration is not None and observation.migration.mode.is_dual
        obeys = "proven" if is_dual and member in observation.proven else "not ours"
    elif observation.migration is not None:
        obeys = "no" if member in observation.not_obeying else "yes"

    return {
        "consumer_id": member,
        "obeys": obeys,
        "host": host_of(observation.group, member),
        "wants": settings_wanted(observation, member),
    }
