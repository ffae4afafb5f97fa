"""A group's part of ZooKeeper, read and written for one member.

    /consumers/<group>/ids/<consumer id>                 registration, ephemeral
    /consumers/<group>/owners/<topic>/<partition>        thread id of the owner, ephemeral
    /brokers/topics[/<topic>]                            what there is to consume

Nothing here deletes a node that is not ours: the session that owns it and the thread id in it are
checked first. A multi that deletes or claims also checks that we are registered, so that it fails
if it reaches the server in a later session than the one for which it was meant.

The cost of a large group is what its members read at each change. Topics are read once, under a
watch, and again when it fires. Registrations are read once, as long as nobody can have come back
under an old name. Registrations and owner nodes are read a thousand in one request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from time import time_ns
from typing import Any, TypeVar

import attrs

from groups.zookeeper.events import GroupProblem, GroupSnapshot, Owner
from groups.zookeeper.registration import (
    FilterSubscription,
    MalformedRegistration,
    Subscription,
    build_registration,
    strategy_of,
    subscription_of,
    threads_by_topic,
)
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition
from zk.api import (
    MAX_BATCH_BYTES,
    MAX_OPS_PER_MULTI,
    Check,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    Op,
    SessionExpired,
    SetData,
    Stat,
    WatchEvent,
    ZkError,
    ZkSession,
    op_bytes,
    split_into_batches,
)
from zk.failures import CONFLICTS
from zk.znodes import (
    BrokerId,
    ConsumerGroup,
    ConsumerRegistration,
    PartitionOwner,
    TopicAssignment,
    ZnodeError,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")
AnyOp = TypeVar("AnyOp", bound=Op)
Partitions = Set[TopicPartition]
Watch = Callable[[WatchEvent], None]

MAX_REREADS = 20  # of a group that changes while it is read


@frozen
class _Registrations:
    """The registrations below an `ids` node, and the state of that node when they were read."""

    czxid: int
    cversion: int
    subscriptions: Mapping[str, Subscription]
    strategies: Mapping[str, str]

    def unchanged(self, names: Iterable[str], ids: Stat) -> set[str]:
        """Return those of `names` whose registration is certain to be as it was read.

        A registration is never rewritten, only deleted and created again, and `cversion` counts
        both. If it has grown by more than the names that came and went, some member may have gone
        and come back with another subscription in between; then no registration is certain.
        """
        came_or_went = self.subscriptions.keys() ^ set(names)
        if ids.czxid != self.czxid or ids.cversion - self.cversion != len(came_or_went):
            return set()
        return self.subscriptions.keys() & set(names)


@attrs.define(eq=False)
class GroupTree:
    """One member's view of its group. `subscription` and `strategy` go into its registration."""

    zk: ZkSession
    group_id: str
    consumer_id: str
    subscription: Subscription
    exclude_internal_topics: bool = True
    strategy: str = "range"

    # What has been read.
    _cache: dict[str, tuple[int, Any]] = attrs.field(init=False, factory=dict)
    """Path -> (session id, value), for values read under a watch that has not fired since."""
    _registrations: _Registrations = attrs.field(init=False, default=_Registrations(0, 0, {}, {}))
    _last_snapshot: GroupSnapshot = attrs.field(
        init=False, factory=lambda: GroupSnapshot({}, (), {})
    )
    _current_in: int = attrs.field(init=False, default=0)
    """The session in which no watch has fired since `_last_snapshot` was read; 0 if one has."""
    _num_changes: int = attrs.field(init=False, default=0)

    # Watches.
    _watches: set[Watch] = attrs.field(init=False, factory=set)
    """Watches that may be set on some node; `unwatch` removes them."""
    _id_released: asyncio.Event = attrs.field(init=False, factory=asyncio.Event)

    # --- registration -------------------------------------------------------------------------

    async def register(self) -> int | None:
        """Create our ids node. Return None, or the session that keeps our id from us.

        A node of an earlier session of our own (we were killed, or it expired) vanishes within
        that session's timeout. We wait that long, and half as long again.
        """
        path = self._registration_path
        patience_s = self.zk.session_timeout_ms * 1.5 / 1000
        deadline = asyncio.get_running_loop().time() + patience_s

        while True:
            # Try to create the node, or find out who has it.
            registration = build_registration(
                self.subscription, time_ns() // 1_000_000, self.strategy
            )
            try:
                await self.zk.create(path, registration.encode(), ephemeral=True, make_parents=True)
                return None
            except NodeExists:
                # Clear first: the watch may fire at once.
                self._id_released.clear()
                stat = await self.zk.exists(path, self._keep_watch(self._id_changed))
            if stat is None:
                continue
            # Ours: the node was made, and its reply was lost.
            if stat.ephemeral_owner == self.zk.session_id:
                return None

            # Another session has it: wait until that one ends.
            try:
                async with asyncio.timeout_at(deadline):
                    await self._id_released.wait()
            except TimeoutError:
                return stat.ephemeral_owner

    def _id_changed(self, event: WatchEvent) -> None:
        self._id_released.set()

    # --- watches ------------------------------------------------------------------------------

    def _keep_watch(self, watch: Watch) -> Watch:
        """Return `watch`, and note it for `unwatch`."""
        self._watches.add(watch)
        return watch

    def unwatch(self) -> None:
        """Remove all watches: the session may live on, and would keep them and us alive."""
        for watch in self._watches:
            self.zk.remove_watch(watch)
        self._watches.clear()
        self._cache.clear()
        self._current_in = 0

    # --- paths --------------------------------------------------------------------------------

    @property
    def _registration_path(self) -> str:
        return ConsumerRegistration.path(self.group_id, self.consumer_id)

    def _owner_path(self, partition: TopicPartition) -> str:
        return PartitionOwner.path(self.group_id, partition.topic, partition.partition)

    # --- reading ------------------------------------------------------------------------------

    async def read_group(
        self, group_changed: Watch, topics_changed: Watch, brokers_changed: Watch
    ) -> GroupSnapshot | GroupProblem:
        """Read members, and partitions of every topic that one of them consumes; arm the watches.

        The server is brought up to date first (`sync`), and the reading is repeated until no
        member comes or leaves meanwhile. A topic that nobody can read has no partitions, as for
        members on the JVM. A registration that nobody can read is a problem of the whole group, as
        it is for them. A group that somebody has deleted has no members. Raises ZkError.
        """
        ids = ConsumerGroup.ids_path(self.group_id)
        await self.zk.sync(ids)

        # For the watch alone: a broker that comes or goes begins a round.
        await self._read_cached(BrokerId.directory(), self._list, brokers_changed)

        for _ in range(MAX_REREADS):
            try:
                names, before = await self.zk.children(ids, self._keep_watch(group_changed))
            except NoNode:
                # Somebody has deleted the group: nobody is registered, nor are we.
                return GroupSnapshot({}, (), {})

            registrations = await self._read_registrations(names, before)
            if isinstance(registrations, GroupProblem):
                return registrations

            # Filters are matched against all topics.
            all_topics: tuple[str, ...] = ()
            subscriptions = registrations.subscriptions.values()
            if any(isinstance(subscription, FilterSubscription) for subscription in subscriptions):
                all_topics = await self._read_cached(
                    TopicAssignment.directory(), self._list, topics_changed
                )
            snapshot = await self._read_topics(registrations, all_topics, topics_changed)

            # Count again: if a member came or left, some nodes are older than others.
            after = await self.zk.exists(ids)
            if after and (after.czxid, after.cversion) == (before.czxid, before.cversion):
                return snapshot
        raise ZkError(f"{ids} changes faster than it can be read")

    async def _read_topics(
        self, registrations: _Registrations, all_topics: tuple[str, ...], changed: Watch
    ) -> GroupSnapshot:
        """Read the topics that are not cached.

        If nothing has changed this is the last snapshot itself, from which the caller sees that
        there is nothing to compute.
        """
        members = registrations.subscriptions
        strategies = registrations.strategies
        last = self._last_snapshot
        session_id = self.zk.session_id

        # Nothing has changed since the last snapshot.
        if self._current_in == session_id and (
            (last.members, last.strategies, last.all_topics) == (members, strategies, all_topics)
        ):
            return last

        changes = self._num_changes
        consumed = threads_by_topic(members, all_topics, self.exclude_internal_topics)
        topics = await asyncio.gather(
            *(
                self._read_cached(TopicAssignment.path(topic), self._read_topic, changed)
                for topic in consumed
            )
        )

        topics_by_name = dict(zip(consumed, topics, strict=True))
        self._last_snapshot = _snapshot(registrations, all_topics, topics_by_name)

        # A watch that fired meanwhile makes this snapshot too old to be kept.
        self._current_in = session_id if changes == self._num_changes else 0
        return self._last_snapshot

    async def _read_registrations(
        self, names: list[str], ids: Stat
    ) -> _Registrations | GroupProblem:
        """Read the registrations that are new or may have changed, a thousand in one request."""
        # Keep what is certain, read the rest.
        unchanged = self._registrations.unchanged(names, ids)
        subscriptions = {
            name: subscription
            for name, subscription in self._registrations.subscriptions.items()
            if name in unchanged
        }
        strategies = {
            name: strategy
            for name, strategy in self._registrations.strategies.items()
            if name in unchanged
        }

        paths = {
            name: ConsumerRegistration.path(self.group_id, name)
            for name in names
            if name not in unchanged
        }
        nodes = await self.zk.get_many([*paths.values()]) if paths else []

        for (name, path), node in zip(paths.items(), nodes, strict=True):
            # It has just left.
            if node is None:
                continue

            content, _ = node
            try:
                registration = ConsumerRegistration.decode(content, path)
                subscriptions[name] = subscription_of(registration)
            except (ZnodeError, MalformedRegistration) as error:
                return _malformed(path, error)
            strategy = strategy_of(registration)
            if strategy is not None:
                strategies[name] = strategy

        # By the listing's `cversion`: whoever has left since makes the next reading a full one.
        self._registrations = _Registrations(ids.czxid, ids.cversion, subscriptions, strategies)
        return self._registrations

    async def _read_cached(
        self, path: str, read: Callable[[str, Watch], Awaitable[T]], changed: Watch
    ) -> T:
        """Return what `read` of `path` gives; read it again only when its watch has fired.

        The watch may fire before the reply is here; then the value is good for this once. Without
        the cache every member of a large group would read all topics at each change.
        """
        # Watches end with the session, and so does the value.
        session_id = self.zk.session_id
        if (cached := self._cache.get(path)) and cached[0] == session_id:
            cached_value: T = cached[1]
            return cached_value

        has_fired = False

        def forget(event: WatchEvent) -> None:
            nonlocal has_fired
            has_fired = True
            # It may have been set on two nodes.
            self.zk.remove_watch(forget)
            self._watches.discard(forget)
            self._cache.pop(path, None)
            self._num_changes += 1
            self._current_in = 0
            changed(event)

        value = await read(path, self._keep_watch(forget))
        if not has_fired:
            self._cache[path] = (session_id, value)
        return value

    async def _list(self, path: str, changed: Watch) -> tuple[str, ...]:
        """Read the names of the children. A node that does not exist is watched for."""
        while True:
            try:
                names, _ = await self.zk.children(path, changed)
                return tuple(names)
            except NoNode:
                # If it came between the two calls, list it.
                if await self.zk.exists(path, changed) is None:
                    return ()

    async def _read_topic(self, path: str, changed: Watch) -> Mapping[int, tuple[int, ...]]:
        """Read partition -> replicas. A topic that does not exist is watched for."""
        while True:
            try:
                content, _ = await self.zk.get(path, changed)
                return TopicAssignment.decode(content, path).partitions
            except ZnodeError as error:
                logger.error("topic left out, its node cannot be read: %s", error)
                return {}
            except NoNode:
                # If it came between the two calls, read it.
                if await self.zk.exists(path, changed) is None:
                    return {}

    # --- ownership ----------------------------------------------------------------------------

    async def read_owners(self, partitions: Partitions) -> dict[TopicPartition, Owner]:
        """Read the owner nodes of `partitions`; those without a node are absent."""
        ordered = sorted(partitions)
        nodes = await self.zk.get_many([*map(self._owner_path, ordered)])
        return {
            partition: _owner(*node) for partition, node in zip(ordered, nodes, strict=True) if node
        }

    async def watch_owners(self, partitions: Partitions, changed: Watch) -> bool:
        """Watch these owner nodes. Return whether one of them is gone already."""
        paths = [self._owner_path(partition) for partition in sorted(partitions)]
        self._keep_watch(changed)
        return None in await asyncio.gather(*(self.zk.exists(path, changed) for path in paths))

    async def claim(
        self,
        create: Mapping[TopicPartition, str],
        move: Mapping[TopicPartition, tuple[str, int]],
    ) -> bool:
        """Claim all partitions, in multis of at most MAX_OPS_PER_MULTI. Return whether all stand.

        Each multi is done whole or not at all. The first that a peer was faster to is the last.
        Raises ZkError for what is no peer's doing.
        """
        ops: list[Op] = [
            Create(self._owner_path(partition), PartitionOwner(thread_id).encode(), ephemeral=True)
            for partition, thread_id in create.items()
        ]
        # In the version that was read: a node that changed since fails the whole multi.
        ops += [
            SetData(self._owner_path(partition), PartitionOwner(thread_id).encode(), version)
            for partition, (thread_id, version) in move.items()
        ]

        for batch in _multis(ops):
            conflict = await self._try_to_claim(batch)

            # The first claim of a topic finds no directory for its nodes.
            if isinstance(conflict, NoNode) and create:
                await self._make_owner_directories({partition.topic for partition in create})
                conflict = await self._try_to_claim(batch)
            if conflict:
                return False
        return True

    async def _try_to_claim(self, ops: Sequence[Op]) -> ZkError | None:
        """Return None if the claim stands, or the error that shows that a peer was faster."""
        try:
            await self._multi_if_registered(ops)
        except MultiFailed as failure:
            if isinstance(failure.error, CONFLICTS):
                return failure.error
            raise
        return None

    async def _multi_if_registered(self, ops: Sequence[Op]) -> None:
        """Perform `ops`, provided that we are registered.

        Raises MultiFailed if one of `ops` fails. Raises SessionExpired if we are not registered, so
        that what was decided in one session is not done in the next.
        """
        try:
            await self.zk.multi([Check(self._registration_path, version=-1), *ops])
        except MultiFailed as failure:
            # Index 0 is the check of our registration.
            if failure.index or not isinstance(failure.error, NoNode):
                raise
            raise SessionExpired(f"{self._registration_path} is gone") from failure

    async def _make_owner_directories(self, topics: Iterable[str]) -> None:
        paths = [ConsumerGroup.topic_owners_path(self.group_id, topic) for topic in sorted(topics)]
        await asyncio.gather(*map(self.zk.ensure_path, paths))

    async def release(self, partitions: Partitions, *, unregister: bool = False) -> None:
        """Delete those owner nodes that are ours; with `unregister` our ids node too.

        Raises ZkError, after it has deleted all that can be deleted.
        """
        session_id = self.zk.session_id
        owners = await self.read_owners(partitions)

        # Only what is ours in this session, in the version that was read.
        deletes = [
            Delete(self._owner_path(partition), owner.version)
            for partition, owner in owners.items()
            if owner.is_held_by(self.consumer_id, session_id)
        ]

        failures: list[ZkError] = []
        for batch in _multis(deletes):
            try:
                await self._multi_if_registered(batch)
            except MultiFailed:
                # One of the nodes has changed hands: the others can still go.
                failures += await self._delete_one_by_one(batch, session_id)
            except SessionExpired:
                # Without a registration nothing is released in a round: the next one registers.
                # A member that leaves has no next one, and its session may outlive it.
                if not unregister or self.zk.session_id != session_id:
                    raise
                failures += await self._delete_one_by_one(batch, session_id)

        if unregister:
            await self._unregister()
        if failures:
            raise failures[0]

    async def _delete_one_by_one(self, deletes: Sequence[Delete], session_id: int) -> list[ZkError]:
        """Delete the nodes that are still as they were read. Return the errors of the others."""
        outcomes = await asyncio.gather(*(self._delete(delete, session_id) for delete in deletes))
        return [failure for failure in outcomes if failure]

    async def _delete(self, delete: Delete, session_id: int) -> ZkError | None:
        if self.zk.session_id != session_id:
            return SessionExpired(f"{delete.path} was a node of session {session_id:#x}")
        try:
            await self.zk.delete(delete.path, delete.version)
        except CONFLICTS:
            # It is gone, or a successor's.
            return None
        except ZkError as error:
            return error
        return None

    async def _unregister(self) -> None:
        stat = await self.zk.exists(self._registration_path)
        # The node of another session of the same name is not ours to delete.
        if stat and stat.ephemeral_owner == self.zk.session_id:
            await self.zk.delete(self._registration_path, stat.version)


