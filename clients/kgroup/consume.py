"""`kgroup consume`: write messages to standard output, as a member of a group."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import click

from clients.command_line.command_group import CommandFailed
from clients.command_line.interrupts import end_on_signals
from clients.command_line.isolation_option import isolation_option
from clients.command_line.output import (
    DEFAULT_BOOTSTRAP_SERVER,
    KeyValue,
    Target,
    read_properties,
    target_options,
    zookeeper_address,
)
from clients.command_line.printing import say
from clients.command_line.sessions import (
    connected,
    require_one_cluster,
    responding_brokers,
    zookeeper_session,
)
from clients.high_level.connector import COORDINATOR, ConsumerConnector
from clients.high_level.streams import MessageStream
from clients.kgroup.formatter import (
    DESERIALIZERS,
    FORMATTER_NAMES,
    Formatter,
    formatter_of,
    json_line,
)
from clients.kgroup.joining import join_in_time
from clients.kgroup.message_writer import MessageWriter, standard_output
from clients.kgroup.partition_stream import Place, partition_stream
from groups.zookeeper.filters import Blacklist, Whitelist
from protocol.frozen import frozen
from protocol.topic_name import explain_illegal
from zk.migration_znodes import GroupMigration
from zk.znodes import ConsumerGroup

PROPERTY = KeyValue()

SETTING_OF = {
    "membership": "membership",
    "timeout_ms": "consumer.timeout.ms",
    "isolation": "isolation.level",
    "fetch_message_max_bytes": "fetch.message.max.bytes",
    "socket_receive_buffer_bytes": "socket.receive.buffer.bytes",
    "auto_commit_interval_ms": "auto.commit.interval.ms",
}
"""Setting of the consumer for each parameter of the command."""


@click.command(
    "consume",
    epilog="""\b
