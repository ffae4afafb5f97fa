"""Requests about ACLs, and what their responses say. Pure.

A word that only a newer broker knows is UNKNOWN here.
"""

from collections.abc import Iterable, Sequence

from clients.admin.verdicts import Verdicts, make_verdict, raise_for
from clients.errors import left_out
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
from protocol.api_key import ApiKey
from protocol.messages.create_acls import (
    CreateAclsRequest,
    CreateAclsRequestCreation,
    CreateAclsResponse,
)
from protocol.messages.delete_acls import (
    DeleteAclsRequest,
    DeleteAclsRequestFilter,
    DeleteAclsResponse,
)
from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

SINCE_PATTERNS = 1
"""The first version with pattern types (brokers from 2.0 on); before it, all names are literal."""


def first_version(patterns: Iterable[PatternType]) -> int:
    """Return the first version of the requests that can say these."""
    return 0 if all(pattern is PatternType.LITERAL for pattern in patterns) else SINCE_PATTERNS


def describe_acls_request(wanted: AclFilter) -> DescribeAclsRequest:
    """Ask for the ACLs that a filter chooses."""
    return DescribeAclsRequest(
        resource_type_filter=wanted.kind,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )


def described_acls(response: DescribeAclsResponse) -> list[AclBinding]:
    """Return the ACLs, sorted. Raises BrokerError."""
    raise_for(ApiKey.DESCRIBE_ACLS, response.error_code, response.error_message or "ACLs")
    return sorted(
        _binding(
            (resource.resource_type, resource.resource_name, resource.pattern_type),
            (acl.principal, acl.operation, acl.permission_type, acl.host),
        )
        for resource in response.resources
        for acl in resource.acls
    )


def create_acls_request(bindings: Sequence[AclBinding]) -> CreateAclsRequest:
    """Ask for ACLs to be added."""
    return CreateAclsRequest(
        creations=[
            CreateAclsRequestCreation(
                resource_type=binding.resource.kind,
                resource_name=binding.resource.name,
                resource_pattern_type=binding.resource.pattern,
                principal=binding.entry.principal,
                host=binding.entry.host,
                operation=binding.entry.operation,
                permission_type=binding.entry.permission,
            )
            for binding in bindings
        ]
    )


def created_acls(
    bindings: Sequence[AclBinding], response: CreateAclsResponse
) -> Verdicts[AclBinding]:
    """Return None or the error of each ACL; the results are in the order of the request."""
    return {
        binding: make_verdict(
            ApiKey.CREATE_ACLS, result.error_code, result.error_message or str(binding.resource)
        )
        for binding, result in zip(bindings, response.results, strict=False)
    }


def delete_acls_request(filters: Sequence[AclFilter]) -> DeleteAclsRequest:
    """Ask for the ACLs that filters choose to be deleted."""
    return DeleteAclsRequest(
        filters=[
            DeleteAclsRequestFilter(
                resource_type_filter=chosen.kind,
                resource_name_filter=chosen.name,
                pattern_type_filter=chosen.pattern,
                principal_filter=chosen.principal,
                host_filter=chosen.host,
                operation=chosen.operation,
                permission_type=chosen.permission,
            )
            for chosen in filters
        ]
    )


def deleted_acls(
    filters: Sequence[AclFilter], response: DeleteAclsResponse
) -> dict[AclFilter, Verdicts[AclBinding]]:
    """Return for each filter its ACLs, with None or an error. Raises BrokerError."""
    # Without a result nothing is known of a filter's ACLs.
    if len(response.filter_results) < len(filters):
        raise left_out(filters[len(response.filter_results)])

    deleted: dict[AclFilter, Verdicts[AclBinding]] = {}
    for chosen, result in zip(filters, response.filter_results, strict=False):
        raise_for(ApiKey.DELETE_ACLS, result.error_code, result.error_message or "ACLs")
        # The same filter twice: the first has the ACLs.
        of_filter = deleted.setdefault(chosen, {})
        for acl in result.matching_acls:
            binding = _binding(
                (acl.resource_type, acl.resource_name, acl.pattern_type),
                (acl.principal, acl.operation, acl.permission_type, acl.host),
            )
            detail = acl.error_message or str(binding.resource)
            of_filter[binding] = make_verdict(ApiKey.DELETE_ACLS, acl.error_code, detail)
    return deleted


def _binding(resource: tuple[int, str, int], entry: tuple[str, int, int, str]) -> AclBinding:
    kind, name, pattern = resource
    principal, operation, permission, host = entry
    return AclBinding(
        ResourcePattern(
            ResourceType.of(kind) or ResourceType.UNKNOWN,
            name,
            PatternType.of(pattern) or PatternType.UNKNOWN,
        ),
        AclEntry(
            principal,
            Operation.of(operation) or Operation.UNKNOWN,
            Permission.of(permission) or Permission.UNKNOWN,
            host,
        ),
    )
