"""Say what each request needs, in the words of ACLs (KIP-11), and ask whether its sender has it.

NEEDS is the table of all APIs. Dispatch itself checks what is refused `AT_ONCE`. A request that
names several topics or groups is checked by its handler, name by name (`request_context.authorize`,
`refused_topics`), because one may be refused and the others not. A refused name gets the error of
its resource type, whether or not it exists. Without an authorizer everything is allowed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import lru_cache
from ipaddress import IPv4Address, ip_address
from typing import Any, NamedTuple, Protocol

import attrs

from broker.network.session import Principal
from protocol.acls import CLUSTER_NAME, OPERATIONS_OF, Operation, PatternType, ResourceType
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.frozen import frozen

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

REFUSALS: Mapping[ResourceType, ErrorCode] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


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


@lru_cache(maxsize=KEPT_HOSTS)
def host_of(connection_id: str) -> str:
    """Return the address in a client's host:port as ACLs have it."""
    return java_host(connection_id.rpartition(":")[0].strip("[]"))


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


# ---- what requests need


class Refusal(Enum):
    """The consequence for a request, or a part of it, that is refused."""

    AT_ONCE = "dispatch responds with the error to the whole request"
    WHOLE = "the handler responds with the error to the whole request, or in all its entries"
    ENTRY = "the entry has the error, the others are served"
    OMITTED = "the entry is left out, without an error"
    SETTINGS = "the entry is served, its settings have the error"
    ENTRY_OR_OMITTED = "a named entry has the error; of all, it is left out"


@frozen
class Need:
    """A permission that a request needs.

    `instead` is a permission that makes up for it. `when` says which requests need it, if not all
    do. `code` is the error of a refusal, where it is not that of the type of resource.
    """

    operation: Operation
    kind: ResourceType
    refusal: Refusal
    instead: tuple[Operation, ResourceType] | None = None
    when: str = ""
    code: ErrorCode | None = None

    @property
    def error(self) -> ErrorCode:
        """The error of a refusal."""
        return REFUSALS[self.kind] if self.code is None else self.code


_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_CLUSTER, _TRANSACTIONAL_ID = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID

_FROM_BROKERS = (Need(Operation.CLUSTER_ACTION, _CLUSTER, Refusal.AT_ONCE),)
_ALTER_CLUSTER = (Need(Operation.ALTER, _CLUSTER, Refusal.AT_ONCE),)
_DESCRIBE_CLUSTER = (Need(Operation.DESCRIBE, _CLUSTER, Refusal.AT_ONCE),)
_MEMBER = (Need(Operation.READ, _GROUP, Refusal.AT_ONCE),)
_OWN_TRANSACTION = Need(Operation.WRITE, _TRANSACTIONAL_ID, Refusal.AT_ONCE)
_CREATE_TOPIC = Need(Operation.CREATE, _TOPIC, Refusal.ENTRY, instead=(Operation.CREATE, _CLUSTER))
_ALTER_SETTINGS = (
    Need(Operation.ALTER_CONFIGS, _TOPIC, Refusal.ENTRY, when="of topics"),
    Need(Operation.ALTER_CONFIGS, _CLUSTER, Refusal.ENTRY, when="of brokers"),
)

