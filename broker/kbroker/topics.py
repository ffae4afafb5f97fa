"""`kbroker topics`: list, create, describe and delete topics."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click

from clients.descriptions import ConfigResource, NewTopic, TopicDescription
from clients.output import (
    Column,
    Failure,
    KeyValue,
    Listing,
    Target,
    output_option,
    show,
    target_options,
)
from clients.sessions import connected

TOPIC_CONFIG_SOURCE = 1
"""DYNAMIC_TOPIC_CONFIG: a setting that the topic itself was given."""

NAME_COLUMNS = (Column("TOPIC"), Column("INTERNAL", wide=True), Column("PARTITIONS", wide=True))

TOPIC_COLUMNS = (
    Column("TOPIC"),
    Column("PARTITION-COUNT"),
    Column("REPLICATION-FACTOR"),
    Column("CONFIGS"),
    Column("PARTITIONS"),
)

PARTITION_COLUMNS = (
    Column("TOPIC"),
    Column("PARTITION"),
    Column("LEADER"),
    Column("REPLICAS"),
    Column("ISR"),
)

Item = dict[str, Any]


@click.group("topics")
def command() -> None:
    """List, create, describe and delete topics."""


class Assignment(click.ParamType):  # type: ignore[type-arg]
    """Kafka's `0:1,1:2`: for each partition its brokers, the preferred leader first."""

    name = "B:B,…"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[tuple[int, ...], ...]:
        """Raises UsageError for what is not broker ids."""
        if isinstance(value, tuple):
            return value
        try:
            return tuple(
                tuple(int(broker) for broker in replicas.split(":"))
                for replicas in str(value).split(",")
            )
        except ValueError:
            self.fail(f"{value!r} is not broker ids as in 0:1,1:2", param, ctx)


@command.command(
    "list",
    epilog="""\b
Example:
  kbroker topics list -b localhost:9092""",
)
@target_options
@output_option
def list_topics(target: Target, output: str) -> None:
    """Names of all topics, one a line; -o wide tells more."""

    async def ask() -> list[Item]:
        async with connected(target) as sessions:
            topics = await sessions.admin.describe_topics()
        return [
            {"topic": t.name, "internal": t.internal, "partitions": len(t.partitions)}
            for t in topics.values()
        ]

    items = asyncio.run(ask())
    show(Listing("topics", NAME_COLUMNS, items, header=False), output)


@command.command(
    "create",
    epilog="""\b
Example:
  kbroker topics create flights --partitions 6 --replication-factor 1 --config retention.ms=1000""",
)
@target_options
@output_option
@click.argument("name")
@click.option("--partitions", type=click.IntRange(min=1), help="How many.  [default: the broker's]")
@click.option(
    "--replication-factor",
    type=click.IntRange(min=1),
    help="Replicas of each partition.  [default: the broker's]",
)
@click.option(
    "--replica-assignment", type=Assignment(), help="Brokers of each partition, instead of both."
)
@click.option("--config", "configs", type=KeyValue(), multiple=True, help="A topic's setting.")
def create(
    target: Target,
    output: str,
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: tuple[tuple[int, ...], ...] | None,
    configs: tuple[tuple[str, str], ...],
) -> None:
    """Create a topic."""
    if replica_assignment and (partitions or replication_factor):
        raise click.UsageError("--replica-assignment says how many partitions and replicas")
    topic = NewTopic(
        name,
        partitions or -1,
        replication_factor or -1,
        dict(configs),
        dict(enumerate(replica_assignment or ())),
    )

    async def ask() -> dict[str, Exception | None]:
        async with connected(target) as sessions:
            return dict(await sessions.admin.create_topics([topic]))

    show_done(asyncio.run(ask()), "Created topic {}.", output)


@command.command(
    "delete",
    epilog="""\b
Example:
  kbroker topics delete flights""",
)
@target_options
@output_option
@click.argument("names", nargs=-1, required=True)
def delete(target: Target, output: str, names: tuple[str, ...]) -> None:
    """Delete topics with all they hold."""

    async def ask() -> dict[str, Exception | None]:
        async with connected(target) as sessions:
            return dict(await sessions.admin.delete_topics(names))

    show_done(asyncio.run(ask()), "Deleted topic {}.", output)


