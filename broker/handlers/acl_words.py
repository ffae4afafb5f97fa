"""The numbers of requests about ACLs as words; None where a number is unknown.

Kafka cannot even build such a request, and closes the connection.
"""

from __future__ import annotations

from broker.network.dispatch import Close
from protocol.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from protocol.messages.create_acls import CreateAclsRequestCreation
from protocol.messages.delete_acls import DeleteAclsRequestFilter
from protocol.messages.describe_acls import DescribeAclsRequest

UNKNOWN_WORD = Close("a request about ACLs has an unknown type, pattern, operation or permission")
NO_AUTHORIZER = "No Authorizer is configured on the broker"


def read_filter(asked: DescribeAclsRequest | DeleteAclsRequestFilter) -> AclFilter | None:
    """Return the filter of a request."""
    kind = ResourceType.of(asked.resource_type_filter)
    pattern = PatternType.of(asked.pattern_type_filter)
    operation = Operation.of(asked.operation)
    permission = Permission.of(asked.permission_type)
    if kind is None or pattern is None or operation is None or permission is None:
        return None
    return AclFilter(
        kind,
        asked.resource_name_filter,
        pattern,
        asked.principal_filter,
        asked.host_filter,
        operation,
        permission,
    )


def read_binding(creation: CreateAclsRequestCreation) -> AclBinding | None:
    """Return the ACL of a request."""
    kind = ResourceType.of(creation.resource_type)
    pattern = PatternType.of(creation.resource_pattern_type)
    operation = Operation.of(creation.operation)
    permission = Permission.of(creation.permission_type)
    if kind is None or pattern is None or operation is None or permission is None:
        return None
    return AclBinding(
        ResourcePattern(kind, creation.resource_name, pattern),
        AclEntry(creation.principal, operation, permission, creation.host),
    )
