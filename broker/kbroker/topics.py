"""`kbroker topics`: list, create, describe, alter and delete topics.

Kafka's spelling works as it is: `kbroker topics --create --topic t --partitions 3 …`. There
`--topic` may be a regular expression, except for --create; a topic called exactly so goes first.
"""

import asyncio
from collections.abc import Mapping

import click

from broker.kbroker.cluster_access import ClusterAccess, cluster_access
from broker.kbroker.comma_lists import Assignment
from broker.kbroker.topic_choice import choose_topics, require_name
from broker.kbroker.topic_rows import (
    FILTERS,
    NAME_COLUMNS,
    NEED_MIN_ISR,
    PARTITION_COLUMNS,
    TOPIC_COLUMNS,
    Item,
    build_topic_item,
    filter_partitions,
    format_partition_lines,
    format_topic_line,
)
from clients.admin.descriptions import ConfigResource, NewPartitions, NewTopic, TopicDescription
from clients.kafka_spelling import ActionGroup
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
from groups.zookeeper.filters import INTERNAL_TOPICS
from protocol.errors import ApiError, ErrorCode

DELETED = {False: "Deleted topic {}.", True: "Topic {} is marked for deletion."}
"""By whether ZooKeeper was written to."""


@click.group(
    "topics",
    cls=ActionGroup,
    epilog="""\b
Examples:
  kbroker topics create flights --partitions 6 --replication-factor 3
  kbroker topics --describe --topic flights --zookeeper localhost:2181""",
)
def command() -> None:
    """List, create, describe, alter and delete topics.

    Asks the brokers; with --zookeeper, and no --bootstrap-server, on the command line it reads and
    writes ZooKeeper itself, as kafka-topics.sh did up to Kafka 2.3.
    """


topic_option = click.option("--topic", "pattern", metavar="REGEX", help="Kafka's way to say NAME.")
if_exists_option = click.option("--if-exists", is_flag=True, help="No topic is no failure.")
exclude_internal_option = click.option(
    "--exclude-internal", is_flag=True, help="Leave Kafka's own topics out."
)
config_option = click.option(
    "--config", "configs", type=KeyValue(), multiple=True, help="A topic's setting."
)


@command.command(
    "list",
    epilog="""\b
Example:
  kbroker topics list -b localhost:9092""",
)
@target_options
@output_option
@topic_option
@exclude_internal_option
def list_topics(target: Target, output: str, pattern: str | None, exclude_internal: bool) -> None:
    """Names of all topics, one a line; -o wide tells more."""

    async def ask() -> list[Item]:
        async with cluster_access(target) as cluster:
            topics = await choose_topics(cluster, (), pattern, if_exists=True)
            marked = await cluster.list_marked_topics()
        return [
            {
                "topic": topic.name,
                "internal": topic.internal,
                "partitions": len(topic.partitions),
                "marked_for_deletion": topic.name in marked,
            }
            for topic in topics.values()
            if not (exclude_internal and topic.name in INTERNAL_TOPICS)
        ]

    items = asyncio.run(ask())
    if output == "table":  # as Kafka says it
        items = [
            item | {"topic": f"{item['topic']} - marked for deletion"}
            if item["marked_for_deletion"]
            else item
            for item in items
        ]
    show(Listing("topics", NAME_COLUMNS, items, header=False), output)


