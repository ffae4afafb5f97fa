"""`kgroup perf consume`: read a topic as kafka-consumer-perf-test.sh does."""

import asyncio
import contextlib
import random
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import attrs
import click

from clients.command_line.output import Target, read_properties, target_options
from clients.command_line.printing import say
from clients.command_line.sessions import connected, responding_brokers
from clients.errors import ConsumerTimeout, UnsupportedApi
from clients.high_level.connector import ConsumerConnector
from clients.kgroup.joining import join_in_time
from clients.kgroup.perf.figures import MB
from clients.kgroup.perf.reporting import monotonic_ms

TOTALS = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
    "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
HEADER = f"start.time, end.time, {TOTALS}"
DETAILED_HEADER = f"time, threadId, {TOTALS}"


@attrs.define
class Consumed:
    """The figures of a run or a part of it, in Kafka's CSV."""

    begins_ms: float
    joined_ms: float = 0.0
    """Time to join the group, in which nothing can be fetched."""
    count: int = 0
    size: int = 0

    def row(self, now_ms: float, *names: str) -> str:
        """Return the line of Kafka's columns; `names` are those that come first."""
        elapsed_ms = max(now_ms - self.begins_ms, 1.0)
        fetch_ms = max(elapsed_ms - self.joined_ms, 1.0)
        mb = self.size / MB
        cells = (
            *names,
            f"{mb:.4f}",
            f"{mb * 1000 / elapsed_ms:.4f}",
            str(self.count),
            f"{self.count * 1000 / elapsed_ms:.4f}",
            f"{self.joined_ms:.0f}",
            f"{fetch_ms:.0f}",
            f"{mb * 1000 / fetch_ms:.4f}",
            f"{self.count * 1000 / fetch_ms:.4f}",
        )
        return ", ".join(cells)


@click.command(
    "consume",
    epilog="""\b
Examples:
  kgroup perf consume --topic flights --messages 100000
  kgroup perf consume --topic flights --messages 100000 --show-detailed-stats --hide-header""",
)
@target_options
@click.option("--broker-list", metavar="H:P[,…]", help="--bootstrap-server, as Kafka spells it.")
@click.option("--topic", required=True, help="The topic to read.")
@click.option("--messages", type=click.IntRange(min=1), required=True, help="Messages to read.")
@click.option("--group", help="The group to join.  [default: a new group, deleted at the end]")
@click.option("--from-latest", is_flag=True, help="Without an offset, begin with new messages.")
@click.option(
    "--fetch-size",
    type=click.IntRange(min=1),
    default=1_048_576,
    show_default=True,
    help="Bytes to fetch from a partition at once.",
)
@click.option(
    "--timeout-ms",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    help="End when no message arrives for this many ms.",
)
@click.option(
    "--reporting-interval",
    type=click.IntRange(min=1),
    default=5000,
    show_default=True,
    metavar="MS",
    help="Time between two lines of --show-detailed-stats.",
)
@click.option("--show-detailed-stats", is_flag=True, help="Print a line for each interval instead.")
@click.option("--hide-header", is_flag=True, help="Leave out the line with the columns' names.")
@click.option(
    "--consumer.config",
    "--consumer-config",
    "consumer_config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Properties file with settings of the consumer.",
)
def command(
    target: Target,
    broker_list: str | None,
    topic: str,
    messages: int,
    group: str | None,
    from_latest: bool,
    fetch_size: int,
    timeout_ms: int,
    reporting_interval: int,
    show_detailed_stats: bool,
    hide_header: bool,
    consumer_config: Path | None,
) -> None:
    """Read messages as the member of a group at its coordinator, and print Kafka's line of figures.

    The command ends after --messages, or when none arrives for --timeout-ms; that is said on
    stderr. After Ctrl-C it prints the line for what it has read.
    """
    if broker_list is not None:
        target = attrs.evolve(target, bootstrap=broker_list)

    is_new = group is None
    group_id = group or f"perf-consumer-{random.randrange(100_000)}"
    settings = {
        **target.settings,
        **read_properties(consumer_config),
        "group.id": group_id,
        "auto.offset.reset": "latest" if from_latest else "earliest",
        "max.partition.fetch.bytes": str(fetch_size),
        "consumer.timeout.ms": str(timeout_ms),
    }

    if not hide_header:
        say(DETAILED_HEADER if show_detailed_stats else HEADER)
    interval_ms = reporting_interval if show_detailed_stats else None
    asyncio.run(measure(target, settings, topic, messages, interval_ms, is_new))


async def measure(
    target: Target,
    settings: Mapping[str, str],
    topic: str,
    messages: int,
    interval_ms: int | None,
    is_new: bool,
) -> None:
    """Read, print, leave the group, and delete it if it is new."""
    places = ("zookeeper.connect", "bootstrap.servers")
    named = settings.get("bootstrap.servers") or target.bootstrap
    bootstrap = await responding_brokers(attrs.evolve(target, bootstrap=named))
    consumer_settings = {
        **{name: value for name, value in settings.items() if name not in places},
        "bootstrap.servers": bootstrap,
        "membership": "coordinator",
    }
    try:
        async with ConsumerConnector(consumer_settings) as connector:
            await consume(connector, topic, messages, interval_ms)
    finally:
        if is_new:
            known = attrs.evolve(target, bootstrap=bootstrap)
            async with connected(known, asks_brokers=True) as sessions:
                # Brokers before 1.1 delete no groups: its offsets expire.
                with contextlib.suppress(UnsupportedApi):
                    await sessions.admin.delete_groups([settings["group.id"]])


async def consume(
    connector: ConsumerConnector, topic: str, messages: int, interval_ms: int | None
) -> None:
    """Read until there are enough, or none came for too long."""
    begin = clock_time()
    total = Consumed(monotonic_ms())
    part = Consumed(total.begins_ms)

    try:
        streams = await join_in_time(connector, connector.create_message_streams({topic: 1}))
        total.joined_ms = part.joined_ms = monotonic_ms() - total.begins_ms

        async for message in streams[topic][0]:
            size = len(message.key or b"") + len(message.value or b"")
            for figures in (total, part):
                figures.count += 1
                figures.size += size

            if interval_ms is not None and monotonic_ms() - part.begins_ms >= interval_ms:
                say(part.row(monotonic_ms(), clock_time(), "0"))
                part = Consumed(monotonic_ms())
            if total.count == messages:
                break
    except ConsumerTimeout:
        text = "; ".join(
            ["none came for the time of --timeout-ms", *connector.metrics.describe_unreadable()]
        )
        say(f"WARNING: read {total.count} of {messages} messages: {text}", err=True)
    finally:
        if interval_ms is None:
            say(total.row(monotonic_ms(), begin, clock_time()))
        else:
            say(part.row(monotonic_ms(), clock_time(), "0"))


def clock_time() -> str:
    """Return the time of day in Kafka's default --date-format."""
    now = datetime.fromtimestamp(time.time())
    return f"{now:%Y-%m-%d %H:%M:%S}:{now.microsecond // 1000:03}"
