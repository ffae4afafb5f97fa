"""Turn the options of `kbroker acls` into ACLs to add and filters to list and remove. Pure.

They are those of kafka-acls.sh, and so are the shortcuts: what a producer or a consumer needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import click

from broker.authorization.acl_checks import parse_principal
from broker.network.authorization import java_host
from protocol.acls import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    WILDCARD,
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from protocol.frozen import frozen

PRODUCER = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
"""The operations of --producer, by type of resource."""
CONSUMER = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ,),
}
"""The operations of --consumer, by type of resource."""

ADDED_PATTERNS = (PatternType.LITERAL, PatternType.PREFIXED)
"""The patterns that an ACL may have; filters know more."""


@frozen
class AclChoice:
    """The choice of a command line: resources, and who may or may not do what with them."""

    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()
    delegation_tokens: Sequence[str] = ()
    on_cluster: bool = False
    pattern: PatternType = PatternType.LITERAL
    principals: Sequence[str] = ()
    allow_principals: Sequence[str] = ()
    deny_principals: Sequence[str] = ()
    allow_hosts: Sequence[str] = ()
    deny_hosts: Sequence[str] = ()
    operations: Sequence[Operation] = ()
    producer: bool = False
    consumer: bool = False
    idempotent: bool = False

    @property
    def resources(self) -> list[ResourcePattern]:
        """The resource patterns that are named; the cluster is always a literal name."""
        named = [
            *product([ResourceType.TOPIC], self.topics),
            *product([ResourceType.GROUP], self.groups),
            *product([ResourceType.TRANSACTIONAL_ID], self.transactional_ids),
            *product([ResourceType.DELEGATION_TOKEN], self.delegation_tokens),
        ]
        resources = [ResourcePattern(kind, name, self.pattern) for kind, name in named]
        if self.on_cluster:
            resources.append(ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME))
        return resources


# ---- what is asked for


def filters_to_list(choice: AclChoice) -> list[AclFilter]:
    """Return the filters of `list`: all ACLs, or those of resources and principals."""
    principals: Sequence[str | None] = choice.principals or [None]
    if not choice.resources:
        return [AclFilter(principal=principal) for principal in principals]
    return [
        AclFilter(resource.kind, resource.name, resource.pattern, principal)
        for resource, principal in product(choice.resources, principals)
    ]


def acls_to_add(choice: AclChoice) -> list[AclBinding]:
    """Return the ACLs of `add`. Raises UsageError for a choice that makes no sense."""
    if choice.pattern not in ADDED_PATTERNS:
        raise click.UsageError("an ACL is added with --resource-pattern-type literal or prefixed")
    if not (choice.allow_principals or choice.deny_principals):
        raise click.UsageError("say who: --allow-principal or --deny-principal")
    for principal in (*choice.allow_principals, *choice.deny_principals):
        try:
            parse_principal(principal)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
    for host in (*choice.allow_hosts, *choice.deny_hosts):
        if host != WILDCARD and not java_host(host)[:1].isdigit() and ":" not in java_host(host):
            raise click.UsageError(f"{host!r} is no address: ACLs know no names of hosts")

    return [
        AclBinding(resource, entry)
        for resource, operations in _with_operations(choice)
        for entry in _entries(choice, operations)
    ]


def filters_to_remove(choice: AclChoice) -> list[AclFilter]:
    """Return the filters of `remove`: without a principal, all ACLs of the resources."""
    if not (choice.allow_principals or choice.deny_principals):
        if choice.producer or choice.consumer or choice.operations:
            raise click.UsageError("say whose: --allow-principal or --deny-principal")
        return [
            AclFilter(resource.kind, resource.name, resource.pattern)
            for resource in _require_resources(choice)
        ]

    return [
        AclFilter.exactly(AclBinding(resource, entry))
        for resource, operations in _with_operations(choice)
        for entry in _entries(choice, operations)
    ]


# ---- its parts


def _with_operations(
    choice: AclChoice,
) -> Iterator[tuple[ResourcePattern, Sequence[Operation]]]:
    """Yield each resource with the operations on it. Raises UsageError."""
    if not (choice.producer or choice.consumer):
        if choice.idempotent:
            raise click.UsageError("--idempotent needs --producer")
        operations = choice.operations or [Operation.ALL]
        for resource in _require_resources(choice):
            _check_operations(resource, operations)
            yield resource, operations
        return

    _check_shortcut(choice)
    for resource in choice.resources:
        wanted = (
            *(PRODUCER.get(resource.kind, ()) if choice.producer else ()),
            *(CONSUMER.get(resource.kind, ()) if choice.consumer else ()),
        )
        yield resource, list(dict.fromkeys(wanted))
    if choice.idempotent:
        yield ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME), [Operation.IDEMPOTENT_WRITE]


def _check_shortcut(choice: AclChoice) -> None:
    if choice.operations:
        raise click.UsageError("--producer and --consumer bring their own operations")
    if not choice.topics:
        raise click.UsageError("--producer and --consumer need a --topic")
    if choice.on_cluster or choice.delegation_tokens:
        raise click.UsageError("--producer and --consumer are about topics")
    if choice.consumer and not choice.groups:
        raise click.UsageError("--consumer needs a --group")
    if choice.groups and not choice.consumer:
        raise click.UsageError("--group needs --consumer here: a producer has none")
    if choice.transactional_ids and not choice.producer:
        raise click.UsageError("--transactional-id needs --producer here: a consumer has none")
    if choice.idempotent and not choice.producer:
        raise click.UsageError("--idempotent needs --producer")


def _check_operations(resource: ResourcePattern, operations: Sequence[Operation]) -> None:
    known = (*OPERATIONS_OF[resource.kind], Operation.ALL)
    if not set(operations) <= set(known):
        words = ", ".join(operation.word for operation in known)
        raise click.UsageError(
            f"ResourceType {resource.kind.name} only supports operations {words}"
        )


def _require_resources(choice: AclChoice) -> list[ResourcePattern]:
    if not choice.resources:
        raise click.UsageError(
            "say on what: --topic, --group, --cluster, --transactional-id or --delegation-token"
        )
    return choice.resources


def _entries(choice: AclChoice, operations: Sequence[Operation]) -> Iterator[AclEntry]:
    for permission, principals, hosts in (
        (Permission.ALLOW, choice.allow_principals, choice.allow_hosts),
        (Permission.DENY, choice.deny_principals, choice.deny_hosts),
    ):
        for principal, host, operation in product(principals, hosts or [WILDCARD], operations):
            yield AclEntry(principal, operation, permission, java_host(host))