NEEDS: Mapping[int, tuple[Need, ...]] = {
    # Records.
    ApiKey.PRODUCE: (
        Need(Operation.WRITE, _TRANSACTIONAL_ID, Refusal.WHOLE, when="with transactional batches"),
        Need(Operation.WRITE, _TOPIC, Refusal.ENTRY),
    ),
    ApiKey.FETCH: (
        Need(Operation.READ, _TOPIC, Refusal.ENTRY, when="of consumers"),
        Need(
            Operation.CLUSTER_ACTION,
            _CLUSTER,
            Refusal.WHOLE,
            when="of followers",
            code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ),
    ),
    ApiKey.LIST_OFFSETS: (Need(Operation.DESCRIBE, _TOPIC, Refusal.ENTRY),),
    ApiKey.DELETE_RECORDS: (Need(Operation.DELETE, _TOPIC, Refusal.ENTRY),),
    ApiKey.DESCRIBE_PRODUCERS: (Need(Operation.READ, _TOPIC, Refusal.ENTRY),),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        Need(
            Operation.DESCRIBE,
            _TOPIC,
            Refusal.ENTRY,
            instead=(Operation.CLUSTER_ACTION, _CLUSTER),
        ),
    ),
    ApiKey.INIT_PRODUCER_ID: (
        Need(Operation.WRITE, _TRANSACTIONAL_ID, Refusal.WHOLE, when="with a transactional id"),
        Need(
            Operation.IDEMPOTENT_WRITE,
            _CLUSTER,
            Refusal.WHOLE,
            # On any topic (KIP-679).
            instead=(Operation.WRITE, _TOPIC),
            when="without one",
        ),
    ),
    # Transactions.
    ApiKey.ADD_PARTITIONS_TO_TXN: (_OWN_TRANSACTION, Need(Operation.WRITE, _TOPIC, Refusal.WHOLE)),
    ApiKey.ADD_OFFSETS_TO_TXN: (_OWN_TRANSACTION, Need(Operation.READ, _GROUP, Refusal.WHOLE)),
    ApiKey.END_TXN: (_OWN_TRANSACTION,),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        Need(
            Operation.DESCRIBE,
            _TRANSACTIONAL_ID,
            Refusal.ENTRY,
            # Of leaders that verify transactions.
            instead=(Operation.CLUSTER_ACTION, _CLUSTER),
        ),
        Need(
            Operation.DESCRIBE,
            _TOPIC,
            Refusal.OMITTED,
            instead=(Operation.CLUSTER_ACTION, _CLUSTER),
        ),
    ),
    ApiKey.LIST_TRANSACTIONS: (Need(Operation.DESCRIBE, _TRANSACTIONAL_ID, Refusal.OMITTED),),
    # The cluster and its topics.
    ApiKey.METADATA: (
        Need(Operation.DESCRIBE, _TOPIC, Refusal.ENTRY_OR_OMITTED),
        attrs.evolve(_CREATE_TOPIC, when="for a missing topic that would be created"),
    ),
    # The controller refuses no one before it knows that it is the controller.
    ApiKey.CREATE_TOPICS: (
        _CREATE_TOPIC,
        Need(Operation.DESCRIBE_CONFIGS, _TOPIC, Refusal.SETTINGS, when="to see the settings"),
    ),
    ApiKey.DELETE_TOPICS: (Need(Operation.DELETE, _TOPIC, Refusal.ENTRY),),
    ApiKey.CREATE_PARTITIONS: (Need(Operation.ALTER, _TOPIC, Refusal.ENTRY),),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _ALTER_CLUSTER,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _DESCRIBE_CLUSTER,
    ApiKey.ELECT_LEADERS: _ALTER_CLUSTER,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _ALTER_CLUSTER,
    ApiKey.DESCRIBE_LOG_DIRS: _DESCRIBE_CLUSTER,
    # Settings.
    ApiKey.DESCRIBE_CONFIGS: (
        Need(Operation.DESCRIBE_CONFIGS, _TOPIC, Refusal.ENTRY, when="of topics"),
        Need(Operation.DESCRIBE_CONFIGS, _CLUSTER, Refusal.ENTRY, when="of brokers"),
    ),
    ApiKey.ALTER_CONFIGS: _ALTER_SETTINGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _ALTER_SETTINGS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (Need(Operation.DESCRIBE_CONFIGS, _CLUSTER, Refusal.AT_ONCE),),
    ApiKey.ALTER_CLIENT_QUOTAS: (Need(Operation.ALTER_CONFIGS, _CLUSTER, Refusal.AT_ONCE),),
    # Users.
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _DESCRIBE_CLUSTER,
    # Refused by the controller alone.
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (Need(Operation.ALTER, _CLUSTER, Refusal.WHOLE),),
    # ACLs.
    ApiKey.DESCRIBE_ACLS: _DESCRIBE_CLUSTER,
    ApiKey.CREATE_ACLS: _ALTER_CLUSTER,
    ApiKey.DELETE_ACLS: _ALTER_CLUSTER,
    # Members of a group, and those who look after it.
    ApiKey.JOIN_GROUP: _MEMBER,
    ApiKey.SYNC_GROUP: _MEMBER,
    ApiKey.HEARTBEAT: _MEMBER,
    ApiKey.LEAVE_GROUP: _MEMBER,
    ApiKey.OFFSET_COMMIT: (*_MEMBER, Need(Operation.READ, _TOPIC, Refusal.ENTRY)),
    ApiKey.TXN_OFFSET_COMMIT: (
        Need(Operation.WRITE, _TRANSACTIONAL_ID, Refusal.WHOLE),
        Need(Operation.READ, _GROUP, Refusal.WHOLE),
        Need(Operation.READ, _TOPIC, Refusal.ENTRY),
    ),
    ApiKey.OFFSET_FETCH: (
        Need(Operation.DESCRIBE, _GROUP, Refusal.WHOLE),
        Need(Operation.DESCRIBE, _TOPIC, Refusal.ENTRY_OR_OMITTED),
    ),
    ApiKey.FIND_COORDINATOR: (
        Need(Operation.DESCRIBE, _GROUP, Refusal.WHOLE, when="of a group"),
        Need(Operation.DESCRIBE, _TRANSACTIONAL_ID, Refusal.WHOLE, when="of transactions"),
    ),
    ApiKey.DESCRIBE_GROUPS: (Need(Operation.DESCRIBE, _GROUP, Refusal.ENTRY),),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (Need(Operation.DESCRIBE, _GROUP, Refusal.ENTRY),),
    ApiKey.LIST_GROUPS: (
        Need(
            Operation.DESCRIBE,
            _GROUP,
            Refusal.OMITTED,
            instead=(Operation.DESCRIBE, _CLUSTER),
        ),
    ),
    ApiKey.DELETE_GROUPS: (Need(Operation.DELETE, _GROUP, Refusal.ENTRY),),
    ApiKey.OFFSET_DELETE: (
        Need(Operation.DELETE, _GROUP, Refusal.AT_ONCE),
        Need(Operation.READ, _TOPIC, Refusal.ENTRY),
    ),
    # Between brokers.
    ApiKey.LEADER_AND_ISR: _FROM_BROKERS,
    ApiKey.STOP_REPLICA: _FROM_BROKERS,
    ApiKey.UPDATE_METADATA: _FROM_BROKERS,
    ApiKey.CONTROLLED_SHUTDOWN: _FROM_BROKERS,
    ApiKey.WRITE_TXN_MARKERS: _FROM_BROKERS,
    # Only what the sender may do to the cluster needs a permission to be told.
    ApiKey.DESCRIBE_CLUSTER: (),
    # Before anybody is known.
    ApiKey.API_VERSIONS: (),
    ApiKey.SASL_HANDSHAKE: (),
    ApiKey.SASL_AUTHENTICATE: (),
}
"""What the requests of each API need, in the order in which it is checked: the first refusal
decides."""


def _cluster_of(request: Any) -> Resource:
    return CLUSTER


def _group_of(request: Any) -> Resource:
    return group(request.group_id)


def _transactional_id_of(request: Any) -> Resource:
    return transactional_id(request.transactional_id)


_RESOURCE_OF: Mapping[ResourceType, Callable[[Any], Resource]] = {
    _CLUSTER: _cluster_of,
    _GROUP: _group_of,
    _TRANSACTIONAL_ID: _transactional_id_of,
}

AT_ONCE: Mapping[int, tuple[Operation, Callable[[Any], Resource]]] = {
    key: (need.operation, _RESOURCE_OF[need.kind])
    for key, needs in NEEDS.items()
    for need in needs
    if need.refusal is Refusal.AT_ONCE
}
"""The needs that dispatch checks: the operation, and the one resource that a request concerns."""
