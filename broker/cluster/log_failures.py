"""Report failed logs to the controller, so that other replicas take over.

The controller then sends a LeaderAndIsr for each replica of this broker, and the response names
those that cannot be served. A failed log takes no more writes before the broker is started again,
when it is recovered. A log whose disk was full takes writes once there is room; then the controller
gets another report, so that it asks again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import attrs

from broker.process.zk_retry import retry_until_connected
from broker.replication.partition import Partition
from protocol.topic_partition import TopicPartition
from zk.admin_znodes import LogDirEvent
from zk.api import ZkError, ZkSession
from zk.failures import is_transient

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class LogFailures:
    """Reports the failed logs of broker `broker_id`."""

    zk: ZkSession
    broker_id: int
    _reported: set[TopicPartition] = attrs.field(factory=set)
    _has_room: bool = False

    def note_room(self) -> None:
        """Report again: a disk that was full has room, and its logs may be served again."""
        self._has_room = True

    async def report(self, partitions: Iterable[Partition]) -> None:
        """Report logs that failed since the last call, and logs that work again.

        Call this every second or so. A report that cannot be written is repeated with the next
        call.
        """
        failed = {partition.topic_partition for partition in partitions if partition.is_failed}

        # Taken before the write, so that room noted meanwhile makes another report.
        has_room = self._has_room
        self._has_room = False
        if failed - self._reported or has_room:
            try:
                await self._notify_controller()
            except ZkError as error:
                # Both are reported with the next call: `_reported` stays as it is.
                self._has_room |= has_room
                level = logging.INFO if is_transient(error) else logging.ERROR
                logger.log(level, "failed logs are reported to the controller later: %r", error)
                return
        self._reported = failed

    async def _notify_controller(self) -> None:
        # The event names only the broker; the controller asks which logs failed.
        data = LogDirEvent(self.broker_id).encode()
        await retry_until_connected(
            self.zk, lambda: self.zk.create(LogDirEvent.prefix(), data, sequence=True)
        )
