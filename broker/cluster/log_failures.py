"""Tells the controller of logs whose disk has failed them, so that other replicas take over.

The controller asks then for each replica of this broker, by a LeaderAndIsr, and the answer names
those that cannot be served. A log that failed takes no more writes before the broker is started
again, when it is recovered; one whose disk was full does when there is room, and the controller is
told again, so that it asks again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import attrs

from broker.replication.partition import Partition
from broker.zk_retry import retry_until_connected
from protocol.topic_partition import TopicPartition
from zk.admin_znodes import LogDirEvent
from zk.api import ZkError, ZkSession
from zk.failures import is_transient

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class LogFailures:
    """Reports for broker `broker_id`."""

    zk: ZkSession
    broker_id: int
    _told: set[TopicPartition] = attrs.field(factory=set)
    _has_room: bool = False

    def has_room(self) -> None:
        """A disk that was full is not: what failed for it may be served again."""
        self._has_room = True

    async def report(self, partitions: Iterable[Partition]) -> None:
        """Tell of what has failed since the last call, and of what has not any more. To be called
        every second or so: what could not be told is told with the next call."""
        failed = {each.topic_partition for each in partitions if each.is_failed}
        has_room, self._has_room = self._has_room, False
        if failed - self._told or has_room:
            try:
                await self._tell()
            except ZkError as error:
                self._has_room |= has_room
                level = logging.INFO if is_transient(error) else logging.ERROR
                logger.log(level, "the controller is told of failed logs later: %r", error)
                return
        self._told = failed

    async def _tell(self) -> None:
        data = LogDirEvent(self.broker_id).encode()
        await retry_until_connected(
            self.zk, lambda: self.zk.create(LogDirEvent.prefix(), data, sequence=True)
        )
