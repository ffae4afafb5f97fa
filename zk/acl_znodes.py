"""Znodes of ACLs: one per resource pattern, and the notifications of their changes.

A node has the name of its resource, as it is: `*`, colons and spaces are legal, a slash is not. Its
entries are kept as words here; which of them are known is the reader's concern.

Brokers before 2.4 write the type of a resource into a notification as `TransactionalId`, later ones
as `TRANSACTIONAL_ID`, and each misses the other's. Of types that are one word, all read both.
"""

import re

import attrs

from protocol.frozen import frozen
from zk.znode_json import Extra, JsonReader, ZnodeError, array, integer, string, write_json

LITERAL = "LITERAL"
PREFIXED = "PREFIXED"

_DIRECTORIES = {LITERAL: "/kafka-acl", PREFIXED: "/kafka-acl-extended/prefixed"}
_CHANGES = {LITERAL: "/kafka-acl-changes", PREFIXED: "/kafka-acl-extended-changes"}

VERSION = 1

_IMPOSSIBLE = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
"""What ZooKeeper allows in no node's name."""


@frozen
class StoredAcl:
    """One entry of a resource's ACLs, in the words of the node."""

    principal: str
    permission_type: str
    operation: str
    host: str


@frozen
class ResourceAcls:
    """The ACLs of one resource pattern; persistent, and deleted with the last of them."""

    acls: tuple[StoredAcl, ...]
    extra: Extra = attrs.field(factory=dict, kw_only=True)

    @staticmethod
    def directory(pattern_type: str, resource_type: str = "") -> str:
        """Return the parent of the nodes of a type (`Topic`), or of all types."""
        directory = _DIRECTORIES[pattern_type]
        return f"{directory}/{resource_type}" if resource_type else directory

    @staticmethod
    def path(pattern_type: str, resource_type: str, name: str) -> str:
        """Raise ValueError for a name that cannot be one of a node."""
        if name in ("", ".", "..") or _IMPOSSIBLE.search(name):
            raise ValueError(f"{name!r} cannot be the name of a znode")
        return f"{_DIRECTORIES[pattern_type]}/{resource_type}/{name}"

    def encode(self) -> bytes:
        acls = [
            {
                "principal": acl.principal,
                "permissionType": acl.permission_type,
                "operation": acl.operation,
                "host": acl.host,
            }
            for acl in self.acls
        ]
        return write_json({"version": VERSION, "acls": acls, **self.extra})

    @staticmethod
    def decode(data: bytes | None, path: str = "/kafka-acl/<type>/<name>") -> "ResourceAcls":
        """Read the node. One without data has no ACLs; other versions than 1 are refused."""
        if not data:
            return ResourceAcls(())

        def acl(value: object) -> StoredAcl:
            read = JsonReader.of_object(value, path)
            return StoredAcl(
                read.take("principal", string),
                read.take("permissionType", string),
                read.take("operation", string),
                read.take("host", string),
            )

        read = JsonReader(data, path)
        version = read.take("version", integer)
        if version != VERSION:
            raise ZnodeError(path, f"version {version} is not {VERSION}")
        return ResourceAcls(read.take("acls", array(acl)), extra=read.rest())


@frozen
class AclChange:
    """A notification that the ACLs of a resource pattern have changed; persistent, sequential.

    `resource_type` is written as it is given, so that the writer chooses the spelling.
    """

    resource_type: str
    name: str
    pattern_type: str = LITERAL

    @staticmethod
    def directory(pattern_type: str) -> str:
        return _CHANGES[pattern_type]

    @property
    def prefix(self) -> str:
        return f"{_CHANGES[self.pattern_type]}/acl_changes_"

    def encode(self) -> bytes:
        # Text for literal names, which brokers before 2.0 know; JSON for all others.
        if self.pattern_type == LITERAL:
            return f"{self.resource_type}:{self.name}".encode()
        return write_json(
            {
                "version": VERSION,
                "resourceType": self.resource_type,
                "name": self.name,
                "patternType": self.pattern_type,
            }
        )

    @staticmethod
    def decode(pattern_type: str, data: bytes | None, path: str) -> "AclChange":
        """Read a notification below `directory(pattern_type)`."""
        if pattern_type != LITERAL:
            read = JsonReader(data, path)
            version = read.take("version", integer)
            if version > VERSION:
                raise ZnodeError(path, f"version {version} is above {VERSION}")
            resource_type = read.take("resourceType", string)
            name = read.take("name", string)
            return AclChange(resource_type, name, read.take("patternType", string).upper())

        try:
            resource_type, colon, name = (data or b"").decode().partition(":")
        except UnicodeDecodeError as error:
            raise ZnodeError(path, f"not UTF-8: {error}") from None
        if not colon:
            raise ZnodeError(path, f"{data!r} is not <type>:<name>")
        return AclChange(resource_type, name)
