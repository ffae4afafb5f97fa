"""`kbroker elect`: give partitions back to their preferred leaders, or to any replica that is left.

Kafka's spelling works as it is: `--election-type PREFERRED --all-topic-partitions`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import click

from broker.kbroker.cluster_access import cluster_access, names_zookeeper_alone
from broker.kbroker.reassign.plan import read_partitions
from clients.admin import PREFERRED, UNCLEAN
from clients.kafka_spelling import ActionGroup
from clients.output import (
    Column,
    Failure,
    Listing,
    Target,
    output_option,
    show,
    target_options,
)
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import TopicPartition

T = TypeVar("T")

COLUMNS = (Column("TOPIC", 15), Column("PARTITION", 10), Column("RESULT"))
KAFKA_TYPE = "--election-type"
SETTLED = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)


class ElectionGroup(ActionGroup):
    """The kind of election may be said as `--election-type KIND` too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Make a flag of Kafka's option."""
        return super().parse_args(ctx, rewrite_election_type(args))


def rewrite_election_type(args: Sequence[str]) -> list[str]:
    """The arguments with `--election-type PREFERRED`, if it is there, as `--preferred`."""
    for place, arg in enumerate(args):
        name, equals, kind = arg.partition("=")
        if name == KAFKA_TYPE:
            rest = list(args[place + 1 :])
            if not equals and rest:
                kind = rest.pop(0)
            return [*args[:place], f"--{kind.lower()}", *rest]
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
    """Have leaders elected.

    With --zookeeper, and no --bootstrap-server, on the command line preferred leaders are asked
    for in /admin/preferred_replica_election, as kafka-preferred-replica-election.sh did.
    """


def partition_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add the options that say for which partitions."""
    for option in reversed(_PARTITION_OPTIONS):
        command = option(command)
    return command


_PARTITION_OPTIONS = (
    click.option("--topic", help="A topic: with --partition one of it, else all."),
    click.option("--partition", type=click.IntRange(min=0), help="With --topic."),
    click.option(
        "--all", "--all-topic-partitions", "everything", is_flag=True, help="All that need it."
    ),
    click.option(
        "--path-to-json-file",
        "file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help='As Kafka\'s: {"partitions":[{"topic":"t","partition":0}]}',
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
    """Have the first of each partition's replicas lead it, if it lives and is in sync."""
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
    """Have any replica that lives lead a partition that has no leader: MESSAGES ARE LOST.

    What only the replicas in sync had is gone, also when they return. A partition that has a
    leader is left alone.
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
    """Elect, and say how each partition came out; exit 1 if one has not the leader it should."""
    ways = [topic is not None, everything, file is not None]
    if not any(ways) and names_zookeeper_alone(click.get_current_context()):
        everything = True  # as the tool that wrote there
    elif sum(ways) != 1:
        raise click.UsageError("say for which: --topic, --all or --path-to-json-file")
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")
    of_file = None if file is None else read_partitions(file.read_text("utf-8"))

    async def ask() -> Mapping[TopicPartition, ApiError | None]:
        async with cluster_access(target) as cluster:
            asked = of_file
            if topic is not None and partition is not None:
                asked = [TopicPartition(topic, partition)]
            elif topic is not None:
                partitions = (await cluster.describe_topics([topic]))[topic].partitions
                asked = [TopicPartition(topic, each) for each in partitions]
            return await cluster.elect(election_type, asked)

    verdicts = dict(sorted(asyncio.run(ask()).items()))
    kind = "UNCLEAN" if election_type == UNCLEAN else "PREFERRED"
    show_verdicts(verdicts, kind, output)


def show_verdicts(
    verdicts: Mapping[TopicPartition, ApiError | None], kind: str, output: str
) -> None:
    """Kafka's sentences, or a row each."""
    codes = {each: error.code if error else ErrorCode.NONE for each, error in verdicts.items()}
    failures = [
        Failure.of(str(partition), error)
        for partition, error in verdicts.items()
        if error is not None and codes[partition] not in SETTLED
    ]
    items = [
        {"topic": each.topic, "partition": each.partition, "result": code.name}
        for each, code in codes.items()
        if code in SETTLED
    ]
    if output == "table":
        for code, said in (
            (ErrorCode.NONE, f"Successfully completed leader election ({kind}) for partitions"),
            (ErrorCode.ELECTION_NOT_NEEDED, "Valid replica already elected for partitions"),
        ):
            names = ", ".join(str(each) for each, found in codes.items() if found is code)
            if names:
                click.echo(f"{said} {names}")
        if not codes:
            click.echo("No partition needs an election.")
        items = []
    show(Listing("election", COLUMNS, items, failures), output)
