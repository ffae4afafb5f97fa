"""Offsets and members in a ZooKeeper in memory, for handlers that are given one."""

import asyncio
from collections.abc import Callable, Container

from broker.coordinators.zookeeper_members import ZooKeeperMembers
from broker.coordinators.zookeeper_offsets import ZooKeeperOffsets
from broker.network.deferred import Deferred
from broker.network.purgatory import Purgatory
from tests.broker.replication.replicas import AtOnce
from zk.api import ZkSession
from zk.memory import MemoryZooKeeper

TIMEOUT_MS = 5000


def zookeeper_offsets(
    zk: ZkSession,
    purgatory: Purgatory,
    known_partitions: Callable[[str], Container[int]] = lambda topic: range(100),
) -> ZooKeeperOffsets:
    """Those of `zk`, whose requests wait in `purgatory`."""
    deferred = Deferred(asyncio.ensure_future, purgatory.touch, AtOnce())
    return ZooKeeperOffsets(zk, deferred, known_partitions, TIMEOUT_MS)


def zookeeper_members(zk: ZkSession, purgatory: Purgatory) -> ZooKeeperMembers:
    """Return those of `zk`, for requests that wait in `purgatory`."""
    deferred = Deferred(asyncio.ensure_future, purgatory.touch, AtOnce())
    return ZooKeeperMembers(zk, deferred, TIMEOUT_MS)


NO_MEMBERS = zookeeper_members(MemoryZooKeeper().session(), Purgatory())
NO_ZOOKEEPER = zookeeper_offsets(MemoryZooKeeper().session(), Purgatory())
"""For requests that do not go there."""