@command.command(
    "describe",
    epilog="""\b
Examples:
  kbroker topics describe flights
  kbroker topics describe --under-replicated""",
)
@target_options
@output_option
@click.argument("name", required=False)
@click.option("--under-replicated", is_flag=True, help="Only partitions that lack a replica.")
@click.option("--unavailable", is_flag=True, help="Only partitions without a leader.")
def describe(
    target: Target, output: str, name: str | None, under_replicated: bool, unavailable: bool
) -> None:
    """Partitions of a topic, or of all: leader, replicas, in-sync replicas, settings."""
    topics = asyncio.run(described(target, None if name is None else [name]))
    wanted = {is_under_replicated: under_replicated, is_unavailable: unavailable}
    tests = [test for test, asked in wanted.items() if asked]
    if tests:
        topics = [only(topic, lambda p: any(test(p) for test in tests)) for topic in topics]
    if output == "json":
        show(Listing("topics", TOPIC_COLUMNS, topics), output)
    elif output == "csv":
        partitions = [partition for topic in topics for partition in topic["partitions"]]
        show(Listing("topics", PARTITION_COLUMNS, partitions), output)
    else:
        for topic in topics:
            click.echo("\n".join(topic_lines(topic, summary=not tests)))


async def described(target: Target, names: Sequence[str] | None) -> list[Item]:
    """The topics as items of TOPIC_COLUMNS, `partitions` being items of PARTITION_COLUMNS."""
    async with connected(target) as sessions:
        topics = await sessions.admin.describe_topics(names)
        resources = [ConfigResource.topic(name) for name in topics]
        configs = await sessions.admin.describe_configs(resources)
    return [
        topic_item(
            topics[resource.name],
            {
                config.name: config.value
                for config in configs[resource]
                if config.config_source == TOPIC_CONFIG_SOURCE
            },
        )
        for resource in resources
    ]


def topic_item(topic: TopicDescription, configs: Mapping[str, str | None]) -> Item:
    """One topic with its partitions; a leader that is not there is None."""
    partitions = [
        {
            "topic": topic.name,
            "partition": number,
            "leader": partition.leader if partition.leader >= 0 else None,
            "replicas": list(partition.replicas),
            "isr": list(partition.isr),
        }
        for number, partition in sorted(topic.partitions.items())
    ]
    return {
        "topic": topic.name,
        "partition_count": len(partitions),
        "replication_factor": max((len(p.replicas) for p in topic.partitions.values()), default=0),
        "configs": dict(sorted(configs.items())),
        "partitions": partitions,
    }


def is_under_replicated(partition: Item) -> bool:
    """Whether a replica is not in sync."""
    return len(partition["isr"]) < len(partition["replicas"])


def is_unavailable(partition: Item) -> bool:
    """Whether there is no leader."""
    return partition["leader"] is None


def only(topic: Item, wanted: Callable[[Item], bool]) -> Item:
    """The topic with those of its partitions that are wanted."""
    return topic | {"partitions": [p for p in topic["partitions"] if wanted(p)]}


def topic_lines(topic: Item, *, summary: bool) -> Iterator[str]:
    """Kafka's lines: the topic's own if `summary`, then one a partition."""
    if summary:
        configs = ",".join(f"{name}={value}" for name, value in topic["configs"].items())
        yield (
            f"Topic: {topic['topic']}\tPartitionCount: {topic['partition_count']}"
            f"\tReplicationFactor: {topic['replication_factor']}\tConfigs: {configs}"
        )
    for partition in topic["partitions"]:
        leader = "none" if partition["leader"] is None else partition["leader"]
        replicas, isr = (",".join(map(str, partition[name])) for name in ("replicas", "isr"))
        yield (
            f"\tTopic: {partition['topic']}\tPartition: {partition['partition']}"
            f"\tLeader: {leader}\tReplicas: {replicas}\tIsr: {isr}"
        )


def show_done(results: Mapping[str, Exception | None], said: str, output: str) -> None:
    """Say what was done for each topic, and name what was refused; exit 1 if anything was."""
    done = [name for name, error in results.items() if error is None]
    failures = [Failure.of(name, error) for name, error in results.items() if error is not None]
    columns = (Column("TOPIC"),)
    if output in ("table", "wide"):
        for name in done:
            click.echo(said.format(name))
        show(Listing("topics", columns, [], failures), output)
    else:
        show(Listing("topics", columns, [{"topic": name} for name in done], failures), output)
