"""`kgroup offsets`: the offsets of a topic, as Kafka's GetOffsetShell."""

import asyncio
from datetime import UTC, datetime

import click

from clients.admin import EARLIEST_TIME, LATEST_TIME
from clients.group_view import timestamp
from clients.output import Column, Failure, Listing, Target, output_option, show, target_options
from clients.sessions import connected
from protocol.errors import ApiError
from protocol.topic_partition import TopicPartition

COLUMNS = (
    Column("TOPIC", 15),
    Column("PARTITION", 10),
    Column("OFFSET"),
    Column("TIMESTAMP", wide=True, key="timestamp_ms", text=timestamp),
)

NAMED_TIMES = {"latest": LATEST_TIME, "earliest": EARLIEST_TIME}


class Time(click.ParamType):  # type: ignore[type-arg]
    """`latest`, `earliest`, an ISO 8601 time (UTC unless it says), or ms since the epoch."""

    name = "latest|earliest|TIME"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """To what ListOffsets takes. Raises UsageError."""
        text = str(value)
        if text in NAMED_TIMES:
            return NAMED_TIMES[text]
        try:
            if text.lstrip("-").isdecimal():
                return int(text)
            time = datetime.fromisoformat(text)
        except ValueError:
            self.fail(f"{text!r} is neither latest, earliest nor an ISO 8601 time", param, ctx)
        if time.tzinfo is None:
            time = time.replace(tzinfo=UTC)
        return int(time.timestamp() * 1000)


@click.command(
    "offsets",
    epilog="""\b
Examples:
  kgroup offsets --topic flights
  kgroup offsets --topic flights --time 2013-06-01T12:00:00""",
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
@output_option
def command(target: Target, topic: str, time: int, output: str) -> None:
    """The offset of each partition of a topic at a time; `-` where no message is that young."""
    show(asyncio.run(listed(target, topic, time)), output)


async def listed(target: Target, topic: str, time: int) -> Listing:
    """Ask every leader once."""
    async with connected(target) as sessions:
        description = (await sessions.admin.describe_topics([topic]))[topic]
        times = {TopicPartition(topic, partition): time for partition in description.partitions}
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
        Failure.of(str(tp), ApiError(listed.error, str(tp)))
        for tp, listed in sorted(found.items())
        if listed.error
    ]
    return Listing("offsets", COLUMNS, items, failures)
