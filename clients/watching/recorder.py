"""Write what all groups of a cluster commit to a file, round by round."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import attrs

from clients.command_line.sessions import Sessions
from clients.watching.group_watch import GroupWatch
from clients.watching.history_file import KEEP_MS, HistoryFile
from clients.watching.zookeeper_watch import ZooKeeperWatch

TRIM_ROUNDS = 60
"""Rounds between two looks at what is too old."""


def open_history(path: Path, cluster_id: str | None, keep_ms: int = KEEP_MS) -> HistoryFile:
    """Open a cluster's history to write, and make its directory. Raises HistoryUnreadable."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = HistoryFile(path, keep_ms=keep_ms)
    try:
        file.require_cluster(cluster_id, claims=True)
    except BaseException:
        file.close()
        raise
    return file


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@attrs.define(eq=False)
class Recorder:
    """Watches all groups and writes what is new; `look` is one round."""

    sessions: Sessions
    file: HistoryFile
    now_ms: Callable[[], int] = _now_ms
    watch: GroupWatch = attrs.field(init=False)
    _began_ms: int | None = None
    _rounds: int = 0

    def __attrs_post_init__(self) -> None:
        self.watch = GroupWatch(
            self.sessions.admin,
            since_ms=self.now_ms() - self.file.keep_ms,
            zookeeper=ZooKeeperWatch(self.sessions) if self.sessions.zk else None,
        )

    async def look(self) -> None:
        """Read what is new, and write it. Raises KgroupError if no broker can be asked."""
        former = self.watch.logs
        await self.watch.refresh()
        # Like the times of commits, which are in the same file.
        now_ms = self.watch.brokers_time_ms
        if self._began_ms is None:
            since_ms = max(self.watch.records.complete_since_ms.values(), default=0)
            self._began_ms = min(now_ms, since_ms) if self.watch.is_tailing else now_ms
        ends = {
            partition: log.records_end
            for partition, log in self.watch.logs.items()
            if log.records_end is not None and former.get(partition) != log
        }
        self.file.append(self.watch.new_commits, ends, now_ms, began_ms=self._began_ms)
        if self._rounds % TRIM_ROUNDS == 0:
            self.file.trim(now_ms)
        self._rounds += 1
