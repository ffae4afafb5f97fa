"""A group's part of ZooKeeper, read and written for one member.

    /consumers/<group>/ids/<consumer id>                 registration, ephemeral
    /consumers/<group>/owners/<topic>/<partition>        thread id of the owner, ephemeral
    /brokers/topics[/<topic>]                            what there is to consume

Nothing here deletes a node that is not ours: the session that owns it and the thread id in it are
checked first, and the multi that deletes or claims also checks that we are registered, so that it
fails when it reaches the server in a later session than the one it was meant for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from time import time_ns
from typing import TypeVar

import attrs

from groups.zookeeper.events import GroupSnapshot, Owner
from groups.zookeeper.registration import (
    FilterSubscription,
    MalformedRegistration,
    Subscription,
    consumer_of,
    register,
    subscription_of,
    threads_by_topic,
)
from protocol.topic_partition import TopicPartition
from zk.session import (
    Check,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    SetData,
    WatchEvent,
    ZkError,
    ZkSession,
)
from zk.znodes import (
    ConsumerGroup,
    ConsumerRegistration,
    PartitionOwner,
    TopicAssignment,
    ZnodeError,
)

_log = logging.getLogger(__name__)

T = TypeVar("T")
Partitions = Set[TopicPartition]
Watch = Callable[[WatchEvent], None]

TOPICS = "/brokers/topics"
MAX_OPS_PER_MULTI = 1000  # a multi is one packet, and ZooKeeper's jute.maxbuffer is 1 MB
MAX_REREADS = 20  # of a group that changes while it is read


@attrs.define(eq=False)
class GroupTree:
    """One member's view. `subscription` is what it registers."""

    zk: ZkSession
    group_id: str
    consumer_id: str
    subscription: Subscription
    exclude_internal_topics: bool = True

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
            registration = register(self.subscription, time_ns() // 1_000_000).encode()
            try:
                await self.zk.create(path, registration, ephemeral=True, make_parents=True)
                return None
            except NodeExists:
                gone = asyncio.Event()
                stat = await self.zk.exists(path, partial(_set, gone))
            if stat is None:
                continue
            if stat.ephemeral_owner == self.zk.session_id:
                return None
            try:
                async with asyncio.timeout_at(deadline):
                    await gone.wait()
            except TimeoutError:
                return stat.ephemeral_owner

    @property
    def _registration_path(self) -> str:
        return ConsumerRegistration.path(self.group_id, self.consumer_id)

    def _owner_path(self, partition: TopicPartition) -> str:
        return PartitionOwner.path(self.group_id, partition.topic, partition.partition)

    # --- reading ------------------------------------------------------------------------------

    async def read_group(self, group_changed: Watch, topics_changed: Watch) -> GroupSnapshot:
        """Members, and partitions of every topic one of them consumes; watches are armed.

        The server is brought up to date first (`sync`), and the reading is repeated until no
        member came or left meanwhile. A topic nobody can read has no partitions, as for members on
        the JVM. Raises ZkError.
        """
        ids = ConsumerGroup.ids_path(self.group_id)
        await self.zk.sync(ids)
        for _ in range(MAX_REREADS):
            names, before = await self.zk.children(ids, group_changed)
            found = await asyncio.gather(*map(self._read_registration, names))
            members = {name: each for name, each in zip(names, found, strict=True) if each}
            all_topics = await self._read_topics(members.values(), topics_changed)
            consumed = threads_by_topic(members, all_topics, self.exclude_internal_topics)
            partitions = await asyncio.gather(
                *(self._read_partitions(topic, topics_changed) for topic in consumed)
            )
            _, after = await self.zk.children(ids)
            if after.cversion == before.cversion:
                return GroupSnapshot(
                    members, all_topics, dict(zip(consumed, partitions, strict=True))
                )
        raise ZkError(f"{ids} changes faster than it can be read")

    async def _read_registration(self, consumer_id: str) -> Subscription | None:
        """None: it has just left, or nobody can read what it registered."""
        path = ConsumerRegistration.path(self.group_id, consumer_id)
        try:
            content, _ = await self.zk.get(path)
            return subscription_of(ConsumerRegistration.decode(content))
        except NoNode:
            return None
        except (ZnodeError, MalformedRegistration) as error:
            _log.error("%s: member skipped, its registration is malformed: %s", path, error)
            return None

    async def _read_topics(
        self, members: Iterable[Subscription], changed: Watch
    ) -> tuple[str, ...]:
        """All topics, if some member has a filter; none otherwise: nobody asks."""
        if not any(isinstance(member, FilterSubscription) for member in members):
            return ()
        path = TOPICS
        while True:
            try:
                topics, _ = await self.zk.children(path, changed)
                return tuple(topics)
            except NoNode:
                if await self.zk.exists(path, changed) is None:
                    return ()

    async def _read_partitions(self, topic: str, changed: Watch) -> tuple[int, ...]:
        path = TopicAssignment.path(topic)
        while True:
            try:
                content, _ = await self.zk.get(path, changed)
                return tuple(sorted(TopicAssignment.decode(content, path).partitions))
            except ZnodeError as error:
                _log.error("a topic is left out: %s", error)
                return ()
            except NoNode:
                if await self.zk.exists(path, changed) is None:
                    return ()

    # --- ownership ----------------------------------------------------------------------------

    async def read_owners(self, partitions: Partitions) -> dict[TopicPartition, Owner]:
        """The owner nodes among those of `partitions` that exist."""
        ordered = sorted(partitions)
        owners = await asyncio.gather(*map(self._read_owner, ordered))
        return {p: owner for p, owner in zip(ordered, owners, strict=True) if owner}

    async def _read_owner(self, partition: TopicPartition) -> Owner | None:
        try:
            content, stat = await self.zk.get(self._owner_path(partition))
        except NoNode:
            return None
        return Owner(
            (content or b"").decode("utf-8", "replace"), stat.version, stat.ephemeral_owner
        )

    async def watch_owners(self, partitions: Partitions, changed: Watch) -> bool:
        """Watch these owner nodes. Returns whether one of them is gone already."""
        paths = [self._owner_path(p) for p in sorted(partitions)]
        return None in await asyncio.gather(*(self.zk.exists(path, changed) for path in paths))

    async def claim(
        self,
        create: Mapping[TopicPartition, str],
        move: Mapping[TopicPartition, tuple[str, int]],
    ) -> tuple[frozenset[TopicPartition], TopicPartition | None]:
        """Claim all, atomically (per MAX_OPS_PER_MULTI). Returns what is claimed, and the first
        partition whose node was not as expected, or None."""
        for topic in {p.topic for p in create}:
            await self.zk.ensure_path(ConsumerGroup.topic_owners_path(self.group_id, topic))
        ops: list[tuple[TopicPartition, Create | SetData]] = [
            (p, Create(self._owner_path(p), PartitionOwner(thread).encode(), ephemeral=True))
            for p, thread in create.items()
        ]
        ops += [
            (p, SetData(self._owner_path(p), PartitionOwner(thread).encode(), version))
            for p, (thread, version) in move.items()
        ]
        claimed: set[TopicPartition] = set()
        for some in _slices(ops):
            try:
                await self.zk.multi([self._check_registered(), *(op for _, op in some)])
            except MultiFailed as failure:
                if failure.index == 0:
                    raise
                return frozenset(claimed), some[failure.index - 1][0]
            claimed.update(p for p, _ in some)
        return frozenset(claimed), None

    def _check_registered(self) -> Check:
        return Check(self._registration_path, version=-1)

    async def release(self, partitions: Partitions, *, unregister: bool = False) -> None:
        """Delete those owner nodes that are ours; with `unregister` our ids node too."""
        owners = await self.read_owners(partitions)
        deletes = [
            Delete(self._owner_path(p), owner.version)
            for p, owner in owners.items()
            if owner.session_id == self.zk.session_id
            and consumer_of(owner.thread_id) == self.consumer_id
        ]
        for some in _slices(deletes):
            try:
                await self.zk.multi([self._check_registered(), *some])
            except MultiFailed as failure:
                if failure.index == 0:
                    raise
                await asyncio.gather(*map(self._delete, some))
        if unregister:
            await self._unregister()

    async def _delete(self, delete: Delete) -> None:
        try:
            await self.zk.delete(delete.path, delete.version)
        except ZkError as error:
            _log.info("%s: not released: %r", delete.path, error)

    async def _unregister(self) -> None:
        stat = await self.zk.exists(self._registration_path)
        if stat and stat.ephemeral_owner == self.zk.session_id:
            await self.zk.delete(self._registration_path, stat.version)


def _set(gone: asyncio.Event, event: WatchEvent) -> None:
    gone.set()


def _slices(items: Sequence[T]) -> Iterable[Sequence[T]]:
    for start in range(0, len(items), MAX_OPS_PER_MULTI):
        yield items[start : start + MAX_OPS_PER_MULTI]
