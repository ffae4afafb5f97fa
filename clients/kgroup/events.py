"""`kgroup events`: show why a group rebalanced, and what to do about it."""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from datetime import time as TimeOfDay
from typing import Any

import click

from clients.admin import LATEST_TIME, Admin
from clients.command_line.command_group import CommandFailed
from clients.command_line.interrupts import end_on_signals
from clients.command_line.missing_rights import error_of_reading
from clients.command_line.output import (
    Column,
    Failure,
    Listing,
    Target,
    output_option,
    show,
    table,
    target_options,
)
from clients.command_line.point_in_time import timestamp
from clients.command_line.printing import json_text, plain, print_text
from clients.command_line.sessions import bootstrap_of, client_settings, connected
from clients.errors import BrokerError
from clients.groups.group_generations import Generations, judge_generations
from clients.groups.group_reader import find_unknown_groups
from clients.kgroup.offsets import Time
from clients.simple_consumer import FetchRequest, SimpleConsumer
from clients.watching.rebalance_verdict import judge
from offsets.topic import partition_for
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.internal_topics import EVENTS_TOPIC, OFFSETS_TOPIC
from protocol.topic_partition import TopicPartition

FETCH_BYTES = 1 << 20
WAIT_MS = 500

_AGE = re.compile(r"(\d+)([smhd])")
_TIME_OF_DAY = re.compile(r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?")
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

_NEEDED = {"trigger": str, "started_ms": int, "ended_ms": int}

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


GENERATION_COLUMNS = (
    Column("ASSIGNED", 20, key="ended_ms", text=timestamp),
    Column("GENERATION", 10, key="generation_after"),
    Column("PROTOCOL", 8, key="protocol"),
    Column("LEADER", 10, key="leader"),
    Column("MEMBERS", 7, key="members", text=_number),
    Column("CAME", 4, key="members_added", text=_number),
    Column("LEFT", 4, key="members_gone", text=_number),
    Column("MOVED", 5, key="partitions_moved"),
    Column("KEPT", 4, key="partitions_kept"),
    Column("FROM", wide=True, key="generation_before"),
    Column("STAYED", wide=True, key="members_kept", text=_number),
    Column("LEADER-ID", wide=True, key="leader_id"),
    Column("PROTOCOL-TYPE", wide=True, key="protocol_type"),
    Column("GROUP", wide=True, key="group"),
)


class Age(click.ParamType):  # type: ignore[type-arg]
    """A duration in one unit: 90s, 30m, 12h, 7d; converted to ms."""

    name = "AGE"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Convert to ms. Raises UsageError."""
        # click also passes values that are converted already.
        if isinstance(value, int):
            return value
        age = _AGE.fullmatch(str(value))
        if age is None:
            self.fail(f"{value!r} is not a duration like 90s, 30m, 12h or 7d", param, ctx)
        return int(age[1]) * _UNITS_MS[age[2]]


class Since(click.ParamType):  # type: ignore[type-arg]
    """A time as `kgroup offsets --time` takes it, an age (90s, 30m, 12h, 7d), or a time of day.

    10:00 or 10:00:30, in UTC as all times, is the last one: of today, or else of yesterday.
    """

    name = "AGE|TIME"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Convert to ms since 1970. Raises UsageError."""
        text = str(value)
        if (age := _AGE.fullmatch(text)) is not None:
            return time.time_ns() // 1_000_000 - int(age[1]) * _UNITS_MS[age[2]]
        if _TIME_OF_DAY.fullmatch(text):
            return _last(text)
        return _Time().convert(value, param, ctx)


class _Time(Time):
    """A time, where an age or a time of day will do as well."""

    forms = "an age (90s, 30m, 12h, 7d), a time of day (10:00), ms since 1970 or ISO 8601"


def _last(time_of_day: str) -> int:
    """Return when it was this time of day, in ms since 1970."""
    now = datetime.now(UTC)
    then = datetime.combine(now.date(), TimeOfDay.fromisoformat(time_of_day), UTC)
    if then > now:
        then -= timedelta(days=1)
    return int(then.timestamp() * 1000)


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
    (kgroup.events.retention.ms). Without that topic, on stock brokers, it shows the generations
    that are left in __consumer_offsets.
    """
    if follow and output not in ("table", "wide", "json"):
        raise click.UsageError("--follow prints a table or JSON")
    # A signal cancels the task, and with it --follow.
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(show_events(target, group, since, output, follow=follow))


@frozen
class Source:
    """A topic that tells of rebalances.

    `read(key, value, written_ms)` returns what a record tells of the group; None if nothing.
    `judge(items)` returns the sentence at the end.
    """

    topic: str
    columns: Sequence[Column]
    read: Callable[[bytes | None, bytes | None, int], Event | None]
    judge: Callable[[Sequence[Event]], str | None]


def sources(group_id: str) -> list[Source]:
    """Return what may tell of a group, the best first."""

    def read_event(key: bytes | None, value: bytes | None, written_ms: int) -> Event | None:
        return _decode(value, group_id)

    return [
        Source(EVENTS_TOPIC, COLUMNS, read_event, judge),
        # Stock brokers write what became of a group, and not why.
        Source(OFFSETS_TOPIC, GENERATION_COLUMNS, Generations(group_id).read, judge_generations),
    ]


async def show_events(
    target: Target, group_id: str, since_ms: int, output: str, *, follow: bool
) -> None:
    """Print the events, and with `follow` those to come."""
    source, topic_partition, start, end = await find_source(target, group_id, since_ms)
    settings = client_settings(target, await bootstrap_of(target))
    with naming_both_rights(source):
        async with await SimpleConsumer.for_leader(
            settings, topic_partition.topic, topic_partition.partition
        ) as consumer:
            reading = read_events(consumer, source, topic_partition, start)
            events = [event async for event in reading_until(reading, end if start < end else 0)]
            if not follow:
                # One without a rebalance yet has no events; one that is not there is a mistake.
                unknown = () if events else await _find_unknown(target, group_id)
                verdict = source.judge(events)
                show(Listing("events", source.columns, events, unknown, verdict=verdict), output)
                return

            # One line, or one object, for each.
            end_on_signals()
            for event in events:
                _print(source, event, output)
            async for _, latest in reading:
                if latest is not None:
                    _print(source, latest, output)


async def find_source(
    target: Target, group_id: str, since_ms: int
) -> tuple[Source, TopicPartition, int, int]:
    """Return what tells of the group, and where: partition, first offset, end offset.

    Raises CommandFailed if there is nothing.
    """
    async with connected(target, asks_brokers=True, waits_for_dead=False) as sessions:
        admin = sessions.admin
        for source in sources(group_id):
            try:
                with naming_both_rights(source):
                    described = (await admin.describe_topics([source.topic]))[source.topic]
            except BrokerError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                continue

            number = partition_for(group_id, len(described.partitions))
            partition = TopicPartition(source.topic, number)
            start = await _offset_at(admin, partition, since_ms)
            end = await _offset_at(admin, partition, LATEST_TIME)
            # -1: all of it is older.
            return source, partition, end if start < 0 else start, end

    raise CommandFailed(
        f"no events: neither {EVENTS_TOPIC} nor {OFFSETS_TOPIC} exists, so the cluster has had no "
        "group at a coordinator"
    )


@contextlib.contextmanager
def naming_both_rights(source: Source) -> Iterator[None]:
    """Have the refusal to describe the topic, or to read it, name both rights."""
    try:
        yield
    except BrokerError as error:
        if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
        raise BrokerError(error.code, error_of_reading(source.topic, error)) from None


async def _find_unknown(target: Target, group_id: str) -> Sequence[Failure]:
    async with connected(target, needs_zookeeper=False, waits_for_dead=False) as sessions:
        return await find_unknown_groups(sessions, [group_id])


async def _offset_at(admin: Admin, partition: TopicPartition, time_ms: int) -> int:
    listed = (await admin.list_offsets({partition: time_ms}))[partition]
    if listed.error is not ErrorCode.NONE:
        raise listed.failure(partition)
    return listed.offset


Reading = AsyncIterator[tuple[int, Event | None]]
"""The next offset, with an event; or None with it if there is nothing new."""


async def read_events(
    consumer: SimpleConsumer, source: Source, topic_partition: TopicPartition, offset: int
) -> Reading:
    """Read events, and wait for more at the end. Records that tell nothing are skipped."""
    topic, partition = topic_partition
    while True:
        request = FetchRequest(topic, partition, offset, FETCH_BYTES)
        fetched = await consumer.fetch(request, max_wait_ms=WAIT_MS, min_bytes=1)
        fetched.raise_for_error()
        for at, written_ms, key, value, _ in fetched.rows:
            offset = at + 1
            event = source.read(key, value, written_ms)
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


def _decode(value: bytes | None, group_id: str) -> Event | None:
    try:
        event = json.loads(value or b"")
    except ValueError:
        return None
    if not isinstance(event, dict) or event.get("group") != group_id:
        return None
    # What others write there is not ours to read.
    if not all(isinstance(event.get(name), kind) for name, kind in _NEEDED.items()):
        return None
    return {**event, "stood_ms": event["ended_ms"] - event["started_ms"]}


def _print(source: Source, event: Event, output: str) -> None:
    if output == "json":
        print_text(json_text(event))
        return
    columns = [column for column in source.columns if output == "wide" or not column.wide]
    print_text(table(columns, [event], header=False))
