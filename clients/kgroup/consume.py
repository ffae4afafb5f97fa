"""`kgroup consume`: messages to standard output, as a member of a group."""

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from typing import BinaryIO

import attrs
import click

from clients.high_level.connector import ConsumerConnector
from clients.high_level.streams import ConsumerTimeout, MessageStream
from clients.kgroup.formatter import FORMATTER_NAMES, Formatter, json_line, line_formatter
from clients.output import KeyValue, Target, target_options
from clients.sessions import zookeeper_session
from groups.zookeeper.filters import Whitelist
from zk.migration_znodes import GroupMigration
from zk.znodes import ConsumerGroup

PROPERTY = KeyValue()


@click.command(
    "consume",
    epilog="""\b
Examples:
  kgroup consume --zookeeper localhost:2181 --topic flights --group analytics --from-beginning
  kgroup consume --whitelist 'fl.*' --max-messages 10 --property print.key=true""",
)
@target_options
@click.option("--topic", help="The topic to consume.")
@click.option("--whitelist", metavar="REGEX", help="Or all topics whose whole name matches.")
@click.option(
    "--group",
    help="The group to be a member of.  [default: one of its own, forgotten at the end]",
)
@click.option(
    "--from-beginning", is_flag=True, help="Begin with the first message where no offset is stored."
)
@click.option("--max-messages", type=click.IntRange(min=1), help="End after so many.")
@click.option("--timeout-ms", type=click.IntRange(min=1), help="End when none comes for so long.")
@click.option(
    "--streams", type=click.IntRange(min=1), default=1, show_default=True, help="Of this member."
)
@click.option(
    "--property",
    "properties",
    type=PROPERTY,
    multiple=True,
    help="print.key, key.separator, … for the lines; others go to the consumer.",
)
@click.option(
    "--consumer-property", type=PROPERTY, multiple=True, help="A setting of the consumer."
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    help="json: one object a line.",
)
def command(
    target: Target,
    topic: str | None,
    whitelist: str | None,
    group: str | None,
    from_beginning: bool,
    max_messages: int | None,
    timeout_ms: int | None,
    streams: int,
    properties: tuple[tuple[str, str], ...],
    consumer_property: tuple[tuple[str, str], ...],
    output: str,
) -> None:
    """Print messages as a member of a group that lives in ZooKeeper.

    A message's offset is committed only after its line has been written and flushed. SIGINT,
    SIGTERM, --max-messages and --timeout-ms leave the group cleanly, and the exit code is 0.
    """
    if (topic is None) == (whitelist is None):
        raise click.UsageError("exactly one of --topic and --whitelist is needed")
    if target.zookeeper is None:
        raise click.UsageError("--zookeeper is needed: the group's members meet there")
    given = dict(properties)
    formatting = {name: given.pop(name) for name in FORMATTER_NAMES & given.keys()}
    settings = {
        **target.settings,
        **given,
        **dict(consumer_property),
        "zookeeper.connect": target.zookeeper,
    }
    settings.pop("bootstrap.servers", None)
    group = group or settings.get("group.id")
    settings["group.id"] = group or f"console-consumer-{random.randrange(100_000)}"
    if from_beginning:
        settings["auto.offset.reset"] = "smallest"
    if timeout_ms is not None:
        settings["consumer.timeout.ms"] = str(timeout_ms)
    formatters: dict[str, Formatter] = {"json": json_line, "table": line_formatter(formatting)}
    writer = Writer(
        formatters[output],
        sys.stdout.buffer,
        max_messages,
        None if timeout_ms is None else timeout_ms / 1000,
    )
    subscription = Subscription(topic, whitelist, streams)
    forgotten = None if group is not None else settings["group.id"]
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(consume(target, settings, subscription, writer, forgotten))
    click.echo(f"Processed a total of {writer.count} messages", err=True)


@attrs.frozen
class Subscription:
    """A topic or a whitelist, and over how many streams."""

    topic: str | None
    whitelist: str | None
    streams: int

    async def open(self, connector: ConsumerConnector) -> list[MessageStream]:
        """Join the group; keys and values stay bytes."""
        if self.topic is not None:
            streams = await connector.create_message_streams({self.topic: self.streams})
            return list(streams[self.topic])
        assert self.whitelist is not None
        return list(
            await connector.create_message_streams_by_filter(
                Whitelist(self.whitelist), self.streams
            )
        )


@attrs.define(eq=False)
class Writer:
    """Writes messages until there have been enough, or none came for too long.

    A stream counts a message as consumed when it is asked for the next one. That is the rule of
    this command too, as long as nothing is awaited between two messages: asked for the next, the
    one before has been written and flushed.
    """

    format: Formatter
    out: BinaryIO
    max_messages: int | None
    idle_s: float | None
    count: int = 0
    _last_at: float = 0.0
    _pumps: list[asyncio.Task[None]] = attrs.field(factory=list)

    async def write_all(self, streams: list[MessageStream]) -> None:
        """Write what the streams bring, until one reason to end holds for all of them."""
        self._last_at = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as tasks:
            self._pumps += [tasks.create_task(self._pump(stream)) for stream in streams]

    async def _pump(self, stream: MessageStream) -> None:
        now = asyncio.get_running_loop().time
        while True:
            try:
                async for message in stream:
                    if self.count == self.max_messages:
                        return
                    self.out.write(self.format(message))
                    self.out.flush()
                    self.count += 1
                    self._last_at = now()
                    if self.count == self.max_messages:
                        self._end()  # takes effect where the next message is awaited
                return
            except ConsumerTimeout:
                assert self.idle_s is not None
                if now() - self._last_at >= self.idle_s:
                    self._end()
                    return
            except BrokenPipeError:
                _discard_output()
                self._end()
                return

    def _end(self) -> None:
        for pump in self._pumps:
            pump.cancel()


def _discard_output() -> None:
    """Whoever read us is gone; the interpreter must not complain about it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def consume(
    target: Target,
    settings: Mapping[str, str],
    subscription: Subscription,
    writer: Writer,
    forgotten: str | None,
) -> None:
    """Join, write, leave; `forgotten` is a group to remove from ZooKeeper afterwards."""
    this = asyncio.current_task()
    assert this is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, this.cancel)
    async with forgetting(target, forgotten), ConsumerConnector(settings) as connector:
        await writer.write_all(await subscription.open(connector))


@contextlib.asynccontextmanager
async def forgetting(target: Target, group: str | None) -> AsyncIterator[None]:
    """Remove the group from ZooKeeper at the end."""
    try:
        yield
    finally:
        if group is not None:
            assert target.zookeeper is not None
            async with zookeeper_session(target.zookeeper, target) as zk:
                await zk.delete_recursive(ConsumerGroup.path(group))
                await zk.delete_recursive(GroupMigration.path(group))