@command.command(
    "create",
    epilog="""\b
Example:
  kbroker topics create flights --partitions 6 --replication-factor 1 --config retention.ms=1000""",
)
@target_options
@output_option
@click.argument("name", required=False)
@click.option("--topic", "pattern", metavar="NAME", help="Kafka's way to say NAME.")
@click.option("--partitions", type=click.IntRange(min=1), help="How many.  [default: the broker's]")
@click.option(
    "--replication-factor",
    type=click.IntRange(min=1),
    help="Replicas of each partition.  [default: the broker's]",
)
@click.option(
    "--replica-assignment", type=Assignment(), help="Brokers of each partition, instead of both."
)
@config_option
@click.option("--if-not-exists", is_flag=True, help="A topic that is there is no failure.")
def create(
    target: Target,
    output: str,
    name: str | None,
    pattern: str | None,
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: tuple[tuple[int, ...], ...] | None,
    configs: tuple[tuple[str, str], ...],
    if_not_exists: bool,
) -> None:
    """Create a topic."""
    if replica_assignment and (partitions or replication_factor):
        raise click.UsageError("--replica-assignment says how many partitions and replicas")
    topic = NewTopic(
        require_name(name, pattern),
        partitions or -1,
        replication_factor or -1,
        dict(configs),
        dict(enumerate(replica_assignment or ())),
    )

    async def ask() -> dict[str, ApiError | None]:
        async with cluster_access(target) as cluster:
            try:
                await cluster.create_topic(topic)
            except ApiError as error:
                if not (if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS):
                    return {topic.name: error}
                return {}
        return {topic.name: None}

    show_results(asyncio.run(ask()), "Created topic {}.", output)


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
@topic_option
@click.option(
    "--under-replicated",
    "--under-replicated-partitions",
    is_flag=True,
    help="Only partitions that lack a replica.",
)
@click.option(
    "--unavailable",
    "--unavailable-partitions",
    is_flag=True,
    help="Only partitions without a leader.",
)
@click.option(
    "--under-min-isr",
    "--under-min-isr-partitions",
    is_flag=True,
    help="Only partitions with fewer in sync than acks=all needs.",
)
@click.option(
    "--at-min-isr",
    "--at-min-isr-partitions",
    is_flag=True,
    help="Only partitions with just as many in sync as acks=all needs.",
)
@click.option(
    "--topics-with-overrides", is_flag=True, help="Only topics with settings of their own."
)
@exclude_internal_option
@if_exists_option
def describe(
    target: Target,
    output: str,
    name: str | None,
    pattern: str | None,
    topics_with_overrides: bool,
    exclude_internal: bool,
    if_exists: bool,
    **filters: bool,
) -> None:
    """Partitions of a topic, or of all: leader, replicas, in-sync replicas, settings."""
    if name is not None and pattern is not None:
        require_name(name, pattern)
    asked = [option for option, is_asked in filters.items() if is_asked]

    async def ask() -> list[Item]:
        names = [name] if name is not None else []
        async with cluster_access(target) as cluster:
            topics = await choose_topics(cluster, names, pattern, if_exists=if_exists)
            if exclude_internal:
                topics = {n: t for n, t in topics.items() if n not in INTERNAL_TOPICS}
            return await described(cluster, topics, min_isr=bool(NEED_MIN_ISR & set(asked)))

    topics = asyncio.run(ask())
    if topics_with_overrides:
        topics = [topic for topic in topics if topic["configs"]]
    if asked:
        topics = [
            filter_partitions(topic, lambda p: any(FILTERS[each](p) for each in asked))
            for topic in topics
        ]
    if output == "json":
        shown = [topic for topic in topics if topic["partitions"] or not asked]
        show(Listing("topics", TOPIC_COLUMNS, shown), output)
    elif output == "csv":
        partitions = [partition for topic in topics for partition in topic["partitions"]]
        show(Listing("topics", PARTITION_COLUMNS, partitions), output)
    else:
        for topic in topics:
            lines = [] if asked else [format_topic_line(topic)]
            lines += [] if topics_with_overrides else format_partition_lines(topic)
            if lines:
                click.echo("\n".join(lines))


async def described(
    cluster: ClusterAccess, topics: Mapping[str, TopicDescription], *, min_isr: bool = False
) -> list[Item]:
    """Items of TOPIC_COLUMNS, `partitions` being items of PARTITION_COLUMNS."""
    configs = await cluster.describe_own_configs(map(ConfigResource.topic, topics))
    marked = await cluster.list_marked_topics()
    least = await cluster.describe_min_insync_replicas(topics) if min_isr else {}
    return [
        build_topic_item(
            topic,
            configs[ConfigResource.topic(name)],
            marked=name in marked,
            min_isr=least.get(name),
        )
        for name, topic in topics.items()
    ]


