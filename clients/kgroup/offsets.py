"""`kgroup offsets`: show the offsets of a topic, as Kafka's GetOffsetShell does."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import attrs
import click
from click.core import ParameterSource

from clients.admin import EARLIEST_TIME, LATEST_TIME
from clients.command_line.output import (
    EXIT_FAILED,
    Column,
    Failure,
    Listing,
    Target,
    output_option,
    report,
    show,
    target_options,
)
from clients.command_line.point_in_time import timestamp
from clients.command_line.printing import say
from clients.command_line.sessions import bootstrap_of, client_settings, connected
from clients.errors import BrokerError, KgroupError
from clients.simple_consumer import SimpleConsumer
from protocol.topic_partition import TopicPartition

COLUMNS = (
    Column("TOPIC", 15),
    Column("PARTITION", 10),
    Column("OFFSET"),
    Column("TIMESTAMP", wide=True, key="timestamp_ms", text=timestamp),
)

NAMED_TIMES = {"latest": LATEST_TIME, "earliest": EARLIEST_TIME}


class Time(click.ParamType):  # type: ignore[type-arg]
    """A time: `latest` or -1, `earliest` or -2, ISO 8601, or ms since 1970.

    ISO 8601 without a time zone is UTC.
    """

    name = "latest|earliest|TIME"
    forms = "latest, earliest, ms since 1970 or ISO 8601"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Convert to the timestamp that ListOffsets takes. Raises UsageError."""
        text = str(value)
        try:
            time = NAMED_TIMES.get(text) or _milliseconds(text)
        except (ValueError, OverflowError):
            self.fail(f"{text!r} is not {self.forms}", param, ctx)

        # -1 and -2 are the two named times.
        if not EARLIEST_TIME <= time < 1 << 63:
            self.fail(f"{text} is not a time since 1970, nor -1 or -2", param, ctx)

        return time


def _milliseconds(text: str) -> int:
    """Convert to ms since 1970. Raises ValueError, OverflowError."""
    if text.lstrip("-").isdecimal():
        return int(text)

    time = datetime.fromisoformat(text)
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


class Partitions(click.ParamType):  # type: ignore[type-arg]
    """A list of partitions: `0,1,2`."""

    name = "p,…"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> frozenset[int]:
        """Read the list. Raises UsageError."""
        numbers = [number.strip() for number in str(value).split(",")]

        # A partition's number has 32 bits.
        if not all(number.isdecimal() and int(number) < 2**31 for number in numbers):
            self.fail(f"{value!r} is not a list of partitions, as 0,1,2", param, ctx)
        return frozenset(map(int, numbers))


@click.command(
    "offsets",
    epilog="""\b
Examples:
  kgroup offsets --topic flights
  kgroup offsets --topic flights --time 2013-06-01T12:00:00
  kgroup offsets --broker-list localhost:9092 --topic flights --partitions 0,1 --time -1""",
)
@target_options
@click.option("--topic", required=True, help="The topic.")
@click.option(
    "--time",
    type=Time(),
    default="latest",
    show_default=True,
    help="latest: the end. earliest: the start. TIME: the first message at that time or later.",
)
@click.option("--partitions", type=Partitions(), help="Show only these partitions.")
@click.option(
    "--offsets",
    "max_offsets",
    type=click.IntRange(min=1),
    help="Show up to this many offsets per partition: the starts of segments written before "
    "--time, newest first.  Prints the same lines as --broker-list.",
)
@click.option(
    "--broker-list",
    metavar="H:P[,…]",
    help="--bootstrap-server, as GetOffsetShell spells it.  Prints its lines, "
    "topic:partition:offset, unless --output is given.",
)
@click.option(
    "--max-wait-ms", type=click.IntRange(min=1), help="--timeout, as GetOffsetShell spells it."
)
@output_option
@click.pass_context
def command(
    ctx: click.Context,
    target: Target,
    topic: str,
    time: int,
    partitions: frozenset[int] | None,
    max_offsets: int | None,
    broker_list: str | None,
    max_wait_ms: int | None,
    output: str,
) -> None:
    """Show each partition's offset at a time; `-` if all its messages are older."""
    target = attrs.evolve(
        target,
        bootstrap=broker_list or target.bootstrap,
        timeout_ms=max_wait_ms or target.timeout_ms,
    )

    # --output asks for a listing, even where Kafka's spelling asks for lines.
    has_output_option = ctx.get_parameter_source("output") is not ParameterSource.DEFAULT
    if max_offsets is not None and has_output_option:
        raise click.UsageError("--offsets prints lines; --output shows one offset per partition")

    listing = asyncio.run(list_offsets(target, topic, time, partitions, max_offsets))
    if (broker_list is None and max_offsets is None) or has_output_option:
        show(listing, output)
        return

    # The lines of GetOffsetShell.
    # A partition that could not be read has no line; stderr names it.
    failed = {failure.what for failure in listing.errors}
    for item in listing.items:
        if f"{item['topic']}-{item['partition']}" not in failed:
            say(f"{item['topic']}:{item['partition']}:{shell_offsets(item)}")

    report(listing.errors)
    if listing.errors:
        raise click.exceptions.Exit(EXIT_FAILED)


def shell_offsets(item: Mapping[str, Any]) -> str:
    """Return the offsets with commas, as GetOffsetShell prints them; nothing if there are none."""
    offsets = item.get("offsets", [item.get("offset")])
    return ",".join(str(offset) for offset in offsets if offset is not None)


async def list_offsets(
    target: Target,
    topic: str,
    time: int,
    partitions: frozenset[int] | None = None,
    max_offsets: int | None = None,
) -> Listing:
    """Return the offsets: one request per leader, or per partition if `max_offsets` is given."""
    async with connected(target, asks_brokers=True, waits_for_dead=False) as sessions:
        try:
            description = (await sessions.admin.describe_topics([topic]))[topic]
        except BrokerError as error:
            return Listing("offsets", COLUMNS, (), [Failure.of(topic, error)])

        # Partitions that are named need not exist: theirs is an error.
        partition_ids = description.partitions.keys() if partitions is None else partitions

        # Several offsets per partition need version 0 of ListOffsets, at each leader.
        if max_offsets is not None:
            settings = client_settings(target, await bootstrap_of(target))
            return await _list_several(settings, topic, sorted(partition_ids), time, max_offsets)

        times = {TopicPartition(topic, partition_id): time for partition_id in partition_ids}
        offsets = await sessions.admin.list_offsets(times)

    items = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            # -1: no message has that time or a later one.
            "offset": listed.offset if listed.offset >= 0 else None,
            "timestamp_ms": listed.timestamp_ms if listed.timestamp_ms >= 0 else None,
        }
        for partition, listed in sorted(offsets.items())
    ]
    failures = [
        Failure.of(str(partition), listed.failure())
        for partition, listed in sorted(offsets.items())
        if listed.error
    ]
    return Listing("offsets", COLUMNS, items, failures)


async def _list_several(
    settings: Mapping[str, Any],
    topic: str,
    partition_ids: Sequence[int],
    time: int,
    max_offsets: int,
) -> Listing:
    items = []
    failures = []

    # One partition at a time, each with a connection to its leader.
    for partition_id in partition_ids:
        try:
            async with await SimpleConsumer.for_leader(settings, topic, partition_id) as consumer:
                offsets = await consumer.get_offsets_before(topic, partition_id, time, max_offsets)
            items.append({"topic": topic, "partition": partition_id, "offsets": offsets})
        except KgroupError as error:
            failures.append(Failure.of(f"{topic}-{partition_id}", error))

    return Listing("offsets", COLUMNS, items, failures)
