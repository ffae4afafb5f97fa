"""Writes the ISR that a leader proposes to the partition's state node, and tells the controller.

A write is made over the version of the node the leader knows: whoever was elected meanwhile wins.
The node is read before, for what another version of Kafka has added is written back. Where the
version is another, a state of our own epoch is ours (the answer to the write was lost), any other
one ends our leadership, of which the controller's request is on its way. A write whose outcome is
not known is made again, in a new session too, for until it is known the high watermark must wait
for both sets.

The controller hears of the changes by a notification node, many at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import attrs

from broker.replication.isr import LONG_AGO_MS, Isr
from broker.replication.partition import IsrChange
from broker.zk_retry import retry_until_connected
from protocol.topic_partition import TopicPartition
from zk.admin_znodes import IsrChange as IsrChangeNode
from zk.api import BadVersion, NoNode, ZkError, ZkSession
from zk.failures import is_transient
from zk.znodes import PartitionState, ZnodeError

logger = logging.getLogger(__name__)

NOTIFY_INTERVAL_MS = 2500
"""How often the controller may be told."""
QUIET_MS = 5000
"""Changes are gathered until there was none for so long …"""
LONGEST_MS = 60_000
"""… or the controller was last told so long ago."""
TOLD_AT_ONCE = 3000
"""Partitions in one notification: with the longest names it has 850 kB; ZooKeeper takes 1 MiB."""
RETRY_SECONDS = 1.0
"""Before another try to write, after one of which ZooKeeper did not say what became."""


@attrs.define(eq=False)
class IsrWriter:
    """`spawn` runs a task of the broker.

    `written(change, isr, zk_version, monotonic_ms)` is called when the node has an ISR that counts,
    `superseded(change)` when the partition is led by somebody else.
    """

    zk: ZkSession
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    monotonic_ms: Callable[[], int]
    written: Callable[[IsrChange, Isr, int, int], None]
    superseded: Callable[[IsrChange], None]
    _changed: set[TopicPartition] = attrs.field(factory=set)
    _last_change_ms: int = LONG_AGO_MS
    _last_told_ms: int = LONG_AGO_MS

    def write(self, change: IsrChange) -> None:
        """Begin to write; the owner hears of the end."""
        self.spawn(self._write(change))

    async def _write(self, change: IsrChange) -> None:
        while True:
            try:
                stored = await self._written(change)
                break
            except ZkError as error:
                level = logging.INFO if is_transient(error) else logging.ERROR
                logger.log(level, "%s: its isr is not written: %r", change.topic_partition, error)
                await asyncio.sleep(RETRY_SECONDS)
        if stored is None:
            self.superseded(change)
            return
        isr, zk_version = stored
        self._changed.add(change.topic_partition)
        self._last_change_ms = self.monotonic_ms()
        self.written(change, isr, zk_version, self._last_change_ms)

    async def _written(self, change: IsrChange) -> tuple[Isr, int] | None:
        """The ISR and version the node has then; None when it is not ours any more."""
        path = PartitionState.path(*change.topic_partition)
        while True:
            stored = await self._ours(change, path)
            if stored is None:
                return None
            state, zk_version = stored
            if zk_version != change.zk_version:
                return tuple(state.isr), zk_version
            data = attrs.evolve(change.state, extra=state.extra).encode()
            try:
                stat = await retry_until_connected(
                    self.zk, partial(self.zk.set, path, data, zk_version)
                )
                return change.state.isr, stat.version
            except NoNode:
                return None
            except BadVersion:
                continue

    async def _ours(self, change: IsrChange, path: str) -> tuple[PartitionState, int] | None:
        try:
            data, stat = await retry_until_connected(self.zk, lambda: self.zk.get(path))
            stored = PartitionState.decode(data, path)
        except (NoNode, ZnodeError) as error:
            logger.warning("%s: %s", change.topic_partition, error)
            return None
        ours = change.state
        if (stored.leader, stored.leader_epoch) != (ours.leader, ours.leader_epoch):
            logger.info(
                "%s: led by %s in epoch %s now, not by us in %s",
                change.topic_partition,
                stored.leader,
                stored.leader_epoch,
                ours.leader_epoch,
            )
            return None
        return stored, stat.version

    async def notify(self) -> None:
        """Tell the controller what has changed, if it is time. To be called each 2.5 s."""
        monotonic_ms = self.monotonic_ms()
        quiet = self._last_change_ms + QUIET_MS < monotonic_ms
        if not self._changed or not (quiet or self._last_told_ms + LONGEST_MS < monotonic_ms):
            return
        changed, self._changed = sorted(self._changed), set()  # what changes now is told again
        for first in range(0, len(changed), TOLD_AT_ONCE):
            try:
                await self._tell(changed[first : first + TOLD_AT_ONCE])
            except ZkError as error:
                level = logging.INFO if is_transient(error) else logging.ERROR
                logger.log(level, "the controller is told of in-sync replicas later: %r", error)
                self._changed.update(changed[first:])
                return
        self._last_told_ms = monotonic_ms

    async def _tell(self, changed: Sequence[TopicPartition]) -> None:
        data = IsrChangeNode(tuple((tp.topic, tp.partition) for tp in changed)).encode()
        await retry_until_connected(
            self.zk, lambda: self.zk.create(IsrChangeNode.prefix(), data, sequence=True)
        )
