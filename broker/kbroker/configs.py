"""`kbroker configs`: describe and alter the dynamic settings of topics and brokers.

Kafka's spelling works as it is: `--alter --entity-type topics --entity-name t --add-config a=b`.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import click

from broker.kbroker.cluster_access import ClusterAccess
from broker.kbroker.comma_lists import split_names
from broker.kbroker.gathered_options import gather_options
from broker.kbroker.open_cluster import open_cluster
from broker.kbroker.over_brokers import OverBrokers, own_config_source
from clients.admin.descriptions import BROKER_RESOURCE, ConfigResource
from clients.command_line.command_group import CommandFailed
from clients.command_line.interrupts import heeding_interrupts
from clients.command_line.kafka_spelling import ActionGroup
from clients.command_line.output import (
    Column,
    Failure,
    Listing,
    Target,
    is_table,
    output_option,
    show,
    target_options,
)
from clients.command_line.printing import say
from protocol.frozen import frozen

T = TypeVar("T")
Item = dict[str, Any]

SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
}
"""Kafka's names of DescribeConfigs' sources (KIP-226)."""

COLUMNS = (
    Column("ENTITY-TYPE"),
    Column("ENTITY"),
    Column("CONFIG"),
    Column("VALUE"),
    Column("SOURCE"),
    Column("SENSITIVE"),
    Column("READ-ONLY"),
    Column("SYNONYMS", text=lambda synonyms: ", ".join(synonyms or ())),
)
ENTITY_COLUMNS = (Column("ENTITY-TYPE"), Column("ENTITY"))

ENTITY_TYPES = {
    "topics": "--topic",
    "brokers": "--broker",
    "clients": "--client",
    "users": "--user",
}


@click.group(
    "configs",
    cls=ActionGroup,
    epilog="""\b
Examples:
  kbroker configs describe --topic flights
  kbroker configs alter --topic flights --add retention.ms=3600000 --remove segment.ms
  kbroker configs --describe --entity-type brokers --entity-name 1""",
)
def command() -> None:
    """Describe and alter settings of topics and brokers that server.properties does not hold.

    The brokers do the work. With --zookeeper, and no --bootstrap-server, on the command line the
    command reads and writes ZooKeeper itself, as kafka-configs.sh did.
    """


# --- the resource ---------------------------------------------------------------------------------


_ENTITY_OPTIONS: Mapping[str, Any] = {
    "topic": click.option("--topic", metavar="NAME", help="Settings of this topic."),
    "broker": click.option(
        "--broker", type=click.IntRange(min=0), metavar="ID", help="Settings of this broker."
    ),
    "broker_defaults": click.option(
        "--broker-defaults", is_flag=True, help="Defaults for brokers without their own settings."
    ),
    "client": click.option(
        "--client", metavar="ID", help="Quotas of a client: see `kbroker quotas`."
    ),
    "entity_type": click.option(
        "--entity-type",
        type=click.Choice(list(ENTITY_TYPES)),
        help="Kafka's spelling of --topic, --broker and --client.",
    ),
    "entity_name": click.option(
        "--entity-name", metavar="NAME", help="With --entity-type: the topic or broker."
    ),
    "entity_default": click.option(
        "--entity-default", is_flag=True, help="With --entity-type brokers: --broker-defaults."
    ),
}


def choose_resource(
    *,
    topic: str | None = None,
    broker: int | None = None,
    broker_defaults: bool = False,
    client: str | None = None,
    entity_type: str | None = None,
    entity_name: str | None = None,
    entity_default: bool = False,
) -> ConfigResource:
    """Return the resource whose settings a command line names. UsageError unless it is one."""
    if client is not None or entity_type in ("clients", "users"):
        raise click.UsageError(
            "users and clients have quotas: see `kbroker quotas --help`; passwords of users: "
            "`kbroker users --help`"
        )

    # Kafka's spelling first: it becomes ours.
    if entity_type == "topics":
        topic = entity_name
    elif entity_type == "brokers":
        broker_defaults = entity_default
        if entity_name is not None and not entity_name.isdecimal():
            raise click.UsageError(f"{entity_name!r} is not a broker id")
        broker = None if entity_name is None else int(entity_name)

    # All that is named: there must be exactly one.
    resources = []
    if topic is not None:
        resources.append(ConfigResource.topic(topic))
    if broker is not None:
        resources.append(ConfigResource.broker(broker))
    if broker_defaults:
        resources.append(ConfigResource.broker_defaults())

    if len(resources) != 1:
        one_of = "--topic, --broker or --broker-defaults"
        raise click.UsageError(
            f"give only one of {one_of}" if resources else f"say whose settings: {one_of}"
        )
    return resources[0]


entity_options = gather_options(_ENTITY_OPTIONS, "resource", choose_resource)
"""Adds the options that name a topic or broker; the command gets it as `resource`."""


def format_resource(resource: ConfigResource) -> str:
    """Name a resource as kafka-configs.sh does."""
    if resource.resource_type != BROKER_RESOURCE:
        return f"topic {resource.name}"
    return f"broker {resource.name}" if resource.name else "default for brokers in the cluster"


# --- describe -------------------------------------------------------------------------------------


@command.command(
    "describe",
    epilog="""\b
