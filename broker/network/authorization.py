"""Say which operation on which resource a request needs, in the words of ACLs (KIP-11).

Dispatch checks requests that need one resource: the cluster or a group. A request that names
several topics or groups is checked by its handler, name by name (`request_context.authorize`,
`refused_topics`), because one may be refused and the others not. A refused name gets the error of
its resource type, whether or not it exists. Without an authorizer everything is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from broker.network.session import Principal
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode


class Operation(Enum):
    """An operation, by its number on the wire (KIP-140)."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class ResourceType(Enum):
    """A kind of resource, by its number on the wire."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Resource(NamedTuple):
    """A resource that an ACL may name."""

    kind: ResourceType
    name: str


# The only resource of its type, under the name that ACLs use.
CLUSTER = Resource(ResourceType.CLUSTER, "kafka-cluster")

REFUSALS: Mapping[ResourceType, ErrorCode] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


Authorizer = Callable[[Principal, Operation, Resource], bool]
"""Returns whether a principal may do this to a resource."""


def topic(name: str) -> Resource:
    """Return the resource of a topic."""
    return Resource(ResourceType.TOPIC, name)


def group(group_id: str) -> Resource:
    """Return a group as a resource."""
    return Resource(ResourceType.GROUP, group_id)


def transactional_id(name: str) -> Resource:
    """Return a transactional id as a resource."""
    return Resource(ResourceType.TRANSACTIONAL_ID, name)


def _group(request: Any) -> Resource:
    return group(request.group_id)


def _cluster(request: Any) -> Resource:
    return CLUSTER


NEEDS: Mapping[int, tuple[Operation, Callable[[Any], Resource]]] = {
    # From brokers.
    ApiKey.LEADER_AND_ISR: (Operation.CLUSTER_ACTION, _cluster),
    ApiKey.STOP_REPLICA: (Operation.CLUSTER_ACTION, _cluster),
    ApiKey.UPDATE_METADATA: (Operation.CLUSTER_ACTION, _cluster),
    ApiKey.CONTROLLED_SHUTDOWN: (Operation.CLUSTER_ACTION, _cluster),
    # From administrators.
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (Operation.ALTER, _cluster),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (Operation.DESCRIBE, _cluster),
    ApiKey.ELECT_LEADERS: (Operation.ALTER, _cluster),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (Operation.ALTER, _cluster),
    ApiKey.DESCRIBE_LOG_DIRS: (Operation.DESCRIBE, _cluster),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (Operation.DESCRIBE_CONFIGS, _cluster),
    ApiKey.ALTER_CLIENT_QUOTAS: (Operation.ALTER_CONFIGS, _cluster),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (Operation.DESCRIBE, _cluster),
    # From members of a group, and those who look after it.
    ApiKey.JOIN_GROUP: (Operation.READ, _group),
    ApiKey.SYNC_GROUP: (Operation.READ, _group),
    ApiKey.HEARTBEAT: (Operation.READ, _group),
    ApiKey.LEAVE_GROUP: (Operation.READ, _group),
    ApiKey.OFFSET_COMMIT: (Operation.READ, _group),
    ApiKey.OFFSET_DELETE: (Operation.DELETE, _group),
}
"""The requests that need one resource, as Kafka's protocol guide lists them."""
