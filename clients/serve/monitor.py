"""Keep what the metrics and the page show: groups, lags over time, and how old all of it is."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from clients.command_line.output import Failure
from clients.command_line.sessions import Sessions
from clients.errors import KgroupError
from clients.first_timestamps import may_not_read, read_first_records
from clients.groups.group_facts import LogOffsets
from clients.groups.group_view import total_lag
from clients.groups.lag import lag_of, next_offset
from clients.groups.partition_rounds import partition_rounds
from clients.groups.recorded_groups import RecordedGroup, RecordedOffset
from clients.serve.snapshot import Item, group_item, lag_over_time, partition_items
from clients.serve.unread_times import Consumer, Place, UnreadTimes
from clients.watching.commit_history import (
    Commit,
    Owners,
    in_order,
    owners_of,
)
from clients.watching.group_watch import MAX_REQUESTS_PER_SECOND
from clients.watching.health import WINDOW_MS, health_items
from clients.watching.history import history_place
from clients.watching.history_file import HistoryUnreadable
from clients.watching.recorder import Recorder, open_history
from clients.watching.zookeeper_watch import GroupInZooKeeper
from offsets.records import GroupMetadata
from protocol.topic_partition import TopicPartition
from zk.api import SessionState

logger = logging.getLogger(__name__)

MAX_TIME_LAGS = 1000
"""Places whose first unread record is read in a look, at most."""
MAX_LAYERS = 16
"""Places in one partition that are asked for in a look, at most: each takes a request."""
SLICE = 500
"""Groups that are looked at in one turn of the loop, at most."""
TREND_POINTS = 60
LAG_POINTS = 120
MAX_LOGGED = 3
"""Failures of a look that are logged, at most."""


@attrs.define(eq=False)
class Monitor:
    """Looks at a cluster again and again; what it could not read stays, and gets older."""

    sessions: Sessions
    data: Path | None
    keep_ms: int
    interval_s: float
    max_requests_per_second: int = MAX_REQUESTS_PER_SECOND
    cluster_id: str = ""
    error: str | None = "not read yet"
    """Why the last look failed."""
    commits_total: Counter[str] = attrs.field(factory=Counter)
    """Commits of each group since the start."""
    recorder: Recorder | None = None
    _trends: dict[str, deque[int]] = attrs.field(factory=dict)
    _owners: dict[str, tuple[GroupMetadata | None, Owners]] = attrs.field(factory=dict)
    _unread: UnreadTimes = attrs.field(factory=UnreadTimes)
    _health: tuple[int, list[Item]] = (-1, [])
    _judging: asyncio.Lock = attrs.field(factory=asyncio.Lock)
    _failing: frozenset[str] = frozenset()
    """What the last look could not read."""

    async def run(self) -> None:
        """Look until the task is cancelled."""
        while True:
            try:
                await self.look()
            except (KgroupError, HistoryUnreadable) as error:
                self.error = str(error)
            except Exception as error:
                # A full disk, or a bug: what is shown gets older, and has to say so.
                logger.exception("a look at the cluster failed")
                self.error = f"{type(error).__name__}: {error}"
            self._log_failures()
            await asyncio.sleep(self.interval_s)

    async def look(self) -> None:
        """Read what is new. Raises KgroupError."""
        if self.recorder is None:
            path, cluster_id = await history_place(self.sessions.admin, self.data)
            self.cluster_id = cluster_id or ""
            file = open_history(path, cluster_id, self.keep_ms)
            self.recorder = Recorder(self.sessions, file)
            self.recorder.watch.max_requests_per_second = self.max_requests_per_second

        is_first = not self.read_at_ms
        await self.recorder.look()
        self.error = None
        watch = self.recorder.watch
        if not is_first:
            self.commits_total.update(commit.group for commit in watch.new_commits)
        await self._read_unread()

        # What is kept of a group goes with it.
        for kept in (self._trends, self._owners, self.commits_total):
            for group_id in kept.keys() - watch.groups.keys():
                del kept[group_id]
        async for group_id in in_slices(watch.groups):
            trend = self._trends.setdefault(group_id, deque(maxlen=TREND_POINTS))
            trend.append(total_lag(self.partitions(group_id)))

    def _log_failures(self) -> None:
        """Log what fails from this look on, or that nothing fails any more."""
        failures = {failure.what: failure for failure in self.failures}
        begin = [failure for what, failure in failures.items() if what not in self._failing]
        if begin:
            texts = [f"{failure.what}: {failure.message}" for failure in begin[:MAX_LOGGED]]
            if len(begin) > MAX_LOGGED:
                texts.append(f"and {len(begin) - MAX_LOGGED} more")
            logger.warning("%s; trying again every %g s", "; ".join(texts), self.interval_s)
        if self._failing and not failures:
            logger.warning("everything is read again")
        self._failing = frozenset(failures)

    def close(self) -> None:
        """Close the file."""
        if self.recorder is not None:
            self.recorder.file.close()

    async def _read_unread(self) -> None:
        """Find out when the first unread record of partitions with lag was written."""
        assert self.recorder is not None
        watch = self.recorder.watch
        lagging: dict[Consumer, Place] = {}
        for group_id, group in watch.groups.items():
            for partition, committed in group.offsets.items():
                log = watch.logs.get(partition, LogOffsets())
                start = next_offset(committed.offset, log)
                if start is not None and lag_of(committed.offset, log).behind_if_assigned:
                    lagging[group_id, partition] = partition, start
        self._unread.keep(lagging, watch.logs)

        for asked in partition_rounds(self._unread.choose(lagging, MAX_TIME_LAGS, MAX_LAYERS)):
            found = await read_first_records(self.sessions.admin.cluster, asked)
            self._unread.note(asked, found, watch.logs)

    # --- what is shown -------------------------------------------------------------------------

    @property
    def groups(self) -> dict[str, RecordedGroup]:
        """Return all groups; none before the first look."""
        return self.recorder.watch.groups if self.recorder else {}

    @property
    def read_at_ms(self) -> int:
        """Return when the groups were read; 0 before the first look."""
        return self.recorder.watch.read_at_ms if self.recorder else 0

    @property
    def brokers_time_ms(self) -> int:
        """Return when the groups were read, by the brokers' clocks, as times of commits are."""
        return self.recorder.watch.brokers_time_ms if self.recorder else 0

    @property
    def failures(self) -> list[Failure]:
        """Return what does not respond now."""
        if self.error is not None:
            return [Failure("cluster", "NotRead", self.error)]
        failures = self.recorder.watch.failures if self.recorder else []
        unread = [
            Failure.of(f"lags in time of {error.detail}", error)
            for error in may_not_read(self._unread.refused)
        ]
        return [*failures, *unread]

    @property
    def is_zookeeper_up(self) -> bool | None:
        """True while there is a connection to ZooKeeper; None if none was given."""
        zk = self.sessions.zk
        return None if zk is None else zk.state is SessionState.CONNECTED

    def owners(self, group_id: str) -> Owners:
        """Return who owns each partition of a group."""
        in_zookeeper = self._in_zookeeper(group_id)
        if in_zookeeper is not None:
            return in_zookeeper.owners
        metadata = self.groups[group_id].metadata
        known = self._owners.get(group_id)
        if known is None or known[0] is not metadata:
            known = self._owners[group_id] = (metadata, owners_of(metadata))
        return known[1]

    def subscribed_topics(self, group_id: str) -> frozenset[str] | None:
        """Return the topics that a group's members subscribe to; None if it is not known."""
        assert self.recorder is not None
        consumed = self.recorder.watch.consumed(group_id)
        return None if consumed is None else consumed.topics

    def _in_zookeeper(self, group_id: str) -> GroupInZooKeeper | None:
        """Return a group whose members are in ZooKeeper, or were last."""
        zookeeper = self.recorder.watch.zookeeper if self.recorder else None
        known = zookeeper.groups.get(group_id) if zookeeper else None
        return known if known and known.facts.coordination == "zookeeper" else None

    def partitions(self, group_id: str) -> list[Item]:
        """Return the items of a group's partitions."""
        assert self.recorder is not None
        return partition_items(
            group_id,
            self.groups[group_id],
            self.owners(group_id),
            self.recorder.watch.logs,
            self._unread.since_ms,
            self.brokers_time_ms,
            self.subscribed_topics(group_id),
        )

    async def group_items(self) -> list[tuple[Item, list[Item]]]:
        """Return each group's item, and those of its partitions."""
        items = []
        async for group_id in in_slices(sorted(self.groups)):
            # A look may have found that the group is gone.
            if group_id not in self.groups:
                continue
            partitions = self.partitions(group_id)
            trend = self._trends.get(group_id, ())
            item = group_item(group_id, self.groups[group_id], partitions, list(trend))
            in_zookeeper = self._in_zookeeper(group_id)
            if in_zookeeper is not None:
                facts = in_zookeeper.facts
                item |= {
                    "coordination": facts.coordination,
                    "state": facts.state,
                    "members": len(facts.members),
                }
            item["read_at_ms"] = self.read_at_ms
            if self.recorder and not self.recorder.watch.is_tailing:
                item["read_at_ms"] = self.recorder.watch.group_read_at_ms.get(
                    group_id, self.read_at_ms
                )
            items.append((item, partitions))
        return items

    async def health(self) -> list[Item]:
        """Return the verdicts on all groups, from the commits that are recorded."""
        if self.recorder is None:
            return []
        async with self._judging:
            if self._health[0] != self.read_at_ms:
                # The thread gets copies of what the next look changes.
                read_at_ms, logs = self.read_at_ms, self.recorder.watch.logs
                offsets = {
                    group_id: dict(group.offsets) for group_id, group in sorted(self.groups.items())
                }
                subscribed = {group_id: self.subscribed_topics(group_id) for group_id in offsets}
                watch = self.recorder.watch
                unowned, owned = watch.unowned, watch.owned(offsets)
                items = await asyncio.to_thread(
                    self._judge, offsets, logs, subscribed, unowned, owned, self.brokers_time_ms
                )
                self._health = (read_at_ms, items)
            return self._health[1]

    def _judge(
        self,
        offsets: Mapping[str, Mapping[TopicPartition, RecordedOffset]],
        logs: Mapping[TopicPartition, LogOffsets],
        subscribed: Mapping[str, frozenset[str] | None],
        unowned: Mapping[str, frozenset[TopicPartition]],
        owned: Mapping[str, Collection[TopicPartition]],
        now_ms: int,
    ) -> list[Item]:
        """Judge groups by their commits in the file: by the last ones of each partition."""
        assert self.recorder is not None
        unread_since_ms, items = self._unread.since_ms, []
        for group_id, own in offsets.items():
            newest_place = _newest_place(own)
            commits = [
                commit
                for partition, last in own.items()
                for commit in in_order(
                    self.recorder.file.commits_of_partition(
                        group_id, partition, last.committed_at_ms - 2 * WINDOW_MS
                    ),
                    newest_place,
                )
            ]
            unread = {
                partition: since_ms
                for partition, last in own.items()
                if (start := next_offset(last.offset, logs.get(partition, LogOffsets())))
                is not None
                and (since_ms := unread_since_ms.get((partition, start))) is not None
            }
            items += health_items(
                group_id,
                commits,
                logs,
                now_ms,
                WINDOW_MS,
                unread,
                subscribed[group_id],
                unowned.get(group_id, frozenset()),
                owned.get(group_id, ()),
            )
        return items

    def lag_items(self, group_id: str, since_ms: int) -> list[dict[str, Any]]:
        """Return the lag of a group at times from `since_ms` to now. A thread may call it."""
        if self.recorder is None:
            return []
        file = self.recorder.file
        group = self.groups.get(group_id)
        subscribed = None if group is None else self.subscribed_topics(group_id)
        commits: dict[TopicPartition, list[Commit]] = {}
        newest_place = _newest_place(group.offsets) if group is not None else -1
        for commit in in_order(file.commits(group_id), newest_place):
            if subscribed is not None and commit.topic not in subscribed:
                continue
            commits.setdefault(commit.topic_partition, []).append(commit)
        ends = {partition: file.ends(partition) for partition in commits}
        step_ms = max((self.brokers_time_ms - since_ms) // LAG_POINTS, 1)
        times = list(range(since_ms + step_ms, self.brokers_time_ms + 1, step_ms))
        lags = lag_over_time(commits, ends, times)
        return [{"at_ms": at_ms, "lag": lag} for at_ms, lag in zip(times, lags, strict=True)]


def _newest_place(offsets: Mapping[TopicPartition, RecordedOffset]) -> int:
    return max((committed.log_offset for committed in offsets.values()), default=-1)


async def in_slices(group_ids: Iterable[str]) -> AsyncIterator[str]:
    """Yield groups, and let others have a turn of the loop after SLICE of them."""
    for number, group_id in enumerate(list(group_ids), start=1):
        yield group_id
        if number % SLICE == 0:
            await asyncio.sleep(0)


def now_ms() -> int:
    """Return the time of the wall clock."""
    return time.time_ns() // 1_000_000
