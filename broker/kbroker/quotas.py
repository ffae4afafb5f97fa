"""`kbroker quotas`: describe and alter the quotas of users, clients and addresses.

Kafka's spelling works as it is: `--alter --entity-type users --entity-name u --add-config a=b`.
"""

import asyncio
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import attrs
import click

from broker.kbroker.comma_lists import split_names
from broker.kbroker.configs import Settings
from broker.kbroker.gathered_options import gather_options
from broker.quotas.client_entities import quota_keys, read_entity
from clients.admin import Admin
from clients.admin.client_quotas import QuotaEntity, quota_entity
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
from clients.command_line.sessions import connected

T = TypeVar("T")

COLUMNS = (Column("USER"), Column("CLIENT-ID"), Column("IP"), Column("QUOTA"), Column("VALUE"))
ENTITY_COLUMNS = COLUMNS[:3]
DEFAULT = "<default>"

# Kafka's plural -> the type on the wire.
ENTITY_TYPES = {"users": "user", "clients": "client-id", "ips": "ip"}


@click.group(
    "quotas",
    cls=ActionGroup,
    epilog="""\b
Examples:
  kbroker quotas describe
  kbroker quotas alter --user alice --add producer_byte_rate=1048576
  kbroker quotas alter --client-default --add request_percentage=50
  kbroker quotas alter --ip-default --add connection_creation_rate=20""",
)
def command() -> None:
    """Describe and alter what users, clients and addresses may use up at each broker."""


_ENTITY_OPTIONS: Mapping[str, Any] = {
    "user": click.option("--user", metavar="NAME", help="Of this user."),
    "user_default": click.option(
        "--user-default", is_flag=True, help="Of all users without a quota of their own."
    ),
    "client": click.option("--client", metavar="ID", help="Of this client id."),
    "client_default": click.option(
        "--client-default", is_flag=True, help="Of all client ids without a quota of their own."
    ),
    "ip": click.option("--ip", metavar="HOST", help="Of this address, or of those of this host."),
    "ip_default": click.option(
        "--ip-default", is_flag=True, help="Of all addresses without a quota of their own."
    ),
    "entity_types": click.option(
        "--entity-type",
        "entity_types",
        multiple=True,
        type=click.Choice(list(ENTITY_TYPES)),
        help="Kafka's spelling; may be repeated, each with a name or --entity-default.",
    ),
    "entity_names": click.option(
        "--entity-name", "entity_names", multiple=True, metavar="NAME", help="With --entity-type."
    ),
    "entity_default": click.option(
        "--entity-default", is_flag=True, help="With --entity-type, in place of its name."
    ),
}


CREATION_RATE = "connection_creation_rate"


def choose_parts(
    *,
    user: str | None,
    user_default: bool,
    client: str | None,
    client_default: bool,
    ip: str | None,
    ip_default: bool,
    entity_types: tuple[str, ...],
    entity_names: tuple[str, ...],
    entity_default: bool,
) -> dict[str, str | None]:
    """Return types and names of the entity that a command line names. Raises UsageError."""
    parts: dict[str, str | None] = {}
    for kind, name, is_default in (
        ("user", user, user_default),
        ("client-id", client, client_default),
        ("ip", ip, ip_default),
    ):
        if name is not None and is_default:
            raise click.UsageError(f"{kind}: give a name or the default, not both")
        if name is not None or is_default:
            parts[kind] = name

    # Kafka's names belong to its types in their order; a type without one is the default.
    names = iter(entity_names)
    for kafka_type in entity_types:
        name = next(names, None)
        if name is None and not entity_default and entity_names:
            raise click.UsageError(f"--entity-type {kafka_type} has no --entity-name")
        if name is not None or entity_default:
            parts[ENTITY_TYPES[kafka_type]] = name
    if next(names, None) is not None:
        raise click.UsageError("--entity-name needs an --entity-type")
    return parts


entity_options = gather_options(_ENTITY_OPTIONS, "parts", choose_parts)
"""Adds the options that name a user, client or address; the command gets them as `parts`."""


@command.command(
    "describe",
    epilog="""\b
Examples:
  kbroker quotas describe
  kbroker quotas describe --user alice""",
)
@target_options
@output_option
@entity_options
def describe(target: Target, output: str, parts: dict[str, str | None]) -> None:
    """Show the quotas of all users, clients and addresses, or of those that are named."""
    quotas = asyncio.run(_describe(target, parts))
    show(Listing("quotas", COLUMNS, list(_items(quotas))), output)


