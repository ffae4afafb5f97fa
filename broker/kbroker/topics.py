"""`kbroker topics`: list, create, describe, alter and delete topics.

Kafka's spelling works as it is: `kbroker topics --create --topic t --partitions 3 …`. There
`--topic` may be a regular expression, except with --create; a topic of exactly that name wins.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TypeVar

import click

from broker.kbroker.cluster_access import ClusterAccess
from broker.kbroker.comma_lists import BrokerLists
from broker.kbroker.open_cluster import open_cluster
from broker.kbroker.topic_choice import choose_topics, require_name
from broker.kbroker.topic_deletion import Deletion, find_away, follow_deletions
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
    unread_settings,
)
from clients.admin.descriptions import ConfigResource, NewPartitions, NewTopic, TopicDescription
from clients.command_line.interrupts import heeding_interrupts
from clients.command_line.kafka_spelling import ActionGroup
from clients.command_line.output import (
    EXIT_FAILED,
    Column,
    Failure,
    KeyValue,
    Listing,
    Target,
    is_table,
    output_option,
    report,
    say_done,
    show,
    show_verdicts,
    show_what_was_said,
    target_options,
)
from clients.command_line.printing import print_text
from clients.errors import KgroupError
from core_log.config import INT_MAX
from protocol.errors import ApiError, ErrorCode
from protocol.internal_topics import INTERNAL_TOPICS

T = TypeVar("T")

PORTION = 20
"""Number of topics that are deleted by one request: what was done is said behind each."""


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

    The brokers do the work. With --zookeeper, and no --bootstrap-server, on the command line the
    command reads and writes ZooKeeper itself, as kafka-topics.sh did up to Kafka 2.3.
    """


# --- options --------------------------------------------------------------------------------------

topic_option = click.option(
    "--topic", "pattern", metavar="REGEX", help="Kafka's spelling of NAME; may be a pattern."
)
if_exists_option = click.option(
    "--if-exists", is_flag=True, help="Succeed also if no such topic exists."
)
exclude_internal_option = click.option(
    "--exclude-internal", is_flag=True, help="Leave out Kafka's own topics."
)
config_option = click.option(
    "--config", "configs", type=KeyValue(), multiple=True, help="A setting of the topic."
)


# --- list -----------------------------------------------------------------------------------------


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
    """List all topics, one name a line; -o wide adds columns."""

    hidden: list[Failure] = []

    async def collect_items() -> list[Item]:
        async with open_cluster(target, waits_for_dead=False) as cluster:
            topics = await choose_topics(cluster, (), pattern, if_exists=True)
            marked = await cluster.list_marked_topics()
            hidden.extend(await cluster.find_hidden_topics())

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

    items = asyncio.run(collect_items())
    # The mark in the words of kafka-topics.sh; the wide table has a column for it.
    if output == "table":
        items = [
            item | {"topic": f"{item['topic']} - marked for deletion"}
            if item["marked_for_deletion"]
            else item
            for item in items
        ]
    # Who sees some topics has a list of these; who sees none should know why.
    errors = () if items else hidden
    notes = [f"note: {failure.message}" for failure in hidden]
    show(Listing("topics", NAME_COLUMNS, items, errors, header=False, summaries=notes), output)


# --- create ---------------------------------------------------------------------------------------


@command.command(
    "create",
    epilog="""\b
Example:
  kbroker topics create flights --partitions 6 --replication-factor 1 --config retention.ms=1000""",
)
@target_options
@output_option
@click.argument("name", required=False)
@click.option("--topic", "pattern", metavar="NAME", help="Kafka's spelling of NAME.")
@click.option(
    "--partitions",
    type=click.IntRange(1, INT_MAX),
    help="Number of partitions.  [default: the broker's]",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(min=1, max=32767),
    help="Replicas of each partition.  [default: the broker's]",
)
@click.option(
    "--replica-assignment",
    type=BrokerLists(),
    help="Brokers of each partition, in place of --partitions and --replication-factor.",
)
@config_option
@click.option("--if-not-exists", is_flag=True, help="Succeed also if the topic exists.")
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
        raise click.UsageError(
            "--replica-assignment excludes --partitions and --replication-factor"
        )

    # -1 leaves the number to the brokers (KIP-464).
    topic = NewTopic(
        require_name(name, pattern),
        partitions or -1,
        replication_factor or -1,
        dict(configs),
        dict(enumerate(replica_assignment or ())),
    )

    async def create_topic() -> dict[str, ApiError | None]:
        async with open_cluster(target) as cluster:
            try:
                with heeding_interrupts():
                    await cluster.create_topic(topic)
            except ApiError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    return {topic.name: error}
                if await is_marked(cluster, topic.name):
                    return {topic.name: ApiError(error.code, MARKED.format(topic.name))}
                # A topic that exists is no result at all: nothing is printed.
                return {} if if_not_exists else {topic.name: error}
        return {topic.name: None}

    show_verdicts("topics", "TOPIC", asyncio.run(create_topic()), "Created topic {}.", output)


