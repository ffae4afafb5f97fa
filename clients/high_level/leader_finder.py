"""Finds the leaders of partitions that are to be fetched, for as long as it takes.

That a partition has no leader, or that no broker is up, never fails a rebalance: the partition is
owned, and is fetched once somebody leads it. And since a leader that is cut off from the others may
go on answering, what is fetched is looked up again every metadata.max.age.ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable

import attrs

from clients.cluster import Cluster
from clients.errors import ClientError
from clients.high_level.streams import PartitionFeed
from protocol.errors import ApiError

_log = logging.getLogger(__name__)

LEADERLESS_S = 30.0
"""An election takes as long as the session of a broker that is gone; what takes longer is told."""

MAX_NAMED = 3


@attrs.define(eq=False)
class LeaderFinder:
    """`lead` is told (broker id, feed) of each leader found; `owned` gives all live feeds."""

    cluster: Cluster
    lead: Callable[[int, PartitionFeed], None]
    backoff_ms: int
    max_age_ms: int
    owned: Callable[[], Iterable[PartitionFeed]] = tuple
    _complaint: str = ""
    _leaderless_since: float | None = None
    _leaderless: list[PartitionFeed] = attrs.field(factory=list)
    _wanted: asyncio.Event = attrs.field(factory=asyncio.Event)

    def add(self, feeds: Iterable[PartitionFeed]) -> None:
        """Find leaders for these."""
        self._leaderless += feeds
        self._wanted.set()

    async def run(self) -> None:
        """Look whenever a feed wants a leader, `backoff_ms` apart, and every `max_age_ms`."""
        while True:
            await self._wait()
            try:
                await self._find()
                self._note_leaderless(asyncio.get_running_loop().time())
            except (ClientError, ApiError) as error:
                self._complain(f"cannot look up leaders: {error}")
            if not self._leaderless:
                self._wanted.clear()
            await asyncio.sleep(self.backoff_ms / 1000)

    def _note_leaderless(self, now: float) -> None:
        """Complain of partitions that have no leader for long."""
        if not self._leaderless:
            self._leaderless_since, self._complaint = None, ""
        elif self._leaderless_since is None:
            self._leaderless_since = now
        elif now - self._leaderless_since >= LEADERLESS_S:
            names = [str(feed.partition) for feed in self._leaderless]
            more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
            self._complain(f"nobody leads {', '.join(names[:MAX_NAMED])}{more}")

    def _complain(self, complaint: str) -> None:
        """Once, however often it is tried in vain."""
        if complaint != self._complaint:
            _log.warning("%s", complaint)
        self._complaint = complaint

    async def _wait(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.max_age_ms / 1000):
                await self._wanted.wait()
                return
        self.cluster.ask_another()  # who is cut off does not know it

    async def _find(self) -> None:
        self._leaderless = [feed for feed in self._leaderless if feed.live]
        topics = {feed.partition.topic for feed in (*self._leaderless, *self.owned())}
        if not topics:  # and metadata of no topics would be metadata of all
            return
        await self.cluster.refresh(topics)
        self._lead_leaderless()
        self._follow_leaders()

    def _follow_leaders(self) -> None:
        for feed in self.owned():
            leader = self.cluster.view.leaders.get(feed.partition, -1)
            if feed.leader not in (None, leader) and leader in self.cluster.brokers:
                _log.info("%s: broker %d leads it now", feed.partition, leader)
                self.lead(leader, feed)

    def _lead_leaderless(self) -> None:
        feeds, self._leaderless = self._leaderless, []
        for feed in feeds:
            leader = self.cluster.view.leaders.get(feed.partition, -1)
            if not feed.live:
                continue
            if leader in self.cluster.brokers:
                self.lead(leader, feed)
            else:
                self._leaderless.append(feed)