Examples:
  kbroker configs describe --topic flights
  kbroker configs describe --broker 0 --all""",
)
@target_options
@output_option
@entity_options
@click.option(
    "--all", "everything", is_flag=True, help="Show defaults and server.properties as well."
)
def describe(target: Target, output: str, resource: ConfigResource, everything: bool) -> None:
    """Show the dynamic settings of a topic or broker; with --all, all effective settings.

    A secret value is shown as -.
    """
    items = asyncio.run(describe_configs(target, resource, everything=everything))
    if not is_table(output):
        show(Listing("configs", COLUMNS, items), output)
        return

    say(f"{'All' if everything else 'Dynamic'} configs for {format_resource(resource)} are:")
    for item in items:
        value = "null" if item["value"] is None else item["value"]
        say(
            f"  {item['config']}={value} sensitive={str(item['sensitive']).lower()}"
            f" synonyms={{{', '.join(item['synonyms'])}}}"
        )


async def describe_configs(
    target: Target, resource: ConfigResource, *, everything: bool
) -> list[Item]:
    """Return the settings as items of COLUMNS, sorted by name."""
    async with open_cluster(target, waits_for_dead=False) as cluster:
        # Brokers report each setting's source and synonyms.
        if isinstance(cluster, OverBrokers):
            configs = await cluster.admin.describe_configs([resource], synonyms=True)
            items = [_config_item(resource, config) for config in configs[resource]]

            # Without --all only what was set on this very resource.
            own_source = SOURCES[own_config_source(resource)]
            return sorted(
                (item for item in items if everything or item["source"] == own_source),
                key=lambda item: str(item["config"]),
            )

        # ZooKeeper has the resource's own settings alone.
        if everything:
            raise click.UsageError("--all needs the brokers: give --bootstrap-server")
        return [
            _entity_item(resource)
            | {
                "config": name,
                "value": value,
                "source": (source := SOURCES[own_config_source(resource)]),
                "sensitive": False,
                "read_only": False,
                "synonyms": [f"{source}:{name}={value}"],
            }
            for name, value in sorted(
                (await cluster.describe_own_configs([resource]))[resource].items()
            )
        ]


def _entity_item(resource: ConfigResource) -> Item:
    is_broker = resource.resource_type == BROKER_RESOURCE
    return {
        "entity_type": "brokers" if is_broker else "topics",
        "entity": resource.name or "<default>",
    }


def _config_item(resource: ConfigResource, config: Any) -> Item:
    return _entity_item(resource) | {
        "config": config.name,
        "value": config.value,
        "source": SOURCES.get(config.config_source, str(config.config_source)),
        "sensitive": config.is_sensitive,
        "read_only": config.read_only,
        "synonyms": [
            f"{SOURCES.get(synonym.source, synonym.source)}:{synonym.name}={synonym.value}"
            for synonym in config.synonyms or ()
        ],
    }


# --- alter ----------------------------------------------------------------------------------------


@frozen
class Settings(click.ParamType):  # type: ignore[type-arg]
    """Kafka's `k=v,k2=[v1,v2]` as pairs; a comma inside brackets belongs to the value."""

    name = "k=v,…"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[tuple[str, str], ...]:
        """Raises UsageError for a piece that is not k=v."""
        # click may pass a value that it has converted before.
        if isinstance(value, tuple):
            return value

        pieces = list(_split_pieces(str(value)))
        for piece in pieces:
            if not piece.partition("=")[0].strip() or "=" not in piece:
                hint = "; a value with commas is written in brackets, as in a=[b,c]"
                self.fail(f"{piece!r} is not key=value{hint}", param, ctx)

        pairs = (piece.partition("=") for piece in pieces)
        return tuple((key.strip(), _strip_brackets(text.strip())) for key, _, text in pairs)


