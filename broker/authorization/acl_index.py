"""Decide by ACLs (KIP-11, KIP-290). Pure.

On one resource the ACLs of its name, of the literal name `*`, and of all prefixes of its name
count. Whoever is a super user may do everything. Without any ACL, for anybody, the setting
allow.everyone.if.no.acl.found decides. Else one DENY forbids, and one ALLOW allows. ALLOW alone has
implications: who may read, write, delete or alter may describe.

A request may name thousands of resources, so the ACLs that concern one sender and one operation are
gathered once, as sets of names (`Names`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Set

import attrs

from broker.network.authorization import Resource
from broker.network.session import Principal
from protocol.acls import (
    ANY_PRINCIPAL,
    WILDCARD,
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from protocol.frozen import frozen

_IMPLYING: Mapping[Operation, frozenset[Operation]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""The operations that imply another one, where they are allowed."""


@frozen
class Policy:
    """The settings that decide beside ACLs."""

    super_users: frozenset[Principal] = frozenset()
    allow_everyone_if_no_acl_found: bool = False


@attrs.frozen(eq=False)
class Names:
    """The names that some patterns cover.

    `prefixes` is sorted, and none of them begins with another one. So the only one that a name can
    begin with is the last that is not above it.
    """

    has_all: bool = False
    literals: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()

    @classmethod
    def of(cls, patterns: Iterable[ResourcePattern]) -> Names:
        """Return the names that `patterns`, all of one type of resource, cover."""
        literals = set()
        prefixes = []
        for pattern in patterns:
            if pattern.pattern is PatternType.LITERAL:
                literals.add(pattern.name)
            else:
                prefixes.append(pattern.name)

        # What begins with another prefix adds nothing to it.
        shortest: list[str] = []
        for prefix in sorted(prefixes):
            if not shortest or not prefix.startswith(shortest[-1]):
                shortest.append(prefix)
        if not literals and not shortest:
            return NO_NAMES
        return cls(WILDCARD in literals, frozenset(literals), tuple(shortest))

    def __contains__(self, name: str) -> bool:
        return self.has_all or name in self.literals or self.begin(name)

    def begin(self, name: str) -> bool:
        """Return whether `name` begins with one of the prefixes."""
        at = bisect_right(self.prefixes, name)
        return at > 0 and name.startswith(self.prefixes[at - 1])

    def among(self, names: Set[str]) -> Set[str]:
        """Return those of many names that are covered."""
        if self.has_all:
            return names
        covered = names & self.literals
        prefixes = self.prefixes
        if prefixes:
            covered |= {
                name
                for name in names
                if (at := bisect_right(prefixes, name)) and name.startswith(prefixes[at - 1])
            }
        return covered


NO_NAMES = Names()


@attrs.frozen(eq=False)
class AclPermissions:
    """The resources of one type on which one sender may perform one operation.

    `named` has all names with an ACL, for anybody; None where it makes no difference.
    """

    allowed: Names
    denied: Names
    named: Names | None = None

    def allows(self, name: str) -> bool:
        """Return whether the operation is allowed on this resource."""
        # Nearly always nothing is denied.
        if self.denied is not NO_NAMES and name in self.denied:
            return False
        # Written out: this is asked for each topic of each request.
        allowed = self.allowed
        if allowed.has_all or name in allowed.literals:
            return True
        prefixes = allowed.prefixes
        # A name below the first prefix begins with none, nor with the last one.
        if prefixes and name.startswith(prefixes[bisect_right(prefixes, name) - 1]):
            return True
        return self.named is not None and name not in self.named

    def refused(self, names: Iterable[str]) -> set[str]:
        """Return those of `names` on which it is not allowed."""
        every = set(names)
        refused = every - self.allowed.among(every)
        if self.named is not None:
            refused &= self.named.among(refused)
        return refused | self.denied.among(every)


EVERYTHING = AclPermissions(allowed=Names(has_all=True), denied=NO_NAMES)
"""The permissions of a super user."""


@attrs.frozen(eq=False)
class AclIndex:
    """The ACLs of a cluster at one time, by type of resource and principal."""

    _entries: Mapping[ResourceType, Mapping[str, list[tuple[ResourcePattern, AclEntry]]]]
    _named: Mapping[ResourceType, Names]

    @classmethod
    def of(cls, acls: Mapping[ResourcePattern, Iterable[AclEntry]]) -> AclIndex:
        """Index the entries of each resource pattern."""
        entries: dict[ResourceType, dict[str, list[tuple[ResourcePattern, AclEntry]]]] = (
            defaultdict(lambda: defaultdict(list))
        )
        patterns: dict[ResourceType, list[ResourcePattern]] = defaultdict(list)
        for pattern, of_pattern in acls.items():
            patterns[pattern.kind].append(pattern)
            by_principal = entries[pattern.kind]
            for entry in of_pattern:
                by_principal[entry.principal].append((pattern, entry))
        return cls(entries, {kind: Names.of(found) for kind, found in patterns.items()})

    def permissions(
        self,
        policy: Policy,
        principal: Principal,
        host: str,
        operation: Operation,
        kind: ResourceType,
    ) -> AclPermissions:
        """Return on which resources of a type the principal may perform the operation."""
        if principal in policy.super_users:
            return EVERYTHING
        implying = _IMPLYING.get(operation, frozenset())
        return AclPermissions(
            Names.of(
                self._patterns(principal, host, kind, {operation, *implying}, Permission.ALLOW)
            ),
            Names.of(self._patterns(principal, host, kind, {operation}, Permission.DENY)),
            self._named.get(kind, NO_NAMES) if policy.allow_everyone_if_no_acl_found else None,
        )

    def may_somewhere(
        self,
        policy: Policy,
        principal: Principal,
        host: str,
        operation: Operation,
        kind: ResourceType,
    ) -> bool:
        """Return whether the principal can have a resource to perform the operation on (KIP-679).

        An ALLOW counts unless a DENY covers all of it. Nothing is implied here, as in Kafka.
        """
        if principal in policy.super_users:
            return True
        denied = Names.of(self._patterns(principal, host, kind, {operation}, Permission.DENY))
        if denied.has_all:
            return False
        if policy.allow_everyone_if_no_acl_found:
            return True

        for pattern in self._patterns(principal, host, kind, {operation}, Permission.ALLOW):
            if pattern.pattern is PatternType.PREFIXED:
                if not denied.begin(pattern.name):
                    return True
            elif pattern.name == WILDCARD or pattern.name not in denied:
                return True
        return False

    def _patterns(
        self,
        principal: Principal,
        host: str,
        kind: ResourceType,
        operations: set[Operation],
        permission: Permission,
    ) -> list[ResourcePattern]:
        """Return the patterns with an entry that concerns the sender."""
        operations = operations | {Operation.ALL}
        return [
            pattern
            for text in {str(principal), ANY_PRINCIPAL}
            for pattern, entry in self._entries.get(kind, {}).get(text, ())
            if entry.permission is permission
            and entry.operation in operations
            and entry.host in (host, WILDCARD)
        ]


def allows(
    acls: Iterable[AclBinding],
    principal: Principal,
    host: str,
    operation: Operation,
    resource: Resource,
    policy: Policy,
) -> bool:
    """Return whether `acls` allow the principal, at `host`, the operation on a resource."""
    by_pattern: dict[ResourcePattern, list[AclEntry]] = defaultdict(list)
    for binding in acls:
        by_pattern[binding.resource].append(binding.entry)
    permissions = AclIndex.of(by_pattern).permissions(
        policy, principal, host, operation, resource.kind
    )
    return permissions.allows(resource.name)
