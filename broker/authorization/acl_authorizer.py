"""The authorizer of a broker: the ACLs in ZooKeeper, and the decisions by them.

All ACLs are kept in memory. `start` watches for notifications before it reads them, so that no
change falls in between; each notification has one resource pattern read again. Writes and reads
hold one lock, so that an older read never takes the place of a newer write: whoever changes ACLs
here sees them here, other brokers follow.

What concerns one sender and one operation is gathered once (`acl_index`), and forgotten with the
next change of any ACL.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from broker.authorization.acl_checks import check_binding
from broker.authorization.acl_filters import FilterIndex, ResourceFilters
from broker.authorization.acl_index import AclIndex, AclPermissions, Policy
from broker.authorization.acl_store import (
    NO_ACLS,
    PATTERN_TYPES,
    VersionedAcls,
    changed_pattern,
    create_acl_paths,
    is_possible,
    list_patterns,
    read_acls,
    update_acls,
)
from broker.network.session import Principal
from broker.process.change_notifications import LOOK_INTERVAL_MS, ChangeNotifications
from broker.process.loop_turns import LoopTurns
from broker.process.periodic import run_every
from protocol.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from protocol.errors import ApiError, ErrorCode, let_go
from zk.api import ZkError, ZkSession
from zk.failures import describe, is_transient
from zk.znodes import AclChange, ZnodeError

logger = logging.getLogger(__name__)

MAX_SENDERS = 10_000
"""Principals, each with its host, whose permissions are kept."""

STEPS_A_TURN = 1000
"""ACLs that are checked, filters that are read and entries that are looked up in one turn."""

IN_FORCE_EVERY_S = 0.5
"""Time after which ACLs that are written count, while the request that writes them goes on."""

Deleted = dict[AclBinding, ApiError | None]
"""ACLs that a filter has chosen; with an error those that could not be deleted."""


@attrs.define(eq=False)
class AclSender:
    """A principal at a host, with the permissions that were asked for."""

    authorizer: AclAuthorizer
    index: AclIndex
    policy: Policy
    principal: Principal
    host: str
    _permissions: dict[tuple[Operation, ResourceType], AclPermissions] = attrs.field(factory=dict)

    def now(self) -> AclSender:
        """Return the same principal with its permissions of now."""
        return self.authorizer.sender(self.principal, self.host)

    def permissions(self, operation: Operation, kind: ResourceType) -> AclPermissions:
        """Return where the sender may perform `operation` on resources of a type."""
        known = self._permissions.get((operation, kind))
        if known is None:
            known = self._permissions[operation, kind] = self.index.permissions(
                self.policy, self.principal, self.host, operation, kind
            )
        return known

    def may_somewhere(self, operation: Operation, kind: ResourceType) -> bool:
        """Return whether there can be a resource on which it may perform `operation`."""
        return self.index.may_somewhere(self.policy, self.principal, self.host, operation, kind)


@attrs.define(eq=False)
class AclAuthorizer:
    """Decides by the ACLs in ZooKeeper, and changes them.

    Call `start` to follow them, or `load` once. Both raise ZkError, and ZnodeError for a node that
    cannot be understood.
    """

    zk: ZkSession
    policy: Policy
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    rng: random.Random = attrs.field(factory=random.Random)
    _acls: dict[ResourcePattern, VersionedAcls] = attrs.field(factory=dict)
    _index: AclIndex | None = None  # None after a change
    _senders: dict[tuple[Principal, str], AclSender] = attrs.field(factory=dict)
    _stale: set[ResourcePattern] = attrs.field(factory=set)
    _is_refreshing: bool = False
    _written: dict[ResourcePattern, VersionedAcls] = attrs.field(factory=dict)
    """Written by the request in work, and not in force yet."""
    _in_force_at_s: float = float("-inf")
    _is_unsure: bool = False  # True in a new session, until all is read again
    _lock: asyncio.Lock = attrs.field(factory=asyncio.Lock)
    _notifications: Sequence[ChangeNotifications] = ()

    # ---- decide

    def sender(self, principal: Principal, host: str) -> AclSender:
        """Return the sender of requests; `host` is an address in Java's form."""
        known = self._senders.get((principal, host))
        if known is not None:
            return known

        if self._index is None:
            self._index = AclIndex.of(
                {pattern: acls.entries for pattern, acls in self._acls.items()}
            )
        # Clients come and go: their permissions need not be kept for ever.
        if len(self._senders) >= MAX_SENDERS:
            self._senders.clear()
        sender = AclSender(self, self._index, self.policy, principal, host)
        self._senders[principal, host] = sender
        return sender

    def in_force(self) -> list[tuple[ResourcePattern, frozenset[AclEntry]]]:
        """Return all ACLs, as they are now, by resource."""
        return [(resource, acls.entries) for resource, acls in self._acls.items()]

    def find(self, wanted: AclFilter) -> list[AclBinding]:
        """Return the ACLs that a filter chooses."""
        return [
            AclBinding(resource, entry)
            for resource, entries in self.in_force()
            if wanted.chooses_resource(resource)
            for entry in entries
            if wanted.chooses_entry(entry)
        ]

    # ---- change

    async def add(
        self, bindings: Sequence[AclBinding], known: dict[int, ApiError | None] | None = None
    ) -> list[ApiError | None]:
        """Add ACLs; return None or the error of each. Those of one resource are one write.

        `known` gets the result of each place as soon as it is known.
        """
        results = {} if known is None else known
        places: dict[ResourcePattern, list[int]] = {}
        turns = LoopTurns(STEPS_A_TURN)
        for place, binding in enumerate(bindings):
            # 49,000 would be one turn of 0.3 s (fault strangers-11).
            await turns.take()
            try:
                check_binding(binding)
                places.setdefault(binding.resource, []).append(place)
            except ApiError as error:
                results[place] = error
                # Else each has this frame, and all the bindings of the request, until cycles are
                # collected (fault security-0).
                let_go(error)

        async with self._lock:
            for resource, of_resource in places.items():
                entries = frozenset(bindings[place].entry for place in of_resource)
                outcome = await self._update(resource, entries.union)
                results |= dict.fromkeys(of_resource, outcome)
            self._put_in_force()
        return [results[place] for place in range(len(bindings))]

    async def remove(
        self, filters: Sequence[AclFilter], known: dict[int, Deleted] | None = None
    ) -> list[Deleted]:
        """Delete the ACLs that filters choose; return them by filter, each under the first.

        Filters that name no single resource find what is known here. `known` gets the result of
        each of the others, by its place, as soon as it is known.
        """
        results: list[Deleted] = [{} for _ in filters]

        # Filters of one resource each may name it before its ACLs are known here.
        turns = LoopTurns(STEPS_A_TURN)
        index = FilterIndex()
        named: dict[ResourcePattern, list[int]] = {}
        for place, chosen in enumerate(filters):
            # 49,000 would be one turn of 0.3 s (fault strangers-11).
            await turns.take()
            if is_possible(resource := chosen.resource):
                named.setdefault(resource, []).append(place)
            index.add(chosen, place)

        async with self._lock:
            # Those that are named need no look at all the others (fault scale-S4, was: True).
            is_wide = any(chosen.resource is None for chosen in filters)
            resources = list(named)
            if is_wide:
                resources = [*self._acls, *(named.keys() - self._acls.keys())]

            for resource in resources:
                choosing = index.of(resource)
                firsts = await self._find_firsts(resource, choosing, turns)
                if firsts or resource in named:
                    await self._remove_from(resource, choosing, firsts, results)
                if known is not None:
                    known |= {place: results[place] for place in named.get(resource, ())}
            self._put_in_force()
        return results

    async def _find_firsts(
        self, resource: ResourcePattern, choosing: ResourceFilters, turns: LoopTurns
    ) -> dict[AclEntry, int]:
        """Return the known entries of a resource that filters choose, with the first filter's."""
        # 30,000 resources that nothing is chosen of take turns too (fault strangers-11).
        await turns.take()
        firsts: dict[AclEntry, int] = {}
        for entry in self._acls.get(resource, NO_ACLS).entries:
            # 4,000 filters of 5,000 entries would be one turn of 2 s (fault strangers-11).
            await turns.take(1 + choosing.look_ups)
            place = choosing.first(entry)
            if place is not None:
                firsts[entry] = place
        return firsts

    async def _remove_from(
        self,
        resource: ResourcePattern,
        choosing: ResourceFilters,
        firsts: Mapping[AclEntry, int],
        results: list[Deleted],
    ) -> None:
        looked_at = self._acls.get(resource, NO_ACLS).entries
        removed: dict[AclEntry, int] = {}

        def without_chosen(entries: frozenset[AclEntry]) -> frozenset[AclEntry]:
            # The write may be repeated over other entries.
            removed.clear()
            removed.update((entry, firsts[entry]) for entry in entries & firsts.keys())
            for entry in entries - looked_at:
                place = choosing.first(entry)
                if place is not None:
                    removed[entry] = place
            return entries - removed.keys()

        error = await self._update(resource, without_chosen)
        for entry, place in removed.items():
            results[place][AclBinding(resource, entry)] = error

    async def _update(
        self,
        resource: ResourcePattern,
        change: Callable[[frozenset[AclEntry]], frozenset[AclEntry]],
    ) -> ApiError | None:
        """Change the entries of a resource pattern, in ZooKeeper and here."""
        try:
            known = self._acls.get(resource)
            if known is None:
                known = (await read_acls(self.zk, [resource]))[resource]
            self._written[resource] = await update_acls(self.zk, resource, known, change, self.rng)
            # With each write alone, all would be indexed again for each (fault scale-S4).
            if _now_s() < self._in_force_at_s + IN_FORCE_EVERY_S:
                return None
            self._put_in_force()
        except ApiError as error:
            return error
        except (ZkError, ZnodeError) as error:
            logger.error("ACLs of %s cannot be changed: %r", resource, error)
            detail = describe(error) if isinstance(error, ZkError) else repr(error)
            return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Failed to update ACLs: {detail}")
        return None

    def _put_in_force(self) -> None:
        """Put in force what was written since."""
        self._in_force_at_s = _now_s()
        written, self._written = self._written, {}
        if written:
            self._note(written)

    # ---- follow

    async def start(self) -> None:
        """Load all ACLs, and follow their changes."""
        await create_acl_paths(self.zk)

        # One directory of notifications for each pattern type; a new session is one event.
        self._notifications = [
            ChangeNotifications(
                self.zk,
                self.spawn,
                AclChange.directory(pattern.name),
                "ACL changes",
                partial(self._notified, pattern),
                self._reload if pattern is PatternType.LITERAL else lambda: None,
            )
            for pattern in PATTERN_TYPES
        ]
        for notifications in self._notifications:
            await notifications.start()
        await self.load()
        self.spawn(run_every(LOOK_INTERVAL_MS, "look for changed ACLs", self._look))

    async def load(self) -> None:
        """Read all ACLs."""
        async with self._lock:
            acls = await read_acls(self.zk, await list_patterns(self.zk))
            self._acls = {}
            self._note(acls)

    def _reload(self) -> None:
        # In a new session notifications may be missing.
        self._is_unsure = True
        self.spawn(self._guard(self._load_again))

    async def _load_again(self) -> None:
        """Read all ACLs again, but for those that cannot be understood."""
        async with self._lock:
            patterns = await list_patterns(self.zk)
            acls = await self._read_known(patterns)
            broken = self._acls.keys() & set(patterns) - acls.keys()
            self._acls = {pattern: self._acls[pattern] for pattern in broken}
            self._note(acls)
            self._is_unsure = False

    async def _look(self) -> None:
        """Look again for what ZooKeeper refused to tell."""
        for notifications in self._notifications:
            await notifications.look()
        await self._guard(self._load_again if self._is_unsure else self._read_stale)

    def _notified(self, pattern_type: PatternType, path: str, data: bytes | None) -> None:
        try:
            pattern = changed_pattern(pattern_type, data, path)
        except ZnodeError as error:
            logger.error("ACL change cannot be read: %s", error)
            return
        if pattern is None:
            logger.warning("ACL change %s: there can be no such resource: %r", path, data)
            return

        # The notifications of one look are read together.
        self._stale.add(pattern)
        if not self._is_refreshing:
            self._is_refreshing = True
            self.spawn(self._guard(self._read_stale))

    async def _read_stale(self) -> None:
        async with self._lock:
            self._is_refreshing = False
            stale = list(self._stale)
            if stale:
                self._note(await self._read_known(stale))
                self._stale.difference_update(stale)

    async def _read_known(
        self, patterns: Sequence[ResourcePattern]
    ) -> dict[ResourcePattern, VersionedAcls]:
        """Read what can be understood; of the rest what was known before stays in force."""
        try:
            return await read_acls(self.zk, patterns)
        except ZnodeError:
            # One of them is the cause.
            pass

        acls: dict[ResourcePattern, VersionedAcls] = {}
        for pattern in patterns:
            try:
                acls |= await read_acls(self.zk, [pattern])
            except ZnodeError as error:
                logger.error("ACLs of %s stay as they were: %s", pattern, error)
        return acls

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except (ZkError, ZnodeError) as error:
            # A lost session needs no line: the next one begins with reading everything.
            if isinstance(error, ZnodeError) or not is_transient(error):
                logger.error("ACLs cannot be read, looking again: %r", error)

    def _note(self, acls: Mapping[ResourcePattern, VersionedAcls]) -> None:
        """Put ACLs in force."""
        for pattern, versioned in acls.items():
            if versioned.version is None:
                self._acls.pop(pattern, None)
            else:
                self._acls[pattern] = versioned
        self._index = None
        self._senders.clear()


def _now_s() -> float:
    return asyncio.get_running_loop().time()
