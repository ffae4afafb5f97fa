"""`kbroker acls`: list, add and remove ACLs.

Kafka's spelling works as it is: `--add --allow-principal User:a --producer --topic t`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import click

from broker.kbroker.acl_choice import (
    AclChoice,
    acls_to_add,
    filters_to_list,
    filters_to_remove,
)
from broker.kbroker.cluster_access import ClusterAccess
from broker.kbroker.open_cluster import open_cluster
from broker.kbroker.over_zookeeper import OverZooKeeper
from clients.admin.verdicts import Verdicts
from clients.command_line.interrupts import Interrupts, heeding_interrupts
from clients.command_line.kafka_spelling import ActionGroup
from clients.command_line.output import (
    Column,
    Failure,
    KeyValue,
    Listing,
    Target,
    is_table,
    output_option,
    show,
    target_options_beside_cluster,
    zookeeper_address,
)
from clients.command_line.printing import say
from clients.command_line.sessions import zookeeper_session
from protocol.acls import AclBinding, AclFilter, AclWord, Operation, PatternType

T = TypeVar("T")
Item = dict[str, Any]

COLUMNS = (
    Column("RESOURCE-TYPE"),
    Column("NAME"),
    Column("PATTERN-TYPE"),
    Column("PRINCIPAL"),
    Column("HOST"),
    Column("OPERATION"),
    Column("PERMISSION-TYPE"),
)
ZOOKEEPER_CONNECT = "zookeeper.connect"

PORTION = 100
"""Number of ACLs, or filters, in one request: what was done is said behind each."""


class Word(click.ParamType):  # type: ignore[type-arg]
    """A word of ACLs in either of Kafka's spellings: DescribeConfigs or describe_configs."""

    def __init__(self, kind: type[AclWord], words: Sequence[AclWord]) -> None:
        self.name = kind.__name__
        self.kind = kind
        self.words = words

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> AclWord:
        """Raises UsageError for another word."""
        if isinstance(value, self.kind):
            return value
        word = self.kind.parse(str(value))
        if word is None or word not in self.words:
            known = ", ".join(word.word for word in self.words)
            self.fail(f"{value!r} is not one of {known}", param, ctx)
        return word


OPERATION = Word(Operation, [word for word in Operation if word >= Operation.ALL])
PATTERN = Word(PatternType, [word for word in PatternType if word > PatternType.UNKNOWN])


@click.group(
    "acls",
    cls=ActionGroup,
    epilog="""\b
Examples:
  kbroker acls list --topic flights
  kbroker acls add --allow-principal User:alice --producer --topic flights
  kbroker acls add --allow-principal User:bob --consumer --topic flights --group billing
  kbroker acls remove --topic flights --force""",
)
def command() -> None:
    """List, add and remove ACLs: who may do what with topics, groups and the cluster.

    The brokers do the work, where an authorizer is on. With --zookeeper, and no --bootstrap-server,
    on the command line the command reads and writes ZooKeeper itself, and brokers follow.
    """


# ---- options


def _several(name: str, field: str, metavar: str, text: str) -> Any:
    return click.option(name, field, multiple=True, metavar=metavar, help=text)