Examples:
  kgroup consume --zookeeper localhost:2181 --topic flights --group analytics --from-beginning
  kgroup consume --topic flights --membership coordinator --group analytics --from-beginning
  kgroup consume --zookeeper localhost:2181 --whitelist 'fl.*' --from-beginning \\
    --max-messages 10 --property print.key=true""",
)
@target_options
@click.option("--topic", help="The topic to consume.")
@click.option("--whitelist", metavar="REGEX", help="Consume topics whose whole name matches.")
@click.option("--blacklist", metavar="REGEX", help="Consume topics whose name does not match.")
@click.option(
    "--group",
    help="The group to join.  [default: a new group, deleted at the end]",
)
@click.option(
    "--membership",
    type=click.Choice(["zookeeper", "coordinator"]),
    help="Where the group's members register.  [default: zookeeper]",
)
@click.option(
    "--from-beginning",
    is_flag=True,
    help="Start with the first message of partitions that have no committed offset.",
)
@click.option(
    "--delete-consumer-offsets",
    is_flag=True,
    help="Delete the group's offsets in ZooKeeper first; the group must have no members.",
)
@click.option("--max-messages", type=click.IntRange(min=1), help="End after this many messages.")
@click.option(
    "--timeout-ms",
    "--consumer-timeout-ms",
    "timeout_ms",
    type=click.IntRange(min=1),
    help="End when no message arrives for this many ms; joining the group may take 60 s more.",
)
@click.option(
    "--streams",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of streams of this member.",
)
@click.option(
    "--partition",
    type=click.IntRange(min=0),
    help="Read only this partition of --topic, without a group.",
)
@click.option(
    "--offset",
    metavar="N|earliest|latest",
    help="Start --partition at this offset.  [default: latest]",
)
@isolation_option("Leave out records of open and aborted transactions with read_committed.")
@click.option(
    "--fetch-size",
    "fetch_message_max_bytes",
    metavar="BYTES",
    help="Largest fetch from one partition, in bytes. [fetch.message.max.bytes]",
)
@click.option(
    "--socket-buffer-size",
    "socket_receive_buffer_bytes",
    metavar="BYTES",
    help="SO_RCVBUF of connections, in bytes. [socket.receive.buffer.bytes]",
)
@click.option(
    "--autocommit.interval.ms",
    "auto_commit_interval_ms",
    metavar="MS",
    help="Time between commits of offsets, in ms. [auto.commit.interval.ms]",
)
@click.option(
    "--formatter",
    metavar="CLASS",
    help="Kafka's class: DefaultMessageFormatter, NewlineMessageFormatter or NoOpMessageFormatter.",
)
@click.option(
    "--key-deserializer", metavar="CLASS", help="Kafka's class, as IntegerDeserializer, for keys."
)
@click.option(
    "--value-deserializer", metavar="CLASS", help="Kafka's class, as LongDeserializer, for values."
)
@click.option(
    "--skip-message-on-error", is_flag=True, help="Skip messages that cannot be deserialized."
)
@click.option(
    "--property",
    "properties",
    type=PROPERTY,
    multiple=True,
    help="print.key, key.separator, … set the lines; other names are settings of the consumer.",
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
    help="json: one object per line.",
)
def command(
    target: Target,
    topic: str | None,
    whitelist: str | None,
    blacklist: str | None,
    streams: int,
    properties: tuple[tuple[str, str], ...],
    output: str,
    **option_values: Any,
) -> None:
    """Print messages as a member of a group, or from a single partition.

    With --membership coordinator the group's members are with its coordinator, as those of any
    consumer that subscribes are; --bootstrap-server alone is needed then.

    The offset of a message is committed only after its line is written and flushed. On SIGINT or
    SIGTERM, or at the end by --max-messages or --timeout-ms, the command leaves the group cleanly
    and exits with code 0; with 1 if it ends by --timeout-ms without a message while partitions
    cannot be read, as where their leaders do not respond.
    """
    if sum(name is not None for name in (topic, whitelist, blacklist)) != 1:
        raise click.UsageError("name exactly one of --topic, --whitelist and --blacklist")
    if topic is not None and (wrong := explain_illegal(topic)):
        raise click.UsageError(f"--topic {topic!r}: {wrong}")

    # Some properties shape the lines; the others are settings of the consumer.
    client_properties = dict(properties)
    formatting = {
        name: client_properties.pop(name) for name in FORMATTER_NAMES & client_properties.keys()
    }
    for name in DESERIALIZERS:
        if (class_name := option_values[name.replace(".", "_")]) is not None:
            formatting[name] = class_name

    formatters: dict[str, Formatter] = {
        "json": json_line,
        "table": formatter_of(option_values["formatter"] or "DefaultMessageFormatter", formatting),
    }

    timeout_ms = option_values["timeout_ms"]
    writer = MessageWriter(
        formatters[output],
        standard_output(),
        option_values["max_messages"],
        None if timeout_ms is None else timeout_ms / 1000,
        option_values["skip_message_on_error"],
    )

    # Consume as a member of a group, or read one partition without a group.
    settings = consumer_settings(target, client_properties, option_values)
    if option_values["partition"] is None and option_values["offset"] is None:
        subscription = StreamChoice(topic, whitelist, blacklist, streams)
        work = consume(session_of(target, settings, subscription, option_values), writer)
    else:
        work = read(target, place_of(topic, settings, option_values), writer)

    # A signal cancels the work, which ends it as it should.
    unread: Sequence[str] = ()
    with contextlib.suppress(asyncio.CancelledError):
        unread = asyncio.run(work)
    say(f"Processed a total of {writer.count} messages", err=True)

    # That nothing new came is a good end; that nobody could tell is none.
    if unread and not writer.count:
        raise CommandFailed("; ".join(unread))
    for text in unread:
        say(f"warning: {text}", err=True)


# --- from the command line to the work


def place_of(
    topic: str | None, settings: Mapping[str, str], option_values: Mapping[str, Any]
) -> Place:
    """Return where to read without a group. Raises UsageError for options that need a group."""
    partition = option_values["partition"]
    offset = option_values["offset"]
    if topic is None or partition is None:
        raise click.UsageError("--offset needs --partition, and --partition needs --topic")

    # Without a group nothing is committed, so the beginning is a place like any other.
    if option_values["from_beginning"]:
        if offset is not None:
            raise click.UsageError("--from-beginning and --offset cannot be used together")
        offset = "earliest"

    # These name a group, and such a command would silently not join it.
    for name in ("group", "membership"):
        if option_values[name] is not None:
            raise click.UsageError(f"--{name} needs a group, and --partition reads without one")

    return Place.of(topic, partition, offset or "latest", settings)


def session_of(
    target: Target,
    settings: dict[str, str],
    subscription: "StreamChoice",
    option_values: Mapping[str, Any],
) -> "ConsumeSession":
    """Return the session of a group's member. Raises UsageError."""
    # As Kafka's console consumer: a group of our own, under a number.
    generated = {"group.id": f"console-consumer-{random.randrange(100_000)}"}
    is_new = "group.id" not in settings
    deletes_offsets = option_values["delete_consumer_offsets"]
    if settings.get("membership") == COORDINATOR:
        if deletes_offsets:
            raise click.UsageError("--delete-consumer-offsets is for offsets in ZooKeeper")
        settings.pop("zookeeper.connect", None)
        bootstrap = target.bootstrap or DEFAULT_BOOTSTRAP_SERVER
        with_brokers = generated | settings | {"bootstrap.servers": bootstrap}
        return ConsumeSession(
            attrs.evolve(target, bootstrap=bootstrap),
            with_brokers,
            subscription,
            deletes_offsets=False,
            is_new=is_new,
        )

    zookeeper = zookeeper_address(settings.get("zookeeper.connect")) or ""
    if not zookeeper:
        raise click.UsageError(
            "--zookeeper is needed: the group's members register there; without ZooKeeper add "
            "--membership coordinator"
        )

    return ConsumeSession(
        attrs.evolve(target, zookeeper=zookeeper),
        # Settings of the user replace the generated group.
        generated | settings | {"zookeeper.connect": zookeeper},
        subscription,
        deletes_offsets=deletes_offsets,
        is_new=is_new,
    )