MARKED = (
    "Topic '{}' is marked for deletion: the name is free when every broker with a replica of it is "
    "alive and has deleted it."
)


async def is_marked(cluster: ClusterAccess, name: str) -> bool:
    """Return whether a topic whose name is taken is on its way out."""
    if cluster.is_by_zookeeper:
        return name in await cluster.list_marked_topics()
    try:
        await cluster.describe_topics([name])
    except ApiError as error:
        # Brokers no longer show it.
        return error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return False


# --- describe -------------------------------------------------------------------------------------


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
    help="Only partitions with a replica that is not in sync.",
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
    help="Only partitions with fewer in-sync replicas than acks=all needs.",
)
@click.option(
    "--at-min-isr",
    "--at-min-isr-partitions",
    is_flag=True,
    help="Only partitions with exactly as many in-sync replicas as acks=all needs.",
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
    """Show the partitions of a topic, or of all: leader, replicas, in-sync replicas, settings."""
    # Both at once are a mistake; neither means all topics.
    if name is not None and pattern is not None:
        require_name(name, pattern)
    active = [option for option, is_given in filters.items() if is_given]

    failures: list[Failure] = []

    async def collect_items() -> list[Item]:
        names = [name] if name is not None else []
        async with open_cluster(target, waits_for_dead=False) as cluster:
            topics = await choose_topics(cluster, names, pattern, if_exists=if_exists)
            # Of topics that are not shown nobody knows whether they are healthy.
            if name is None and (active or not topics):
                failures.extend(await cluster.find_hidden_topics())
            if exclude_internal:
                topics = {n: t for n, t in topics.items() if n not in INTERNAL_TOPICS}
            return await build_items(
                cluster,
                topics,
                failures,
                # Lines and rows of partitions have no settings.
                with_configs=topics_with_overrides
                or output == "json"
                or (is_table(output) and not active),
                with_min_isr=bool(NEED_MIN_ISR & set(active)),
            )

    # Filters choose topics, then partitions; several filters widen the choice.
    topics = asyncio.run(collect_items())
    if topics_with_overrides:
        topics = [topic for topic in topics if topic["configs"]]
    if active:
        topics = [
            filter_partitions(topic, lambda p: any(FILTERS[option](p) for option in active))
            for topic in topics
        ]

    # With a filter, only topics that have such partitions.
    if output == "json":
        topics = [topic for topic in topics if topic["partitions"] or not active]
        show(Listing("topics", TOPIC_COLUMNS, topics, failures), output)
    elif output == "csv":
        partitions = [partition for topic in topics for partition in topic["partitions"]]
        show(Listing("topics", PARTITION_COLUMNS, partitions, failures), output)
    else:
        for topic in topics:
            # As kafka-topics.sh: filters show partitions alone, --topics-with-overrides topics.
            lines = [] if active else [format_topic_line(topic)]
            lines += [] if topics_with_overrides else format_partition_lines(topic)
            if lines:
                print_text("\n".join(lines))
        report(failures)
        if failures:
            raise click.exceptions.Exit(EXIT_FAILED)


async def build_items(
    cluster: ClusterAccess,
    topics: Mapping[str, TopicDescription],
    failures: list[Failure],
    *,
    with_configs: bool,
    with_min_isr: bool,
) -> list[Item]:
    """Build items of TOPIC_COLUMNS; their `partitions` are items of PARTITION_COLUMNS."""
    configs = await cluster.describe_each_own_config(topics) if with_configs else {}
    marked = await cluster.list_marked_topics()
    min_isrs = await cluster.describe_min_insync_replicas(topics) if with_min_isr else {}

    unread = {
        topic: told
        for topic, told in (*configs.items(), *min_isrs.items())
        if isinstance(told, KgroupError)
    }
    failures += unread_settings(unread)

    def known(told: T | KgroupError | None) -> T | None:
        return None if isinstance(told, KgroupError) else told

    return [
        build_topic_item(
            topic,
            known(configs.get(name)),
            marked=name in marked,
            min_isr=known(min_isrs.get(name)),
        )
        for name, topic in topics.items()
    ]


# --- alter ----------------------------------------------------------------------------------------


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
@click.option(
    "--partitions", type=click.IntRange(1, INT_MAX), help="New number of partitions in all."
)
@click.option(
    "--replica-assignment",
    type=BrokerLists(),
    help="Brokers of each partition from 0 on; existing partitions stay as they are.",
)
@config_option
@click.option(
    "--delete-config",
    "removed",
    multiple=True,
    metavar="NAME",
    help="A setting to remove: the default applies again.",
)
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
    """Add partitions to a topic, or change its settings.

    More partitions send new messages of a key elsewhere; messages already written stay in place.
    Consumers at a coordinator see new partitions within their metadata.max.age.ms, and those with
    auto.offset.reset=latest skip what is written to them until then.
    """
    require_name(name, pattern)
    if partitions is None and not configs and not removed:
        raise click.UsageError("say what to alter: --partitions, --config or --delete-config")
    if replica_assignment and partitions is None:
        raise click.UsageError("--replica-assignment needs --partitions")
    changes = {**dict(configs), **dict.fromkeys(removed)}

    async def alter_topic(cluster: ClusterAccess, topic: TopicDescription) -> None:
        if partitions is not None:
            # The option names every partition, the request only the new ones.
            added = (replica_assignment or ())[len(topic.partitions) :]
            if replica_assignment and len(replica_assignment) != partitions:
                raise ApiError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"{len(replica_assignment)} partitions are assigned, not {partitions}",
                )
            await cluster.create_partitions(topic.name, NewPartitions(partitions, added))

        if changes:
            resource = ConfigResource.topic(topic.name)
            for error in (await cluster.change_configs({resource: changes})).values():
                if error is not None:
                    raise error

    async def alter_topics() -> dict[str, Exception | None]:
        names = [] if name is None else [name]
        async with open_cluster(target) as cluster:
            topics = await choose_topics(cluster, names, pattern, if_exists=if_exists)

            async def alter_next(portion: Sequence[str]) -> dict[str, Exception | None]:
                (topic_name,) = portion
                try:
                    await alter_topic(cluster, topics[topic_name])
                except ApiError as error:
                    return {topic_name: error}
                say_done(f"Altered topic {topic_name}.", output, several=len(topics) > 1)
                return {topic_name: None}

            with heeding_interrupts() as interrupts:
                return await interrupts.in_portions(list(topics), alter_next, 1)

    show_what_was_said("topics", "TOPIC", asyncio.run(alter_topics()), output)


