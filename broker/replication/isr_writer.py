"""Write proposed ISRs to the partitions' state nodes, and notify the controller.

A write names the version of the node that the leader knows, so a leader elected meanwhile wins. The
node is read first, because fields that another version of Kafka has added are written back. If the
version is another one, there are two cases. A state of our own epoch is ours: the response to the
write was lost. Any other state ends our leadership, and the controller's request is on its way.

A write whose result is unknown is repeated, in a new session too. Until the result is known the
high watermark must wait for the replicas of both ISRs.

The controller learns of the changes from notification nodes, many changes in each.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import attrs

from broker.process.zk_retry import retry_until_connected
from broker.replication.isr import LONG_AGO_MS, Isr
from broker.replication.partition import IsrProposal
from protocol.topic_partition import TopicPartition
from zk.admin_znodes import IsrChange as IsrChangeNode
from zk.api import BadVersion, NoNode, ZkError, ZkSession
from zk.failures import is_transient
from zk.znodes import PartitionState, ZnodeError

logger = logging.getLogger(__name__)

NOTIFY_INTERVAL_MS = 2500
"""The interval at which `notify` is called."""
QUIET_MS = 5000
"""Changes are gathered until there was none for so long …"""
LONGEST_MS = 60_000
"""… or the last notification is so long ago."""
NOTIFIED_AT_ONCE = 3000
"""Partitions in one notification. With the longest names it has 850 kB; ZooKeeper takes 1 MiB."""
RETRY_S = 1.0
"""Pause before a write is repeated whose result is unknown."""


@attrs.define(eq=False)
class IsrWriter:
    """Writes the proposals of all partitions that this broker leads.

    `spawn` starts a task of the broker. `written(proposal, isr, zk_version, monotonic_ms)` is
    called with the ISR that the node has in the leader's epoch, `superseded(proposal)` when the
    node belongs to another leader or epoch, or is gone.
    """

    zk: ZkSession
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    monotonic_ms: Callable[[], int]
    written: Callable[[IsrProposal, Isr, int, int], None]
    superseded: Callable[[IsrProposal], None]
    _changed: set[TopicPartition] = attrs.field(factory=set)
    _last_change_ms: int = LONG_AGO_MS
    _last_notified_ms: int = LONG_AGO_MS

    def write(self, proposal: IsrProposal) -> None:
        """Start to write; `written` or `superseded` is called at the end."""
        self.spawn(self._write(proposal))

    async def _write(self, proposal: IsrProposal) -> None:
        # Repeat until the result is known.
        while True:
            try:
                result = await self._write_once(proposal)
                break
            except ZkError as error:
                level = logging.INFO if is_transient(error) else logging.ERROR
                logger.log(
                    level, "%s: isr not written, trying again: %r", proposal.topic_partition, error
                )
                await asyncio.sleep(RETRY_S)

        if result is None:
            self.superseded(proposal)
            return

        isr, zk_version = result
        # Gathered for `notify`: the controller hears of many changes at once.
        self._changed.add(proposal.topic_partition)
        self._last_change_ms = self.monotonic_ms()
        self.written(proposal, isr, zk_version, self._last_change_ms)

    async def _write_once(self, proposal: IsrProposal) -> tuple[Isr, int] | None:
        """Write an ISR; return the ISR and version of the node, or None if it is not ours."""
        path = PartitionState.path(*proposal.topic_partition)
        while True:
            node = await self._read_own_state(proposal, path)
            if node is None:
                return None

            # Another version in our epoch: an earlier try has written, and its response was lost.
            state, zk_version = node
            if zk_version != proposal.zk_version:
                return tuple(state.isr), zk_version

            # Fields that only other versions of Kafka know are written back.
            data = attrs.evolve(proposal.state, extra=state.extra).encode()
            try:
                stat = await retry_until_connected(
                    self.zk, partial(self.zk.set, path, data, zk_version)
                )
                return proposal.state.isr, stat.version
            except NoNode:
                # The topic was deleted meanwhile.
                return None
            except BadVersion:
                # Somebody has written since the read: the controller, or an earlier try.
                continue

    async def _read_own_state(
        self, proposal: IsrProposal, path: str
    ) -> tuple[PartitionState, int] | None:
        """Read the state node; return state and version, or None if it is not of our epoch."""
        try:
            data, stat = await retry_until_connected(self.zk, lambda: self.zk.get(path))
            state = PartitionState.decode(data, path)
        except (NoNode, ZnodeError) as error:
            # A node that is gone, or cannot be read, is led by nobody.
            logger.warning("%s: %s", proposal.topic_partition, error)
            return None

        proposed = proposal.state
        if (state.leader, state.leader_epoch) != (proposed.leader, proposed.leader_epoch):
            logger.info(
                "%s: led by %s in epoch %s now, not by us in %s",
                proposal.topic_partition,
                state.leader,
                state.leader_epoch,
                proposed.leader_epoch,
            )
            return None
        return state, stat.version

    async def notify(self) -> None:
        """Notify the controller of changed ISRs, if it is time. Call it each NOTIFY_INTERVAL_MS."""
        # ISRs change in bursts, as brokers stop and return: wait for the end of the burst.
        monotonic_ms = self.monotonic_ms()
        is_quiet = self._last_change_ms + QUIET_MS < monotonic_ms
        is_late = self._last_notified_ms + LONGEST_MS < monotonic_ms
        if not self._changed or not (is_quiet or is_late):
            return

        # Changes that are written from now on are for the next notification.
        changed = sorted(self._changed)
        self._changed = set()
        for first in range(0, len(changed), NOTIFIED_AT_ONCE):
            try:
                await self._create_notification(changed[first : first + NOTIFIED_AT_ONCE])
            except ZkError as error:
                level = logging.INFO if is_transient(error) else logging.ERROR
                logger.log(
                    level, "controller not notified of changed isrs, trying again: %r", error
                )
                # Keep what this notification and the next ones were to name.
                self._changed.update(changed[first:])
                return
        self._last_notified_ms = monotonic_ms

    async def _create_notification(self, changed: Sequence[TopicPartition]) -> None:
        data = IsrChangeNode(tuple((tp.topic, tp.partition) for tp in changed)).encode()
        await retry_until_connected(
            self.zk, lambda: self.zk.create(IsrChangeNode.prefix(), data, sequence=True)
        )
