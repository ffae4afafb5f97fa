"""A group's part of ZooKeeper, read and written for one member.

    /consumers/<group>/ids/<consumer id>                 registration, ephemeral
    /consumers/<group>/owners/<topic>/<partition>        thread id of the owner, ephemeral
    /brokers/topics[/<topic>]                            what there is to consume

Nothing here deletes a node that is not ours: the session that owns it and the thread id in it are
checked first, and the multi that deletes or claims also checks that we are registered, so that it
fails when it reaches the server in a later session than the one it was meant for.

What a large group costs is what its members read at each change. Topics are read once, under a
watch, and again when it fires; registrations once, as long as nobody can have come back under an
old name; these and owner nodes a thousand in one request.
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
    consumer_of,
    register,
    strategy_conflict,
    subscription_of,
    threads_by_topic,
)
from protocol.topic_partition import TopicPartition
from zk.api import (
    MAX_BATCH_BYTES,
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

_log = logging.getLogger(__name__)

T = TypeVar("T")
SomeOp = TypeVar("SomeOp", bound=Op)
Partitions = Set[TopicPartition]
Watch = Callable[[WatchEvent], None]

MAX_OPS_PER_MULTI = 1000  # and no more than a request holds
MAX_REREADS = 20  # of a group that changes while it is read


@attrs.frozen
class _Members:
    """What was read of the registrations below an `ids` node, and of which state of that node."""

    czxid: int
    cversion: int
    subscriptions: Mapping[str, Subscription]

    def still(self, names: Iterable[str], ids: Stat) -> dict[str, Subscription]:
        """Those of `names` that are certain to be as they were read.

        A registration is never rewritten, only deleted and made anew, and `cversion` counts both.
        If it has grown by more than the names that came and went, somebody may have gone and come
        back with another subscription in between: then nobody is certain.
        """
        came_or_went = self.subscriptions.keys() ^ set(names)
        if ids.czxid != self.czxid or ids.cversion - self.cversion != len(came_or_went):
            return {}
        return {n: self.subscriptions[n] for n in names if n in self.subscriptions}


@attrs.define(eq=False)
class GroupTree:
    """One member's view. `subscription` is what it registers."""

    zk: ZkSession
    group_id: str
    consumer_id: str
    subscription: Subscription
    exclude_internal_topics: bool = True
    strategy: str = "range"
    _remembered: dict[str, tuple[int, Any]] = attrs.field(init=False, factory=dict)
    """By path: the session in which it was read under a watch that has not fired since, and what
    was read."""
    _known: _Members = attrs.field(init=False, default=_Members(0, 0, {}))
    _last: GroupSnapshot = attrs.field(init=False, factory=lambda: GroupSnapshot({}, (), {}))
    _current_in: int = attrs.field(init=False, default=0)
    """The session in which no watch has fired since `_last` was read; 0 if one has."""
    _changes: int = attrs.field(init=False, default=0)
    _watches: set[Watch] = attrs.field(init=False, factory=set)
    """What may be set on some node, and has to be taken back in the end."""
    _id_released: asyncio.Event = attrs.field(init=False, factory=asyncio.Event)

    # --- registration -------------------------------------------------------------------------

    async def register(self) -> int | None:
        """Create our ids node. Returns None, or the session that keeps our id from us.

        A node of an earlier session of our own (we were killed, or it expired) vanishes within
        that session's timeout: it is waited for that long, and half as long again.
        """
        path = self._registration_path
        patience_s = self.zk.session_timeout_ms * 1.5 / 1000
        deadline = asyncio.get_running_loop().time() + patience_s
        while True:
            registration = register(self.subscription, time_ns() // 1_000_000, self.strategy)
            try:
                await self.zk.create(path, registration.encode(), ephemeral=True, make_parents=True)
                return None
            except NodeExists:
                self._id_released.clear()
                stat = await self.zk.exists(path, self._watched(self._id_changed))
            if stat is None:
                continue
            if stat.ephemeral_owner == self.zk.session_id:
                return None
            try:
                async with asyncio.timeout_at(deadline):
                    await self._id_released.wait()
            except TimeoutError:
                return stat.ephemeral_owner

    def _id_changed(self, event: WatchEvent) -> None:
        self._id_released.set()

    # --- watches ------------------------------------------------------------------------------

    def _watched(self, watch: Watch) -> Watch:
        """Returns `watch`, which `unwatch` will take back."""
        self._watches.add(watch)
        return watch

    def unwatch(self) -> None:
        """Take all watches back: the session may live on, and would keep them and us alive."""
        for watch in self._watches:
            self.zk.remove_watch(watch)
        self._watches.clear()
        self._remembered.clear()
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
        """Members, and partitions of every topic one of them consumes; watches are armed.

        The server is brought up to date first (`sync`), and the reading is repeated until no
        member came or left meanwhile. A topic nobody can read has no partitions, as for members on
        the JVM; a member nobody can read is a problem of the whole group, as it is for them.
        A group that somebody has removed has no members. Raises ZkError.
        """
        ids = ConsumerGroup.ids_path(self.group_id)
        await self.zk.sync(ids)
        await self._remember(BrokerId.directory(), self._list, brokers_changed)
        for _ in range(MAX_REREADS):
            try:
                names, before = await self.zk.children(ids, self._watched(group_changed))
            except NoNode:  # somebody has removed the group: nobody is registered, nor are we
                return GroupSnapshot({}, (), {})
            members = await self._read_members(names, before)
            if isinstance(members, GroupProblem):
                return members
            all_topics: tuple[str, ...] = ()
            if any(isinstance(member, FilterSubscription) for member in members.values()):
                all_topics = await self._remember(
                    TopicAssignment.directory(), self._list, topics_changed
                )
            snapshot = await self._read_topics(members, all_topics, topics_changed)
            after = await self.zk.exists(ids)
            if after and (after.czxid, after.cversion) == (before.czxid, before.cversion):
                return snapshot
        raise ZkError(f"{ids} changes faster than it can be read")

    async def _read_topics(
        self, members: Mapping[str, Subscription], all_topics: tuple[str, ...], changed: Watch
    ) -> GroupSnapshot:
        """Read what is not remembered. Where nothing has changed this is the last snapshot itself,
        for which nothing has to be worked out again."""
        last, session_id = self._last, self.zk.session_id
        if self._current_in == session_id and (last.members, last.all_topics) == (
            members,
            all_topics,
        ):
            return last

        changes = self._changes
        consumed = threads_by_topic(members, all_topics, self.exclude_internal_topics)
        topics = await asyncio.gather(
            *(
                self._remember(TopicAssignment.path(topic), self._read_topic, changed)
                for topic in consumed
            )
        )
        self._last = _snapshot(members, all_topics, dict(zip(consumed, topics, strict=True)))
        self._current_in = session_id if changes == self._changes else 0
        return self._last

    async def _read_members(
        self, names: list[str], ids: Stat
    ) -> dict[str, Subscription] | GroupProblem:
        known = self._known.still(names, ids)
        new = {n: ConsumerRegistration.path(self.group_id, n) for n in names if n not in known}
        nodes = await self.zk.get_many([*new.values()]) if new else []
        for (name, path), node in zip(new.items(), nodes, strict=True):
            if node is None:  # it has just left
                continue
            read = self._registration(path, node[0])
            if isinstance(read, GroupProblem):
                return read
            known[name] = read
        self._known = _Members(ids.czxid, ids.cversion, known)
        return known

    async def _remember(
        self, path: str, read: Callable[[str, Watch], Awaitable[T]], changed: Watch
    ) -> T:
        """What `read` of `path` gives, read again only once its watch has fired.

        The watch may fire before the reading's caller has its answer: then the answer is good for
        this once. Reading again what has not changed is what makes a large group read itself to
        death.
        """
        session_id = self.zk.session_id  # with it the watches end
        if (remembered := self._remembered.get(path)) and remembered[0] == session_id:
            value: T = remembered[1]
            return value
        fired = False

        def forget(event: WatchEvent) -> None:
            nonlocal fired
            fired = True
            self.zk.remove_watch(forget)  # it may have been set on two nodes
            self._watches.discard(forget)
            self._remembered.pop(path, None)
            self._changes += 1
            self._current_in = 0
            changed(event)

        value = await read(path, self._watched(forget))
        if not fired:
            self._remembered[path] = session_id, value
        return value

    def _registration(self, path: str, content: bytes | None) -> Subscription | GroupProblem:
        try:
            registration = ConsumerRegistration.decode(content, path)
            subscription = subscription_of(registration)
        except ZnodeError as error:
            return _malformed(path, error.reason)
        except MalformedRegistration as error:
            return _malformed(path, str(error))
        if conflict := strategy_conflict(registration, self.strategy):
            return GroupProblem(f"cannot rebalance with the member {path}: {conflict}", True)
        return subscription

    async def _list(self, path: str, changed: Watch) -> tuple[str, ...]:
        while True:
            try:
                names, _ = await self.zk.children(path, changed)
                return tuple(names)
            except NoNode:
                if await self.zk.exists(path, changed) is None:
                    return ()

    async def _read_topic(self, path: str, changed: Watch) -> Mapping[int, tuple[int, ...]]:
        """Partition -> replicas."""
        while True:
            try:
                content, _ = await self.zk.get(path, changed)
                return TopicAssignment.decode(content, path).partitions
            except ZnodeError as error:
                _log.error("a topic is left out: %s", error)
                return {}
            except NoNode:
                if await self.zk.exists(path, changed) is None:
                    return {}

    # --- ownership ----------------------------------------------------------------------------

    async def read_owners(self, partitions: Partitions) -> dict[TopicPartition, Owner]:
        """The owner nodes among those of `partitions` that exist."""
        ordered = sorted(partitions)
        nodes = await self.zk.get_many([*map(self._owner_path, ordered)])
        return {
            partition: _owner(*node) for partition, node in zip(ordered, nodes, strict=True) if node
        }

    async def watch_owners(self, partitions: Partitions, changed: Watch) -> bool:
        """Watch these owner nodes. Returns whether one of them is gone already."""
        paths = [self._owner_path(p) for p in sorted(partitions)]
        self._watched(changed)
        return None in await asyncio.gather(*(self.zk.exists(path, changed) for path in paths))

    async def claim(
        self,
        create: Mapping[TopicPartition, str],
        move: Mapping[TopicPartition, tuple[str, int]],
    ) -> bool:
        """Claim all, each MAX_OPS_PER_MULTI of them whole or not at all, and stop where one is not
        as expected. Returns whether all is claimed. Raises ZkError for what is no peer's doing."""
        ops: list[Op] = [
            Create(self._owner_path(p), PartitionOwner(thread).encode(), ephemeral=True)
            for p, thread in create.items()
        ]
        ops += [
            SetData(self._owner_path(p), PartitionOwner(thread).encode(), version)
            for p, (thread, version) in move.items()
        ]
        for some in _multis(ops):
            overtaken = await self._try_to_claim(some)
            if isinstance(overtaken, NoNode) and create:
                await self._make_owner_directories({p.topic for p in create})
                overtaken = await self._try_to_claim(some)
            if overtaken:
                return False
        return True

    async def _try_to_claim(self, ops: Sequence[Op]) -> ZkError | None:
        """Returns None, or how somebody was faster."""
        try:
            await self._multi_if_registered(ops)
        except MultiFailed as failure:
            if isinstance(failure.error, CONFLICTS):
                return failure.error
            raise
        return None

    async def _multi_if_registered(self, ops: Sequence[Op]) -> None:
        """Raises MultiFailed for one of `ops`; SessionExpired if we are not registered (any more),
        so that what was decided in one session is not done in the next."""
        try:
            await self.zk.multi([Check(self._registration_path, version=-1), *ops])
        except MultiFailed as failure:
            if failure.index or not isinstance(failure.error, NoNode):
                raise
            raise SessionExpired(f"{self._registration_path} is gone") from failure

    async def _make_owner_directories(self, topics: Iterable[str]) -> None:
        paths = [ConsumerGroup.topic_owners_path(self.group_id, topic) for topic in sorted(topics)]
        await asyncio.gather(*map(self.zk.ensure_path, paths))

    async def release(self, partitions: Partitions, *, unregister: bool = False) -> None:
        """Delete those owner nodes that are ours; with `unregister` our ids node too.

        Raises ZkError; what could be deleted is deleted then all the same.
        """
        session_id = self.zk.session_id
        owners = await self.read_owners(partitions)
        deletes = [
            Delete(self._owner_path(p), owner.version)
            for p, owner in owners.items()
            if owner.session_id == session_id and consumer_of(owner.thread_id) == self.consumer_id
        ]
        failures: list[ZkError] = []
        for some in _multis(deletes):
            try:
                await self._multi_if_registered(some)
            except MultiFailed:
                failures += await self._delete_each(some, session_id)
            except SessionExpired:
                # Without a registration nothing is released in a round: the next one registers.
                # Who leaves has no next one, and its session may outlive it.
                if not unregister or self.zk.session_id != session_id:
                    raise
                failures += await self._delete_each(some, session_id)
        if unregister:
            await self._unregister()
        if failures:
            raise failures[0]

    async def _delete_each(self, deletes: Sequence[Delete], session_id: int) -> list[ZkError]:
        """Delete what is still as it was read. Returns why the others are still there."""
        outcomes = await asyncio.gather(*(self._delete(each, session_id) for each in deletes))
        return [failure for failure in outcomes if failure]

    async def _delete(self, delete: Delete, session_id: int) -> ZkError | None:
        if self.zk.session_id != session_id:
            return SessionExpired(f"{delete.path} was a node of session {session_id:#x}")
        try:
            await self.zk.delete(delete.path, delete.version)
        except CONFLICTS:
            return None
        except ZkError as error:
            return error
        return None

    async def _unregister(self) -> None:
        stat = await self.zk.exists(self._registration_path)
        if stat and stat.ephemeral_owner == self.zk.session_id:
            await self.zk.delete(self._registration_path, stat.version)


def _malformed(path: str, reason: str) -> GroupProblem:
    return GroupProblem(
        f"cannot rebalance: the registration {path} is malformed ({reason}); stop the consumer "
        "that wrote it, or remove that node"
    )


def _snapshot(
    members: Mapping[str, Subscription],
    all_topics: tuple[str, ...],
    topics: Mapping[str, Mapping[int, tuple[int, ...]]],
) -> GroupSnapshot:
    partitions = {topic: tuple(sorted(replicas)) for topic, replicas in topics.items()}
    leaders = {
        TopicPartition(topic, number): replicas[0]
        for topic, partitions in topics.items()
        for number, replicas in partitions.items()
        if replicas
    }
    return GroupSnapshot(members, all_topics, partitions, leaders)


def _owner(content: bytes | None, stat: Stat) -> Owner:
    thread_id = (content or b"").decode("utf-8", "replace")
    return Owner(thread_id, stat.version, stat.ephemeral_owner)


def _multis(ops: Sequence[SomeOp]) -> Iterator[Sequence[SomeOp]]:
    return split_into_batches(ops, op_bytes, MAX_OPS_PER_MULTI, MAX_BATCH_BYTES)
