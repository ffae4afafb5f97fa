"""`kgroup consume`: messages to standard output, as a member of a group."""

import asyncio
import contextlib
import random
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import click

from clients.command_group import CommandFailed
from clients.high_level.connector import ConsumerConnector
from clients.high_level.streams import MessageStream
from clients.kgroup.formatter import (
    DESERIALIZERS,
    FORMATTER_NAMES,
    Formatter,
    formatter_of,
    json_line,
)
from clients.kgroup.message_writer import Writer, standard_output
from clients.kgroup.partition_stream import Place, partition_stream
from clients.output import KeyValue, Target, read_properties, target_options, zookeeper_address
from clients.sessions import zookeeper_session
from groups.zookeeper.filters import Blacklist, Whitelist
from zk.migration_znodes import GroupMigration
from zk.znodes import ConsumerGroup

PROPERTY = KeyValue()

SETTING_OF = {
    "membership": "membership",
    "timeout_ms": "consumer.timeout.ms",
    "fetch_message_max_bytes": "fetch.message.max.bytes",
    "socket_receive_buffer_bytes": "socket.receive.buffer.bytes",
    "auto_commit_interval_ms": "auto.commit.interval.ms",
}
"""Parameter to the setting it gives."""


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
@click.option("--blacklist", metavar="REGEX", help="Or all topics whose name does not.")
@click.option(
    "--group",
    help="The group to be a member of.  [default: one of its own, forgotten at the end]",
)
@click.option(
    "--membership",
    type=click.Choice(["zookeeper"]),
    help="Who keeps the group's members.  [default: zookeeper]",
)
@click.option(
    "--from-beginning", is_flag=True, help="Begin with the first message where no offset is stored."
)
@click.option(
    "--delete-consumer-offsets",
    is_flag=True,
    help="First delete the group's offsets in ZooKeeper; it must have no members.",
)
@click.option("--max-messages", type=click.IntRange(min=1), help="End after so many.")
@click.option(
    "--timeout-ms",
    "--consumer-timeout-ms",
    "timeout_ms",
    type=click.IntRange(min=1),
    help="End when none comes for so long.",
)
@click.option(
    "--streams", type=click.IntRange(min=1), default=1, show_default=True, help="Of this member."
)
@click.option(
    "--partition",
    type=click.IntRange(min=0),
    help="Read this partition of --topic alone, as a member of no group.",
)
@click.option(
    "--offset",
    metavar="N|earliest|latest",
    help="Where to begin in --partition.  [default: latest]",
)
@click.option(
    "--fetch-size",
    "fetch_message_max_bytes",
    metavar="BYTES",
    help="Of a partition in one fetch. [fetch.message.max.bytes]",
)
@click.option(
    "--socket-buffer-size",
    "socket_receive_buffer_bytes",
    metavar="BYTES",
    help="SO_RCVBUF. [socket.receive.buffer.bytes]",
)
@click.option(
    "--autocommit.interval.ms",
    "auto_commit_interval_ms",
    metavar="MS",
    help="How often to commit. [auto.commit.interval.ms]",
)
@click.option("--formatter", metavar="CLASS", help="Kafka's Default-, Newline- or NoOp- one.")
@click.option("--key-deserializer", metavar="CLASS", help="Kafka's: Integer-, LongDeserializer, …")
@click.option("--value-deserializer", metavar="CLASS", help="The same for values.")
@click.option(
    "--skip-message-on-error", is_flag=True, help="Leave out what its deserializer cannot read."
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
    "--consumer.config",
    "--consumer-config",
    "consumer_config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Properties file with settings of the consumer.",
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
    blacklist: str | None,
    streams: int,
    properties: tuple[tuple[str, str], ...],
    output: str,
    **given: Any,
) -> None:
    """Print messages as a member of a group that lives in ZooKeeper, or of one partition.

    A message's offset is committed only after its line has been written and flushed. SIGINT,
    SIGTERM, --max-messages and --timeout-ms leave the group cleanly, and the exit code is 0.
    """
    if sum(name is not None for name in (topic, whitelist, blacklist)) != 1:
        raise click.UsageError("exactly one of --topic, --whitelist and --blacklist is needed")
    client_properties = dict(properties)
    formatting = {
        name: client_properties.pop(name) for name in FORMATTER_NAMES & client_properties.keys()
    }
    for name in DESERIALIZERS:
        if (class_name := given[name.replace(".", "_")]) is not None:
            formatting[name] = class_name
    formatters: dict[str, Formatter] = {
        "json": json_line,
        "table": formatter_of(given["formatter"] or "DefaultMessageFormatter", formatting),
    }
    timeout_ms = given["timeout_ms"]
    writer = Writer(
        formatters[output],
        standard_output(),
        given["max_messages"],
        None if timeout_ms is None else timeout_ms / 1000,
        given["skip_message_on_error"],
    )
    settings = consumer_settings(target, client_properties, given)
    if given["partition"] is None and given["offset"] is None:
        subscription = Subscription(topic, whitelist, blacklist, streams)
        work = consume(session_of(target, settings, subscription, given), writer)
    else:
        work = read(target, place_of(topic, settings, given), writer)
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(work)
    click.echo(f"Processed a total of {writer.count} messages", err=True)