# --- delete ---------------------------------------------------------------------------------------


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
    """Delete topics and all their messages.

    A topic that has a replica on a broker that is not alive is marked for deletion: nobody sees it
    any longer, and its name is free once the broker is back and has deleted it. With --zookeeper
    alone all topics are marked, and the controller deletes them.
    """
    if bool(names) == (pattern is not None):
        raise click.UsageError("say which topics: NAMES, or --topic REGEX")

    deletions: dict[str, Deletion] = {}

    async def delete_topics() -> dict[str, Exception | None]:
        async with open_cluster(target) as cluster:
            # Names are not looked up first: the response says which are unknown.
            wanted = list(dict.fromkeys(names))
            if pattern is not None:
                wanted = list(await choose_topics(cluster, (), pattern, if_exists=if_exists))
            away = await find_away(cluster)

            async def delete_next(portion: Sequence[str]) -> Mapping[str, ApiError | None]:
                verdicts = await cluster.delete_topics(portion)
                done = [name for name in portion if verdicts.get(name) is None]
                # ZooKeeper has marks alone, at first.
                told = {name: Deletion(True, away.get(name, ())) for name in done}
                if not cluster.is_by_zookeeper:
                    told = await follow_deletions(
                        done, away, cluster.find_taken_names, target.timeout_ms / 1000
                    )
                for name, deletion in told.items():
                    say_done(deletion.sentence(name), output, several=len(wanted) > 1)
                deletions.update(told)
                return verdicts

            with heeding_interrupts() as interrupts:
                results = await interrupts.in_portions(wanted, delete_next, PORTION)

        if if_exists:
            results = {name: error for name, error in results.items() if not _is_unknown(error)}
        return results

    results = asyncio.run(delete_topics())
    failures = [Failure.of(name, error) for name, error in results.items() if error is not None]
    # The sentences stand in place of the rows.
    items = [] if is_table(output) else [deletion_item(*told) for told in deletions.items()]
    show(Listing("topics", DELETION_COLUMNS, items, failures), output)


DELETION_COLUMNS = (Column("TOPIC"), Column("MARKED"), Column("WAITS-FOR"))


def deletion_item(name: str, deletion: Deletion) -> Item:
    """Return what the sentence of a deletion says: is it only marked, and for which brokers."""
    return {"topic": name, "marked": deletion.waits, "waits_for": list(deletion.away)}


def _is_unknown(error: Exception | None) -> bool:
    return isinstance(error, ApiError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