@command.command(
    "alter",
    epilog="""\b
Example:
  kbroker topics alter flights --partitions 12""",
)
@target_options
@output_option
@click.argument("name", required=False)
@topic_option
@click.option("--partitions", type=click.IntRange(min=1), help="How many it shall have in all.")
@click.option(
    "--replica-assignment",
    type=Assignment(),
    help="Brokers of each partition from 0 on; those that exist are passed over.",
)
@config_option
@click.option("--delete-config", "removed", multiple=True, metavar="NAME", help="Back to default.")
@if_exists_option
def alter(
    target: Target,
    output: str,
    name: str | None,
    pattern: str | None,
    partitions: int | None,
    replica_assignment: tuple[tuple[int, ...], ...] | None,
    configs: tuple[tuple[str, str], ...],
    removed: tuple[str, ...],
    if_exists: bool,
) -> None:
    """Give a topic more partitions, or other settings.

    Keys go to other partitions when there are more of them: what was written stays where it is.
    """
    require_name(name, pattern)
    if partitions is None and not configs and not removed:
        raise click.UsageError("say what to alter: --partitions, --config or --delete-config")
    if replica_assignment and partitions is None:
        raise click.UsageError("--replica-assignment needs --partitions")
    changed = {**dict(configs), **dict.fromkeys(removed)}

    async def alter_one(cluster: ClusterAccess, topic: TopicDescription) -> None:
        if partitions is not None:
            added = (replica_assignment or ())[len(topic.partitions) :]
            if replica_assignment and len(replica_assignment) != partitions:
                raise ApiError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"{len(replica_assignment)} partitions are assigned, not {partitions}",
                )
            await cluster.create_partitions(topic.name, NewPartitions(partitions, added))
        if changed:
            resource = ConfigResource.topic(topic.name)
            for error in (await cluster.change_configs({resource: changed})).values():
                if error is not None:
                    raise error

    async def ask() -> dict[str, ApiError | None]:
        results: dict[str, ApiError | None] = {}
        names = [] if name is None else [name]
        async with cluster_access(target) as cluster:
            for topic in (
                await choose_topics(cluster, names, pattern, if_exists=if_exists)
            ).values():
                try:
                    await alter_one(cluster, topic)
                    results[topic.name] = None
                except ApiError as error:
                    results[topic.name] = error
        return results

    show_results(asyncio.run(ask()), "Altered topic {}.", output)


@command.command(
    "delete",
    epilog="""\b
Example:
  kbroker topics delete flights""",
)
@target_options
@output_option
@click.argument("names", nargs=-1)
@topic_option
@if_exists_option
def delete(
    target: Target, output: str, names: tuple[str, ...], pattern: str | None, if_exists: bool
) -> None:
    """Delete topics with all they hold.

    With --zookeeper they are marked, and gone once every broker that keeps a replica has seen it.
    """
    if bool(names) == (pattern is not None):
        raise click.UsageError("say which topics: NAMES, or --topic REGEX")

    async def ask() -> tuple[dict[str, ApiError | None], bool]:
        async with cluster_access(target) as cluster:
            wanted = list(names)
            if pattern is not None:
                wanted = list(await choose_topics(cluster, (), pattern, if_exists=if_exists))
            results = await cluster.delete_topics(wanted) if wanted else {}
        if if_exists:
            results = {name: error for name, error in results.items() if not _is_unknown(error)}
        return results, cluster.is_by_zookeeper

    results, is_by_zookeeper = asyncio.run(ask())
    show_results(results, DELETED[is_by_zookeeper], output)


def _is_unknown(error: ApiError | None) -> bool:
    return error is not None and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def show_results(results: Mapping[str, ApiError | None], said: str, output: str) -> None:
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
