"""`kgroup events`: show why a group rebalanced, and what to do about it."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import click

from clients.command_group import CommandFailed
from clients.errors import BrokerError
from clients.group_view import timestamp
from clients.kgroup.consume import end_on_signals
from clients.kgroup.offsets import Time
from clients.output import (
    Column,
    Listing,
    Target,
    output_option,
    plain,
    show,
    table,
    target_options,
)
from clients.rebalance_verdict import judge
from clients.sessions import bootstrap_of, client_settings, connected
from clients.simple_consumer import FetchRequest, SimpleConsumer
from offsets.topic import partition_for
from protocol.errors import ErrorCode
from protocol.internal_topics import EVENTS_TOPIC
from protocol.topic_partition import TopicPartition

FETCH_BYTES = 1 << 20
WAIT_MS = 500

_AGE = re.compile(r"(\d+)([smhd])")
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

Event = Mapping[str, Any]


def _seconds(duration_ms: object) -> str:
    return "-" if duration_ms is None else f"{int(str(duration_ms)) / 1000:.1f} s"


def _number(members: object) -> str:
    return plain(len(members)) if isinstance(members, list) else plain(None)


def _names(late: object) -> str:
    """Name late members with their delays; "never" for those that did not come."""
    if not isinstance(late, list) or not late:
        return plain(None)
    return ", ".join(
        f"{member['client_id'] or member['member_id']} "
        + ("never" if member["late_ms"] is None else _seconds(member["late_ms"]))
        for member in late
    )


COLUMNS = (
    Column("STARTED", 20, key="started_ms", text=timestamp),
    Column("STOOD", 7, key="stood_ms", text=_seconds),
    Column("GENERATION", 10, key="generation_after"),
    Column("TRIGGER", 20, key="trigger"),
    Column("CLIENT-ID", 10, key="client_id"),
    Column("CAME", 4, key="members_added", text=_number),
    Column("LEFT", 4, key="members_gone", text=_number),
    Column("MOVED", 5, key="partitions_moved"),
    Column("KEPT", 4, key="partitions_kept"),
    Column("LATE", 10, key="late", text=_names),
    Column("REASON", key="reason"),
    Column("MEMBER-ID", 20, wide=True, key="member_id"),
    Column("INFERRED", wide=True, key="inferred"),
    Column("ENDED", wide=True, key="ended_ms", text=timestamp),
    Column("FROM", wide=True, key="generation_before"),
    Column("STAYED", wide=True, key="members_kept", text=_number),
    Column("COORDINATION", wide=True, key="coordination"),
    Column("GROUP", wide=True, key="group"),
)


class Since(click.ParamType):  # type: ignore[type-arg]
    """A time as `kgroup offsets --time` takes it, or an age: 90s, 30m, 12h, 7d."""

    name = "AGE|TIME"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Convert to ms since 1970. Raises UsageError."""
        age = _AGE.fullmatch(str(value))
        if age is None:
            return Time().convert(value, param, ctx)
        return time.time_ns() // 1_000_000 - int(age[1]) * _UNITS_MS[age[2]]


@click.command(
    "events",
    epilog="""\b
Examples:
  kgroup events analytics
  kgroup events analytics --since 2h -o json
  kgroup events analytics --since 10m --follow""",
)
@target_options
@click.argument("group")
@click.option(
    "--since", type=Since(), default="earliest", help="Show rebalances from then on. [default: all]"
)
@click.option("--follow", is_flag=True, help="Go on, and show each rebalance when it has ended.")
@output_option
def command(target: Target, group: str, since: int, follow: bool, output: str) -> None:
    """Show each rebalance of GROUP: when, why, who was late, what moved, how long it stood.

    Ends with one line that says what to do about it. Coordinators of this project write each
    rebalance to the topic __group_events, which keeps them for a week
    (kgroup.events.retention.ms).
    """
    if follow and output not in ("table", "wide", "json"):
        raise click.UsageError("--follow prints a table or JSON")
    asyncio.run(show_events(target, group, since, output, follow=follow))


async def show_events(
    target: Target, group_id: str, since_ms: int, output: str, *, follow: bool
) -> None:
    """Print the events, and with `follow` those to come."""
    topic_partition, start, end = await find_events(target, group_id, since_ms)
    settings = client_settings(target, await bootstrap_of(target))
    async with await SimpleConsumer.for_leader(
        settings, topic_partition.topic, topic_partition.partition
    ) as consumer:
        reading = read_events(consumer, topic_partition, start)
        events = [
            event
            async for event in reading_until(reading, end if start < end else 0)
            if event["group"] == group_id
        ]
        if not follow:
            show(
                Listing("events", COLUMNS, list(map(_item, events)), verdict=judge(events)), output
            )
            return

        # One line, or one object, for each.
        end_on_signals()
        for event in events:
            _print(event, output)
        async for _, latest in reading:
            if latest is not None and latest["group"] == group_id:
                _print(latest, output)


async def find_events(
    target: Target, group_id: str, since_ms: int
) -> tuple[TopicPartition, int, int]:
    """Return where the group's events are: partition, first offset, end offset.

    Raises CommandFailed if no coordinator has written any.
    """
    async with connected(target) as sessions:
        admin = sessions.admin
        try:
            described = (await admin.describe_topics([EVENTS_TOPIC]))[EVENTS_TOPIC]
        except BrokerError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise CommandFailed(
                f"no events: the topic {EVENTS_TOPIC} does not exist. Coordinators of this project "
                "create it with the first rebalance (kgroup.events.enable); stock brokers do not "
                "write why a group rebalanced"
            ) from error

        partition = TopicPartition(EVENTS_TOPIC, partition_for(group_id, len(described.partitions)))
        start = (await admin.list_offsets({partition: since_ms}))[partition].offset
        end = (await admin.list_offsets({partition: -1}))[partition].offset
    # -1: all events are older.
    return partition, end if start < 0 else start, end


Reading = AsyncIterator[tuple[int, Event | None]]
"""The next offset, with an event; or None with it if there is nothing new."""


async def read_events(
    consumer: SimpleConsumer, topic_partition: TopicPartition, offset: int
) -> Reading:
    """Read events, and wait for more at the end. Values that are no events are skipped."""
    topic, partition = topic_partition
    while True:
        request = FetchRequest(topic, partition, offset, FETCH_BYTES)
        fetched = await consumer.fetch(request, max_wait_ms=WAIT_MS, min_bytes=1)
        fetched.raise_for_error()
        for at, _, _, value, _ in fetched.rows:
            offset = at + 1
            event = _decode(value)
            if event is not None:
                yield offset, event
        offset = fetched.next_offset
        yield offset, None


async def reading_until(reading: Reading, end: int) -> AsyncIterator[Event]:
    """Go through the events below an offset; 0: there are none."""
    if not end:
        return
    async for offset, event in reading:
        if event is not None:
            yield event
        if offset >= end:
            return


def _decode(value: bytes | None) -> Event | None:
    try:
        event = json.loads(value or b"")
    except ValueError:
        return None
    return event if isinstance(event, dict) and "group" in event else None


def _item(event: Event) -> dict[str, Any]:
    return {**event, "stood_ms": event["ended_ms"] - event["started_ms"]}


def _print(event: Event, output: str) -> None:
    if output == "json":
        click.echo(json.dumps(_item(event), ensure_ascii=False))
        return
    columns: Sequence[Column] = [c for c in COLUMNS if output == "wide" or not c.wide]
    click.echo(table(columns, [_item(event)], header=False))
