"""The words of ACLs (KIP-11, KIP-140, KIP-290): resources, operations, bindings and filters.

An ACL binds an entry (who, from where, may or may not do what) to a resource pattern: one name, the
literal name `*` for all, or all names with a prefix. The numbers are those on the wire. ZooKeeper
and people have the names, such as `DescribeConfigs`.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import Self

import attrs

from protocol.frozen import frozen

WILDCARD = "*"
"""As a literal name: all resources of the type. As a host: all hosts."""
ANY_PRINCIPAL = "User:*"
"""In an ACL: every principal, of any type."""
CLUSTER_NAME = "kafka-cluster"
"""The name of the only cluster resource."""


class AclWord(IntEnum):
    """A word of ACLs, with its number on the wire."""

    @property
    def word(self) -> str:
        """The word as ZooKeeper and Kafka's tools write it: DescribeConfigs."""
        return "".join(part.capitalize() for part in self.name.split("_"))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read a word in either of Kafka's spellings, in any case; None if there is no such word.

        Brokers before 2.4 write DescribeConfigs, later ones also DESCRIBE_CONFIGS.
        """
        return cls._by_letters().get(text.replace("_", "").lower())

    @classmethod
    def of(cls, number: int) -> Self | None:
        """Return the word with this number; None if it is unknown."""
        try:
            word = cls(number)
        except ValueError:
            return None
        return word or None

    @classmethod
    @cache
    def _by_letters(cls) -> dict[str, Self]:
        return {word.name.replace("_", "").lower(): word for word in cls if word}


class Operation(AclWord):
    """An operation on a resource. ANY is for filters alone, ALL for ACLs alone."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
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


class ResourceType(AclWord):
    """A type of resources. ANY is for filters alone."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6


class PatternType(AclWord):
    """The way in which a pattern names resources. ANY and MATCH are for filters alone.

    MATCH finds all ACLs that concern a resource: literal, prefixed and wildcard ones.
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(AclWord):
    """The verdict of an ACL: no before yes. ANY is for filters alone."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


RESOURCE_TYPES = tuple(kind for kind in ResourceType if kind > ResourceType.ANY)
"""The types that ACLs may name."""

OPERATIONS_OF: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
}
"""The operations that mean something on a resource of each type, beside ALL (KIP-430)."""


@attrs.frozen(order=True)
class ResourcePattern:
    """The resources that an ACL is about."""

    kind: ResourceType
    name: str
    pattern: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        return f"{self.kind.word}:{self.pattern.name}:{self.name}"


@attrs.frozen(order=True)
class AclEntry:
    """Allow or deny an operation to a principal (`User:alice`) from a host (an address or `*`)."""

    principal: str
    operation: Operation
    permission: Permission = Permission.ALLOW
    host: str = WILDCARD


@attrs.frozen(order=True)
class AclBinding:
    """One ACL: an entry on a resource pattern."""

    resource: ResourcePattern
    entry: AclEntry


@frozen
class AclFilter:
    """Chooses ACLs; without arguments all of them.

    `principal` and `host` are compared as they are written: `User:*` finds the ACLs of `User:*`.
    """

    kind: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    @classmethod
    def exactly(cls, binding: AclBinding) -> AclFilter:
        """Return the filter that chooses this ACL alone."""
        resource, entry = binding.resource, binding.entry
        return cls(
            resource.kind,
            resource.name,
            resource.pattern,
            entry.principal,
            entry.host,
            entry.operation,
            entry.permission,
        )

    def chooses(self, binding: AclBinding) -> bool:
        """Return whether the filter chooses an ACL."""
        return self.chooses_resource(binding.resource) and self.chooses_entry(binding.entry)

    def chooses_resource(self, resource: ResourcePattern) -> bool:
        """Return whether the filter chooses ACLs of this resource pattern."""
        if self.kind not in (ResourceType.ANY, resource.kind):
            return False
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, resource.pattern):
            return False
        if self.name is None or self.name == resource.name:
            return True

        # Other names match as they would for a request.
        if self.pattern is not PatternType.MATCH:
            return False
        if resource.pattern is PatternType.PREFIXED:
            return self.name.startswith(resource.name)
        return resource.name == WILDCARD

    def chooses_entry(self, entry: AclEntry) -> bool:
        """Return whether the filter chooses this entry on the resources that it chooses."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )

    @property
    def entry(self) -> AclEntry | None:
        """The only entry that the filter can choose on a resource; None if there may be others."""
        if self.principal is None or self.host is None:
            return None
        if self.operation is Operation.ANY or self.permission is Permission.ANY:
            return None
        return AclEntry(self.principal, self.operation, self.permission, self.host)

    @property
    def resource(self) -> ResourcePattern | None:
        """The only resource pattern that the filter can choose; None if there may be others."""
        if self.name is None or self.kind is ResourceType.ANY:
            return None
        if self.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
            return None
        return ResourcePattern(self.kind, self.name, self.pattern)