_RESOURCE_OPTIONS: Mapping[str, Any] = {
    "topics": _several("--topic", "topics", "NAME", "A topic; * means all."),
    "groups": _several("--group", "groups", "ID", "A group; * means all."),
    "on_cluster": click.option("--cluster", "on_cluster", is_flag=True, help="The cluster itself."),
    "transactional_ids": _several(
        "--transactional-id", "transactional_ids", "ID", "A transactional id; * means all."
    ),
    "delegation_tokens": _several(
        "--delegation-token", "delegation_tokens", "ID", "A delegation token; * means all."
    ),
    "pattern": click.option(
        "--resource-pattern-type",
        "pattern",
        type=PATTERN,
        metavar="TYPE",
        default="literal",
        show_default=True,
        help="literal: this name; prefixed: all names that begin so. To list and remove also any: "
        "both; match: all that concern the name.",
    ),
}
_ENTRY_OPTIONS: Mapping[str, Any] = {
    "allow_principals": _several(
        "--allow-principal", "allow_principals", "TYPE:NAME", "Who may, such as User:alice."
    ),
    "deny_principals": _several("--deny-principal", "deny_principals", "TYPE:NAME", "Who may not."),
    "allow_hosts": _several(
        "--allow-host", "allow_hosts", "ADDRESS", "From where they may.  [default: anywhere]"
    ),
    "deny_hosts": _several(
        "--deny-host", "deny_hosts", "ADDRESS", "From where they may not.  [default: anywhere]"
    ),
    "operations": click.option(
        "--operation",
        "operations",
        type=OPERATION,
        multiple=True,
        metavar="NAME",
        help="What they may do, such as Read or DescribeConfigs.  [default: All]",
    ),
    "producer": click.option(
        "--producer", is_flag=True, help="What a producer of the topics needs."
    ),
    "consumer": click.option(
        "--consumer", is_flag=True, help="What a consumer of the topics, in the groups, needs."
    ),
    "idempotent": click.option(
        "--idempotent", is_flag=True, help="With --producer: IdempotentWrite on the cluster."
    ),
}
_PRINCIPALS: Mapping[str, Any] = {
    "principals": _several("--principal", "principals", "TYPE:NAME", "ACLs of this principal.")
}
_AUTHORIZER_PROPERTIES = click.option(
    "--authorizer-properties",
    type=KeyValue(),
    multiple=True,
    metavar="K=V",
    help="Kafka's spelling of --zookeeper: zookeeper.connect=H:P.",
)


def choice_options(*groups: Mapping[str, Any]) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Add the options of these groups; the command gets them as one `choice`."""
    options = {name: option for group in groups for name, option in group.items()}

    def decorate(command: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(command)
        def with_choice(*args: Any, **given: Any) -> T:
            chosen = {name: given.pop(name) for name in options}
            return command(*args, choice=AclChoice(**chosen), **given)

        # Decorators apply from the inside out: the last one is the first in the help.
        for option in reversed(list(options.values())):
            with_choice = option(with_choice)
        return with_choice

    return decorate


@asynccontextmanager
async def open_acls(
    target: Target, properties: Sequence[tuple[str, str]], *, waits_for_dead: bool = True
) -> AsyncIterator[ClusterAccess]:
    """Reach the ACLs: through the brokers, or in the ZooKeeper that is named."""
    given = dict(properties)
    address = zookeeper_address(given.pop(ZOOKEEPER_CONNECT, None))
    if given:
        raise click.UsageError(f"--authorizer-properties: only {ZOOKEEPER_CONNECT} is known")

    if address is None:
        async with open_cluster(target, waits_for_dead=waits_for_dead) as cluster:
            yield cluster
    else:
        async with zookeeper_session(address, target, keeps_nodes=True) as zk:
            yield OverZooKeeper(zk, target.timeout_ms)


# ---- list, add, remove


@command.command(
    "list",
    epilog="""\b
Examples:
  kbroker acls list
  kbroker acls list --topic flights --resource-pattern-type match
  kbroker acls list --principal User:alice -o json""",
)
@target_options_beside_cluster
@output_option
@_AUTHORIZER_PROPERTIES
@choice_options(_RESOURCE_OPTIONS, _PRINCIPALS)
def list_acls(
    target: Target,
    output: str,
    authorizer_properties: Sequence[tuple[str, str]],
    choice: AclChoice,
) -> None:
    """List ACLs: all, or those of resources and principals."""

    async def find() -> set[AclBinding]:
        async with open_acls(target, authorizer_properties, waits_for_dead=False) as cluster:
            return {
                binding
                for wanted in filters_to_list(choice)
                for binding in await cluster.describe_acls(wanted)
            }

    show(Listing("acls", COLUMNS, [_item(acl) for acl in sorted(asyncio.run(find()))]), output)


@command.command(
    "add",
    epilog="""\b
