"""Read and write the ACLs of resource patterns in ZooKeeper, as Kafka's brokers do.

A node is written over the version that was read, and read again if another was faster. After the
write a notification names the resource, so that all brokers read it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Collection, Iterable
from functools import partial
from operator import attrgetter
from typing import TypeGuard

import attrs

from broker.process.loop_turns import LoopTurns
from broker.process.zk_retry import retry_until_connected
from protocol.acls import (
    RESOURCE_TYPES,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from protocol.errors import ApiError, ErrorCode
from protocol.frozen import frozen
from zk.api import BadVersion, NodeExists, NoNode, Stat, ZkSession, children_if_there
from zk.znodes import AclChange, ResourceAcls, StoredAcl

logger = logging.getLogger(__name__)

MAX_RETRIES = 10
RETRY_BACKOFF_MS = 100
RETRY_BACKOFF_JITTER_MS = 50
"""Kafka's numbers for a node that others write at the same time."""

ACLS_A_TURN = 1000
"""ACLs, and resources that have some, that are decoded in one turn of the loop."""

PATTERN_TYPES = (PatternType.LITERAL, PatternType.PREFIXED)


@frozen
class VersionedAcls:
    """The ACLs of one resource pattern, and the version of its node; None: there is none.

    `unknown` are entries whose words we do not know. They concern nobody, and are written back.
    """

    entries: frozenset[AclEntry] = frozenset()
    version: int | None = None
    unknown: tuple[StoredAcl, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if there is no entry at all."""
        return not self.entries and not self.unknown


NO_ACLS = VersionedAcls()

_IN_ORDER = attrgetter("principal", "operation", "permission", "host")
"""The key of the order that entries have: several times faster than to compare them."""

Change = Callable[[frozenset[AclEntry]], frozenset[AclEntry]]
"""Makes the entries of a resource pattern from those that it has."""


async def create_acl_paths(zk: ZkSession) -> None:
    """Create what brokers with an authorizer expect: the parents of all nodes."""
    for pattern in PATTERN_TYPES:
        for kind in RESOURCE_TYPES:
            await zk.ensure_path(ResourceAcls.directory(pattern.name, kind.word))
        await zk.ensure_path(AclChange.directory(pattern.name))


# ---- read


async def list_patterns(zk: ZkSession) -> list[ResourcePattern]:
    """List the resource patterns that have ACLs."""
    patterns = []
    for pattern_type in PATTERN_TYPES:
        for kind in await _listed_types(zk, pattern_type):
            directory = ResourceAcls.directory(pattern_type.name, kind.word)
            names = await retry_until_connected(zk, partial(children_if_there, zk, directory))
            patterns += [ResourcePattern(kind, name, pattern_type) for name in names]
    return patterns


async def _listed_types(zk: ZkSession, pattern_type: PatternType) -> list[ResourceType]:
    directory = ResourceAcls.directory(pattern_type.name)
    kinds = []
    for word in await retry_until_connected(zk, partial(children_if_there, zk, directory)):
        kind = ResourceType.parse(word)
        if kind in RESOURCE_TYPES:
            kinds.append(kind)
        else:
            logger.warning("%s/%s: ignored: this type of resource is unknown", directory, word)
    return kinds


async def read_acls(
    zk: ZkSession, patterns: Collection[ResourcePattern]
) -> dict[ResourcePattern, VersionedAcls]:
    """Read the ACLs of these patterns; those without a node have NO_ACLS. Raises ZnodeError."""
    turns = LoopTurns(ACLS_A_TURN)
    paths = []
    for pattern in patterns:
        await turns.take()  # (fault strangers-11)
        paths.append(_path(pattern))
    nodes = await retry_until_connected(zk, lambda: zk.get_many(paths))

    acls = {}
    for pattern, path, node in zip(patterns, paths, nodes, strict=True):
        acls[pattern] = NO_ACLS if node is None else _decode(path, node)
        # In a new session all are read, while clients are served (fault strangers-11).
        await turns.take(1 + len(acls[pattern].entries))
    return acls


def is_possible(pattern: ResourcePattern | None) -> TypeGuard[ResourcePattern]:
    """Return whether ZooKeeper can have a node for this pattern."""
    if pattern is None:
        return False
    try:
        _path(pattern)
    except ValueError:
        return False
    return True


def _path(pattern: ResourcePattern) -> str:
    return ResourceAcls.path(pattern.pattern.name, pattern.kind.word, pattern.name)


def _decode(path: str, node: tuple[bytes | None, Stat]) -> VersionedAcls:
    data, stat = node
    entries = set()
    unknown = []
    for acl in ResourceAcls.decode(data, path).acls:
        operation = Operation.parse(acl.operation)
        permission = Permission.parse(acl.permission_type)
        if operation is None or permission is None:
            unknown.append(acl)
        else:
            entries.add(AclEntry(acl.principal, operation, permission, acl.host))
    return VersionedAcls(frozenset(entries), stat.version, tuple(unknown))


# ---- write


async def update_acls(
    zk: ZkSession,
    pattern: ResourcePattern,
    known: VersionedAcls,
    change: Change,
    rng: random.Random,
) -> VersionedAcls:
    """Change the entries of a resource pattern, and notify all brokers; return what it has then.

    `known` is what it had when it was last read. Raises ApiError if others are always faster, and
    ZkError.
    """
    for attempt in range(MAX_RETRIES + 1):
        wanted = attrs.evolve(known, entries=change(known.entries))
        try:
            written = await _write(zk, pattern, wanted)
        except (BadVersion, NodeExists, NoNode):
            pause_ms = RETRY_BACKOFF_MS + rng.randrange(RETRY_BACKOFF_JITTER_MS)
            await asyncio.sleep(pause_ms / 1000)
            known = (await read_acls(zk, [pattern]))[pattern]
            continue

        # A write whose response was lost may be the first attempt's.
        if attempt or written.entries != known.entries:
            await _notify(zk, pattern)
        return written

    raise ApiError(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"Failed to update ACLs for {pattern} after trying a maximum of {MAX_RETRIES} times",
    )


async def _write(zk: ZkSession, pattern: ResourcePattern, wanted: VersionedAcls) -> VersionedAcls:
    path = _path(pattern)
    version = wanted.version

    # The node goes with its last entry.
    if wanted.is_empty:
        if version is not None:
            with contextlib.suppress(NoNode):
                await retry_until_connected(zk, lambda: zk.delete(path, version))
        return NO_ACLS

    entries = sorted(wanted.entries, key=_IN_ORDER)
    data = ResourceAcls((*wanted.unknown, *map(_stored, entries))).encode()
    if version is None:
        await retry_until_connected(zk, lambda: zk.create(path, data, make_parents=True))
        return attrs.evolve(wanted, version=0)
    stat = await retry_until_connected(zk, lambda: zk.set(path, data, version))
    return attrs.evolve(wanted, version=stat.version)


def _stored(entry: AclEntry) -> StoredAcl:
    return StoredAcl(entry.principal, entry.permission.word, entry.operation.word, entry.host)


async def _notify(zk: ZkSession, pattern: ResourcePattern) -> None:
    for word in _spellings(pattern.kind):
        change = AclChange(word, pattern.name, pattern.pattern.name)
        await retry_until_connected(
            zk,
            partial(zk.create, change.prefix, change.encode(), sequence=True, make_parents=True),
        )


def _spellings(kind: ResourceType) -> Iterable[str]:
    """Return the spellings that brokers know: one for types of one word, else both of Kafka's."""
    return (kind.word,) if kind.word.upper() == kind.name else (kind.word, kind.name)


# ---- notifications


def changed_pattern(
    pattern_type: PatternType, data: bytes | None, path: str
) -> ResourcePattern | None:
    """Return the pattern that a notification names; None for one that has no node.

    Raises ZnodeError.
    """
    change = AclChange.decode(pattern_type.name, data, path)
    kind = ResourceType.parse(change.resource_type)
    pattern_of_change = PatternType.parse(change.pattern_type)
    if kind not in RESOURCE_TYPES or pattern_of_change not in PATTERN_TYPES:
        return None
    pattern = ResourcePattern(kind, change.name, pattern_of_change)
    return pattern if is_possible(pattern) else None