def _malformed(path: str, error: ZnodeError | MalformedRegistration) -> GroupProblem:
    reason = error.reason if isinstance(error, ZnodeError) else str(error)
    return GroupProblem(
        f"cannot rebalance: the registration {path} is malformed ({reason}); stop the consumer "
        "that wrote it, or remove that node"
    )


def _snapshot(
    registrations: _Registrations,
    all_topics: tuple[str, ...],
    topics: Mapping[str, Mapping[int, tuple[int, ...]]],
) -> GroupSnapshot:
    """Build the snapshot. `topics`: topic -> partition -> replicas."""
    partitions = {topic: tuple(sorted(replicas)) for topic, replicas in topics.items()}
    leaders = {
        TopicPartition(topic, number): replicas[0]
        for topic, partitions in topics.items()
        for number, replicas in partitions.items()
        if replicas
    }

    return GroupSnapshot(
        registrations.subscriptions, all_topics, partitions, leaders, registrations.strategies
    )


def _owner(content: bytes | None, stat: Stat) -> Owner:
    thread_id = (content or b"").decode("utf-8", "replace")
    return Owner(thread_id, stat.version, stat.ephemeral_owner)


def _multis(ops: Sequence[AnyOp]) -> Iterator[Sequence[AnyOp]]:
    return split_into_batches(ops, op_bytes, MAX_OPS_PER_MULTI, MAX_BATCH_BYTES)
