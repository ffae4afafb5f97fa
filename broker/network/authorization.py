"""Ask whether the sender of a request has the permissions that it needs.

`protocol.needs` has the table of all APIs. Dispatch itself checks what is refused `AT_ONCE`. A
request that names several topics or groups is checked by its handler, name by name
(`request_context.authorize`, `refused_topics`), because one may be refused and the others not. A
refused name gets the error of its resource type, whether or not it exists. Without an authorizer
everything is allowed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, ip_address
from typing import Any, NamedTuple, Protocol

from broker.network.session import Principal
from protocol.acls import CLUSTER_NAME, OPERATIONS_OF, Operation, PatternType, ResourceType
from protocol.needs import NEEDS, Refusal

audit_logger = logging.getLogger("kafka.authorizer.logger")
"""Has a line for each decision, under Kafka's name: denied at INFO, allowed at DEBUG."""

KEPT_HOSTS = 10_000
"""Clients whose addresses are kept in Java's form."""


class Resource(NamedTuple):
    """A resource that an ACL may name."""

    kind: ResourceType
    name: str


# The only resource of its type, under the name that ACLs use.
CLUSTER = Resource(ResourceType.CLUSTER, CLUSTER_NAME)


# ---- who is asked


class Permissions(Protocol):
    """The resources of one type on which a sender may perform one operation.

    A change of ACLs makes new objects: what was found with one holds as long as it is in use.
    """

    def allows(self, name: str) -> bool:
        """Return whether the operation is allowed on this resource."""

    def refused(self, names: Iterable[str]) -> set[str]:
        """Return those of `names` on which it is not allowed."""


class Sender(Protocol):
    """A principal at a host, as an authorizer knows it."""

    def now(self) -> Sender:
        """Return the same principal with its permissions of now: itself if no ACL has changed."""

    def permissions(self, operation: Operation, kind: ResourceType) -> Permissions:
        """Return where the sender may perform `operation` on resources of a type."""

    def may_somewhere(self, operation: Operation, kind: ResourceType) -> bool:
        """Return whether there can be a resource on which it may perform `operation` (KIP-679)."""


class Authorizer(Protocol):
    """Decides who may do what."""

    def sender(self, principal: Principal, host: str) -> Sender:
        """Return the sender of requests; `host` is an address in Java's form."""


def host_of(connection_id: str) -> str:
    """Return the address in a client's host:port as ACLs have it."""
    # What is kept of each connection lies between all that goes with it, and holds its pages.
    return java_host(connection_id.rpartition(":")[0].strip("[]"))


@lru_cache(maxsize=KEPT_HOSTS)
def java_host(host: str) -> str:
    """Return an address as Java writes it; what is no address is returned as it is.

    IPv6 has all its groups, without leading zeros; a mapped IPv4 address is one of IPv4.
    """
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)

    packed = address.packed
    groups = (int.from_bytes(packed[at : at + 2], "big") for at in range(0, len(packed), 2))
    text = ":".join(format(group, "x") for group in groups)
    return text if address.scope_id is None else f"{text}%{address.scope_id}"


def audit(
    principal: Principal, host: str, operation: Operation, resource: Resource, *, allowed: bool
) -> None:
    """Log a decision, in Kafka's words."""
    audit_logger.log(
        logging.DEBUG if allowed else logging.INFO,
        "Principal = %s is %s Operation = %s from host = %s on resource = %s:%s:%s",
        principal,
        "Allowed" if allowed else "Denied",
        operation.word,
        host,
        resource.kind.word,
        PatternType.LITERAL.name,
        resource.name,
    )


def audit_more(
    principal: Principal, host: str, operation: Operation, kind: ResourceType, count: int
) -> None:
    """Log how many more resources a request was denied, which have no line of their own."""
    audit_logger.info(
        "Principal = %s is Denied Operation = %s from host = %s on resource = %s: "
        "%d more of the same request",
        principal,
        operation.word,
        host,
        kind.word,
        count,
    )


def topic(name: str) -> Resource:
    """Return the resource of a topic."""
    return Resource(ResourceType.TOPIC, name)


def group(group_id: str) -> Resource:
    """Return a group as a resource."""
    return Resource(ResourceType.GROUP, group_id)


def transactional_id(name: str) -> Resource:
    """Return a transactional id as a resource."""
    return Resource(ResourceType.TRANSACTIONAL_ID, name)


def operations_mask(sender: Sender | None, resource: Resource) -> int:
    """Return what a sender may do to a resource: a bit for the number of each operation (KIP-430).

    Without an authorizer it is everything that the type of resource knows.
    """
    return sum(
        1 << operation
        for operation in OPERATIONS_OF[resource.kind]
        if sender is None or sender.permissions(operation, resource.kind).allows(resource.name)
    )


# ---- what dispatch checks


def _cluster_of(request: Any) -> Resource:
    return CLUSTER


def _group_of(request: Any) -> Resource:
    return group(request.group_id)


def _transactional_id_of(request: Any) -> Resource:
    return transactional_id(request.transactional_id)


_RESOURCE_OF: Mapping[ResourceType, Callable[[Any], Resource]] = {
    ResourceType.CLUSTER: _cluster_of,
    ResourceType.GROUP: _group_of,
    ResourceType.TRANSACTIONAL_ID: _transactional_id_of,
}

AT_ONCE: Mapping[int, tuple[Operation, Callable[[Any], Resource]]] = {
    key: (need.operation, _RESOURCE_OF[need.kind])
    for key, needs in NEEDS.items()
    for need in needs
    if need.refusal is Refusal.AT_ONCE
}
"""The needs that dispatch checks: the operation, and the one resource that a request concerns."""