Examples:
  kbroker acls add --allow-principal User:alice --operation Read --operation Write --topic flights
  kbroker acls add --allow-principal User:alice --producer --topic flight- --resource-pattern-type prefixed
  kbroker acls add --deny-principal User:* --deny-host 198.51.100.3 --cluster""",  # noqa: E501
)
@target_options_beside_cluster
@output_option
@_AUTHORIZER_PROPERTIES
@choice_options(_RESOURCE_OPTIONS, _ENTRY_OPTIONS)
@click.option("--force", is_flag=True, help="Kafka's option; adding never asks.")
def add(
    target: Target,
    output: str,
    authorizer_properties: Sequence[tuple[str, str]],
    choice: AclChoice,
    force: bool,
) -> None:
    """Add ACLs, and show them. ACLs that exist stay as they are."""
    bindings = list(dict.fromkeys(acls_to_add(choice)))

    async def create() -> dict[AclBinding, Exception | None]:
        async with open_acls(target, authorizer_properties) as cluster:
            with heeding_interrupts(several=len(bindings) > PORTION) as interrupts:

                async def create_next(portion: Sequence[AclBinding]) -> Verdicts[AclBinding]:
                    verdicts = await cluster.create_acls(portion)
                    _say("added", verdicts, interrupts)
                    return verdicts

                return await interrupts.in_portions(bindings, create_next, PORTION)

    _show_verdicts(asyncio.run(create()), output)


@command.command(
    "remove",
    epilog="""\b
Examples:
  kbroker acls remove --allow-principal User:alice --producer --topic flights
  kbroker acls remove --topic flights --force""",
)
@target_options_beside_cluster
@output_option
@_AUTHORIZER_PROPERTIES
@choice_options(_RESOURCE_OPTIONS, _ENTRY_OPTIONS)
@click.option("--force", is_flag=True, help="Do not ask first.")
def remove(
    target: Target,
    output: str,
    authorizer_properties: Sequence[tuple[str, str]],
    choice: AclChoice,
    force: bool,
) -> None:
    """Remove ACLs, and show them. Without a principal, all of the resources are removed."""
    filters = filters_to_remove(choice)

    removed: dict[AclBinding, Exception | None] = {}

    async def delete() -> dict[AclFilter, Exception | None]:
        async with open_acls(target, authorizer_properties) as cluster:
            if not force:
                await _confirm(cluster, filters)
            with heeding_interrupts(several=len(filters) > PORTION) as interrupts:

                async def delete_next(portion: Sequence[AclFilter]) -> dict[AclFilter, None]:
                    verdicts = await cluster.delete_acls(portion)
                    _say("removed", verdicts, interrupts)
                    removed.update(verdicts)
                    return dict.fromkeys(portion)

                return await interrupts.in_portions(filters, delete_next, PORTION)

    left = [
        Failure.of(f"{chosen.kind.name}:{chosen.name} {chosen.principal or ''}".rstrip(), error)
        for chosen, error in asyncio.run(delete()).items()
        if error is not None
    ]
    _show_verdicts(removed, output, left)


async def _confirm(cluster: ClusterAccess, filters: Sequence[AclFilter]) -> None:
    """Ask whether to remove what the filters choose now."""
    chosen = sorted(
        {binding for wanted in filters for binding in await cluster.describe_acls(wanted)}
    )
    for binding in chosen:
        say(" ".join(str(value) for value in _item(binding).values()), err=True)
    click.confirm(f"Remove these {len(chosen)} ACLs?", abort=True, err=True)


def _say(done: str, verdicts: Verdicts[AclBinding], interrupts: Interrupts) -> None:
    for binding, error in verdicts.items():
        if error is None:
            interrupts.say(f"{done}: {' '.join(map(str, _item(binding).values()))}")


def _show_verdicts(
    verdicts: Mapping[AclBinding, Exception | None], output: str, left: Sequence[Failure] = ()
) -> None:
    done = [_item(binding) for binding, error in sorted(verdicts.items()) if error is None]
    failures = [
        Failure.of(f"{binding.resource} {binding.entry.principal}", error)
        for binding, error in verdicts.items()
        if error is not None
    ]
    if not (done or failures or left) and is_table(output):
        say("no ACL matches", err=True)
    show(Listing("acls", COLUMNS, done, [*failures, *left]), output)


def _item(binding: AclBinding) -> Item:
    resource, entry = binding.resource, binding.entry
    return {
        "resource_type": resource.kind.name,
        "name": resource.name,
        "pattern_type": resource.pattern.name,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation.name,
        "permission_type": entry.permission.name,
    }