def consumer_settings(
    target: Target, properties: Mapping[str, str], option_values: Mapping[str, Any]
) -> dict[str, str]:
    """Merge the consumer's settings from all places; the later place wins. Raises UsageError.

    Two places may not name different groups, or different offsets to start from: a guess between
    them could read or commit in the wrong group.
    """
    # Later places override earlier ones, except for the group.
    places = [
        target.settings,
        read_properties(option_values["consumer_config"]),
        properties,
        dict(option_values["consumer_property"]),
        {} if option_values["group"] is None else {"group.id": option_values["group"]},
    ]
    # A file may have blanks at the ends of its lines, which the client trims as well.
    trimmed = [{name: value.strip() for name, value in place.items()} for place in places]
    groups = {place["group.id"] for place in trimmed if "group.id" in place}
    if len(groups) > 1:
        raise click.UsageError(f"more than one group is named: {', '.join(sorted(groups))}")

    settings = {name: value for place in trimmed for name, value in place.items()}

    # The addresses come from the command's own options.
    settings.pop("bootstrap.servers", None)
    if target.zookeeper is not None:
        settings["zookeeper.connect"] = target.zookeeper
    if settings.get("group.id") == "":
        raise click.UsageError("the name of the group is empty")

    # --from-beginning is a reset for partitions without an offset.
    if option_values["from_beginning"]:
        reset = settings.setdefault("auto.offset.reset", "smallest")
        if reset not in ("smallest", "earliest"):
            raise click.UsageError(f"--from-beginning contradicts auto.offset.reset={reset}")

    # Options of the command outrank all places.
    return settings | {
        setting: str(option_values[name])
        for name, setting in SETTING_OF.items()
        if option_values[name] is not None
    }


# --- as a member of a group, or without one


@frozen
class StreamChoice:
    """A topic, a whitelist or a blacklist, and the number of streams for it."""

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


@frozen
class ConsumeSession:
    """Membership of a group for one run of the command."""

    target: Target
    settings: Mapping[str, str]
    subscription: StreamChoice
    deletes_offsets: bool
    is_new: bool
    """True if the command made up the group; it deletes such a group at the end."""

    @property
    def group_id(self) -> str:
        """The id of the group."""
        return self.settings["group.id"]


async def read(target: Target, place: Place, writer: MessageWriter) -> Sequence[str]:
    """Write the messages of one partition. What fails is raised, so nothing is returned."""
    end_on_signals()
    async with partition_stream(target, place, writer.idle_s) as stream:
        await writer.write_all([stream])
    return ()


async def consume(session: ConsumeSession, writer: MessageWriter) -> Sequence[str]:
    """Join the group, write its messages, leave.

    Returns why partitions cannot be read, if it ends because no message came.
    """
    end_on_signals()
    connector = ConsumerConnector(session.settings)  # refuses bad settings before any change
    for note in connector.notes:
        say(f"note: {note}", err=True)

    # The member of a coordinator's group would look for brokers without an end.
    if session.settings.get("membership") == COORDINATOR:
        await responding_brokers(session.target)
    else:
        await require_one_cluster(session.target)

    if session.deletes_offsets:
        await delete_offsets(session.target, session.group_id)

    # The group is deleted after the connector has left it.
    async with deleting_new_group(session), connector:
        await writer.write_all(await join_in_time(connector, session.subscription.open(connector)))
        return connector.metrics.describe_unreadable() if writer.is_timed_out else ()


async def delete_offsets(target: Target, group_id: str) -> None:
    """Delete the group's offsets in ZooKeeper. Raises CommandFailed if the group has members."""
    assert target.zookeeper is not None
    async with zookeeper_session(target.zookeeper, target) as zk:
        ids = await zk.exists(ConsumerGroup.ids_path(group_id))
        if ids is not None and ids.num_children:
            raise CommandFailed(f"group {group_id}: offsets not deleted, the group has members")

        # Without offsets, `auto.offset.reset` decides where the group begins.
        await zk.delete_recursive(ConsumerGroup.offsets_path(group_id))


@contextlib.asynccontextmanager
async def deleting_new_group(session: ConsumeSession) -> AsyncIterator[None]:
    """Delete the group at the end, if the command made it up."""
    try:
        yield
    finally:
        if session.is_new:
            await delete_group(session)


async def delete_group(session: ConsumeSession) -> None:
    """Delete the group that the command made up."""
    target = session.target
    group_id = session.group_id
    if session.settings.get("membership") == COORDINATOR:
        async with connected(target, asks_brokers=True) as sessions:
            await sessions.admin.delete_groups([group_id])
        return

    # A session of its own, since that of the connector has ended.
    assert target.zookeeper is not None
    async with zookeeper_session(target.zookeeper, target) as zk:
        await zk.delete_recursive(ConsumerGroup.path(group_id))
        # What members of this library have below `/kgroup` goes too.
        await zk.delete_recursive(GroupMigration.path(group_id))
