"""`kgroup offsets`: the offsets of a topic, as Kafka's GetOffsetShell."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import attrs
import click
from click.core import ParameterSource

from clients.admin import EARLIEST_TIME, LATEST_TIME
from clients.errors import BrokerError, KgroupError
from clients.group_view import timestamp
from clients.output import (
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
from clients.sessions import bootstrap_of, client_settings, connected
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
    """`latest` or -1, `earliest` or -2, an ISO 8601 time (UTC unless it says), or ms since 1970."""

    name = "latest|earliest|TIME"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """To what ListOffsets takes. Raises UsageError."""
        text = str(value)
        try:
            time = NAMED_TIMES.get(text) or _milliseconds(text)
        except (ValueError, OverflowError):
            self.fail(f"{text!r} is neither latest, earliest nor an ISO 8601 time", param, ctx)
        if not EARLIEST_TIME <= time < 1 << 63:
            self.fail(f"{text} is no time since 1970, nor -1 or -2", param, ctx)
        return time


def _milliseconds(text: str) -> int:
    """Raises ValueError, OverflowError."""
    if text.lstrip("-").isdecimal():
        return int(text)
    time = datetime.fromisoformat(text)
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


class Partitions(click.ParamType):  # type: ignore[type-arg]
    """`0,1,2`."""

    name = "p,…"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> frozenset[int]:
        """Raises UsageError."""
        numbers = [number.strip() for number in str(value).split(",")]
        if not all(number.isdecimal() and int(number) < 2**31 for number in numbers):
            self.fail(f"{value!r} is not partition,…", param, ctx)
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
@click.option("--topic", required=True, help="Which topic.")
@click.option(
    "--time",
    type=Time(),
    default="latest",
    show_default=True,
    help="The end, the start, or the first message that is not older.",
)
@click.option("--partitions", type=Partitions(), help="Only these.")
@click.option(
    "--offsets",
    "most",
    type=click.IntRange(min=1),
    help="Rather, at most so many offsets where segments written before --time begin, newest "
    "first.  Prints lines as --broker-list.",
)
@click.option(
    "--broker-list",
    metavar="H:P[,…]",
    help="--bootstrap-server as GetOffsetShell spells it; prints its lines, topic:partition:offset,"
    " unless --output says else.",
)
@click.option(
    "--max-wait-ms", type=click.IntRange(min=1), help="--timeout as GetOffsetShell spells it."
)
@output_option
@click.pass_context
def command(
    ctx: click.Context,
    target: Target,
    topic: str,
    time: int,
    partitions: frozenset[int] | None,
    most: int | None,
    broker_list: str | None,
    max_wait_ms: int | None,
    output: str,
) -> None:
    """The offset of each partition of a topic at a time; `-` where no message is that young."""
    target = attrs.evolve(
        target,
        bootstrap=broker_list or target.bootstrap,
        timeout_ms=max_wait_ms or target.timeout_ms,
    )
    chosen = ctx.get_parameter_source("output") is not ParameterSource.DEFAULT
    if most is not None and chosen:
        raise click.UsageError("--offsets prints lines; --output is for one offset a partition")
    listing = asyncio.run(listed(target, topic, time, partitions, most))
    if (broker_list is None and most is None) or chosen:
        show(listing, output)
        return
    failed = {failure.what for failure in listing.errors}
    for item in listing.items:
        if f"{item['topic']}-{item['partition']}" not in failed:
            click.echo(f"{item['topic']}:{item['partition']}:{shell_offsets(item)}")
    report(listing.errors)
    if listing.errors:
        raise click.exceptions.Exit(EXIT_FAILED)


def shell_offsets(item: Mapping[str, Any]) -> str:
    """As GetOffsetShell has them: with commas, nothing for none."""
    offsets = item.get("offsets", [item.get("offset")])
    return ",".join(str(offset) for offset in offsets if offset is not None)


async def listed(
    target: Target,
    topic: str,
    time: int,
    partitions: frozenset[int] | None = None,
    most: int | None = None,
) -> Listing:
    """Ask every leader once, or for each partition if several offsets are wanted."""
    async with connected(target) as sessions:
        try:
            description = (await sessions.admin.describe_topics([topic]))[topic]
        except BrokerError as error:
            return Listing("offsets", COLUMNS, (), [Failure.of(topic, error)])
        wanted = description.partitions.keys() if partitions is None else partitions
        if most is not None:
            settings = client_settings(target, await bootstrap_of(target))
            return await _several(settings, topic, sorted(wanted), time, most)
        times = {TopicPartition(topic, partition): time for partition in wanted}
        found = await sessions.admin.list_offsets(times)
    items = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "offset": listed.offset if listed.offset >= 0 else None,
            "timestamp_ms": listed.timestamp_ms if listed.timestamp_ms >= 0 else None,
        }
        for tp, listed in sorted(found.items())
    ]
    failures = [
        Failure.of(str(tp), BrokerError(listed.error, str(tp)))
        for tp, listed in sorted(found.items())
        if listed.error
    ]
    return Listing("offsets", COLUMNS, items, failures)


async def _several(
    settings: Mapping[str, Any], topic: str, partitions: Sequence[int], time: int, most: int
) -> Listing:
    items, failures = [], []
    for partition in partitions:
        try:
            async with await SimpleConsumer.for_leader(settings, topic, partition) as consumer:
                offsets = await consumer.get_offsets_before(topic, partition, time, most)
            items.append({"topic": topic, "partition": partition, "offsets": offsets})
        except KgroupError as error:
            failures.append(Failure.of(f"{topic}-{partition}", error))
    return Listing("offsets", COLUMNS, items, failures)