async def _describe(
    target: Target, parts: Mapping[str, str | None]
) -> dict[QuotaEntity, dict[str, float]]:
    async with connected(target, asks_brokers=True, waits_for_dead=False) as sessions:
        return await sessions.admin.describe_client_quotas(parts)


def _items(quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> Iterator[dict[str, Any]]:
    def by_name(entity: QuotaEntity) -> list[tuple[str, str]]:
        return [(kind, name or "") for kind, name in entity]

    for entity in sorted(quotas, key=by_name):
        for key, value in sorted(quotas[entity].items()):
            number = int(value) if value.is_integer() else value
            yield _entity_item(entity) | {"quota": key, "value": number}


def _entity_item(entity: QuotaEntity) -> dict[str, Any]:
    names = {kind: DEFAULT if name is None else name for kind, name in entity}
    return {"user": names.get("user"), "client_id": names.get("client-id"), "ip": names.get("ip")}


@command.command(
    "alter",
    epilog="""\b
Examples:
  kbroker quotas alter --user alice --client etl --add producer_byte_rate=1048576
  kbroker quotas alter --user-default --add consumer_byte_rate=2097152,request_percentage=25
  kbroker quotas alter --user alice --client etl --remove producer_byte_rate""",
)
@target_options
@output_option
@entity_options
@click.option("--add", "--add-config", "added", type=Settings(), multiple=True, help="To set.")
@click.option(
    "--remove", "--delete-config", "removed", multiple=True, metavar="K,…", help="To remove."
)
def alter(
    target: Target,
    output: str,
    parts: dict[str, str | None],
    added: tuple[tuple[tuple[str, str], ...], ...],
    removed: tuple[str, ...],
) -> None:
    """Set or remove quotas: producer_byte_rate and consumer_byte_rate (bytes a second and broker),
    request_percentage (of one second of a broker's loop), controller_mutation_rate (partitions
    created or deleted a second); of addresses connection_creation_rate (new connections a second
    and broker).
    """
    if not parts:
        raise click.UsageError("say whose quota: --user, --user-default, --client, --ip, …")
    change: dict[str, float | None] = dict.fromkeys(
        name for names in removed for name in split_names(names)
    )
    change |= {key: _number(key, text) for pairs in added for key, text in pairs}
    if not change:
        raise click.UsageError("nothing to change: give --add or --remove")

    if parts == {"ip": None} and change.get(CREATION_RATE) == 0:
        # Nobody could take it back, and brokers that start again would not find each other.
        raise click.UsageError(
            f"{CREATION_RATE}=0 of all addresses refuses brokers and administrators too: name the "
            "addresses that are to be refused, or give all of them a rate"
        )

    entity = quota_entity(parts)
    error = asyncio.run(_alter(target, entity, change))
    item = _entity_item(entity)
    failures = [] if error is None else [_failure(entity, error, change)]
    if is_table(output):
        if error is None:
            say(f"Completed updating quotas of {_name(entity)}.")
        show(Listing("quotas", ENTITY_COLUMNS, [], failures), output)
    else:
        show(Listing("quotas", ENTITY_COLUMNS, [] if error else [item], failures), output)


async def _alter(
    target: Target, entity: QuotaEntity, change: Mapping[str, float | None]
) -> Exception | None:
    async with connected(target, asks_brokers=True) as sessions:
        await _check_removals(sessions.admin, entity, change)
        with heeding_interrupts():
            return (await sessions.admin.alter_client_quotas({entity: change}))[entity]


async def _check_removals(
    admin: Admin, entity: QuotaEntity, change: Mapping[str, float | None]
) -> None:
    """Refuse to remove quotas that are not set, as Kafka's tool does. Raises CommandFailed."""
    if None in change.values():
        quotas = await admin.describe_client_quotas(dict(entity), strict=True)
        own = quotas.get(entity, {})
        # A misspelt one would go on to hold (fault strangers-183).
        if missing := [key for key, value in change.items() if value is None and key not in own]:
            raise CommandFailed(f"{_name(entity)} has no quota {', '.join(missing)}")


def _failure(entity: QuotaEntity, error: Exception, change: Iterable[str]) -> Failure:
    failure = Failure.of(_name(entity), error)
    known = quota_keys(read_entity(entity))
    if known.issuperset(change):
        return failure
    # Newer brokers may have others, so it is theirs to refuse.
    message = f"{failure.message}; known are {', '.join(sorted(known))}"
    return attrs.evolve(failure, message=message)


def _name(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind} {DEFAULT if name is None else name}" for kind, name in entity)


def _number(key: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise click.UsageError(f"{key}={text}: not a number")
    return number