def _split_pieces(text: str) -> Iterator[str]:
    # A piece is a run of bracketed lists and of characters other than commas.
    return (match[0] for match in re.finditer(r"(?:\[[^\]]*\]|[^,])+", text))


def _strip_brackets(text: str) -> str:
    return text[1:-1] if text.startswith("[") and text.endswith("]") else text


@command.command(
    "alter",
    epilog="""\b
Examples:
  kbroker configs alter --topic flights --add retention.ms=3600000,cleanup.policy=[compact,delete]
  kbroker configs alter --broker-defaults --remove log.cleaner.threads""",
)
@target_options
@output_option
@entity_options
@click.option(
    "--add", "--add-config", "added", type=Settings(), multiple=True, help="Settings to set."
)
@click.option(
    "--remove",
    "--delete-config",
    "removed",
    multiple=True,
    metavar="K,…",
    help="Settings to remove: the default applies again.",
)
@click.option("--force", is_flag=True, hidden=True, help="Accepted for Kafka's sake; no effect.")
def alter(
    target: Target,
    output: str,
    resource: ConfigResource,
    added: tuple[tuple[tuple[str, str], ...], ...],
    removed: tuple[str, ...],
    force: bool,
) -> None:
    """Set or remove settings of a topic or broker; all other settings stay."""
    # Both options may be repeated, and may hold several settings each.
    removals = [name for names in removed for name in split_names(names)]
    additions = [pair for pairs in added for pair in pairs]
    if not removals and not additions:
        raise click.UsageError("say what to alter: --add or --remove")
    if both := set(removals) & {name for name, _ in additions}:
        raise click.UsageError(f"both added and removed: {', '.join(sorted(both))}")

    # A value of None removes the setting.
    changes = {resource: {**dict.fromkeys(removals), **dict(additions)}}

    async def change() -> Exception | None:
        async with open_cluster(target) as cluster:
            await _check_removals(cluster, resource, removals)
            with heeding_interrupts():
                return (await cluster.change_configs(changes))[resource]

    error = asyncio.run(change())
    failures = [] if error is None else [Failure.of(format_resource(resource), error)]

    if is_table(output):
        if error is None:
            say(f"Completed updating config for {format_resource(resource)}.")
        show(Listing("configs", ENTITY_COLUMNS, [], failures), output)
    else:
        items = [_entity_item(resource)] if error is None else []
        show(Listing("configs", ENTITY_COLUMNS, items, failures), output)


async def _check_removals(
    cluster: ClusterAccess, resource: ConfigResource, removals: list[str]
) -> None:
    """Refuse to remove settings that are not set, as Kafka's tool does. Raises CommandFailed."""
    if removals:
        own = (await cluster.describe_own_configs([resource]))[resource]
        if missing := [name for name in removals if name not in own]:
            raise CommandFailed(
                f"{format_resource(resource)} has no config {', '.join(missing)} of its own"
            )
