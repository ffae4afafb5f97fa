"""`kbroker elect`: elect preferred leaders, or make any live replica the leader.

Kafka's spelling works as it is: `--election-type PREFERRED --all-topic-partitions`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import click

from broker.kbroker.open_cluster import names_zookeeper_alone, open_cluster
from broker.kbroker.reassign.plan import read_partitions
from broker.kbroker.reassign.plan_file import read_plan_file
from clients.admin import PREFERRED, UNCLEAN
from clients.admin.verdicts import Verdicts
from clients.command_line.interrupts import heeding_interrupts
from clients.command_line.kafka_spelling import ActionGroup
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
from clients.command_line.printing import say
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import TopicPartition

T = TypeVar("T")

COLUMNS = (Column("TOPIC", 15), Column("PARTITION", 10), Column("RESULT"))
KAFKA_TYPE = "--election-type"
PORTION = 100
"""Number of partitions in one request: what was done is said behind each."""
SETTLED = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)


class ElectionGroup(ActionGroup):
    """A group of sub-commands, which Kafka's `--election-type KIND` names too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Turn Kafka's option into an action flag, then parse."""
        return super().parse_args(ctx, rewrite_election_type(args))


def rewrite_election_type(args: Sequence[str]) -> list[str]:
    """Replace the first `--election-type KIND` in the arguments by `--kind`."""
    for position, arg in enumerate(args):
        name, equals, kind = arg.partition("=")
        if name == KAFKA_TYPE:
            # The kind is behind the equals sign, or the next argument.
            rest = list(args[position + 1 :])
            if not equals and rest:
                kind = rest.pop(0)
            return [*args[:position], f"--{kind.lower()}", *rest]
    return list(args)


@click.group(
    "elect",
    cls=ElectionGroup,
    epilog="""\b
Examples:
  kbroker elect preferred --all
  kbroker elect unclean --topic flights --partition 0""",
)
def command() -> None:
    """Elect leaders of partitions.

    With --zookeeper, and no --bootstrap-server, on the command line an election of preferred
    leaders is requested in /admin/preferred_replica_election, as
    kafka-preferred-replica-election.sh did.
    """


def partition_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add the options that choose partitions."""
    # Decorators apply from the inside out: the last one is the first in the help.
    for option in reversed(_PARTITION_OPTIONS):
        command = option(command)
    return command


_PARTITION_OPTIONS = (
    click.option("--topic", help="All partitions of this topic."),
    click.option(
        "--partition", type=click.IntRange(min=0), help="With --topic: this partition only."
    ),
    click.option(
        "--all",
        "--all-topic-partitions",
        "everything",
        is_flag=True,
        help="All partitions that need an election.",
    ),
    click.option(
        "--path-to-json-file",
        "file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help='Partitions in Kafka\'s JSON: {"partitions":[{"topic":"t","partition":0}]}',
    ),
)


@command.command(
    "preferred",
    epilog="""\b
Example:
  kbroker elect preferred --all""",
)
@target_options
@output_option
@partition_options
def preferred(
    target: Target,
    output: str,
    topic: str | None,
    partition: int | None,
    everything: bool,
    file: Path | None,
) -> None:
    """Make the first replica of each partition its leader, if it is live and in sync."""
    elect(target, output, PREFERRED, topic, partition, everything, file)


@command.command(
    "unclean",
    epilog="""\b
Example:
  kbroker elect unclean --topic flights --partition 0""",
)
@target_options
@output_option
@partition_options
def unclean(
    target: Target,
    output: str,
    topic: str | None,
    partition: int | None,
    everything: bool,
    file: Path | None,
) -> None:
    """Make any live replica the leader of a partition without a leader: MESSAGES ARE LOST.

    Messages that only in-sync replicas had are lost, even if those replicas return. A partition
    with a leader is left as it is.
    """
    elect(target, output, UNCLEAN, topic, partition, everything, file)


def elect(
    target: Target,
    output: str,
    election_type: int,
    topic: str | None,
    partition: int | None,
    everything: bool,
    file: Path | None,
) -> None:
    """Elect leaders and print each partition's result; exit 1 if an election failed."""
    # Exactly one option chooses the partitions.
    choices = [topic is not None, everything, file is not None]
    if not any(choices) and names_zookeeper_alone(click.get_current_context()):
        everything = True  # the default of kafka-preferred-replica-election.sh
    elif sum(choices) != 1:
        raise click.UsageError("say which partitions: --topic, --all or --path-to-json-file")
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")

    # The file is read first: a mistake in it needs no connection.
    in_file = None if file is None else read_plan_file(file, read_partitions)

    async def request_election() -> Mapping[TopicPartition, Exception | None]:
        async with open_cluster(target) as cluster:
            chosen = in_file  # None: all
            if topic is not None and partition is not None:
                chosen = [TopicPartition(topic, partition)]
            elif topic is not None:
                partitions = (await cluster.describe_topics([topic]))[topic].partitions
                chosen = [TopicPartition(topic, partition_id) for partition_id in partitions]

            with heeding_interrupts(
                several=chosen is not None and len(chosen) > PORTION
            ) as interrupts:

                async def elect_next(
                    portion: Sequence[TopicPartition],
                ) -> Verdicts[TopicPartition]:
                    verdicts = await cluster.elect(election_type, portion)
                    for partition, error in sorted(verdicts.items()):
                        if error is None:
                            interrupts.say(f"elected: {partition}")
                    return verdicts

                # Which of all need one the controller knows. In ZooKeeper there is one request.
                if chosen is None:
                    return await cluster.elect(election_type, None)
                size = len(chosen) if cluster.is_by_zookeeper else PORTION
                return await interrupts.in_portions(chosen, elect_next, max(1, size))

    verdicts = dict(sorted(asyncio.run(request_election()).items()))
    kind = "UNCLEAN" if election_type == UNCLEAN else "PREFERRED"
    show_verdicts(verdicts, kind, output)


def show_verdicts(
    verdicts: Mapping[TopicPartition, Exception | None], kind: str, output: str
) -> None:
    """Print the sentences of Kafka's tool, or one row a partition; exit 1 at a failure."""
    codes = {
        partition: error.code if isinstance(error, ApiError) else ErrorCode.NONE
        for partition, error in verdicts.items()
        if error is None or isinstance(error, ApiError)
    }

    # A partition that needs no election is no failure.
    failures = [
        Failure.of(str(partition), error)
        for partition, error in verdicts.items()
        if error is not None and codes.get(partition) not in SETTLED
    ]
    items = [
        {"topic": name, "partition": partition_id, "result": code.name}
        for (name, partition_id), code in codes.items()
        if code in SETTLED
    ]

    if is_table(output):
        for code, sentence in (
            (ErrorCode.NONE, f"Successfully completed leader election ({kind}) for partitions"),
            (ErrorCode.ELECTION_NOT_NEEDED, "Valid replica already elected for partitions"),
        ):
            names = ", ".join(str(partition) for partition in codes if codes[partition] is code)
            if names:
                say(f"{sentence} {names}")
        if not verdicts:
            say("No partition needs an election.")

        # The sentences stand in place of the rows.
        items = []

    show(Listing("election", COLUMNS, items, failures), output)
