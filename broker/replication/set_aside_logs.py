"""Remove logs of earlier topics that were set aside long ago, if ZooKeeper still calls them so.

A log may have been set aside by a mistake: it was told by a guess, because ZooKeeper did not
answer, or it had no identity; or ZooKeeper was restored since. So the topics are read again before
a log goes. What is not certain stays, and is named in the broker's log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import attrs

from broker.replication.topic_identities import Read
from core_log.log_manager import LogManager
from core_log.log_work import LogWork
from core_log.set_aside import SetAsideLog
from zk.api import ZkError

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class SetAsideLogs:
    """Removes logs that were set aside, and names each that must stay once."""

    logs: LogManager
    read: Read
    work: LogWork
    now_ms: Callable[[], int]
    _kept: set[str] = attrs.field(factory=set)

    async def remove_due(self) -> None:
        """Remove the logs whose time is over; call it regularly."""
        due = await self.work.in_thread(partial(self.logs.find_set_aside, self.now_ms()))
        if not due:
            return
        try:
            topics = await self.read(sorted({log.topic_partition.topic for log in due}))
        except ZkError as error:
            logger.warning("%d logs that were set aside stay for now: %r", len(due), error)
            return

        # Nobody may miss them, also if they were set aside by a mistake (fault core-R1, was: due).
        removable = [
            log
            for log in due
            if log.may_be_removed(
                topics.get(log.topic_partition.topic),
                has_successor=log.topic_partition in self.logs.logs,
            )
        ]
        self._report([log for log in due if log not in removable])
        await self.work.in_thread(partial(self.logs.remove_set_aside, removable))

    def _report(self, kept: list[SetAsideLog]) -> None:
        for log in kept:
            if log.name not in self._kept:
                self._kept.add(log.name)
                logger.warning(
                    "%s/%s stays: it may be of the topic that has the name %s now, whose partition "
                    "may lack its records; remove it if nobody needs it, or take it back",
                    log.path,
                    log.name,
                    log.topic_partition.topic,
                )