def place_of(topic: str | None, settings: Mapping[str, str], given: Mapping[str, Any]) -> Place:
    """Where to read without a group. Raises UsageError for what belongs to one."""
    partition, offset = given["partition"], given["offset"]
    if topic is None or partition is None:
        raise click.UsageError("--offset needs --partition, and that needs --topic")
    if given["from_beginning"]:
        if offset is not None:
            raise click.UsageError("--from-beginning and --offset exclude each other")
        offset = "earliest"
    for name in ("group", "membership"):
        if given[name] is not None:
            raise click.UsageError(f"--{name} is for members of a group; --partition reads alone")
    return Place.of(topic, partition, offset or "latest", settings)


def session_of(
    target: Target,
    settings: dict[str, str],
    subscription: "Subscription",
    given: Mapping[str, Any],
) -> "Session":
    """What a member of a group does. Raises UsageError."""
    zookeeper = zookeeper_address(settings.get("zookeeper.connect")) or ""
    if not zookeeper:
        raise click.UsageError("--zookeeper is needed: the group's members meet there")
    generated = {"group.id": f"console-consumer-{random.randrange(100_000)}"}
    return Session(
        attrs.evolve(target, zookeeper=zookeeper),
        generated | settings | {"zookeeper.connect": zookeeper},
        subscription,
        deletes_offsets=given["delete_consumer_offsets"],
        is_forgotten="group.id" not in settings,
    )


def consumer_settings(
    target: Target, properties: Mapping[str, str], given: Mapping[str, Any]
) -> dict[str, str]:
    """The consumer's settings from all places that give them; later ones win. Raises UsageError.

    The group must be the same wherever it is named, and where to begin too: which of two is meant
    cannot be guessed.
    """
    places = [
        target.settings,
        read_properties(given["consumer_config"]),
        properties,
        dict(given["consumer_property"]),
        {} if given["group"] is None else {"group.id": given["group"]},
    ]
    groups = {place["group.id"] for place in places if "group.id" in place}
    if len(groups) > 1:
        raise click.UsageError(f"the group has several names: {', '.join(sorted(groups))}")
    settings = {name: value for place in places for name, value in place.items()}
    settings.pop("bootstrap.servers", None)
    if target.zookeeper is not None:
        settings["zookeeper.connect"] = target.zookeeper
    if settings.get("group.id") == "":
        raise click.UsageError("the group's name is empty")
    if given["from_beginning"]:
        reset = settings.setdefault("auto.offset.reset", "smallest")
        if reset not in ("smallest", "earliest"):
            raise click.UsageError(f"--from-beginning contradicts auto.offset.reset={reset}")
    return settings | {
        setting: str(given[name]) for name, setting in SETTING_OF.items() if given[name] is not None
    }


@attrs.frozen
class Subscription:
    """A topic, a whitelist or a blacklist, and over how many streams."""

    topic: str | None
    whitelist: str | None
    blacklist: str | None
    streams: int

    async def open(self, connector: ConsumerConnector) -> list[MessageStream]:
        """Join the group; keys and values stay bytes."""
        if self.topic is not None:
            streams = await connector.create_message_streams({self.topic: self.streams})
            return list(streams[self.topic])
        topic_filter = (
            Whitelist(self.whitelist)
            if self.whitelist is not None
            else Blacklist(self.blacklist or "")
        )
        return list(await connector.create_message_streams_by_filter(topic_filter, self.streams))


@attrs.frozen
class Session:
    """What there is to do around the writing."""

    target: Target
    settings: Mapping[str, str]
    subscription: Subscription
    deletes_offsets: bool
    is_forgotten: bool
    """Whether the group was made for this once."""

    @property
    def group(self) -> str:
        """Its name."""
        return self.settings["group.id"]


def end_on_signals() -> None:
    """Have SIGINT and SIGTERM cancel this task, which then leaves everything in order."""
    this = asyncio.current_task()
    assert this is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, this.cancel)


async def read(target: Target, place: Place, writer: Writer) -> None:
    """Write what one partition has."""
    end_on_signals()
    async with partition_stream(target, place, writer.idle_s) as stream:
        await writer.write_all([stream])


async def consume(session: Session, writer: Writer) -> None:
    """Join, write, leave."""
    end_on_signals()
    connector = ConsumerConnector(session.settings)  # the settings are read before anything is done
    for note in connector.notes:
        click.echo(f"note: {note}", err=True)
    if session.deletes_offsets:
        await delete_offsets(session.target, session.group)
    async with forgetting(session), connector:
        await writer.write_all(await session.subscription.open(connector))


async def delete_offsets(target: Target, group: str) -> None:
    """What ZooKeeper holds of them. Raises CommandFailed while the group has members."""
    assert target.zookeeper is not None
    async with zookeeper_session(target.zookeeper, target) as zk:
        ids = await zk.exists(ConsumerGroup.ids_path(group))
        if ids is not None and ids.num_children:
            raise CommandFailed(f"{group}: has members, its offsets are not deleted")
        await zk.delete_recursive(ConsumerGroup.offsets_path(group))


@contextlib.asynccontextmanager
async def forgetting(session: Session) -> AsyncIterator[None]:
    """Remove a group from ZooKeeper at the end that was made for this once."""
    try:
        yield
    finally:
        if session.is_forgotten:
            target, group = session.target, session.group
            assert target.zookeeper is not None
            async with zookeeper_session(target.zookeeper, target) as zk:
                await zk.delete_recursive(ConsumerGroup.path(group))
                await zk.delete_recursive(GroupMigration.path(group))
