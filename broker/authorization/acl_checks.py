"""Check what people write into ACLs and settings before it counts. Pure."""

from __future__ import annotations

from broker.network.session import Principal
from protocol.acls import (
    CLUSTER_NAME,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from protocol.errors import ApiError, ErrorCode
from zk.znodes import ResourceAcls

_NO_TYPES = (ResourceType.UNKNOWN, ResourceType.ANY)
_NO_PATTERNS = (PatternType.UNKNOWN, PatternType.ANY, PatternType.MATCH)
_NO_OPERATIONS = (Operation.UNKNOWN, Operation.ANY)
_NO_PERMISSIONS = (Permission.UNKNOWN, Permission.ANY)


def parse_principal(text: str) -> Principal:
    """Read `Type:name`; the name may have colons itself. Raises ValueError."""
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise ValueError(
            f"expected a string in format principalType:principalName but got {text or 'nothing'}"
        )
    return Principal(kind, name)


def parse_super_users(text: str) -> frozenset[Principal]:
    """Read super.users: principals with semicolons between them. Raises ValueError."""
    if not text.strip():
        return frozenset()
    return frozenset(parse_principal(part.strip()) for part in text.split(";"))


def check_binding(binding: AclBinding) -> None:
    """Raise ApiError INVALID_REQUEST for an ACL that cannot be kept."""
    resource, entry = binding.resource, binding.entry

    # Words that are for filters alone.
    for word, no_words in (
        (resource.kind, _NO_TYPES),
        (resource.pattern, _NO_PATTERNS),
        (entry.operation, _NO_OPERATIONS),
        (entry.permission, _NO_PERMISSIONS),
    ):
        if word in no_words:
            raise _invalid(f"an ACL cannot have the {type(word).__name__} {word.name}")

    # The resource.
    if not resource.name:
        raise _invalid("Invalid empty resource name")
    if resource.kind is ResourceType.CLUSTER and resource.name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    try:
        ResourceAcls.path(resource.pattern.name, resource.kind.word, resource.name)
    except ValueError as error:
        raise _invalid(f"ACL binding contains invalid resource name: {error}") from None

    # Who, and from where.
    try:
        parse_principal(entry.principal)
    except ValueError as error:
        raise _invalid(f"principal: {error}") from None
    if not entry.host:
        raise _invalid("an ACL needs a host: an address, or *")


def _invalid(detail: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, detail)
